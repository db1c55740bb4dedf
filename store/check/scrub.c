// Reading again, piece by piece and beside everything else, what is never written again: the
// records of sealed generations and of snapshots' copies. A disk that loses bits of them would be
// noticed by nobody else.
//
// Everything is read with pread (page_reader.h) and nothing through the map: a bad sector or a
// broken page is a finding here, where it would be a signal there. LMDB only lends a read
// transaction, so that no writer uses the pages of its commit again while a piece is read.
//
// meta "scrub" (bytes), little-endian:
//   0 passes u64   8 end of the last pass, ms u64   16 its records u64   24 its bytes u64   32 its
//                  findings u64
//   40 beginning of the present one, ms u64   48 its records u64   56 its bytes u64   64 its
//                                             findings u64
//   72 the key from which it continues, as in `sums`; none at the beginning
#include "store_internal.h"

#include "page_reader.h"
#include "reef_byte_order.h"
#include "reef_pool_check.h"

#include <stdlib.h>
#include <string.h>

#define SCRUB_BYTES 72     // before the key
#define NODES_MAX 4096     // checked by one piece, hashed or not
#define STOP REEF_ERR_BUSY // ends a walk; never leaves this file
#define SEALED_AT 20       // of a generation's payload, see generation_record.c

static const reef_key scrub_key = {.db = REEF_DB_META, .name = "scrub"};

// ---- the record ---------------------------------------------------------------------------------

reef_status reef_scrub_put(reef_txn *txn, const reef_scrub *scrub, reef_error *err) {
    uint8_t bytes[SCRUB_BYTES + REEF_SCRUB_KEY_BYTES];
    const uint64_t fields[] = {scrub->passes,     scrub->last_ms,      scrub->last_records,
                               scrub->last_bytes, scrub->last_damaged, scrub->began_ms,
                               scrub->records,    scrub->bytes,        scrub->damaged};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        reef_put_le64(bytes + 8 * i, fields[i]);
    memcpy(bytes + SCRUB_BYTES, scrub->next, scrub->next_bytes);
    return reef_record_put(txn, &scrub_key, REEF_BYTES, bytes, SCRUB_BYTES + scrub->next_bytes,
                           err);
}

reef_status reef_scrub_read(reef_txn *txn, reef_scrub *out, reef_error *err) {
    reef_view view;
    *out = (reef_scrub){0};
    reef_status status = reef_record_view(txn, &scrub_key, &view, err);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    // The key to continue from follows the fixed fields, and is empty between two passes.
    if (view.bytes < SCRUB_BYTES || view.bytes > SCRUB_BYTES + REEF_SCRUB_KEY_BYTES)
        return reef_fail(err, REEF_ERR_CORRUPT, "meta (name scrub) has %zu bytes", view.bytes);
    const uint8_t *bytes = view.data;
    *out = (reef_scrub){.passes = reef_get_le64(bytes),
                        .last_ms = reef_get_le64(bytes + 8),
                        .last_records = reef_get_le64(bytes + 16),
                        .last_bytes = reef_get_le64(bytes + 24),
                        .last_damaged = reef_get_le64(bytes + 32),
                        .began_ms = reef_get_le64(bytes + 40),
                        .records = reef_get_le64(bytes + 48),
                        .bytes = reef_get_le64(bytes + 56),
                        .damaged = reef_get_le64(bytes + 64),
                        .next_bytes = view.bytes - SCRUB_BYTES};
    memcpy(out->next, bytes + SCRUB_BYTES, out->next_bytes);
    return REEF_OK;
}

// ---- one piece ----------------------------------------------------------------------------------

typedef struct piece {
    reef_scrub *scrub;
    reef_pages pages;
    uint64_t roots[REEF_DB_COUNT];
    uint8_t *sealed; // (REEF_GENERATION_COUNT_MAX) of numbers below snapshots' copies
    uint64_t bytes, bytes_max, nodes;
    reef_db db; // that is walked
    void (*on_damage)(void *context, const reef_key *key, const char *what);
    void *context;
} piece;

static void damage(piece *p, const reef_key *key, const char *what) {
    p->scrub->damaged++;
    p->on_damage(p->context, key, what);
}

static reef_status on_database(void *context,
                               reef_pages *pages,
                               const reef_page_node *node,
                               reef_error *err) {
    piece *p = context;
    (void)pages, (void)err;
    reef_db db = reef_db_named(node->key, node->key_bytes);
    // A damaged entry is left out: its database counts as empty, and a full check reports it.
    if (db < REEF_DB_COUNT && node->value_bytes == TREE_BYTES)
        p->roots[db] = reef_get_le64(node->value + 40);
    return REEF_OK;
}

static reef_status on_generation(void *context,
                                 reef_pages *pages,
                                 const reef_page_node *node,
                                 reef_error *err) {
    piece *p = context;
    (void)pages, (void)err;
    // A record that does not parse counts as open, and a full check reports it.
    if (node->key_bytes != 4 || (node->flags & NODE_BIG) ||
        node->value_bytes < REEF_RECORD_HEADER_BYTES + SEALED_AT + 4)
        return REEF_OK;
    uint32_t number = reef_get_be32(node->key);
    if (number < REEF_GENERATION_COUNT_MAX)
        p->sealed[number] = reef_get_le32(node->value + REEF_RECORD_HEADER_BYTES + SEALED_AT) != 0;
    return REEF_OK;
}

static bool is_sealed(const piece *p, uint32_t generation) {
    if (generation >= REEF_SNAPSHOT_GENERATION) return true;
    return generation < REEF_GENERATION_COUNT_MAX && p->sealed[generation];
}

// The entry of `sums`: the first one that is not below its key.
typedef struct wanted {
    uint8_t key[REEF_SUM_KEY_BYTES_MAX];
    size_t key_bytes;
    bool found;
    uint64_t commit;
    uint8_t content[REEF_HASH_BYTES];
} wanted;

static reef_status on_sum(void *context,
                          reef_pages *pages,
                          const reef_page_node *node,
                          reef_error *err) {
    wanted *w = context;
    (void)pages, (void)err;
    w->found = node->key_bytes == w->key_bytes && memcmp(node->key, w->key, w->key_bytes) == 0 &&
               node->value_bytes == REEF_SUM_BYTES && !(node->flags & NODE_BIG);
    if (!w->found) return STOP;
    w->commit = reef_get_le64(node->value);
    memcpy(w->content, node->value + 8, REEF_HASH_BYTES);
    return STOP;
}

static reef_status compare_sum(piece *p,
                               const reef_key *key,
                               const reef_key_bytes *encoded,
                               const reef_view *view,
                               const uint8_t content[REEF_HASH_BYTES],
                               reef_error *err) {
    // In sums the number of the database comes before the key.
    wanted w = {.key = {(uint8_t)p->db}, .key_bytes = 1 + encoded->bytes};
    memcpy(w.key + 1, encoded->data, encoded->bytes);
    reef_status status =
        reef_pages_walk(&p->pages, p->roots[REEF_DB_SUMS], w.key, w.key_bytes, on_sum, &w, err);
    if (status != REEF_OK && status != STOP) return status;
    char text[REEF_KEY_TEXT_BYTES];
    reef_key_format(key, text);
    if (!w.found)
        return reef_fail(err, REEF_ERR_CORRUPT, "%s: the record has no entry in sums", text);
    if (w.commit == view->commit && memcmp(w.content, content, REEF_HASH_BYTES) == 0)
        return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT, "%s: the record differs from its entry in sums", text);
}

static void scrub_record(piece *p, const reef_key *key, const reef_page_node *node) {
    reef_error reason = {.status = REEF_OK};
    reef_key_bytes encoded;
    reef_view view;
    uint8_t content[REEF_HASH_BYTES];
    const uint8_t *value;
    uint8_t *buffer = NULL;
    reef_status status = reef_key_encode(key, &encoded, &reason);
    if (status == REEF_OK) status = reef_pages_value(&p->pages, node, &value, &buffer, &reason);
    if (status == REEF_OK)
        status =
            reef_record_parse(key, &encoded, value, node->value_bytes, &view, content, &reason);
    if (status == REEF_OK) status = compare_sum(p, key, &encoded, &view, content, &reason);
    free(buffer);
    // Damaged ones count as well: the pass advances and keeps its rate.
    p->scrub->records++;
    p->scrub->bytes += node->value_bytes;
    p->bytes += node->value_bytes;
    if (status != REEF_OK) damage(p, key, reason.message);
}

// Where to continue: behind this key, or at the first key of a later generation.
static void go_on_behind(piece *p, const reef_page_node *node) {
    reef_scrub *scrub = p->scrub;
    scrub->next[0] = (uint8_t)p->db;
    memcpy(scrub->next + 1, node->key, node->key_bytes);
    scrub->next[1 + node->key_bytes] = 0; // the least key that is greater
    scrub->next_bytes = 2 + node->key_bytes;
}

static void go_on_at(piece *p, uint32_t generation) {
    p->scrub->next[0] = (uint8_t)p->db;
    reef_put_be32(p->scrub->next + 1, generation);
    p->scrub->next_bytes = 5;
}

static reef_status on_record(void *context,
                             reef_pages *pages,
                             const reef_page_node *node,
                             reef_error *err) {
    piece *p = context;
    reef_key key;
    char name[REEF_NAME_BYTES_MAX + 1];
    (void)pages;
    if (p->bytes >= p->bytes_max || p->nodes++ >= NODES_MAX) return STOP;
    reef_status status = reef_key_decode(p->db, node->key, node->key_bytes, &key, name, err);
    if (status != REEF_OK) return status; // ends the walk of this database
    // The open generation is rewritten by commits, so scrubbing it would prove little.
    if (!is_sealed(p, key.generation)) {
        go_on_at(p, key.generation + 1);
        return STOP;
    }
    scrub_record(p, &key, node);
    go_on_behind(p, node);
    return REEF_OK;
}

// ---- the walk -----------------------------------------------------------------------------------

static void end_pass(reef_scrub *scrub, uint64_t unix_ms) {
    // Without a sealed generation there is nothing to read, and no pass to report.
    if (scrub->records > 0) {
        scrub->passes++;
        scrub->last_ms = unix_ms;
        scrub->last_records = scrub->records;
        scrub->last_bytes = scrub->bytes;
        scrub->last_damaged = scrub->damaged;
    }
    scrub->began_ms = scrub->records = scrub->bytes = scrub->damaged = 0;
    scrub->next_bytes = 0;
}

static void walk_piece(piece *p, uint64_t unix_ms) {
    reef_scrub *scrub = p->scrub;
    if (scrub->began_ms == 0) scrub->began_ms = unix_ms;
    for (p->db = scrub->next_bytes > 0 ? scrub->next[0] : 0; p->db < REEF_DB_COUNT; p->db++) {
        if (!reef_db_in_generation(p->db)) continue;
        reef_status status = STOP;
        while (status == STOP && p->bytes < p->bytes_max && p->nodes < NODES_MAX) {
            reef_error reason;
            // Only the database in which the last piece ended continues at a key.
            bool here = scrub->next_bytes > 0 && scrub->next[0] == (uint8_t)p->db;
            uint8_t from[REEF_SCRUB_KEY_BYTES];
            size_t from_bytes = here ? scrub->next_bytes - 1 : 0;
            if (here) memcpy(from, scrub->next + 1, from_bytes);
            status = reef_pages_walk(&p->pages, p->roots[p->db], from, from_bytes, on_record, p,
                                     &reason);
            // Behind a broken page or key of a tree nothing can be found: the next database.
            if (status != REEF_OK && status != STOP) damage(p, NULL, reason.message);
        }
        if (status == STOP) return; // enough for one piece
        scrub->next[0] = (uint8_t)(p->db + 1);
        scrub->next_bytes = 1;
    }
    end_pass(scrub, unix_ms);
}

reef_status reef_store_scrub(reef_store *store,
                             reef_scrub *scrub,
                             uint64_t bytes_max,
                             uint64_t unix_ms,
                             void (*on_damage)(void *context,
                                               const reef_key *key,
                                               const char *what),
                             void *context,
                             uint64_t *bytes,
                             reef_error *err) {
    reef_txn *txn = NULL;
    piece p = {.scrub = scrub, .bytes_max = bytes_max, .on_damage = on_damage, .context = context};
    for (reef_db db = 0; db < REEF_DB_COUNT; db++) p.roots[db] = TREE_EMPTY;
    *bytes = 0;
    reef_status status = reef_pages_open(&p.pages, reef_environment_path(store->environment), err);
    // A read transaction keeps the pages of this commit from reuse while the file is read.
    if (status == REEF_OK) status = reef_pages_pin(&p.pages, store, &txn, err);
    if (status == REEF_OK) {
        p.sealed = calloc(REEF_GENERATION_COUNT_MAX, 1);
        if (p.sealed == NULL) status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a scrub");
    }
    reef_page_tree tree;
    reef_page_tree_parse(p.pages.main_tree, &tree);
    if (status == REEF_OK)
        status = reef_pages_walk(&p.pages, tree.root, NULL, 0, on_database, &p, err);
    if (status == REEF_OK)
        status = reef_pages_walk(&p.pages, p.roots[REEF_DB_GENERATIONS], NULL, 0, on_generation, &p,
                                 err);
    // Which generations are sealed is known now; only their records are scrubbed.
    if (status == REEF_OK) walk_piece(&p, unix_ms);
    reef_txn_abort(txn);
    free(p.sealed);
    reef_pages_close(&p.pages);
    *bytes = p.bytes;
    return status;
}
