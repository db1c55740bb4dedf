// reef-lab stream: what a pool learns of one large stream, measured at points along it.
//
//   --work DIR   rows.jsonl    the arguments, then a row for each point, and for each rival there
//                seconds.json  what learning has taken up to the last commit
//                pool/         what `reef init` makes
//
// The trainer is closed at every point, as `reef train` ends, and the pool is opened again to be
// asked, as by `reef eval`; so a run that was killed continues from there.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): glibc owns the name.
#define _DEFAULT_SOURCE // madvise

#include "lab_stream.h"

#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"
#include "lab.h"
#include "matrix.h"
#include "reef_system.h"
#include "scratch_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define SOURCE "stream"
#define PIECE_BYTES 65536
#define COMMIT_STEPS 50 // as `reef train`
#define COMMIT_SECONDS 10.0
#define POINTS_MAX 32
#define POINTS_DEFAULT "1M,3M,10M,30M,100M"

static const reef_cli_option OPTIONS[] = {
    {"work", "DIR", "a directory for the pool and the rows; made when missing (required)"},
    {"points", "N,N,...", "bytes of STREAM after which to measure (default: " POINTS_DEFAULT ")"},
    {"rival", "NAME,...", "beside it: zpaq, ppmd (7-Zip), xz"},
    {"svg", "FILE", "also draw the curves"},
    {"size", "small|medium|large", "of the pool, as reef init takes it"},
    {0},
};

const reef_cli_manual reef_lab_stream_manual = {
    .about =
        "A new pool learns STREAM as `reef train` does. At each point it is committed and reads\n"
        "HELD, adapting and frozen. A row has the bits per byte of the first pass, since the last\n"
        "point and in all, and of HELD; kinds, generations, experts; the pool on disk, the most\n"
        "memory since the last point, and what learning cost: seconds of a processor, in all and\n"
        "since the last point, and the rate. Sizes are K, M and G of 1000.\n"
        "\n"
        "Every option of reef init can be given too. After a kill or a stop the same command "
        "continues\n"
        "from the last commit; more points and rivals can be added to a work directory.\n"
        "\n"
        "A rival compresses the stream up to each point, and this with HELD behind it: what that\n"
        "takes more is its HELD, adapting. They are zpaq -m5 (its tables double at powers of two\n"
        "of the input), 7-Zip's PPMd of order 16 with 1.5 GB, and xz -9e with a dictionary as\n"
        "large as the input, one thread each. Seconds are of the stream alone, memory of both.",
    .options = OPTIONS,
    .example = "reef-lab stream code code.held --work curve --net-share 0\n"
               "reef-lab stream code code.held --work curve --points 1M,30M --rival zpaq,xz "
               "--svg curve.svg",
};

// Of learning, from the beginning; a kill loses those since the last commit.
typedef struct seconds {
    double cpu, wall;
} seconds;

typedef struct stream {
    reef_cli_call *cli;
    char *work, *pool, *rows_path, *seconds_path;
    reef_cli_file text, held; // `text` is mapped, so that it is not of what learning holds
    uint64_t points[POINTS_MAX];
    size_t point_count;
    bool rivals[LAB_RIVALS];
    json_t *rows, *last; // all; the last one of the pool, NULL before
    reef_store *store;   // open from beginning to end: nobody else may learn in it
    // While it learns up to a point:
    reef_trainer *trainer;
    seconds spent, counted; // `spent` has all up to `counted`, by the clocks
    uint64_t steps;         // since the last commit
    bool dirty;
} stream;

// ---- what was asked for -------------------------------------------------------------------------

// 300, 50k, 3M, 1G; 0: it is none.
static uint64_t read_point(const char *text) {
    char *end;
    uint64_t value = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (value == 0 || value > UINT64_MAX / 1000000000) return 0;
    const char *units = "kMG", *unit = *end == 'K' ? units : strchr(units, *end);
    if (*end == '\0') return value;
    if (unit == NULL || end[1] != '\0') return 0;
    for (const char *at = units; at <= unit; at++) value *= 1000;
    return value;
}

static reef_status read_points(stream *s, reef_error *err) {
    const char *given = reef_cli_text(s->cli, "points");
    char *text = reef_cli_format("%s", given != NULL ? given : POINTS_DEFAULT), *rest = NULL;
    reef_status status = REEF_OK;
    for (char *word = strtok_r(text, ",", &rest); word != NULL && status == REEF_OK;
         word = strtok_r(NULL, ",", &rest)) {
        uint64_t point = read_point(word),
                 last = s->point_count == 0 ? 0 : s->points[s->point_count - 1];
        if (point <= last || s->point_count == POINTS_MAX)
            status = reef_fail(err, REEF_ERR_INVALID,
                               "--points has '%.40s': it takes up to %d numbers such as 300k or "
                               "10M, each above the one before",
                               word, POINTS_MAX);
        else if (point <= s->text.count)
            s->points[s->point_count++] = point;
        else if (given != NULL)
            status =
                reef_fail(err, REEF_ERR_INVALID, "--points has %.40s, and %.120s has %zu bytes",
                          word, s->text.path, s->text.count);
    }
    free(text);
    if (status == REEF_OK && s->point_count == 0)
        status = reef_fail(err, REEF_ERR_INVALID, "%.120s has %zu bytes: give --points",
                           s->text.path, s->text.count);
    return status;
}

static reef_status map_stream(stream *s, reef_error *err) {
    struct stat info;
    s->text.path = s->cli->operands[0];
    int file = open(s->text.path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &info) != 0)
        return reef_cli_read_failed(s->text.path, "open", errno, err);
    bool whole = S_ISREG(info.st_mode) && info.st_size > 0;
    void *map = whole ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, file, 0) : NULL;
    close(file);
    if (!whole || map == MAP_FAILED)
        return reef_fail(err, REEF_ERR_INVALID, "%.160s is empty or not a regular file",
                         s->text.path);
    s->text.bytes = map;
    s->text.count = (size_t)info.st_size;
    return REEF_OK;
}

// They stay in the page cache, and leave this process.
static void drop_pages(const stream *s) {
    (void)madvise(s->text.bytes, s->text.count, MADV_DONTNEED);
}

static reef_status read_request(stream *s, reef_error *err) {
    const char *work = reef_cli_text(s->cli, "work"), *rivals = reef_cli_text(s->cli, "rival");
    const char *svg = reef_cli_text(s->cli, "svg");
    if (work == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "--work is missing: a directory for the pool");
    s->work = reef_cli_format("%s", work);
    s->pool = reef_cli_format("%s/pool", work);
    s->rows_path = reef_cli_format("%s/rows.jsonl", work);
    s->seconds_path = reef_cli_format("%s/seconds.json", work);
    reef_status status = svg != NULL ? reef_store_check_output(svg, err) : REEF_OK;
    if (status == REEF_OK) status = map_stream(s, err);
    if (status == REEF_OK) status = read_points(s, err);
    if (status == REEF_OK) status = reef_cli_text_read(&s->held, s->cli->operands[1], err);
    if (status == REEF_OK && rivals != NULL) status = reef_lab_rivals_read(rivals, s->rivals, err);
    return status;
}

// ---- the work directory -------------------------------------------------------------------------

static json_t *text_json(const reef_cli_file *text) {
    char hash[CLI_WORD_BYTES];
    snprintf(hash, sizeof(hash), "%016" PRIx64, (uint64_t)XXH3_64bits(text->bytes, text->count));
    return json_string(hash);
}

// What decides every row: the bytes of both files, and how the pool is made.
static json_t *arguments_json(const stream *s) {
    json_t *out =
        json_pack("{s:o, s:o}", "stream", text_json(&s->text), "held", text_json(&s->held));
    for (size_t i = 0; i < s->cli->given_count; i++) {
        const reef_cli_given *one = &s->cli->given[i];
        if (reef_cli_config_field(one->name) != NULL || strcmp(one->name, "size") == 0)
            json_object_set_new(out, one->name, reef_cli_path(one->value));
    }
    return out;
}

static reef_status append_row(const stream *s, json_t *row, reef_error *err) {
    char *words = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17));
    char *line = reef_cli_format("%s\n", words);
    reef_status status = reef_lab_file_write(s->rows_path, "ab", line, strlen(line), err);
    free(words);
    free(line);
    return status;
}

// A row is kept in memory too.
static void keep_row(stream *s, json_t *row) {
    json_array_append_new(s->rows, row);
    if (json_object_get(row, "rival") == NULL) s->last = row;
}

// *begun: there are arguments. A line that was torn by a kill is cut off.
static reef_status read_rows(stream *s, const json_t *arguments, bool *begun, reef_error *err) {
    reef_cli_file file = {0};
    if (access(s->rows_path, F_OK) != 0) return REEF_OK;
    reef_status status = reef_cli_file_read(&file, s->rows_path, err);
    size_t at = 0;
    for (const uint8_t *end; status == REEF_OK && at < file.count; at = end - file.bytes + 1) {
        end = memchr(file.bytes + at, '\n', file.count - at);
        if (end == NULL) break;
        json_t *row = json_loadb((char *)file.bytes + at, end - file.bytes - at, 0, NULL);
        if (row == NULL)
            status = reef_fail(err, REEF_ERR_CORRUPT, "%.160s has a line that is not a row",
                               s->rows_path);
        else if (*begun)
            keep_row(s, row);
        else if (!json_equal(row, arguments))
            status = reef_fail(err, REEF_ERR_INVALID,
                               "%.60s was begun with other arguments, %.*s; name another --work",
                               s->work, (int)(end - file.bytes), (char *)file.bytes);
        if (!*begun) json_decref(row);
        *begun = true;
    }
    if (status == REEF_OK && at < file.count && truncate(s->rows_path, (off_t)at) != 0)
        status = reef_cli_write_failed(s->rows_path, errno, err);
    reef_cli_file_release(&file);
    return status;
}

static bool has_row(const stream *s, uint64_t bytes, const char *rival) {
    size_t i;
    json_t *row;
    json_array_foreach(s->rows, i, row) {
        if (reef_cli_count_of(row, "bytes") == bytes &&
            strcmp(reef_cli_text_of(row, "rival"), rival) == 0)
            return true;
    }
    return false;
}

// What `reef init` says belongs on standard error here.
static reef_status make_pool(const stream *s, reef_error *err) {
    reef_cli_call init = *s->cli;
    init.pool = s->pool;
    init.json = false;
    fflush(stdout);
    int answer = dup(STDOUT_FILENO);
    if (answer < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return reef_fail(err, REEF_ERR_IO, "cannot turn standard output: %s", strerror(errno));
    reef_status status = reef_cmd_init(&init, err);
    fflush(stdout);
    (void)dup2(answer, STDOUT_FILENO);
    close(answer);
    return status;
}

// The arguments are kept once a pool could be made with them.
static reef_status open_work(stream *s, reef_error *err) {
    bool begun = false, has_pool = reef_cli_pool_bytes(s->pool) > 0;
    if (mkdir(s->work, 0777) != 0 && errno != EEXIST)
        return reef_cli_write_failed(s->work, errno, err);
    json_t *arguments = arguments_json(s);
    drop_pages(s);
    reef_status status = read_rows(s, arguments, &begun, err);
    if (status == REEF_OK && begun != has_pool)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "%.120s has only one of pool and rows.jsonl; remove it, or name another "
                           "--work",
                           s->work);
    if (status == REEF_OK && !has_pool) status = make_pool(s, err);
    if (status == REEF_OK && !begun) status = append_row(s, arguments, err);
    json_decref(arguments);
    reef_cli_call call = *s->cli;
    call.pool = s->pool;
    if (status == REEF_OK)
        status = reef_cli_store_open(&s->store, &call, true, "another run learns in it", err);
    return status;
}

// ---- learning -----------------------------------------------------------------------------------

// The clocks since they were read last.
static void count_seconds(stream *s) {
    seconds now = {reef_process_cpu_seconds(), reef_seconds()};
    s->spent.cpu += now.cpu - s->counted.cpu;
    s->spent.wall += now.wall - s->counted.wall;
    s->counted = now;
}

static void read_seconds(stream *s) {
    json_t *spent = json_load_file(s->seconds_path, 0, NULL); // NULL: nothing was committed
    s->spent = (seconds){reef_cli_real_of(spent, "cpu"), reef_cli_real_of(spent, "wall")};
    json_decref(spent);
}

// In one piece: a torn file would be none.
static reef_status write_seconds(const stream *s, reef_error *err) {
    char *path = reef_cli_format("%s.new", s->seconds_path);
    char *text = reef_cli_format("{\"cpu\": %.6f, \"wall\": %.6f}\n", s->spent.cpu, s->spent.wall);
    reef_status status = reef_lab_file_write(path, "wb", text, strlen(text), err);
    if (status == REEF_OK && rename(path, s->seconds_path) != 0)
        status = reef_cli_write_failed(s->seconds_path, errno, err);
    free(text);
    free(path);
    return status;
}

static reef_status commit(stream *s, reef_error *err) {
    if (!s->dirty) return REEF_OK;
    reef_status status = reef_trainer_commit(s->trainer, NULL, err);
    reef_usage_compaction done = {.merged = 1};
    while (status == REEF_OK && (done.merged > 0 || done.dropped > 0))
        status = reef_trainer_compact(s->trainer, &done, err);
    count_seconds(s);
    s->steps = 0;
    s->dirty = false;
    return status == REEF_OK ? write_seconds(s, err) : status;
}

// With nothing to feed: what was deferred may allow more steps.
static reef_status feed(stream *s, const uint8_t *bytes, size_t count, reef_error *err) {
    reef_status status = REEF_OK;
    size_t taken = 0, steps = 1;
    while (status == REEF_OK && (count > 0 || (bytes == NULL && steps > 0))) {
        const uint8_t *from = bytes != NULL ? bytes : (const uint8_t *)"";
        status = reef_trainer_feed(s->trainer, SOURCE, from, count, &taken, &steps, err);
        if (bytes != NULL) bytes += taken;
        count -= taken;
        s->steps += steps;
        s->dirty |= taken > 0 || steps > 0;
        bool due = s->steps >= COMMIT_STEPS || reef_seconds() - s->counted.wall > COMMIT_SECONDS;
        if (status == REEF_OK && due) status = commit(s, err);
    }
    return status;
}

static reef_status feed_to(stream *s, uint64_t point, reef_error *err) {
    uint64_t begin = reef_trainer_cursor(s->trainer, SOURCE), at = begin;
    reef_status status = REEF_OK;
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "learning to the next point", point - begin, "B");
    while (status == REEF_OK && at < point && !reef_cli_is_stopped()) {
        size_t count = point - at < PIECE_BYTES ? (size_t)(point - at) : PIECE_BYTES;
        status = feed(s, s->text.bytes + at, count, err);
        at += count;
        drop_pages(s);
        reef_cli_progress_show(&progress, at - begin);
    }
    if (status == REEF_OK && at == point) status = feed(s, NULL, 0, err);
    if (status == REEF_OK) status = commit(s, err);
    if (status == REEF_OK) status = reef_trainer_rest(s->trainer, err);
    reef_cli_progress_end(&progress);
    return status;
}

// The most that this process has held counts from here on.
static void forget_peak(void) {
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (file == NULL) return;
    fputs("5", file);
    fclose(file);
}

// The row has what the trainer knows; NULL where a signal stopped it.
static reef_status learn_to(stream *s, uint64_t point, json_t **row, reef_error *err) {
    reef_trainer_status now;
    *row = NULL;
    forget_peak();
    read_seconds(s);
    s->counted = (seconds){reef_process_cpu_seconds(), reef_seconds()};
    reef_status status = reef_trainer_open(
        &s->trainer, s->store, &(reef_trainer_options){.threads = s->cli->threads}, err);
    if (status == REEF_OK && reef_trainer_cursor(s->trainer, SOURCE) > point)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "%.100s has learned more than %" PRIu64 " bytes, and there is no row of "
                           "this point; name another --work",
                           s->work, point);
    if (status == REEF_OK) status = feed_to(s, point, err);
    if (status == REEF_OK && reef_trainer_cursor(s->trainer, SOURCE) == point) {
        reef_trainer_status_read(s->trainer, &now);
        *row = json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "bytes", (json_int_t)point,
                         "learned_bytes", (json_int_t)now.stream_bytes, "kinds",
                         (json_int_t)now.kinds, "generations", (json_int_t)now.generation + 1,
                         "experts", (json_int_t)now.experts, "resident_bytes",
                         reef_cli_real(reef_proc_bytes("/proc/self/status", "VmHWM")));
    }
    reef_trainer_close(s->trainer);
    s->trainer = NULL;
    return status;
}

// ---- a point ------------------------------------------------------------------------------------

static reef_status read_held(const stream *s, json_t *row, reef_error *err) {
    static const char *const NAMES[2] = {"held_out_bits_per_byte", "frozen_bits_per_byte"};
    reef_model *model = NULL;
    reef_cli_progress progress;
    double began = reef_seconds();
    reef_status status = reef_model_open(&model, s->store, NULL,
                                         &(reef_model_options){.threads = s->cli->threads}, err);
    json_object_set_new(row, "open_seconds", reef_cli_real(reef_seconds() - began));
    reef_cli_progress_start(&progress, "held out", 2 * s->held.count, "B");
    for (size_t i = 0; i < 2 && status == REEF_OK; i++) {
        reef_score score = {0};
        reef_model_set_reading(model, i == 0 ? REEF_READ_ADAPTING : REEF_READ_FROZEN);
        status = reef_score_file(model, &s->held, &progress, NULL, &score, err);
        json_object_set_new(row, NAMES[i], reef_cli_real(score.bits_per_byte));
    }
    reef_cli_progress_end(&progress);
    reef_model_close(model);
    return status;
}

// Totals, and what came since the row before.
static reef_status add_figures(const stream *s, json_t *row, reef_error *err) {
    reef_cli_pool pool = {.store = s->store};
    reef_cli_points losses = {0};
    double sum = 0, batches = 0;
    reef_status status = reef_cli_points_read(&losses, &pool, err);
    // The pool's own history: it has every batch, whatever was killed between.
    for (size_t i = 0; i < losses.count; i++) {
        double count = (double)reef_cli_point_batches(&losses.points[i]);
        sum += count * (double)losses.points[i].bits_per_byte;
        batches += count;
    }
    reef_cli_points_release(&losses);
    double learned = reef_cli_real_of(row, "learned_bytes"), bits = learned * sum / batches;
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"first_pass_bits", bits},
        {"first_pass_bits_per_byte", bits / learned},
        {"first_pass_part_bits_per_byte",
         (bits - reef_cli_real_of(s->last, "first_pass_bits")) /
             (learned - reef_cli_real_of(s->last, "learned_bytes"))},
        {"seconds", s->spent.wall},
        {"cpu_seconds", s->spent.cpu},
        {"cpu_part_seconds", s->spent.cpu - reef_cli_real_of(s->last, "cpu_seconds")},
        {"bytes_per_s", (reef_cli_real_of(row, "bytes") - reef_cli_real_of(s->last, "bytes")) /
                            (s->spent.wall - reef_cli_real_of(s->last, "seconds"))},
        {"pool_bytes", (double)reef_cli_pool_bytes(s->pool)},
    };
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
        json_object_set_new(row, figures[i].name, reef_cli_real(figures[i].value));
    return status;
}

static reef_status measure_point(stream *s, uint64_t point, reef_error *err) {
    json_t *row = NULL;
    if (has_row(s, point, "")) return REEF_OK;
    reef_status status = learn_to(s, point, &row, err);
    if (status != REEF_OK || row == NULL) return status;
    status = add_figures(s, row, err);
    if (status == REEF_OK) status = read_held(s, row, err);
    if (status == REEF_OK) status = append_row(s, row, err);
    keep_row(s, row);
    if (status == REEF_OK)
        fprintf(stderr, "%s learned: held out %.4f adapting, %.4f frozen; %.1f kB/s\n",
                CLI_BYTES(point), reef_cli_real_of(row, "held_out_bits_per_byte"),
                reef_cli_real_of(row, "frozen_bits_per_byte"),
                1e-3 * reef_cli_real_of(row, "bytes_per_s"));
    return status;
}

static reef_status measure_rival(stream *s, size_t rival, uint64_t point, reef_error *err) {
    json_t *row = NULL;
    const char *name = reef_lab_rival_name(rival);
    if (has_row(s, point, name)) return REEF_OK;
    reef_status status = reef_lab_rival_measure(rival, s->work, s->text.bytes, (size_t)point,
                                                s->held.bytes, s->held.count, &row, err);
    drop_pages(s);
    // A terminal sends its signal to the rival too.
    if (status != REEF_OK) return reef_cli_is_stopped() ? REEF_OK : status;
    status = append_row(s, row, err);
    keep_row(s, row);
    if (status == REEF_OK)
        fprintf(stderr, "%s to %s: held out %.4f\n", CLI_BYTES(point), name,
                reef_cli_real_of(row, "held_out_bits_per_byte"));
    return status;
}

// ---- answers ------------------------------------------------------------------------------------

typedef struct column {
    const char *heading, *field;
    char format; // t text, n number, b bytes, l loss, s seconds, r rate
} column;

static const column POOL[] = {{"learned", "bytes", 'b'},
                              {"first pass", "first_pass_part_bits_per_byte", 'l'},
                              {"in all", "first_pass_bits_per_byte", 'l'},
                              {"held out", "held_out_bits_per_byte", 'l'},
                              {"frozen", "frozen_bits_per_byte", 'l'},
                              {"kinds", "kinds", 'n'},
                              {"generations", "generations", 'n'},
                              {"experts", "experts", 'n'},
                              {"on disk", "pool_bytes", 'b'},
                              {"memory", "resident_bytes", 'b'},
                              {"CPU s", "cpu_part_seconds", 's'},
                              {"in all", "cpu_seconds", 's'},
                              {"kB/s", "bytes_per_s", 'r'}};
static const column RIVAL[] = {{"rival", "rival", 't'},
                               {"of", "bytes", 'b'},
                               {"first pass in all", "first_pass_bits_per_byte", 'l'},
                               {"held out", "held_out_bits_per_byte", 'l'},
                               {"memory", "resident_bytes", 'b'},
                               {"CPU s", "cpu_seconds", 's'}};
#define COLUMNS_MAX (sizeof(POOL) / sizeof(POOL[0]))

static void print_cell(reef_cli_table *table, const json_t *row, const column *c) {
    double value = reef_cli_real_of(row, c->field);
    if (c->format == 't') reef_cli_table_cell(table, "%s", reef_cli_text_of(row, c->field));
    if (c->format == 'n') reef_cli_table_cell(table, "%s", CLI_COUNT((uint64_t)value));
    if (c->format == 'b') reef_cli_table_cell(table, "%s", CLI_BYTES((uint64_t)value));
    if (c->format == 'l') reef_cli_table_cell(table, "%.4f", value);
    if (c->format == 's') reef_cli_table_cell(table, "%.1f", value);
    if (c->format == 'r') reef_cli_table_cell(table, "%.1f", 1e-3 * value);
}

static void print_rows(const json_t *rows, bool rivals, const column *columns, size_t count) {
    const char *headings[COLUMNS_MAX];
    char sides[COLUMNS_MAX + 1] = "";
    for (size_t c = 0; c < count; c++) {
        headings[c] = columns[c].heading;
        sides[c] = columns[c].format == 't' ? '<' : '>';
    }
    reef_cli_table *table = reef_cli_table_new(sides, headings);
    size_t i, shown = 0;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        if ((json_object_get(row, "rival") != NULL) != rivals) continue;
        for (size_t c = 0; c < count; c++) print_cell(table, row, &columns[c]);
        shown++;
    }
    if (shown > 0 && rivals) printf("\n");
    if (shown > 0) reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static reef_status reply(const stream *s, reef_error *err) {
    const char *svg = reef_cli_text(s->cli, "svg");
    size_t threads = s->cli->threads, count = json_array_size(s->rows);
    reef_status status = REEF_OK;
    if (threads == 0) threads = (size_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (svg != NULL && count > 0) {
        char *title = reef_cli_format("Bits per byte of %s after %s", base_name(s->held.path),
                                      base_name(s->text.path));
        status = reef_lab_curves_svg(svg, title, s->rows, err);
        free(title);
    }
    if (status != REEF_OK) return status;
    if (s->cli->json) {
        json_t *document = json_pack(
            "{s:b, s:o, s:I, s:o, s:I, s:O}", "finished", !reef_cli_is_stopped(), "stream",
            reef_cli_path(s->text.path), "stream_bytes", (json_int_t)s->text.count, "held",
            reef_cli_path(s->held.path), "held_bytes", (json_int_t)s->held.count, "rows", s->rows);
        reef_lab_machine_json(document, threads);
        return reef_cli_reply(s->cli, document, err);
    }
    reef_lab_machine_print(threads);
    if (count == 0) return REEF_OK;
    print_rows(s->rows, false, POOL, COLUMNS_MAX);
    print_rows(s->rows, true, RIVAL, sizeof(RIVAL) / sizeof(RIVAL[0]));
    reef_lab_curves_print(s->rows);
    return REEF_OK;
}

// ---- the command --------------------------------------------------------------------------------

static void release(stream *s) {
    reef_trainer_close(s->trainer);
    if (s->store != NULL) reef_store_close(s->store);
    if (s->text.bytes != NULL) (void)munmap(s->text.bytes, s->text.count);
    reef_cli_file_release(&s->held);
    json_decref(s->rows);
    free(s->work);
    free(s->pool);
    free(s->rows_path);
    free(s->seconds_path);
}

reef_status reef_lab_stream(reef_cli_call *cli, reef_error *err) {
    stream s = {.cli = cli, .rows = json_array()};
    reef_status status = read_request(&s, err);
    if (status == REEF_OK) status = open_work(&s, err);
    if (status == REEF_OK) reef_cli_catch_signals(false);
    for (size_t i = 0; i < s.point_count && status == REEF_OK && !reef_cli_is_stopped(); i++) {
        status = measure_point(&s, s.points[i], err);
        for (size_t r = 0; r < LAB_RIVALS && status == REEF_OK && !reef_cli_is_stopped(); r++)
            if (s.rivals[r]) status = measure_rival(&s, r, s.points[i], err);
    }
    if (status == REEF_OK) status = reply(&s, err);
    if (status == REEF_OK && reef_cli_is_stopped())
        fprintf(stderr, "reef-lab stream: stopped; the same command goes on\n");
    release(&s);
    return status;
}
