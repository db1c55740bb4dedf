// Damages a pool's data file in hundreds of ways, one at a time, and holds the check to what an
// oracle (byte_map.h) says of each: what touches a live record is found and named, what touches
// free bytes is not reported, and no process that a user started ends by a signal.
//
//   flips        one bit anywhere; then one bit of what holds records together, which is rarer in a
//                file
//   truncations  the file ends anywhere
//   pages        two pages change places; a page is as it was in an earlier copy of the file
//
// usage: damage_campaign REEF REEFD DIRECTORY [--flips N] [--tree-flips N] [--truncations N]
// [--pages N]
//                        [--programs N] [--seed N]
// DIRECTORY has the pool `pool`, earlier copies `old.*` of its data file, and a text `text`.
#include "no_fork.h"

#include "byte_map.h"
#include "program.h"
#include "reef_byte_order.h"
#include "reef_pool_check.h"
#include "reef_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "draw.h"

#define OLD_MAX 64
#define TEXT_BYTES 65536

typedef struct file_bytes {
    uint8_t *data;
    size_t bytes;
} file_bytes;

// What was said of a damaged pool, by the check in a child of this process.
typedef struct finding {
    int code;              // as `reef verify` would end
    char text[TEXT_BYTES]; // all lines
    uint64_t commits;
    uint8_t root[REEF_HASH_BYTES];
} finding;

typedef enum expected { NOTHING, EITHER, DAMAGE } expected;

typedef struct tally {
    const char *name;
    unsigned cases, live, found, named, by_record, programs;
} tally;

typedef struct campaign {
    const char *reef, *reefd;
    char *pool, *data, *text, *lost;
    file_bytes sound;
    uint8_t *image; // the damaged file
    byte_map map;
    file_bytes old[OLD_MAX];
    size_t old_count;
    uint64_t random;
    unsigned long program_every; // of the cases in which something was found
    char *score, *eval;          // what the programs say of the sound pool
    unsigned failures;
    unsigned long done, total;
    time_t began;
    bool terminal;
    size_t swapped_with; // where the other page of a swap is; 0: none
    unsigned command_runs, command_errors, command_signals;
} campaign;

static void die(const char *what, const char *on) {
    fprintf(stderr, "damage campaign: cannot %s %s\n", what, on);
    exit(70);
}

static char *join(const char *directory, const char *name) {
    size_t bytes = strlen(directory) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path == NULL) die("allocate", name);
    snprintf(path, bytes, "%s/%s", directory, name);
    return path;
}

static file_bytes load(const char *path) {
    struct stat info;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &info) != 0) die("read", path);
    file_bytes file = {.data = malloc((size_t)info.st_size), .bytes = (size_t)info.st_size};
    if (file.data == NULL || read(fd, file.data, file.bytes) != info.st_size) die("read", path);
    close(fd);
    return file;
}

static void place(const char *path, const uint8_t *data, size_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes) die("write", path);
    close(fd);
}

// The damaged file differs from the sound one in these bytes of the image only.
static void place_part(const campaign *c, const uint8_t *from, size_t at, size_t bytes) {
    int fd = open(c->data, O_WRONLY);
    if (fd < 0 || pwrite(fd, from + at, bytes, (off_t)at) != (ssize_t)bytes) die("write", c->data);
    close(fd);
}

static size_t draw_below(campaign *c, size_t end) {
    return (size_t)(draw_bits(&c->random) % end);
}

// ---- one case -----------------------------------------------------------------------------------

static void add_line(void *context, const char *what) {
    finding *f = context;
    size_t used = strlen(f->text);
    snprintf(f->text + used, sizeof(f->text) - used, "%s\n", what);
}

static void look(const campaign *c, finding *f) {
    reef_error err = {.status = REEF_OK};
    reef_check_report report;
    *f = (finding){0};
    reef_status status = reef_store_verify(
        c->pool, &(reef_check_options){.on_damage = add_line, .context = f}, &report, &err);
    if (status != REEF_OK) add_line(f, err.message);
    f->code = status != REEF_OK ? reef_status_exit_code(status) : report.damaged > 0 ? 65 : 0;
    f->commits = report.commits;
    memcpy(f->root, report.root, sizeof(f->root));
}

// What the oracle wants to be said of the bytes from `at` on; the image has them.
static expected judge(const campaign *c, size_t at, size_t bytes) {
    expected wanted = NOTHING;
    bool separators = false;
    for (size_t i = at; i < at + bytes; i++) {
        if (c->image[i] == c->sound.data[i]) continue;
        byte_kind kind = c->map.kind[i];
        if (kind == BYTE_RECORD || kind == BYTE_TREE) return DAMAGE;
        if (kind == BYTE_SEPARATOR) separators = true;
        if (kind == BYTE_ANY) wanted = EITHER;
    }
    if (separators && !byte_map_finds_all(&c->map, c->image)) return DAMAGE;
    return wanted;
}

static bool says_page(const char *text, size_t page) {
    char words[32];
    int bytes = snprintf(words, sizeof(words), "page %zu", page);
    for (const char *at = text; (at = strstr(at, words)) != NULL; at += bytes)
        if (at[bytes] < '0' || at[bytes] > '9') return true;
    return false;
}

static bool says_record(const campaign *c, const char *text, size_t at) {
    if (c->map.kind[at] != BYTE_RECORD) return false;
    const live_record *r = c->map.records + c->map.owner[at];
    if (strstr(text, r->text) != NULL) return true;
    // A changed key of a database without sums has nothing left that knew its name.
    char database[32];
    snprintf(database, sizeof(database), "%s (", byte_map_tree_name(r->tree));
    return !reef_db_summed((reef_db)r->tree) && strstr(text, database) != NULL;
}

// What page or tree is named: the meta pages and the list of databases lead to all trees, where
// damage shows.
static bool says_tree(const campaign *c, const char *text, size_t page) {
    uint8_t tree = c->map.tree[page];
    if (says_page(text, page) || strstr(text, byte_map_tree_name(tree)) != NULL) return true;
    return tree >= REEF_DB_COUNT &&
           (strstr(text, "page ") != NULL || strstr(text, "database ") != NULL);
}

// Does the text name what was damaged: its record (2), or its page or tree (1)?
static int names(const campaign *c, const char *text, size_t at, size_t bytes) {
    int best = 0;
    size_t page = SIZE_MAX; // looked at last, as is the record
    uint32_t owner = UINT32_MAX;
    for (size_t i = at; i < at + bytes; i++) {
        if (c->image[i] == c->sound.data[i] || c->map.kind[i] == BYTE_UNUSED) continue;
        if (c->map.kind[i] == BYTE_RECORD && c->map.owner[i] != owner) {
            owner = c->map.owner[i];
            if (says_record(c, text, i)) return 2;
        }
        if (i / c->map.page_bytes == page) continue;
        page = i / c->map.page_bytes;
        if (best == 0 && says_tree(c, text, page)) best = 1;
    }
    return best;
}

static void fail_case(campaign *c, const char *what, const char *how, const finding *f) {
    c->failures++;
    fprintf(stderr, "FAILED: %s: %s; exit %d, said:\n%s", how, what, f->code, f->text);
}

static void progress(campaign *c) {
    c->done++;
    if (!c->terminal || c->done % 16 != 0) return;
    double seconds = difftime(time(NULL), c->began);
    double rate = seconds > 0 ? (double)c->done / seconds : 0;
    fprintf(stderr, "\r%lu of %lu, %.0f/s, %.0f s left ", c->done, c->total, rate,
            rate > 0 ? (double)(c->total - c->done) / rate : 0);
}

// The program itself says what the check in this process said.
static void compare_program(campaign *c, tally *t, const char *how, const finding *f) {
    program p;
    const char *argv[] = {c->reef, "verify", c->pool, "--json", NULL};
    program_run(&p, argv, NULL);
    t->programs++;
    if (p.code != f->code) {
        fail_case(c, "`reef verify` ended otherwise", how, f);
        fprintf(stderr, "reef verify: exit %d: %s\n", p.code, p.err);
    }
    if (f->code == 65 && (strstr(p.out, "\"sound\": false") == NULL || strlen(p.err) == 0) &&
        strstr(p.out, "\"error\"") == NULL)
        fail_case(c, "`reef verify --json` does not say so", how, f);
}

// An answer without a damaged kind says which, for programs and for people.
static bool says_what_is_lost(const program *p) {
    return strstr(p->out, "\"lost_kinds\": [") != NULL && strstr(p->err, "is damaged") != NULL &&
           strstr(p->err, "reef verify") != NULL;
}

// Score and evaluation of a damaged pool: the sound pool's answer, an error, or one that says what
// is lost; never another answer.
static void run_command(
    campaign *c, const char *how, const finding *f, const char *const *argv, const char *sound) {
    program p;
    program_run(&p, argv, NULL);
    c->command_runs++;
    if (p.code != 0) c->command_errors++;
    if (strstr(p.err, "stopped by a signal") != NULL) c->command_signals++;
    if (p.code >= 128) fail_case(c, "a program was ended by a signal", how, f);
    if (p.code != 0 && line_count(p.err) < 1)
        fail_case(c, "a program failed without a word", how, f);
    if (p.code == 0 && sound != NULL && strcmp(p.out, sound) != 0 && !says_what_is_lost(&p)) {
        fail_case(c, "a program gave another answer", how, f);
        fprintf(stderr, "%s %s: %s\ninstead of: %s\n", argv[0], argv[1], p.out, sound);
    }
}

static void run_commands(campaign *c, const char *how, const finding *f) {
    // Of damaged counts of pages, which no checksum covers, `reef status` may draw wrong sizes.
    run_command(c, how, f, (const char *const[]){c->reef, "status", c->pool, "--json", NULL}, NULL);
    run_command(c, how, f,
                (const char *const[]){c->reef, "score", c->pool, c->text, "--json", NULL},
                c->score);
    run_command(c, how, f, (const char *const[]){c->reef, "eval", c->pool, c->text, "--json", NULL},
                c->eval);
    char *data = join(c->lost, "data.mdb"); // training changes the file
    (void)mkdir(c->lost, 0700);
    file_bytes now = load(c->data);
    place(data, now.data, now.bytes);
    run_command(
        c, how, f,
        (const char *const[]){c->reefd, "--pool", c->lost, "--source", c->text, "--quiet", NULL},
        NULL);
    free(now.data);
    free(data);
}

static void one_case(
    campaign *c, tally *t, const char *how, expected wanted, size_t at, size_t bytes) {
    finding f;
    look(c, &f);
    t->cases++;
    if (wanted == DAMAGE) t->live++;
    if (f.code != 0 && f.code != 65) fail_case(c, "neither 0 nor 65", how, &f);
    if (wanted == DAMAGE && f.code == 0) fail_case(c, "not found", how, &f);
    if (wanted == NOTHING && f.code != 0) fail_case(c, "only unused bytes were changed", how, &f);
    if (wanted == DAMAGE && f.code == 65) {
        t->found++;
        int named = names(c, f.text, at, bytes);
        // Where the pool cannot be opened, or LMDB gives up the transaction, no record behind that
        // is read: the one of two pages that prevents it is named.
        bool ended = f.commits == 0 || strstr(f.text, "could not continue") != NULL;
        if (named == 0 && ended && c->swapped_with > 0)
            named = names(c, f.text, c->swapped_with, c->map.page_bytes);
        // A file that is too short is named by its length.
        if (strstr(f.text, "truncated") != NULL && named == 0) named = 1;
        if (named == 0) fail_case(c, "found, but not named", how, &f);
        if (named > 0) t->named++;
        if (named > 1) t->by_record++;
        if (c->program_every > 0 && t->found % c->program_every == 0) {
            compare_program(c, t, how, &f);
            run_commands(c, how, &f);
        }
    }
    progress(c);
}

// ---- kinds of damage ----------------------------------------------------------------------------

static void restore(campaign *c, size_t at, size_t bytes) {
    memcpy(c->image + at, c->sound.data + at, bytes);
    place_part(c, c->sound.data, at, bytes);
}

static void flip(campaign *c, tally *t, size_t at, unsigned bit) {
    char how[80];
    snprintf(how, sizeof(how), "bit %u of byte %zu (page %zu, byte %zu)", bit, at,
             at / c->map.page_bytes, at % c->map.page_bytes);
    c->image[at] ^= (uint8_t)(1u << bit);
    expected wanted = judge(c, at, 1);
    // One bit of a transaction's number makes the meta pages another valid pair, that of the commit
    // before: this cannot be distinguished from a commit whose meta page was not written.
    if (c->map.tree[at / c->map.page_bytes] == TREE_META && at % c->map.page_bytes == 144 &&
        bit == 1)
        wanted = EITHER;
    place_part(c, c->image, at, 1);
    one_case(c, t, how, wanted, at, 1);
    restore(c, at, 1);
}

static void flips(campaign *c, tally *t, unsigned long count) {
    for (unsigned long i = 0; i < count; i++) {
        size_t at = draw_below(c, c->sound.bytes);
        flip(c, t, at, (unsigned)draw_below(c, 8));
    }
}

static void tree_flips(campaign *c, tally *t, unsigned long count) {
    size_t *places = malloc(c->sound.bytes * sizeof(*places)), found = 0;
    if (places == NULL) die("allocate", "a list of bytes");
    for (size_t i = 0; i < c->sound.bytes; i++)
        if (c->map.kind[i] != BYTE_RECORD && c->map.kind[i] != BYTE_UNUSED) places[found++] = i;
    for (unsigned long i = 0; i < count; i++)
        flip(c, t, places[draw_below(c, found)], (unsigned)draw_below(c, 8));
    free(places);
}

static void truncations(campaign *c, tally *t, unsigned long count) {
    for (unsigned long i = 0; i < count; i++) {
        char how[80];
        size_t bytes = draw_below(c, c->sound.bytes);
        if (i % 2 == 0) bytes = bytes / c->map.page_bytes * c->map.page_bytes;
        // Without the beginning of its first page it is no pool any more, and that is what is said.
        if (bytes < c->map.page_bytes) bytes = c->map.page_bytes;
        snprintf(how, sizeof(how), "truncated to %zu bytes", bytes);
        expected wanted = NOTHING;
        for (size_t k = bytes; k < c->sound.bytes; k++)
            if (c->map.kind[k] != BYTE_UNUSED) wanted = DAMAGE;
        // A page that ends too early is missing, also where its end was unused.
        if (wanted == NOTHING && c->map.tree[bytes / c->map.page_bytes] != TREE_NONE)
            wanted = EITHER;
        memset(c->image + bytes, 0, c->sound.bytes - bytes);
        if (truncate(c->data, (off_t)bytes) != 0) die("truncate", c->data);
        one_case(c, t, how, wanted, bytes, c->sound.bytes - bytes);
        restore(c, bytes, c->sound.bytes - bytes);
    }
}

static void swap_pages(campaign *c, tally *t) {
    char how[80];
    size_t size = c->map.page_bytes;
    size_t one = 2 + draw_below(c, c->map.page_count - 2),
           other = 2 + draw_below(c, c->map.page_count - 2);
    snprintf(how, sizeof(how), "pages %zu and %zu swapped", one, other);
    memcpy(c->image + one * size, c->sound.data + other * size, size);
    memcpy(c->image + other * size, c->sound.data + one * size, size);
    expected first = judge(c, one * size, size), second = judge(c, other * size, size);
    size_t at = (first >= second ? one : other) * size;
    place_part(c, c->image, one * size, size);
    place_part(c, c->image, other * size, size);
    c->swapped_with = (one + other) * size - at;
    one_case(c, t, how, first >= second ? first : second, at, size);
    c->swapped_with = 0;
    restore(c, one * size, size);
    restore(c, other * size, size);
}

static void stale_page(campaign *c, tally *t) {
    char how[80];
    size_t size = c->map.page_bytes, page = 0, from = 0;
    for (int i = 0; i < 1000; i++) { // one that has changed since, if there is any
        from = draw_below(c, c->old_count);
        size_t pages = c->old[from].bytes / size;
        if (pages > c->map.page_count) pages = c->map.page_count;
        page = 2 + draw_below(c, pages - 2);
        if (memcmp(c->old[from].data + page * size, c->sound.data + page * size, size) != 0 &&
            c->map.tree[page] != TREE_NONE)
            break;
    }
    snprintf(how, sizeof(how), "page %zu as it was in copy %zu", page, from);
    memcpy(c->image + page * size, c->old[from].data + page * size, size);
    place_part(c, c->image, page * size, size);
    one_case(c, t, how, judge(c, page * size, size), page * size, size);
    restore(c, page * size, size);
}

static void pages(campaign *c, tally *swapped, tally *stale, unsigned long count) {
    for (unsigned long i = 0; i < count; i++) {
        if (i % 2 == 0)
            swap_pages(c, swapped);
        else
            stale_page(c, stale);
    }
}

// ---- the whole ----------------------------------------------------------------------------------

static char *answer(const char *const *argv) {
    program p;
    program_run(&p, argv, NULL);
    if (p.code != 0) {
        fprintf(stderr, "damage campaign: %s %s on the sound pool: exit %d: %s", argv[0], argv[1],
                p.code, p.err);
        exit(70);
    }
    char *out = p.out;
    free(p.err);
    return out;
}

static void prepare(campaign *c, const char *directory) {
    c->pool = join(directory, "pool");
    c->data = join(c->pool, "data.mdb");
    c->text = join(directory, "text");
    c->lost = join(directory, "lost");
    c->sound = load(c->data);
    c->image = malloc(c->sound.bytes);
    if (c->image == NULL) die("allocate", "an image");
    memcpy(c->image, c->sound.data, c->sound.bytes);
    if (!byte_map_init(&c->map, c->sound.data, c->sound.bytes)) die("map", c->data);
    if (!byte_map_finds_all(&c->map, c->sound.data)) die("find all records of", c->data);
    DIR *files = opendir(directory);
    if (files == NULL) die("open", directory);
    for (struct dirent *entry; (entry = readdir(files)) != NULL && c->old_count < OLD_MAX;) {
        if (strncmp(entry->d_name, "old.", 4) != 0) continue;
        char *path = join(directory, entry->d_name);
        c->old[c->old_count++] = load(path);
        free(path);
    }
    closedir(files);
    if (c->old_count == 0) die("find earlier copies in", directory);
    no_fork(c->sound.data, c->sound.bytes);
    no_fork(c->image, c->sound.bytes);
    no_fork(c->map.kind, c->map.bytes * sizeof(*c->map.kind));
    no_fork(c->map.owner, c->map.bytes * sizeof(*c->map.owner));
    for (size_t i = 0; i < c->old_count; i++) no_fork(c->old[i].data, c->old[i].bytes);
    finding f;
    look(c, &f);
    if (f.code != 0) {
        fprintf(stderr, "damage campaign: the sound pool is damaged:\n%s", f.text);
        exit(70);
    }
    if (c->program_every > 0) {
        c->score =
            answer((const char *const[]){c->reef, "score", c->pool, c->text, "--json", NULL});
        c->eval = answer((const char *const[]){c->reef, "eval", c->pool, c->text, "--json", NULL});
    }
}

static void print_kinds(const campaign *c) {
    size_t counts[BYTE_ANY + 1] = {0};
    for (size_t i = 0; i < c->map.bytes; i++) counts[c->map.kind[i]]++;
    printf(
        "%zu bytes in %zu pages: %zu of %zu records, %zu of trees, %zu of separators, %zu free\n",
        c->map.bytes, c->map.page_count, counts[BYTE_RECORD], c->map.record_count,
        counts[BYTE_TREE], counts[BYTE_SEPARATOR], counts[BYTE_UNUSED]);
}

static void print_tally(const campaign *c, const tally *t) {
    if (c->terminal) fprintf(stderr, "\r\033[K");
    printf("%-12s  %6u  %6u  %6u  %6u  %9u  %8u\n", t->name, t->cases, t->live, t->found, t->named,
           t->by_record, t->programs);
    fflush(stdout);
}

static unsigned long option(int argc, char **argv, const char *name, unsigned long value) {
    for (int i = 4; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0) return strtoul(argv[i + 1], NULL, 10);
    return value;
}

int main(int argc, char **argv) {
    static campaign c; // with room for lists
    if (argc < 4 || argc % 2 != 0) {
        fprintf(stderr, "usage: damage_campaign REEF REEFD DIRECTORY [--flips N] [--tree-flips N] "
                        "[--truncations N] [--pages N] [--programs N] [--seed N]\n");
        return 64;
    }
    no_fork_init();
    unsigned long flip_count = option(argc, argv, "--flips", 500);
    unsigned long tree_count = option(argc, argv, "--tree-flips", 150);
    unsigned long truncation_count = option(argc, argv, "--truncations", 100);
    unsigned long page_count = option(argc, argv, "--pages", 50);
    unsigned long seed = option(argc, argv, "--seed", 1);
    c.reef = argv[1];
    c.reefd = argv[2];
    c.program_every = option(argc, argv, "--programs", 100);
    c.random = seed;
    c.total = flip_count + tree_count + truncation_count + page_count;
    c.terminal = isatty(STDERR_FILENO);
    c.began = time(NULL);
    prepare(&c, argv[3]);
    printf("seed %lu\n", seed);
    print_kinds(&c);
    fflush(stdout);

    tally all[] = {{.name = "flips"},
                   {.name = "tree flips"},
                   {.name = "truncations"},
                   {.name = "swaps"},
                   {.name = "stale pages"}};
    printf("damage         cases    live   found   named  by record  programs\n");
    flips(&c, all, flip_count);
    print_tally(&c, all);
    tree_flips(&c, all + 1, tree_count);
    print_tally(&c, all + 1);
    truncations(&c, all + 2, truncation_count);
    print_tally(&c, all + 2);
    pages(&c, all + 3, all + 4, page_count);
    print_tally(&c, all + 3);
    print_tally(&c, all + 4);
    printf("commands on damaged pools: %u, of which %u ended with an error, %u of these with that "
           "of a signal\n",
           c.command_runs, c.command_errors, c.command_signals);
    printf(c.failures == 0 ? "all as it must be\n" : "FAILED: %u cases\n", c.failures);
    place(c.data, c.sound.data, c.sound.bytes);
    byte_map_release(&c.map);
    for (size_t i = 0; i < c.old_count; i++) free(c.old[i].data);
    free(c.sound.data);
    free(c.image);
    free(c.pool);
    free(c.data);
    free(c.text);
    free(c.lost);
    free(c.score);
    free(c.eval);
    return c.failures == 0 ? 0 : 1;
}
