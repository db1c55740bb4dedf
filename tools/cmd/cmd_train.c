// reef train: train a pool on files in this process, as one stream.
//
//   files --> stream --> reef_trainer_feed --> commit, now and then and at the end
//
// What was accepted is kept in the pool, so the same command goes on after any end.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"
#include "reef_source.h"
#include "reef_system.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COMMIT_STEPS_DEFAULT 50
#define COMMIT_STEPS_MAX 1000000000
#define COMMIT_SECONDS 10.0

static const reef_cli_option OPTIONS[] = {
    {"commit-steps", "N", "commit after so many steps (default 50; 0: by time only)"},
    {"pool-max", "SIZE", "what the pool's records may take: then the oldest states are given up"},
    {0},
};

const reef_cli_manual reef_train_manual = {
    .about =
        "Trains on the files one after the other as one stream; nobody tells the model where one\n"
        "ends. The bits are those of `reefd --source` over the same files. No daemon may run on\n"
        "the pool. Interrupted, it commits; the same command goes on.",
    .options = OPTIONS,
    .example = "reef train reef.pool english.txt code.c\n"
               "reef train reef.pool notes.txt --threads 1 --json",
};

// ---- the stream ---------------------------------------------------------------------------------
//
// Files as one stream without boundaries, read from where the pool stands. They are opened by the
// daemon's own code, so that both take the same names and keep the same cursors.

#define READ_BYTES 65536

typedef struct stream {
    reef_input *files;
    uint64_t *starts; // (count + 1) where each file begins; the last one is the end of the stream
    size_t count;
    uint64_t at; // bytes of the stream that the trainer has accepted
    uint8_t *buffer;
} stream;

static uint64_t stream_bytes(const stream *s) {
    return s->starts[s->count];
}

static reef_status open_one(stream *s, const char *spec, reef_error *err) {
    if (strcmp(spec, "-") == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "standard input cannot be read again after a restart: "
                         "train on files, or use reefd --source -");
    // The order of matching files could change between two calls.
    if (strncmp(spec, "glob:", 5) == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.100s' is a pattern that reefd expands; "
                         "for reef train the shell does: give %.100s without quotes",
                         spec, spec + 5);
    reef_input *file = &s->files[s->count++];
    reef_status status = reef_input_open(file, spec, err);
    // Only the kind is named: the rest of the words may hold a password.
    if (file->kind != NULL && file->kind->read_now == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a source %.*s: has no end: give files, "
                         "or let reefd read it (reefd --source)",
                         (int)strcspn(spec, ":"), spec);
    if (status != REEF_OK) return status;
    // By the name under which the pool keeps its position, so that two spellings are found.
    for (size_t i = 0; i + 1 < s->count; i++)
        if (strcmp(file->name, s->files[i].name) == 0)
            return reef_fail(err, REEF_ERR_INVALID,
                             "the file '%.160s' is given twice; each is read once", spec);
    s->starts[s->count] = s->starts[s->count - 1] + file->bytes;
    return REEF_OK;
}

// The names are sources as `reefd --source` takes them. Release also after an error.
static reef_status stream_open(stream *s, char **specs, size_t count, reef_error *err) {
    *s = (stream){.files = reef_cli_alloc(count, sizeof(*s->files)),
                  .starts = reef_cli_alloc(count + 1, sizeof(*s->starts)),
                  .buffer = reef_cli_alloc(READ_BYTES, 1)};
    reef_status status = REEF_OK;
    for (size_t i = 0; i < count && status == REEF_OK; i++) status = open_one(s, specs[i], err);
    // An empty stream would end as a success that did nothing.
    if (status == REEF_OK && stream_bytes(s) == 0)
        status =
            reef_fail(err, REEF_ERR_NOT_FOUND, "the stream is empty: %s%.160s has not one byte",
                      count > 1 ? "none of the files from " : "", specs[0]);
    return status;
}

// The pool keeps its sources in the order in which they were first read. The files that were read
// must have the same order here.
static reef_status check_order(const stream *s, const reef_trainer *trainer, reef_error *err) {
    const char *before = NULL; // the last file so far that was read
    for (size_t i = 0; i < s->count; i++) {
        const char *name = s->files[i].name;
        if (reef_trainer_cursor(trainer, name) == 0) continue;
        if (before != NULL &&
            reef_trainer_source_index(trainer, name) < reef_trainer_source_index(trainer, before))
            return reef_fail(err, REEF_ERR_INVALID,
                             "the pool has read '%.70s' before '%.70s': "
                             "give the files in the order in which they were trained",
                             name, before);
        before = name;
    }
    return REEF_OK;
}

// Go on where the pool's cursors stand.
static reef_status stream_seek(stream *s, const reef_trainer *trainer, reef_error *err) {
    for (size_t i = 0; i < s->count; i++) {
        uint64_t cursor = reef_trainer_cursor(trainer, s->files[i].name);
        // Also checks that the beginning of the file has not changed.
        reef_status status =
            reef_input_seek(&s->files[i], &(reef_input_offset){.cursor = cursor}, err);
        if (status != REEF_OK) return status;
        // A file is read only after those before it: otherwise an earlier one has grown.
        if (cursor > 0 && s->at != s->starts[i])
            return reef_fail(err, REEF_ERR_INVALID,
                             "the pool has read '%.120s', but not all of the files before it: give "
                             "the files in the order in which they were trained",
                             s->files[i].name);
        s->at += cursor;
    }
    return check_order(s, trainer, err);
}

static void stream_release(stream *s) {
    for (size_t i = 0; i < s->count; i++) reef_input_close(&s->files[i]);
    free(s->files);
    free(s->starts);
    free(s->buffer);
    *s = (stream){0};
}

// The file that holds the next byte.
static size_t next_file(const stream *s) {
    size_t file = 0;
    while (file + 1 < s->count && s->at >= s->starts[file + 1]) file++;
    return file;
}

// The next bytes, of one file; there must be one. Both are good until the next call.
static reef_status stream_read(
    stream *s, const char **name, const uint8_t **bytes, size_t *count, reef_error *err) {
    size_t i = next_file(s);
    reef_input *file = &s->files[i];
    uint64_t end = s->starts[i + 1], offset = s->at - s->starts[i];
    size_t want = end - s->at < READ_BYTES ? (size_t)(end - s->at) : READ_BYTES;
    reef_status status = file->kind->read_now(file, offset, s->buffer, want, count, err);
    if (status != REEF_OK) return status;
    *name = file->name;
    *bytes = s->buffer;
    // read_now() returns nothing only at the end of the file, which cannot be here.
    if (*count > 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "reading '%.160s' at byte %" PRIu64 ": the file shrank while it was read",
                     file->label, offset);
}

// ---- what was asked for -------------------------------------------------------------------------

typedef struct train {
    reef_cli_call *cli;
    reef_cli_pool pool; // its store is open for writing
    reef_trainer *trainer;
    stream stream;
    uint64_t commit_steps, pool_max;
    uint64_t steps;              // since the last commit
    double committed;            // when that was
    bool dirty;                  // something was accepted since
    double seconds, cpu_seconds; // of training
    reef_cli_progress progress;
} train;

static reef_status read_request(train *t, reef_error *err) {
    t->commit_steps = COMMIT_STEPS_DEFAULT;
    const char *pool_max = reef_cli_text(t->cli, "pool-max");
    reef_status status =
        reef_cli_integer(t->cli, "commit-steps", 0, COMMIT_STEPS_MAX, &t->commit_steps, err);
    if (status == REEF_OK && pool_max != NULL &&
        reef_memory_parse(pool_max, &t->pool_max, NULL) != REEF_OK)
        status = reef_fail(err, REEF_ERR_INVALID, "--pool-max %.80s is not a size such as 20G",
                           pool_max);
    return status;
}

static reef_status check_stream(const reef_cli_pool *pool, reef_error *err) {
    if (!reef_config_is_layer(&pool->config)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "the pool holds a layer by itself, which has no stream; "
                     "a program that uses it through libreef trains it");
}

static reef_status open_pool(train *t, reef_error *err) {
    reef_status status = reef_cli_store_open(&t->pool.store, t->cli, !t->cli->dry_run,
                                             "stop it first, or push to it with reef ingest", err);
    if (status == REEF_OK) status = reef_cli_pool_refresh(&t->pool, err);
    return status == REEF_OK ? check_stream(&t->pool, err) : status;
}

static reef_status open_trainer(train *t, reef_error *err) {
    reef_status status =
        reef_trainer_open(&t->trainer, t->pool.store,
                          &(reef_trainer_options){.threads = t->cli->threads,
                                                  .memory_bytes = t->cli->memory_bytes,
                                                  .pool_max = t->pool_max},
                          err);
    return status == REEF_OK ? stream_seek(&t->stream, t->trainer, err) : status;
}

// ---- training -----------------------------------------------------------------------------------

static reef_status commit(train *t, reef_error *err) {
    reef_commit made;
    if (!t->dirty) return REEF_OK;
    reef_status status = reef_trainer_commit(t->trainer, &made, err);
    reef_usage_compaction done = {.merged = 1};
    while (status == REEF_OK && (done.merged > 0 || done.dropped > 0))
        status = reef_trainer_compact(t->trainer, &done, err);
    t->steps = 0;
    t->committed = reef_seconds();
    t->dirty = false;
    return status;
}

static bool commit_is_due(const train *t) {
    if (t->commit_steps > 0 && t->steps >= t->commit_steps) return true;
    return reef_seconds() - t->committed > COMMIT_SECONDS;
}

static reef_status feed_bytes(
    train *t, const char *name, const uint8_t *bytes, size_t count, reef_error *err) {
    reef_status status = REEF_OK;
    while (status == REEF_OK && count > 0 && !reef_cli_is_stopped()) {
        size_t taken = 0, steps = 0;
        // The trainer takes what fills its batches; the rest is handed over again.
        status = reef_trainer_feed(t->trainer, name, bytes, count, &taken, &steps, err);
        bytes += taken;
        count -= taken;
        t->stream.at += taken;
        t->steps += steps;
        t->dirty = true;
        if (status == REEF_OK && commit_is_due(t)) status = commit(t, err);
        reef_cli_progress_show(&t->progress, t->stream.at);
    }
    return status;
}

// Batches that were deferred may allow more steps than the bytes that came last.
static reef_status drain(train *t, reef_error *err) {
    const stream *s = &t->stream;
    size_t last = s->count - 1; // the file that was read last
    while (s->starts[last] == s->starts[last + 1]) last--;
    const char *name = s->files[last].name;
    reef_status status = REEF_OK;
    for (size_t steps = 1, taken = 0; status == REEF_OK && steps > 0;) {
        status = reef_trainer_feed(t->trainer, name, (const uint8_t *)"", 0, &taken, &steps, err);
        if (steps > 0) t->dirty = true;
    }
    return status;
}

static reef_status run_train(train *t, reef_error *err) {
    const uint64_t all = stream_bytes(&t->stream);
    double began = reef_seconds(), cpu = reef_process_cpu_seconds();
    reef_status status = REEF_OK;
    t->committed = began;
    reef_cli_progress_start(&t->progress, "training", all, "B");
    while (status == REEF_OK && t->stream.at < all && !reef_cli_is_stopped()) {
        const char *name;
        const uint8_t *bytes;
        size_t count;
        status = stream_read(&t->stream, &name, &bytes, &count, err);
        if (status == REEF_OK) status = feed_bytes(t, name, bytes, count, err);
    }
    if (status == REEF_OK && !reef_cli_is_stopped()) status = drain(t, err);
    if (status == REEF_OK) status = commit(t, err);
    // All is committed: without it the next command that opens the pool takes longer.
    if (status == REEF_OK) (void)!reef_trainer_rest(t->trainer, NULL);
    reef_cli_progress_end(&t->progress);
    t->seconds = reef_seconds() - began;
    t->cpu_seconds = reef_process_cpu_seconds() - cpu;
    if (status == REEF_OK && reef_cli_is_stopped())
        fprintf(stderr,
                "reef train: stopped and committed at byte %" PRIu64 " of %" PRIu64
                "; the same command continues from there\n",
                t->stream.at, all);
    return status;
}

// ---- answers ------------------------------------------------------------------------------------

static json_t *files_json(const stream *s) {
    json_t *files = json_array();
    for (size_t i = 0; i < s->count; i++)
        json_array_append_new(files,
                              json_pack("{s:o, s:I, s:I}", "file", reef_cli_path(s->files[i].name),
                                        "bytes", (json_int_t)(s->starts[i + 1] - s->starts[i]),
                                        "starts_at", (json_int_t)s->starts[i]));
    return files;
}

static json_t *document(const train *t, const reef_trainer_status *now) {
    json_t *found =
        json_pack("{s:b, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "finished",
                  !reef_cli_is_stopped(), "files", files_json(&t->stream), "seconds",
                  reef_cli_real(t->seconds), "cpu_seconds", reef_cli_real(t->cpu_seconds), "steps",
                  (json_int_t)now->step, "accepted_bytes", (json_int_t)t->stream.at, "stream_bytes",
                  (json_int_t)now->stream_bytes, "carried_bytes", (json_int_t)now->pending_bytes,
                  "generations", (json_int_t)t->pool.generation_count, "pool_bytes",
                  (json_int_t)t->pool.file_bytes, "root", CLI_HASH(t->pool.commit.root));
    if (!now->learns_all)
        json_object_set_new(found, "not_learned_bytes",
                            json_integer((json_int_t)now->not_learned_bytes));
    return found;
}

static void print(const train *t, const reef_trainer_status *now) {
    const reef_config *config = &t->pool.config;
    const char *unit = reef_cli_stream_unit(config);
    printf("%s %s %ss in %s", reef_cli_is_stopped() ? "stopped after" : "read all",
           CLI_COUNT(t->stream.at), unit, CLI_DURATION(t->seconds));
    if (now->pending_bytes > 0)
        printf("; the last %s wait for what comes next", CLI_COUNT(now->pending_bytes));
    printf("\n");
    // Marker lines are part of the position, but not of training.
    if (!now->learns_all && now->not_learned_bytes > 0)
        printf(
            "  %s %ss of the pool's stream were recognised, or lay at marker lines: not trained\n",
            CLI_COUNT(now->not_learned_bytes), unit);
    // It identifies the state: two runs over the same files have the same.
    printf("  root %s\n", CLI_HASH(t->pool.commit.root));
}

static reef_status reply_train(train *t, reef_error *err) {
    reef_trainer_status now;
    // The commits of this process are seen only by a new read transaction.
    reef_status status = reef_cli_pool_refresh(&t->pool, err);
    if (status != REEF_OK) return status;
    reef_trainer_status_read(t->trainer, &now);
    if (t->cli->json) return reef_cli_reply(t->cli, document(t, &now), err);
    print(t, &now);
    return REEF_OK;
}

static reef_status reply_plan(train *t, reef_error *err) {
    uint64_t all = stream_bytes(&t->stream);
    if (t->cli->json)
        return reef_cli_reply(t->cli,
                              json_pack("{s:b, s:o, s:I, s:I, s:I}", "done", 0, "pool",
                                        reef_cli_path(t->cli->pool), "files",
                                        (json_int_t)t->stream.count, "stream_bytes",
                                        (json_int_t)all, "trained_bytes", (json_int_t)t->stream.at),
                              err);
    printf("would train %s of ", CLI_BYTES(all - t->stream.at));
    printf("%s in %zu file%s\n", CLI_BYTES(all), t->stream.count, t->stream.count == 1 ? "" : "s");
    return REEF_OK;
}

reef_status reef_cmd_train(reef_cli_call *cli, reef_error *err) {
    train t = {.cli = cli};
    reef_status status = read_request(&t, err);
    if (status == REEF_OK) status = open_pool(&t, err);
    // Every file is opened before the trainer is, so that a mistake costs nothing.
    if (status == REEF_OK) status = stream_open(&t.stream, cli->operands, cli->operand_count, err);
    if (status == REEF_OK) status = open_trainer(&t, err);
    if (status == REEF_OK && cli->dry_run) {
        status = reply_plan(&t, err);
    } else if (status == REEF_OK) {
        reef_cli_catch_signals(false);
        status = run_train(&t, err);
        if (status == REEF_OK) status = reply_train(&t, err);
    }
    reef_trainer_close(t.trainer);
    stream_release(&t.stream);
    reef_cli_pool_close(&t.pool);
    return status;
}
