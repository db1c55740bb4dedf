// Archives through the library as programs of others see it: only reef/reef.h is included here.
#include <reef/reef.h>

#include "lib_pool.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "small_disk.h"
#include "test.h"
#include "tsan_fork.h"
#include "whole_file.h"

enum { TEXT = 12000 };

static const char *const SETTINGS[] = {"layers=1",
                                       "d_model=16",
                                       "attention_heads=2",
                                       "context=16",
                                       "batch=2",
                                       "heads=2",
                                       "topk=2",
                                       "d_key=8",
                                       "side=4",
                                       "boundaries=given",
                                       "memory=4M",
                                       "net_share=0.125",
                                       NULL};

typedef struct fixture {
    char directory[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES];
    reef_pool *pool; // of a writer; generation 0 is sealed, "later" a snapshot of generation 1
} fixture;

static void make_text(char text[TEXT], const char *words, unsigned seed) {
    for (size_t i = 0; i < TEXT; i++) {
        // Words in an order of their own, so that something is left to code.
        if (i % 5 == 0) seed = seed * 1664525u + 1013904223u;
        text[i] = words[(seed >> 28) * 5 % 40 + i % 5];
    }
}

#define FIRST "the reef grows over what it was before. "
#define SECOND "0123456789 +-*/= 9876543210 <>()[] 13579"

static int setup(void **state) {
    fixture *f = room(sizeof(*f));
    char text[TEXT];
    temp_dir_new(f->directory);
    temp_dir_join(f->path, f->directory, "pool");
    must(reef_pool_create_model(f->path, SETTINGS, &why));
    f->pool = lib_pool_open(f->path, 1, NULL, 2);
    make_text(text, FIRST, 1);
    must(reef_pool_train(f->pool, "a", text, TEXT, &why));
    must(reef_pool_seal(f->pool, 0, &why));
    make_text(text, SECOND, 2);
    must(reef_pool_train(f->pool, "a", text, TEXT, &why));
    must(reef_pool_snapshot(f->pool, "later", &why));
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    reef_pool_close(f->pool);
    temp_dir_remove(f->directory);
    return 0;
}

static void *compress_as_of(reef_pool *pool, const char *as_of, const char *text, size_t *count) {
    void *archive;
    const reef_coding_options options = {
        .size = sizeof(options), .as_of = as_of, .piece_bytes = 4096};
    must(reef_pool_compress(pool, text, TEXT, &options, &archive, count, &why));
    return archive;
}

static reef_archive_facts facts_of(const void *archive, size_t count) {
    reef_archive_facts facts = {.size = sizeof(facts)};
    must(reef_archive_read_facts(archive, count, &facts, &why));
    return facts;
}

// One pool for all: each leaves the states that those after it need.
#define WORLD_TEST(name) TEST_WITH(name, NULL, NULL, fixture *f)

WORLD_TEST(a_text_becomes_an_archive_and_comes_back) {
    char text[TEXT], back[TEXT];
    size_t count, raw_count;
    make_text(text, FIRST, 3);
    void *archive = compress_as_of(f->pool, "0", text, &count);
    assert_true(count < TEXT / 4);
    reef_archive_facts facts = facts_of(archive, count);
    assert_string_equal(facts.state, "0");
    assert_int_equal(facts.snapshot, 0);
    assert_int_equal(facts.text_bytes, TEXT);
    assert_int_equal(facts.archive_bytes, count);
    assert_int_equal(facts.piece_bytes, 4096);
    assert_int_equal(facts.pieces, 3);
    assert_int_equal(facts.raw_pieces, 0);
    assert_true(facts.position > TEXT - 200 && facts.position <= TEXT);
    must(reef_pool_expand(f->pool, archive, count, 0, TEXT, NULL, back, &why));
    assert_memory_equal(back, text, TEXT);
    must(reef_pool_expand(f->pool, archive, count, 4000, 4200, NULL, back, &why));
    assert_memory_equal(back, text + 4000, 200);
    assert_int_equal(reef_pool_expand(f->pool, archive, count, 1, TEXT + 1, NULL, back, &why),
                     REEF_ERR_INVALID);
    // Nothing at all is a text, too.
    void *empty;
    must(reef_pool_compress(f->pool, NULL, 0, NULL, &empty, &raw_count, &why));
    assert_int_equal(facts_of(empty, raw_count).text_bytes, 0);
    must(reef_pool_expand(f->pool, empty, raw_count, 0, 0, NULL, back, &why));
    reef_archive_free(empty);
    reef_archive_free(archive);
    reef_archive_free(NULL);
}

WORLD_TEST(what_was_opened_as_of_a_state_compresses_as_of_it) {
    static const char *const STATES[] = {"0", "later", "now", NULL}, *const NAMES[] = {"0", "later",
                                                                                       "later",
                                                                                       "later"};
    char text[TEXT], back[TEXT];
    make_text(text, SECOND, 4);
    for (size_t i = 0; i < sizeof(STATES) / sizeof(STATES[0]); i++) {
        size_t count, same_count;
        reef_pool *reader = lib_pool_open(f->path, 0, STATES[i], 1);
        void *archive = compress_as_of(reader, NULL, text, &count);
        assert_string_equal(facts_of(archive, count).state, NAMES[i]);
        // One thread or two, a reader or a writer: the same archive.
        void *same = compress_as_of(f->pool, NAMES[i], text, &same_count);
        assert_int_equal(count, same_count);
        assert_memory_equal(archive, same, count);
        must(reef_pool_expand(reader, same, count, 0, TEXT, NULL, back, &why));
        assert_memory_equal(back, text, TEXT);
        reef_archive_free(same);
        reef_archive_free(archive);
        reef_pool_close(reader);
    }
}

// ---- progress -----------------------------------------------------------------------------------

typedef struct heard {
    uint64_t done, total, most; // ends the call from `most` on
    int calls;
} heard;

static int32_t on_progress(void *context, uint64_t done, uint64_t total) {
    heard *h = context;
    assert_true(done >= h->done && done <= total);
    h->done = done;
    h->total = total;
    h->calls++;
    return done >= h->most;
}

WORLD_TEST(progress_is_told_and_may_end_it) {
    char text[TEXT], back[TEXT];
    size_t count = 0;
    void *archive;
    heard h = {.most = UINT64_MAX};
    reef_coding_options options = {
        .size = sizeof(options), .as_of = "0", .progress = on_progress, .context = &h};
    make_text(text, FIRST, 7);
    must(reef_pool_compress(f->pool, text, TEXT, &options, &archive, &count, &why));
    assert_true(h.calls >= 3);
    assert_int_equal(h.done, h.total);
    assert_int_equal(h.total, TEXT);
    h = (heard){.most = 5000};
    must_fail(reef_pool_expand(f->pool, archive, count, 0, TEXT, &options, back, &why),
              REEF_ERR_BUSY, "stopped");
    assert_in_range(h.done, 5000, TEXT - 1);
    void *none = archive;
    h = (heard){.most = 1};
    assert_int_equal(reef_pool_compress(f->pool, text, TEXT, &options, &none, &count, &why),
                     REEF_ERR_BUSY);
    assert_null(none);
    assert_int_equal(count, 0);
    reef_archive_free(archive);
}

// ---- files --------------------------------------------------------------------------------------

static void assert_file(const char *path, const char *text, size_t count) {
    size_t bytes;
    void *found = whole_file_read(path, &bytes);
    assert_int_equal(bytes, count);
    assert_memory_equal(found, text, count);
}

WORLD_TEST(files_become_archives_and_come_back) {
    WITHIN(f->directory, text);
    WITHIN(f->directory, archive);
    WITHIN(f->directory, back);
    char bytes[TEXT];
    struct stat info;
    reef_archive_facts facts = {.size = sizeof(facts)}, again = facts;
    const reef_coding_options options = {.size = sizeof(options), .replace = 1};
    make_text(bytes, SECOND, 8);
    whole_file_write(text, bytes, TEXT);
    must(reef_pool_compress_file(f->pool, text, archive, NULL, &facts, &why));
    assert_string_equal(facts.state, "later");
    assert_int_equal(stat(archive, &info), 0);
    assert_int_equal(facts.archive_bytes, info.st_size);
    must(reef_pool_expand_file(f->pool, archive, back, NULL, &again, &why));
    assert_memory_equal(&facts, &again, sizeof(facts));
    assert_file(back, bytes, TEXT);
    // What is there stays, unless asked for.
    whole_file_write(back, "mine", 4);
    must_fail(reef_pool_expand_file(f->pool, archive, back, NULL, NULL, &why), REEF_ERR_INVALID,
              "exists");
    assert_file(back, "mine", 4);
    assert_int_equal(reef_pool_compress_file(f->pool, text, back, NULL, NULL, &why),
                     REEF_ERR_INVALID);
    must(reef_pool_expand_file(f->pool, archive, back, &options, NULL, &why));
    assert_file(back, bytes, TEXT);
    whole_file_write(back, "mine", 4);
    must(reef_pool_compress_file(f->pool, text, back, &options, NULL, &why));
    assert_int_equal(stat(back, &info), 0);
    assert_int_equal(facts.archive_bytes, info.st_size);
}

WORLD_TEST(a_file_that_fails_leaves_nothing) {
    WITHIN(f->directory, gone);
    WITHIN(f->directory, source);
    WITHIN(f->directory, good);
    WITHIN(f->directory, out);
    WITHIN(f->directory, disk);
    char bytes[TEXT], inside[TEMP_DIR_BYTES], filler[TEMP_DIR_BYTES];
    make_text(bytes, SECOND, 9);
    whole_file_write(source, bytes, TEXT);
    must(reef_pool_compress_file(f->pool, source, good, NULL, NULL, &why));
    temp_dir_join(inside, f->path, "data.reef");
    assert_int_equal(reef_pool_compress_file(f->pool, gone, out, NULL, NULL, &why),
                     REEF_ERR_NOT_FOUND);
    assert_int_equal(reef_pool_compress_file(f->pool, f->directory, out, NULL, NULL, &why),
                     REEF_ERR_INVALID);
    assert_int_equal(reef_pool_compress_file(f->pool, source, inside, NULL, NULL, &why),
                     REEF_ERR_INVALID);
    assert_int_equal(reef_pool_expand_file(f->pool, source, out, NULL, NULL, &why),
                     REEF_ERR_INVALID); // no archive
    // One bit of its last piece is another: all was expanded but that, and nothing is written.
    size_t count;
    uint8_t *damaged = whole_file_read(good, &count);
    damaged[count - 1] ^= 1;
    whole_file_write(gone, damaged, count);
    assert_int_equal(reef_pool_expand_file(f->pool, gone, out, NULL, NULL, &why), REEF_ERR_CORRUPT);
    assert_int_equal(access(out, F_OK), -1);
    assert_int_equal(mkdir(disk, 0700), 0);
    if (!small_disk_mount(disk, "64k")) return;
    temp_dir_join(filler, disk, "filler");
    temp_dir_join(out, disk, "out");
    small_disk_fill(filler);
    reef_status status[] = {reef_pool_compress_file(f->pool, source, out, NULL, NULL, &why),
                            reef_pool_expand_file(f->pool, good, out, NULL, NULL, &why)};
    char part[TEMP_DIR_BYTES];
    temp_dir_join(part, disk, "out.part");
    bool left = access(out, F_OK) == 0 || access(part, F_OK) == 0;
    small_disk_unmount(disk);
    assert_int_equal(status[0], REEF_ERR_FULL);
    assert_int_equal(status[1], REEF_ERR_FULL);
    assert_false(left);
}

WORLD_TEST(archives_expand_after_more_was_learned_and_in_another_process) {
    char text[TEXT], back[TEXT];
    size_t count[2];
    make_text(text, FIRST, 5);
    void *archives[] = {compress_as_of(f->pool, "0", text, &count[0]),
                        compress_as_of(f->pool, "later", text, &count[1])};
    char more[TEXT];
    make_text(more, SECOND, 6);
    must(reef_pool_train(f->pool, "a", more, TEXT, &why));
    must(reef_pool_seal(f->pool, 0, &why));
    must(reef_pool_train(f->pool, "a", more, TEXT, &why));
    must(reef_pool_commit(f->pool, NULL, &why));
    for (int i = 0; i < 2; i++) {
        memset(back, 0, TEXT);
        must(reef_pool_expand(f->pool, archives[i], count[i], 0, TEXT, NULL, back, &why));
        assert_memory_equal(back, text, TEXT);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            reef_pool *own = lib_pool_open(f->path, 0, NULL, 1);
            memset(back, 0, TEXT);
            bool good = reef_pool_expand(own, archives[i], count[i], 0, TEXT, NULL, back, &why) ==
                            REEF_OK &&
                        memcmp(back, text, TEXT) == 0;
            // That of the parent is not for it.
            good &= reef_pool_expand(f->pool, archives[i], count[i], 0, TEXT, NULL, back, &why) ==
                    REEF_ERR_INVALID;
            reef_pool_close(own);
            _exit(good ? 0 : 1);
        }
        int ended;
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_true(WIFEXITED(ended));
        assert_int_equal(WEXITSTATUS(ended), 0);
        reef_archive_free(archives[i]);
    }
}

// ---- mistakes -----------------------------------------------------------------------------------

static void assert_refuses(reef_pool *pool,
                           const char *as_of,
                           reef_status status,
                           const char *says) {
    void *archive;
    size_t count;
    const reef_coding_options options = {.size = sizeof(options), .as_of = as_of};
    assert_int_equal(reef_pool_compress(pool, "text", 4, &options, &archive, &count, &why), status);
    if (strstr(why.message, says) == NULL) fail_msg("'%s' is not in: %s", says, why.message);
    assert_null(archive);
}

WORLD_TEST(mistakes_are_reported) {
    WITHIN(f->directory, plain);
    WITHIN(f->directory, layer);
    static const char *const PLAIN[] = {"memory=0", NULL};
    const reef_layer_options sizes = {.size = sizeof(sizes), .d_model = 8, .topk = 2, .side = 4};
    must(reef_pool_create_model(plain, PLAIN, &why));
    must(reef_pool_create_layer(layer, &sizes, &why));
    const struct {
        const char *path, *says;
    } WITHOUT[] = {{plain, "--memory"}, {layer, "a layer by itself"}};
    for (size_t i = 0; i < sizeof(WITHOUT) / sizeof(WITHOUT[0]); i++) {
        reef_pool *pool = lib_pool_open(WITHOUT[i].path, 0, NULL, 1);
        assert_refuses(pool, NULL, REEF_ERR_INVALID, WITHOUT[i].says);
        reef_pool_close(pool);
    }
    assert_refuses(f->pool, "nowhere", REEF_ERR_NOT_FOUND, "nowhere");
    char text[TEXT], back[TEXT];
    size_t count;
    make_text(text, SECOND, 10);
    void *archive = compress_as_of(f->pool, "later", text, &count);
    // Cut off, and no archive at all.
    reef_archive_facts facts = {.size = sizeof(facts)};
    assert_int_equal(reef_archive_read_facts(archive, count - 1, &facts, &why), REEF_ERR_CORRUPT);
    assert_int_equal(reef_archive_read_facts(text, TEXT, &facts, &why), REEF_ERR_INVALID);
    facts.size = 0;
    assert_int_equal(reef_archive_read_facts(archive, count, &facts, &why), REEF_ERR_INVALID);
    const reef_coding_options old = {.size = 3};
    assert_int_equal(reef_pool_expand(f->pool, archive, count, 0, TEXT, &old, back, &why),
                     REEF_ERR_INVALID);
    // Its state is gone.
    must(reef_pool_train(f->pool, "a", text, TEXT, &why));
    must(reef_pool_remove_snapshot(f->pool, "later", &why));
    must_fail(reef_pool_expand(f->pool, archive, count, 0, TEXT, NULL, back, &why),
              REEF_ERR_NOT_FOUND, "snapshot 'later'");
    // What is open changes with every commit.
    assert_refuses(f->pool, "now", REEF_ERR_INVALID, "reef snapshot create");
    reef_archive_free(archive);
}

RUN_TESTS_IN(setup, teardown)
