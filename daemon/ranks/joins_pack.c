// What a rank gives to the others in one join, as a file; see joins.h. It lies in the folder
// `joins` of the pool until all have taken it in, little-endian:
//
//   0   8   "REEFJOIN"               32  8  number of the join
//   8   4   version of this layout   40  8  accepted: bytes of the rank's sources then
//   12  4   rank                     48  8  left_out: bytes of visits that are not in it
//   16  16  training                 56  8  bytes of all that follows
//                                    64  8  XXH3-64 of all that follows
//                                    72  4  items
//                                    76  4  (zero)
//
//   then the items, each after a head of 176 bytes:
//   0   4   1: the data file of a pool that has one generation (reef_generation_extract); 2: text
//           that a kind has learned
//   4   4   owner of the kind: a rank, or 2^32 - 1
//   8   4   the kind's number there
//   12  4   1: the level is known
//   16  8   level: pieces            40  8  bytes of the item
//   24  8   level: mean              48  16 root of the generation
//   32  8   level: deviation         64  8  level: batches
//                                    72  8  level: bits
//                                    80  96 name of the kind, zeros behind it
//
// Generations come first, in the order of their numbers. Nothing of it is believed before its
// checksum was compared; a generation's root is compared once more where it is imported.
#include "ranks_internal.h"

#include "reef_byte_order.h"
#include "reef_exchange.h"
#include "reef_fail_point.h"

#include <xxhash.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LAYOUT = 1,
    HEADER_BYTES = 80,
    HEAD_BYTES = 176,
    NAME_BYTES = 96,
    COPY_BYTES = 1 << 16,
    ITEM_GENERATION = 1,
    ITEM_TEXT = 2
};
_Static_assert(REEF_NAME_BYTES_MAX < NAME_BYTES, "a name and a zero");
_Static_assert(REEF_HASH_BYTES == 16, "as the head has it");

static const char MAGIC[8] = {'R', 'E', 'E', 'F', 'J', 'O', 'I', 'N'};

typedef struct item {
    uint32_t kind_of, owner, owner_kind;
    bool has_level;
    reef_kind_level level;
    uint64_t bytes;
    uint8_t root[REEF_HASH_BYTES];
    char name[NAME_BYTES];
} item;

static void put_double(uint8_t *at, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    reef_put_le64(at, bits);
}

static double get_double(const uint8_t *at) {
    uint64_t bits = reef_get_le64(at);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void write_head(uint8_t out[HEAD_BYTES], const item *one) {
    memset(out, 0, HEAD_BYTES);
    reef_put_le32(out, one->kind_of);
    reef_put_le32(out + 4, one->owner);
    reef_put_le32(out + 8, one->owner_kind);
    reef_put_le32(out + 12, one->has_level);
    reef_put_le64(out + 16, one->level.pieces);
    put_double(out + 24, one->level.mean);
    put_double(out + 32, one->level.deviation);
    reef_put_le64(out + 40, one->bytes);
    memcpy(out + 48, one->root, sizeof(one->root));
    reef_put_le64(out + 64, one->level.batches);
    put_double(out + 72, one->level.bits);
    memcpy(out + 80, one->name, NAME_BYTES);
}

static void read_head(item *out, const uint8_t head[HEAD_BYTES]) {
    *out = (item){.kind_of = reef_get_le32(head),
                  .owner = reef_get_le32(head + 4),
                  .owner_kind = reef_get_le32(head + 8),
                  .has_level = reef_get_le32(head + 12) == 1,
                  .level = {.pieces = reef_get_le64(head + 16),
                            .mean = get_double(head + 24),
                            .deviation = get_double(head + 32),
                            .batches = reef_get_le64(head + 64),
                            .bits = get_double(head + 72)},
                  .bytes = reef_get_le64(head + 40)};
    memcpy(out->root, head + 48, sizeof(out->root));
    memcpy(out->name, head + 80, NAME_BYTES - 1);
}

// ---- the pool of one generation -----------------------------------------------------------------

// Where it lies while it is packed, or taken in.
static void item_paths(const reef_joins *joins,
                       char pool[PATH_BYTES_MAX],
                       char data[PATH_BYTES_MAX]) {
    snprintf(pool, PATH_BYTES_MAX, "%.4000s/" JOINS_FOLDER "/item", joins->crew->pool);
    snprintf(data, PATH_BYTES_MAX, "%.4000s/" JOINS_FOLDER "/item/data.mdb", joins->crew->pool);
}

static void remove_item(const reef_joins *joins) {
    static const char *const files[] = {"/data.mdb", "/lock.mdb", "/writer.lock",
                                        "/unfinished/data.mdb", "/unfinished/lock.mdb"};
    char pool[PATH_BYTES_MAX], path[PATH_BYTES_MAX + 32];
    item_paths(joins, pool, path);
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        snprintf(path, sizeof(path), "%s%s", pool, files[i]);
        (void)unlink(path);
    }
    snprintf(path, sizeof(path), "%s/unfinished", pool);
    (void)rmdir(path);
    (void)rmdir(pool);
}

// ---- packing ------------------------------------------------------------------------------------

typedef struct packing {
    reef_joins *joins;
    FILE *file;
    XXH3_state_t *hash;
    uint64_t bytes; // behind the header
    reef_joins_pack *out;
} packing;

static reef_status fail_write(reef_error *err) {
    return reef_joins_fail_file("write", "its file of the join", err);
}

static reef_status append(packing *p, const void *bytes, size_t count, reef_error *err) {
    if (fwrite(bytes, 1, count, p->file) != count) return fail_write(err);
    XXH3_64bits_update(p->hash, bytes, count);
    p->bytes += count;
    return REEF_OK;
}

static void describe_kind(const reef_joins *joins, uint32_t kind, item *out) {
    out->has_level = reef_trainer_kind_level(joins->trainer, kind, &out->level);
    snprintf(out->name, sizeof(out->name), "%s", reef_trainer_kind_name_of(joins->trainer, kind));
}

static reef_status append_head(packing *p, const item *one, reef_error *err) {
    uint8_t head[HEAD_BYTES];
    write_head(head, one);
    p->out->items++;
    return append(p, head, sizeof(head), err);
}

static reef_status append_file(packing *p, const char *path, reef_error *err) {
    static uint8_t buffer[COPY_BYTES]; // the trainer's thread alone packs
    FILE *from = fopen(path, "rb");
    size_t got;
    reef_status status = REEF_OK;
    if (from == NULL) return reef_joins_fail_file("open", path, err);
    while (status == REEF_OK && (got = fread(buffer, 1, sizeof(buffer), from)) > 0)
        status = append(p, buffer, got, err);
    if (status == REEF_OK && ferror(from)) status = reef_joins_fail_file("read", path, err);
    fclose(from);
    return status;
}

static reef_status append_generation(packing *p, uint32_t generation, reef_error *err) {
    // As it was sealed: what the kind learned since is given as text, so that all copies of a kind
    // are the same.
    item one = {.kind_of = ITEM_GENERATION,
                .owner = (uint32_t)reef_joins_rank(p->joins),
                .owner_kind = generation};
    char pool[PATH_BYTES_MAX], path[PATH_BYTES_MAX];
    struct stat info;
    reef_txn *txn = NULL;
    reef_generation_record record;
    item_paths(p->joins, pool, path);
    remove_item(p->joins); // of a process that was killed
    reef_status status = reef_txn_begin(&txn, p->joins->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_generation_read(txn, generation, &record, err);
    reef_txn_abort(txn);
    if (status == REEF_OK) status = reef_generation_extract(p->joins->store, generation, pool, err);
    if (status == REEF_OK && stat(path, &info) != 0)
        status = reef_joins_fail_file("read", path, err);
    if (status == REEF_OK) {
        one.bytes = (uint64_t)info.st_size;
        memcpy(one.root, record.root, sizeof(one.root));
        describe_kind(p->joins, generation, &one);
        status = append_head(p, &one, err);
    }
    if (status == REEF_OK) status = append_file(p, path, err);
    remove_item(p->joins);
    return status;
}

// A generation that continues a kind has no memory of its own: what its kind learned is in the
// text. One that was sealed before it learned anything has nothing to give.
static reef_status is_packed(const packing *p, uint32_t g, bool *out, reef_error *err) {
    reef_txn *txn = NULL;
    reef_generation_record info;
    uint32_t kind;
    bool empty = false;
    reef_status status = reef_txn_begin(&txn, p->joins->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_generation_read(txn, g, &info, err);
    reef_txn_abort(txn);
    *out = status == REEF_OK && reef_generation_begins_kind(&info) &&
           reef_trainer_kind_goes_on(p->joins->trainer, g, &kind);
    if (*out) status = reef_trainer_kind_is_empty(p->joins->trainer, g, &empty, err);
    *out = *out && !empty;
    return status;
}

// Those that began a kind here since the last join.
static reef_status append_generations(packing *p, reef_error *err) {
    reef_trainer_status now;
    reef_status status = REEF_OK;
    reef_trainer_status_read(p->joins->trainer, &now);
    for (uint32_t g = p->joins->record.own_from; status == REEF_OK && g < now.generation; g++) {
        bool packed = false;
        status = is_packed(p, g, &packed, err);
        if (packed && status == REEF_OK) status = append_generation(p, g, err);
    }
    return status;
}

// What a kind has learned since the last join where it came back: as far as its memory keeps it.
static reef_status append_text(packing *p, const reef_join_kind *of, reef_error *err) {
    reef_trainer *trainer = p->joins->trainer;
    uint64_t now = reef_trainer_kind_returned(trainer, of->kind), before = of->returned;
    uint8_t *text = NULL;
    size_t got = 0;
    item one = {.kind_of = ITEM_TEXT, .owner = of->owner, .owner_kind = of->owner_kind};
    reef_status status = REEF_OK;
    if (now == 0) return REEF_OK;
    if (before == 0) status = reef_trainer_kind_sealed_bytes(trainer, of->kind, &before, err);
    if (status != REEF_OK || now <= before) return status;
    status = reef_trainer_kind_text(trainer, of->kind, now - before, &text, &got, err);
    p->out->left_out_bytes += now - before - got;
    one.bytes = got;
    if (status == REEF_OK && got > 0) status = append_head(p, &one, err);
    if (status == REEF_OK && got > 0) status = append(p, text, got, err);
    free(text);
    return status;
}

static reef_status append_texts(packing *p, reef_error *err) {
    reef_status status = REEF_OK;
    reef_trainer_status now;
    const reef_join_kind *kinds = p->joins->kinds;
    uint32_t own = (uint32_t)reef_joins_rank(p->joins);
    reef_trainer_status_read(p->joins->trainer, &now);
    for (size_t i = 0; status == REEF_OK && i < p->joins->kind_count; i++) {
        bool again = false; // one that two ranks have learned is there twice
        for (size_t k = 0; k < i; k++) again |= kinds[k].kind == kinds[i].kind;
        if (!again) status = append_text(p, &kinds[i], err);
    }
    // A kind that began since the last join may have come back already.
    for (uint32_t g = p->joins->record.own_from; status == REEF_OK && g < now.generation; g++)
        status = append_text(p, &(reef_join_kind){.kind = g, .owner = own, .owner_kind = g}, err);
    return status;
}

static reef_status write_header(packing *p, uint64_t number, reef_error *err) {
    uint8_t header[HEADER_BYTES] = {0};
    memcpy(header, MAGIC, sizeof(MAGIC));
    reef_put_le32(header + 8, LAYOUT);
    reef_put_le32(header + 12, (uint32_t)reef_joins_rank(p->joins));
    memcpy(header + 16, p->joins->record.training, REEF_JOIN_TRAINING_BYTES);
    reef_put_le64(header + 32, number);
    reef_put_le64(header + 40, p->joins->record.accepted);
    reef_put_le64(header + 48, p->out->left_out_bytes);
    reef_put_le64(header + 56, p->bytes);
    reef_put_le64(header + 64, XXH3_64bits_digest(p->hash));
    reef_put_le32(header + 72, p->out->items);
    p->out->bytes = HEADER_BYTES + p->bytes;
    p->out->accepted = p->joins->record.accepted;
    return fseek(p->file, 0, SEEK_SET) == 0 && fwrite(header, sizeof(header), 1, p->file) == 1
               ? REEF_OK
               : fail_write(err);
}

// On disk before it has its name: what another rank has taken in must not be lost here.
static reef_status settle_file(packing *p, const char *part, const char *path, reef_error *err) {
    char directory[PATH_BYTES_MAX];
    snprintf(directory, sizeof(directory), "%.4000s/" JOINS_FOLDER, p->joins->crew->pool);
    if (fflush(p->file) != 0 || fsync(fileno(p->file)) != 0 || rename(part, path) != 0)
        return fail_write(err);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    reef_status status = fd >= 0 && fsync(fd) == 0 ? REEF_OK : fail_write(err);
    if (fd >= 0) close(fd);
    return status;
}

reef_status reef_joins_pack_make(reef_joins *joins,
                                 uint64_t number,
                                 reef_joins_pack *out,
                                 reef_error *err) {
    char path[PATH_BYTES_MAX], part[PATH_BYTES_MAX + 8];
    static const uint8_t nothing[HEADER_BYTES];
    packing p = {.joins = joins, .hash = XXH3_createState(), .out = out};
    *out = (reef_joins_pack){0};
    reef_joins_path(joins, number, reef_joins_rank(joins), path);
    snprintf(part, sizeof(part), "%s.part", path);
    if (p.hash == NULL || XXH3_64bits_reset(p.hash) != XXH_OK) {
        XXH3_freeState(p.hash);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a checksum");
    }
    p.file = fopen(part, "w+b");
    reef_status status = p.file == NULL || fwrite(nothing, sizeof(nothing), 1, p.file) != 1
                             ? fail_write(err)
                             : REEF_OK;
    if (status == REEF_OK) status = append_generations(&p, err);
    if (status == REEF_OK) status = append_texts(&p, err);
    if (status == REEF_OK) status = write_header(&p, number, err);
    if (status == REEF_OK) status = settle_file(&p, part, path, err);
    if (p.file != NULL) fclose(p.file);
    if (status != REEF_OK) (void)unlink(part);
    XXH3_freeState(p.hash);
    REEF_FAIL_POINT(JOIN_PACKED);
    return status;
}

// ---- checking -----------------------------------------------------------------------------------

static reef_status hash_rest(FILE *file, uint64_t *bytes, uint64_t *hash, reef_error *err) {
    static uint8_t buffer[COPY_BYTES];
    XXH3_state_t *state = XXH3_createState();
    size_t got;
    *bytes = 0;
    if (state == NULL || XXH3_64bits_reset(state) != XXH_OK) {
        XXH3_freeState(state);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a checksum");
    }
    while ((got = fread(buffer, 1, sizeof(buffer), file)) > 0) {
        XXH3_64bits_update(state, buffer, got);
        *bytes += got;
    }
    *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return REEF_OK;
}

static reef_status check_file(const reef_joins *joins,
                              uint64_t number,
                              size_t from,
                              FILE *file,
                              reef_joins_pack *out,
                              reef_error *err) {
    uint8_t header[HEADER_BYTES];
    uint64_t bytes = 0, hash = 0;
    bool whole = fread(header, sizeof(header), 1, file) == 1;
    reef_status status = whole ? hash_rest(file, &bytes, &hash, err) : REEF_OK;
    if (status != REEF_OK) return status;
    whole = whole && memcmp(header, MAGIC, sizeof(MAGIC)) == 0 &&
            reef_get_le32(header + 8) == LAYOUT && reef_get_le32(header + 12) == from &&
            reef_get_le64(header + 32) == number && reef_get_le64(header + 56) == bytes &&
            reef_get_le64(header + 64) == hash &&
            memcmp(header + 16, joins->record.training, REEF_JOIN_TRAINING_BYTES) == 0;
    if (!whole)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the file of rank %zu for join %" PRIu64 " is damaged, or of another join",
                         from, number);
    *out = (reef_joins_pack){.bytes = HEADER_BYTES + bytes,
                             .accepted = reef_get_le64(header + 40),
                             .items = reef_get_le32(header + 72),
                             .left_out_bytes = reef_get_le64(header + 48)};
    return REEF_OK;
}

reef_status reef_joins_pack_check(
    const reef_joins *joins, uint64_t number, size_t from, reef_joins_pack *out, reef_error *err) {
    char path[PATH_BYTES_MAX];
    *out = (reef_joins_pack){0};
    reef_joins_path(joins, number, from, path);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "its file of join %" PRIu64 ", %.120s, is missing, and other ranks have "
                         "not taken it in yet: let all start over from copies of one pool",
                         number, path);
    reef_status status = check_file(joins, number, from, file, out, err);
    fclose(file);
    return status;
}

// ---- to the other ranks -------------------------------------------------------------------------
//
// How the files of a join travel: the next chunk of every rank's to all others at once, until the
// longest one has ended.

#define CHUNK_BYTES ((size_t)1 << 20)      // of a file, in one exchange
#define CHUNKS_BYTES_MAX ((size_t)1 << 28) // of all ranks together

typedef struct travel {
    FILE **files;    // (count) this rank's own is read, the others' are written
    uint64_t *bytes; // (count) of each
    size_t *sizes;   // (count) of the exchange under way
    size_t chunk;
} travel;

static reef_status open_files(reef_joins *joins, travel *t, uint64_t number, reef_error *err) {
    char path[PATH_BYTES_MAX];
    for (size_t r = 0; r < reef_joins_count(joins); r++) {
        reef_joins_path(joins, number, r, path);
        t->files[r] = fopen(path, r == reef_joins_rank(joins) ? "rb" : "wb");
        if (t->files[r] == NULL) return reef_joins_fail_file("open", path, err);
    }
    return REEF_OK;
}

static size_t part_of(const travel *t, size_t rank, uint64_t at) {
    uint64_t left = t->bytes[rank] > at ? t->bytes[rank] - at : 0;
    return left < t->chunk ? (size_t)left : t->chunk;
}

static reef_status exchange_chunks(reef_joins *joins, travel *t, uint64_t at, reef_error *err) {
    reef_ranks *ranks = joins->crew->ranks;
    size_t count = reef_joins_count(joins), own = reef_joins_rank(joins);
    memset(t->sizes, 0, count * sizeof(*t->sizes));
    t->sizes[own] = part_of(t, own, at);
    reef_ranks_message *send = reef_ranks_room(ranks, false, t->sizes);
    if (fread(send[own].bytes, 1, t->sizes[own], t->files[own]) != t->sizes[own])
        return reef_joins_fail_file("read", "its file of the join", err);
    for (size_t r = 0; r < count; r++) send[r] = send[own]; // all get the same bytes
    for (size_t r = 0; r < count; r++) t->sizes[r] = r == own ? 0 : part_of(t, r, at);
    reef_ranks_message *receive = reef_ranks_room(ranks, true, t->sizes);
    reef_ranks_exchange(ranks);
    for (size_t r = 0; r < count; r++)
        if (r != own && fwrite(receive[r].bytes, 1, t->sizes[r], t->files[r]) != t->sizes[r])
            return reef_joins_fail_file("write", "what another rank sent", err);
    return REEF_OK;
}

static reef_status close_files(reef_joins *joins, travel *t, reef_status status, reef_error *err) {
    for (size_t r = 0; r < reef_joins_count(joins); r++)
        if (t->files[r] != NULL && fclose(t->files[r]) != 0 && status == REEF_OK)
            status = reef_joins_fail_file("write", "what another rank sent", err);
    return status;
}

reef_status reef_joins_exchange(
    reef_joins *joins, uint64_t number, uint64_t own_bytes, uint64_t *received, reef_error *err) {
    size_t count = reef_joins_count(joins), own = reef_joins_rank(joins);
    travel t = {.files = calloc(count, sizeof(FILE *)),
                .bytes = calloc(count, sizeof(uint64_t)),
                .sizes = calloc(count, sizeof(size_t)),
                .chunk = CHUNKS_BYTES_MAX / count < CHUNK_BYTES ? CHUNKS_BYTES_MAX / count
                                                                : CHUNK_BYTES};
    reef_status status = REEF_OK;
    uint64_t longest = 0;
    *received = 0;
    if (t.files == NULL || t.bytes == NULL || t.sizes == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to join %zu ranks", count);
    if (status == REEF_OK) status = open_files(joins, &t, number, err);
    if (status == REEF_OK) {
        t.bytes[own] = own_bytes;
        const reef_ranks_array each = {t.bytes, sizeof(*t.bytes), sizeof(*t.bytes)};
        reef_ranks_gather(joins->crew->ranks, count, 1, &each);
    }
    for (size_t r = 0; status == REEF_OK && r < count; r++) {
        if (t.bytes[r] > longest) longest = t.bytes[r];
        if (r != own) *received += t.bytes[r];
    }
    for (uint64_t at = 0; status == REEF_OK && count > 1 && at < longest; at += t.chunk)
        status = exchange_chunks(joins, &t, at, err);
    if (t.files != NULL) status = close_files(joins, &t, status, err);
    free(t.files);
    free(t.bytes);
    free(t.sizes);
    return status;
}

// ---- taking in ----------------------------------------------------------------------------------

typedef struct taking {
    reef_joins *joins;
    FILE *file;
    uint64_t left; // bytes behind the header that were not read yet
    size_t from;
} taking;

static reef_status read_part(taking *t, void *out, uint64_t bytes, reef_error *err) {
    if (bytes > t->left || fread(out, 1, (size_t)bytes, t->file) != bytes)
        return reef_fail(err, REEF_ERR_CORRUPT, "the file of rank %zu ends within an item",
                         t->from);
    t->left -= bytes;
    return REEF_OK;
}

static reef_status skip_item(taking *t, const item *one, reef_error *err) {
    if (one->bytes > t->left || fseeko(t->file, (off_t)one->bytes, SEEK_CUR) != 0)
        return reef_fail(err, REEF_ERR_CORRUPT, "the file of rank %zu ends within an item",
                         t->from);
    t->left -= one->bytes;
    return REEF_OK;
}

static reef_status copy_item(taking *t, const item *one, reef_error *err) {
    static uint8_t buffer[COPY_BYTES];
    char pool[PATH_BYTES_MAX], path[PATH_BYTES_MAX];
    item_paths(t->joins, pool, path);
    remove_item(t->joins); // of a process that was killed
    if (mkdir(pool, 0700) != 0) return reef_joins_fail_file("make", pool, err);
    FILE *into = fopen(path, "wb");
    reef_status status = REEF_OK;
    if (into == NULL) return reef_joins_fail_file("write", path, err);
    for (uint64_t at = 0; status == REEF_OK && at < one->bytes; at += sizeof(buffer)) {
        uint64_t size = one->bytes - at < sizeof(buffer) ? one->bytes - at : sizeof(buffer);
        status = read_part(t, buffer, size, err);
        if (status == REEF_OK && fwrite(buffer, 1, (size_t)size, into) != size)
            status = reef_joins_fail_file("write", path, err);
    }
    if (fclose(into) != 0 && status == REEF_OK) status = reef_joins_fail_file("write", path, err);
    return status;
}

// Two ranks that were given the same text have learned the same generation, to the bit.
static reef_status find_same(
    const reef_joins *joins, const item *one, uint32_t *out, bool *found, reef_error *err) {
    reef_trainer_status now;
    reef_txn *txn = NULL;
    *found = false;
    reef_trainer_status_read(joins->trainer, &now);
    reef_status status = reef_txn_begin(&txn, joins->store, REEF_TXN_READ, err);
    for (uint32_t g = 0; status == REEF_OK && !*found && g < now.generation; g++) {
        reef_generation_record info;
        status = reef_generation_read(txn, g, &info, err);
        *found = status == REEF_OK && reef_generation_begins_kind(&info) &&
                 memcmp(info.root, one->root, sizeof(one->root)) == 0;
        *out = g;
    }
    reef_txn_abort(txn);
    return status;
}

// Named by the rank that has it, and as it is called there.
static void name_here(const item *one, char out[REEF_NAME_BYTES_MAX + 1]) {
    char name[NAME_BYTES + 32];
    if (one->name[0] != '\0')
        snprintf(name, sizeof(name), "rank-%" PRIu32 ".%s", one->owner, one->name);
    else
        snprintf(name, sizeof(name), "rank-%" PRIu32 ".%" PRIu32, one->owner, one->owner_kind);
    snprintf(out, REEF_NAME_BYTES_MAX + 1, "%.*s", REEF_NAME_BYTES_MAX, name);
    if (reef_kind_name_check(out, NULL) != REEF_OK) out[0] = '\0';
}

static reef_status import_item(taking *t, const item *one, reef_error *err) {
    char name[REEF_NAME_BYTES_MAX + 1], pool[PATH_BYTES_MAX], path[PATH_BYTES_MAX];
    reef_store *from = NULL;
    item_paths(t->joins, pool, path);
    name_here(one, name);
    const reef_import_options options = {.name = name[0] != '\0' ? name : NULL,
                                         .level = one->has_level ? &one->level : NULL,
                                         .as_sealed = true,
                                         .drop_branch = true};
    reef_status status = copy_item(t, one, err);
    if (status == REEF_OK) status = reef_store_open(&from, pool, NULL, err);
    if (status == REEF_OK)
        status = reef_trainer_import(t->joins->trainer, from, one->owner_kind, &options, NULL, err);
    reef_store_close(from);
    remove_item(t->joins);
    return status;
}

static reef_status take_generation(taking *t, const item *one, reef_error *err) {
    reef_joins *joins = t->joins;
    reef_trainer_status now;
    uint32_t same = 0;
    bool found;
    reef_status status = find_same(joins, one, &same, &found, err);
    reef_trainer_status_read(joins->trainer, &now);
    reef_join_kind kind = {
        .kind = found ? same : now.generation, .owner = one->owner, .owner_kind = one->owner_kind};
    // In the record that the import's commit writes.
    if (status == REEF_OK) status = reef_joins_add_kind(joins, kind, err);
    joins->record.step++;
    if (status != REEF_OK) return status;
    if (found) {
        status = skip_item(t, one, err);
        return status == REEF_OK ? reef_trainer_commit(joins->trainer, NULL, err) : status;
    }
    joins->record.kinds++;
    return import_item(t, one, err);
}

static reef_status take_text(taking *t, const item *one, reef_error *err) {
    reef_joins *joins = t->joins;
    char origin[32];
    uint32_t kind;
    t->joins->record.step++;
    // Merged here, or never taken in: nothing is left that could learn it.
    if (!reef_joins_find_kind(joins, one->owner, one->owner_kind, &kind))
        return skip_item(t, one, err);
    if (one->bytes > t->left)
        return reef_fail(err, REEF_ERR_CORRUPT, "the file of rank %zu ends within an item",
                         t->from);
    uint8_t *text = malloc((size_t)one->bytes + 1);
    if (text == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu64 " bytes of text",
                         one->bytes);
    snprintf(origin, sizeof(origin), "rank-%zu", t->from);
    reef_status status = read_part(t, text, one->bytes, err);
    if (status == REEF_OK)
        status =
            reef_trainer_kind_learn(joins->trainer, kind, text, (size_t)one->bytes, origin, err);
    free(text);
    return status;
}

static reef_status take_item(taking *t, bool is_done, reef_error *err) {
    uint8_t head[HEAD_BYTES];
    item one;
    reef_status status = read_part(t, head, sizeof(head), err);
    if (status != REEF_OK) return status;
    read_head(&one, head);
    if (is_done) return skip_item(t, &one, err);
    if (one.kind_of == ITEM_GENERATION && one.owner == t->from)
        status = take_generation(t, &one, err);
    else if (one.kind_of == ITEM_TEXT)
        status = take_text(t, &one, err);
    else
        status =
            reef_fail(err, REEF_ERR_CORRUPT, "the file of rank %zu has a malformed item", t->from);
    if (status == REEF_OK) t->joins->kinds_changed = false; // a commit has written them
    REEF_FAIL_POINT(JOIN_ITEM);
    return status;
}

reef_status reef_joins_pack_take(reef_joins *joins,
                                 uint64_t number,
                                 size_t from,
                                 uint32_t before,
                                 void (*advanced)(void *context),
                                 void *context,
                                 reef_error *err) {
    char path[PATH_BYTES_MAX];
    reef_joins_pack pack;
    reef_joins_path(joins, number, from, path);
    reef_status status = reef_joins_pack_check(joins, number, from, &pack, err);
    taking t = {.joins = joins, .left = pack.bytes - HEADER_BYTES, .from = from};
    if (status != REEF_OK) return status;
    t.file = fopen(path, "rb");
    if (t.file == NULL || fseeko(t.file, HEADER_BYTES, SEEK_SET) != 0)
        status = reef_joins_fail_file("open", path, err);
    uint32_t done = joins->record.step;
    for (uint32_t i = 0; status == REEF_OK && i < pack.items; i++) {
        status = take_item(&t, before + i < done, err);
        if (status == REEF_OK) advanced(context);
    }
    if (t.file != NULL) fclose(t.file);
    return status;
}
