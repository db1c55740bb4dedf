// Blocks of context memories, which their states share. A state has lists of them:
//
//   memory (generation, NAME, n), or visits (holder, kind, NAME, n), a list in pieces
//     "text blocks"   names of full blocks of text, 16 bytes each
//     "slices", "log" pairs of u64; the second is the number of a block, or 0
//
//   text (name in hexadecimal digits)   a block of text, which never changes
//   blocks (number)                     one of a table or of a log
//
// The number of a block has the commit that it was born with in its upper bits. A block that was
// born after every list but the present one was copied is written over in place; another one is
// left to these lists, and its successor is born. So a snapshot, a seal, or a kind that comes back
// copies lists alone. What no list names any more is removed when states are.
#include "store_internal.h"

#include "reef_byte_order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

reef_key reef_text_key(const uint8_t name[REEF_HASH_BYTES], char hex[REEF_TEXT_HEX_BYTES]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < REEF_HASH_BYTES; i++) {
        hex[2 * i] = digits[name[i] >> 4];
        hex[2 * i + 1] = digits[name[i] & 15];
    }
    hex[REEF_TEXT_HEX_BYTES - 1] = '\0';
    return (reef_key){.db = REEF_DB_TEXT, .name = hex};
}

reef_key reef_block_key(uint64_t number) {
    return (reef_key){.db = REEF_DB_BLOCKS, .sequence = number};
}

#define BORN_BITS 24 // blocks of one commit

static bool is_shared(uint64_t number, uint64_t shared_to) {
    return number >> BORN_BITS <= shared_to;
}

reef_status reef_block_put(reef_txn *txn,
                           uint64_t *number,
                           uint64_t shared_to,
                           const void *payload,
                           size_t bytes,
                           reef_error *err) {
    uint64_t now = *number;
    if (now == 0 || is_shared(now, shared_to)) {
        if (++txn->blocks_born >> BORN_BITS != 0)
            return reef_fail(err, REEF_ERR_INVALID, "more blocks than a commit can have");
        now = txn->commit << BORN_BITS | txn->blocks_born;
    }
    const reef_key key = reef_block_key(now);
    reef_status status = reef_record_put(txn, &key, REEF_BYTES, payload, bytes, err);
    if (status == REEF_OK) *number = now;
    return status;
}

reef_status reef_block_drop(reef_txn *txn, uint64_t number, uint64_t shared_to, reef_error *err) {
    const reef_key key = reef_block_key(number);
    return is_shared(number, shared_to) ? REEF_OK : reef_record_delete(txn, &key, err);
}

uint64_t reef_blocks_now(const reef_txn *txn) {
    return txn->commit;
}

// ---- lists --------------------------------------------------------------------------------------

// What lists name: text by name, blocks by number, in order once they are sorted.
typedef struct named {
    uint8_t *all; // owned: (count * each)
    size_t each, count, capacity;
} named;

static reef_status add(named *n, const uint8_t *one, reef_error *err) {
    if (n->count == n->capacity) {
        size_t capacity = n->capacity > 0 ? 2 * n->capacity : 1024;
        uint8_t *all = realloc(n->all, capacity * n->each);
        if (all == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the names of %zu blocks",
                             capacity);
        n->all = all;
        n->capacity = capacity;
    }
    memcpy(n->all + n->count++ * n->each, one, n->each);
    return REEF_OK;
}

static int by_name(const void *a, const void *b) {
    return memcmp(a, b, REEF_HASH_BYTES);
}

static int by_number(const void *a, const void *b) {
    return memcmp(a, b, sizeof(uint64_t));
}

// What a piece of a list names.
static reef_status add_listed(
    const char *list, const reef_view *piece, named *text, named *blocks, reef_error *err) {
    const uint8_t *at = piece->data;
    bool is_text = strcmp(list, REEF_TEXT_LIST) == 0;
    reef_status status = REEF_OK;
    for (size_t left = piece->bytes / REEF_HASH_BYTES; status == REEF_OK && left > 0;
         left--, at += REEF_HASH_BYTES)
        status = is_text ? add(text, at, err) : add(blocks, at + sizeof(uint64_t), err);
    return status;
}

static bool is_list(const char *name) {
    return strcmp(name, REEF_TEXT_LIST) == 0 || strcmp(name, REEF_SLICE_LIST) == 0 ||
           strcmp(name, REEF_LOG_LIST) == 0;
}

static reef_key key_of_block(const uint8_t *number) {
    return reef_block_key(reef_get_le64(number));
}

// ---- of one generation --------------------------------------------------------------------------

static reef_status copy_record(reef_txn *from,
                               reef_txn *into,
                               const reef_key *key,
                               reef_error *err) {
    reef_view view;
    reef_status status = reef_record_view(from, key, &view, err);
    return status == REEF_OK ? reef_record_store(into, key, view.dtype, view.data, view.bytes, err)
                             : status;
}

static reef_status copy_named(
    reef_txn *from, reef_txn *into, const named *text, const named *blocks, reef_error *err) {
    char hex[REEF_TEXT_HEX_BYTES];
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < text->count; i++) {
        const reef_key key = reef_text_key(text->all + i * text->each, hex);
        status = copy_record(from, into, &key, err);
    }
    for (size_t i = 0; status == REEF_OK && i < blocks->count; i++) {
        const reef_key key = key_of_block(blocks->all + i * blocks->each);
        if (key.sequence != 0) status = copy_record(from, into, &key, err);
    }
    return status;
}

reef_status reef_blocks_copy_into(reef_txn *from,
                                  uint32_t generation,
                                  reef_txn *into,
                                  reef_error *err) {
    static const char *const lists[] = {REEF_TEXT_LIST, REEF_SLICE_LIST, REEF_LOG_LIST};
    named text = {.each = REEF_HASH_BYTES}, blocks = {.each = sizeof(uint64_t)};
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < sizeof(lists) / sizeof(*lists); i++) {
        reef_key key = {.db = REEF_DB_MEMORY, .generation = generation, .name = lists[i]};
        for (; status == REEF_OK; key.block++) {
            reef_view piece;
            status = reef_record_view(from, &key, &piece, err);
            if (status == REEF_OK) status = add_listed(lists[i], &piece, &text, &blocks, err);
        }
        if (status == REEF_ERR_NOT_FOUND) status = REEF_OK; // behind its last piece
    }
    if (status == REEF_OK) status = copy_named(from, into, &text, &blocks, err);
    free(text.all);
    free(blocks.all);
    return status;
}

// ---- what nobody needs --------------------------------------------------------------------------

typedef struct dropping {
    reef_txn *txn;
    bool (*goes)(const void *context, const reef_key *list); // or NULL
    const void *context;
    bool dry_run;
    named text, blocks; // what stays
    uint64_t bytes;
} dropping;

static reef_status find_named(dropping *d, reef_db db, reef_error *err) {
    reef_walk walk = {.db = db};
    for (;;) {
        reef_view piece;
        reef_status status = reef_walk_next(&walk, d->txn, err);
        if (status != REEF_OK || walk.done) return status;
        if (!is_list(walk.key.name)) continue;
        if (d->goes != NULL && d->goes(d->context, &walk.key)) continue;
        status = reef_record_view(d->txn, &walk.key, &piece, err);
        if (status == REEF_OK)
            status = add_listed(walk.key.name, &piece, &d->text, &d->blocks, err);
        if (status != REEF_OK) return status;
    }
}

static bool is_named(const dropping *d, const reef_key *key) {
    uint8_t name[REEF_HASH_BYTES];
    if (key->db == REEF_DB_BLOCKS) {
        reef_put_le64(name, key->sequence);
        return d->blocks.count > 0 &&
               bsearch(name, d->blocks.all, d->blocks.count, d->blocks.each, by_number) != NULL;
    }
    if (strlen(key->name) != REEF_TEXT_HEX_BYTES - 1) return false;
    for (size_t i = 0; i < REEF_HASH_BYTES; i++) {
        const char pair[] = {key->name[2 * i], key->name[2 * i + 1], '\0'};
        name[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return d->text.count > 0 &&
           bsearch(name, d->text.all, d->text.count, d->text.each, by_name) != NULL;
}

static reef_status drop_others(dropping *d, reef_db db, reef_error *err) {
    reef_walk walk = {.db = db};
    for (;;) {
        reef_status status = reef_walk_next(&walk, d->txn, err);
        if (status != REEF_OK || walk.done) return status;
        if (is_named(d, &walk.key)) continue;
        d->bytes += walk.bytes;
        if (!d->dry_run) status = reef_record_remove(d->txn, &walk.key, err);
        if (status != REEF_OK) return status;
    }
}

reef_status reef_blocks_drop_unnamed(reef_txn *txn,
                                     bool (*goes)(const void *context, const reef_key *list),
                                     const void *context,
                                     bool dry_run,
                                     uint64_t *bytes,
                                     reef_error *err) {
    dropping d = {.txn = txn,
                  .goes = goes,
                  .context = context,
                  .dry_run = dry_run,
                  .text = {.each = REEF_HASH_BYTES},
                  .blocks = {.each = sizeof(uint64_t)}};
    reef_status status = dry_run ? REEF_OK : reef_txn_writable(txn, err);
    if (status == REEF_OK) status = find_named(&d, REEF_DB_MEMORY, err);
    if (status == REEF_OK) status = find_named(&d, REEF_DB_VISITS, err);
    // A list that cannot be read may name any of them: all stay.
    bool unknown = status == REEF_ERR_CORRUPT;
    if (d.text.count > 0) qsort(d.text.all, d.text.count, d.text.each, by_name);
    if (d.blocks.count > 0) qsort(d.blocks.all, d.blocks.count, d.blocks.each, by_number);
    if (status == REEF_OK) status = drop_others(&d, REEF_DB_TEXT, err);
    if (status == REEF_OK) status = drop_others(&d, REEF_DB_BLOCKS, err);
    free(d.text.all);
    free(d.blocks.all);
    *bytes = d.bytes;
    return unknown ? REEF_OK : status;
}
