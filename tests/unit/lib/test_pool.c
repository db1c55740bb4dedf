// Pools of bytes through the library as programs of others see it: only reef/reef.h is included
// here.
#include <reef/reef.h>

#include "data_file.h"
#include "lib_pool.h"
#include "test.h"
#include "tsan_fork.h"

#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const SMALL[] = {
    "layers=1", "d_model=16", "attention_heads=2", "context=16", "batch=2", "heads=2", "topk=2",
    "d_key=8",  "side=4",     "boundaries=given",  "memory=0",   NULL};

enum { TEXT_BYTES = 3001 };

static void make_text(char text[TEXT_BYTES], const char *word) {
    for (size_t i = 0; i < TEXT_BYTES; i++) text[i] = word[i % strlen(word)];
}

static double loss_of(reef_pool *pool, const char *text, float *bits) {
    reef_evaluation out = {.size = sizeof(out)};
    must(reef_pool_evaluate(pool, text, 500, bits, &out, &why));
    assert_int_equal(out.bytes, 499);
    return out.bits_per_byte;
}

DIRECTORY_TEST(a_model_learns_its_text_and_keeps_it) {
    char path[TEMP_DIR_BYTES], first[TEXT_BYTES], second[TEXT_BYTES];
    float sealed[500], again[500], marked[500];
    uint64_t commit = 0, cursor = 0;
    temp_dir_join(path, directory, "pool");
    make_text(first, "the reef grows over what it was. ");
    make_text(second, "0123456789+-*/=\n");
    must(reef_pool_create_model(path, SMALL, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    double untrained = loss_of(pool, first, NULL);
    // However the stream is cut.
    for (size_t at = 0, n = 1; at < TEXT_BYTES; at += n, n = n % 97 + 13) {
        size_t left = TEXT_BYTES - at;
        must(reef_pool_train(pool, "first", first + at, n < left ? n : left, &why));
    }
    must(reef_pool_cursor(pool, "first", &cursor, &why));
    assert_int_equal(cursor, TEXT_BYTES);
    assert_true(loss_of(pool, first, NULL) < untrained - 1.0);
    must(reef_pool_seal(pool, 0, &why));
    must(reef_pool_snapshot(pool, "first-done", &why));
    must(reef_pool_train(pool, "second", second, TEXT_BYTES, &why));
    must(reef_pool_commit(pool, &commit, &why));
    assert_true(commit > 1);
    reef_pool *then = lib_pool_open(path, 0, "0", 1),
              *snapshot = lib_pool_open(path, 0, "first-done", 1);
    double kept = loss_of(then, first, sealed);
    assert_true(kept < untrained - 1.0);
    (void)loss_of(snapshot, first, marked);
    assert_memory_equal(marked, sealed, sizeof(sealed));
    reef_pool_close(then);
    must(reef_pool_train(pool, "second", second, TEXT_BYTES, &why));
    must(reef_pool_commit(pool, NULL, &why));
    then = lib_pool_open(path, 0, "0", 1);
    (void)loss_of(then, first, again);
    assert_memory_equal(again, sealed, sizeof(sealed));

    reef_training_info training = {.size = sizeof(training)};
    must(reef_pool_read_training(pool, &training, &why));
    assert_int_equal(training.generation, 1);
    assert_true(training.position > 0 && training.waiting < 100);
    assert_true(training.bits_per_byte > 0 && training.bits_per_byte < 9);
    reef_pool_close(then);
    reef_pool_close(snapshot);
    reef_pool_close(pool);
}

static void assert_losses(reef_pool *pool, double median, double last) {
    reef_training_info info = {.size = sizeof(info)};
    must(reef_pool_read_training(pool, &info, &why));
    if (isnan(median) ? !isnan(info.bits_per_byte) : info.bits_per_byte != median)
        fail_msg("median %g", info.bits_per_byte);
    if (isnan(last) ? !isnan(info.last_bits_per_byte) : info.last_bits_per_byte != last)
        fail_msg("last %g", info.last_bits_per_byte);
}

// A text may be foretold without a doubt.
DIRECTORY_TEST(a_loss_of_zero_is_a_loss) {
    char path[TEMP_DIR_BYTES], text[TEXT_BYTES];
    const char *settings[sizeof(SMALL) / sizeof(*SMALL) + 2] = {"learning_rate=10", "clip=0"};
    memcpy(settings + 2, SMALL, sizeof(SMALL));
    temp_dir_join(path, directory, "pool");
    make_text(text, "a");
    must(reef_pool_create_model(path, settings, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    assert_losses(pool, (double)NAN, (double)NAN);
    must(reef_pool_train(pool, "text", text, TEXT_BYTES, &why));
    assert_losses(pool, 0.0, 0.0);
    must(reef_pool_commit(pool, NULL, &why));
    reef_pool_close(pool);
    pool = lib_pool_open(path, 1, NULL, 1); // which has looked at no batch
    assert_losses(pool, (double)NAN, (double)NAN);
    must(reef_pool_train(pool, "text", text, TEXT_BYTES, &why));
    assert_losses(pool, 0.0, 0.0);
    must(reef_pool_seal(pool, 0, &why));
    assert_losses(pool, (double)NAN, 0.0); // the median is of the open generation
    reef_pool_close(pool);
}

DIRECTORY_TEST(what_there_is_can_be_read) {
    char path[TEMP_DIR_BYTES], text[TEXT_BYTES];
    temp_dir_join(path, directory, "pool");
    make_text(text, "abc abd ");
    must(reef_pool_create_model(path, SMALL, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    must(reef_pool_train(pool, "text", text, TEXT_BYTES, &why));
    must(reef_pool_snapshot(pool, "b", &why));
    must(reef_pool_snapshot(pool, "a", &why));
    must(reef_pool_seal(pool, 0, &why));

    reef_pool_info info = {.size = sizeof(info)};
    must(reef_pool_read_info(pool, &info, &why));
    assert_string_equal(info.model, "lm");
    assert_string_equal(info.expert, "gelu");
    assert_int_equal(info.generations, 2);
    assert_int_equal(info.experts, 2 * 16);
    assert_int_equal(info.d_model, 16);
    assert_true(info.writing);
    reef_generation_info generation = {.size = sizeof(generation)};
    must(reef_pool_read_generation(pool, 0, &generation, &why));
    assert_true(generation.sealed && generation.sealed_step == info.step);
    must(reef_pool_read_generation(pool, 1, &generation, &why));
    assert_true(!generation.sealed && generation.first_expert == 16);
    assert_int_equal(reef_pool_read_generation(pool, 2, &generation, &why), REEF_ERR_NOT_FOUND);

    reef_snapshot_info snapshot = {.size = sizeof(snapshot)};
    must(reef_pool_read_snapshot(pool, 0, &snapshot, &why));
    assert_string_equal(snapshot.name, "a");
    assert_int_equal(snapshot.generations, 1);
    assert_int_equal(snapshot.step, info.step);
    must(reef_pool_read_snapshot(pool, 1, &snapshot, &why));
    assert_string_equal(snapshot.name, "b");
    assert_int_equal(reef_pool_read_snapshot(pool, 2, &snapshot, &why), REEF_ERR_NOT_FOUND);

    uint64_t counts[16], sum = 0;
    double scores[16], score = 0;
    must(reef_pool_usage(pool, 0, 0, 0, 0, counts, scores, 16, &why));
    for (size_t n = 0; n < 16; n++) {
        sum += counts[n];
        score += scores[n];
    }
    assert_int_equal(sum, info.position * 2 * 2); // heads * topk experts for each byte
    assert_true(fabs(score - (double)info.position * 2) < 0.01 * score); // gates sum to 1 a head
    assert_int_equal(reef_pool_usage(pool, 0, 0, 0, 0, counts, NULL, 15, &why), REEF_ERR_INVALID);
    assert_int_equal(reef_pool_usage(pool, 0, 1, 0, 0, counts, NULL, 16, &why), REEF_ERR_NOT_FOUND);
    reef_pool_close(pool);
}

// A marker in the stream is a boundary without a step: a question after it is answered from behind
// it.
DIRECTORY_TEST(what_is_evaluated_after_a_mark_has_its_boundary) {
    enum { BOTH = 2 * 16 }; // experts of two generations of side 4
    char path[TEMP_DIR_BYTES], text[TEXT_BYTES];
    const char *settings[sizeof(SMALL) / sizeof(*SMALL) + 1] = {"boundary_mark=THE END"};
    uint64_t counts[16];
    memcpy(settings + 1, SMALL, sizeof(SMALL));
    temp_dir_join(path, directory, "pool");
    make_text(text, "abc abd ");
    must(reef_pool_create_model(path, settings, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    must(reef_pool_train(pool, "text", text, 256, &why));
    must(reef_pool_train(pool, "text", "\n", 1, &why));
    must(reef_pool_commit(pool, NULL, &why));
    reef_pool_info before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    must(reef_pool_read_info(pool, &before, &why));
    assert_int_equal(before.experts, 16);
    must(reef_pool_train(pool, "text", "THE END\n", 8, &why));
    must(reef_pool_read_info(pool, &after, &why));
    assert_int_equal(after.step, before.step);
    assert_int_equal(after.experts, BOTH); // but they are not in the commit yet, nor used
    must(reef_pool_usage(pool, 1, 0, 0, 0, counts, NULL, 16, &why));
    for (size_t n = 0; n < 16; n++) assert_int_equal(counts[n], 0);
    (void)loss_of(pool, text, NULL);
    reef_pool *reader = lib_pool_open(path, 0, NULL, 1);
    must(reef_pool_read_info(reader, &after, &why));
    assert_int_equal(after.experts, BOTH);
    assert_int_equal(after.commit, before.commit + 1);
    (void)loss_of(pool, text, NULL); // and nothing more to commit
    must(reef_pool_read_info(reader, &after, &why));
    assert_int_equal(after.commit, before.commit + 1);
    reef_pool_close(reader);
    reef_pool_close(pool);
}

// ---- what a reader keeps from the writer --------------------------------------------------------

static long long stored_bytes(const char *path) {
    char file[TEMP_DIR_BYTES];
    struct stat info;
    temp_dir_join(file, path, "data.mdb");
    assert_int_equal(stat(file, &info), 0);
    return (long long)info.st_size;
}

// Train and commit so often that the file has more than doubled where no page was used again.
static void assert_pages_are_used_again(reef_pool *pool, const char *path, const char *text) {
    enum { SETTLE = 4, COMMITS = 24 };
    long long before = 0;
    for (int i = 0; i < COMMITS; i++) {
        if (i == SETTLE) before = stored_bytes(path);
        must(reef_pool_train(pool, "text", text, 64, &why));
        must(reef_pool_commit(pool, NULL, &why));
    }
    if (stored_bytes(path) > before + before / 2)
        fail_msg("%lld bytes became %lld", before, stored_bytes(path));
}

// Its rows are read in place, in a read that would keep every page of its state if it lasted while
// the model is idle.
DIRECTORY_TEST(a_reader_that_idles_keeps_no_page_from_reuse) {
    char path[TEMP_DIR_BYTES], text[TEXT_BYTES], out[16];
    reef_pool *reader;
    const reef_pool_options options = {.size = sizeof(options), .threads = 1, .memory_bytes = 1};
    temp_dir_join(path, directory, "pool");
    make_text(text, "abc abd ");
    must(reef_pool_create_model(path, SMALL, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    must(reef_pool_train(pool, "text", text, TEXT_BYTES, &why));
    must(reef_pool_seal(pool, 0, &why));
    must(reef_pool_open(&reader, path, &options, &why));
    assert_pages_are_used_again(pool, path, text);
    double first = loss_of(reader, text, NULL);
    assert_pages_are_used_again(pool, path, text);
    must(reef_pool_generate(reader, "abc", 3, NULL, out, sizeof(out), &why));
    assert_pages_are_used_again(pool, path, text);
    assert_true(loss_of(reader, text, NULL) == first); // its state is the one that was opened
    reef_pool_close(reader);
    reef_pool_close(pool);
}

DIRECTORY_TEST(usage_in_a_range_is_part_of_all_usage) {
    char path[TEMP_DIR_BYTES], text[TEXT_BYTES];
    uint64_t ever[16], range[16];
    double scores[16], all[16];
    const uint64_t future = UINT64_C(4102444800000); // 2100
    temp_dir_join(path, directory, "pool");
    make_text(text, "abc abd ");
    must(reef_pool_create_model(path, SMALL, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    must(reef_pool_train(pool, "text", text, TEXT_BYTES, &why));
    must(reef_pool_commit(pool, NULL, &why));
    must(reef_pool_usage(pool, 0, 0, 0, 0, ever, all, 16, &why));
    // It was all after 1970, and some minutes ago at most.
    must(reef_pool_usage(pool, 0, 0, 1, 0, range, scores, 16, &why));
    assert_memory_equal(range, ever, sizeof(ever));
    assert_memory_equal(scores, all, sizeof(all));
    must(reef_pool_usage(pool, 0, 0, 0, 1, range, NULL, 16, &why));
    for (size_t n = 0; n < 16; n++) assert_int_equal(range[n], 0);
    must(reef_pool_usage(pool, 0, 0, future, 0, range, NULL, 16, &why));
    for (size_t n = 0; n < 16; n++) assert_int_equal(range[n], 0);
    assert_int_equal(reef_pool_usage(pool, 0, 0, 5, 5, range, NULL, 16, &why), REEF_ERR_INVALID);
    assert_int_equal(reef_pool_usage(pool, 0, 0, 0, 0, range, NULL, 15, &why), REEF_ERR_INVALID);
    reef_pool_close(pool);
}

DIRECTORY_TEST(frozen_experts_learn_no_more_until_they_are_thawed) {
    char path[TEMP_DIR_BYTES], text[TEXT_BYTES];
    uint64_t changed = 0;
    temp_dir_join(path, directory, "pool");
    make_text(text, "abc abd ");
    must(reef_pool_create_model(path, SMALL, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    must(reef_pool_train(pool, "text", text, TEXT_BYTES, &why));
    const reef_freeze_options one = {.size = sizeof(one), .layer = -1, .count = 1},
                              some = {.size = sizeof(some), .first = 3, .count = 4},
                              thaw = {.size = sizeof(thaw), .layer = -1, .thaw = 1},
                              busy = {.size = sizeof(busy), .layer = -1, .usage_above = 0.5},
                              none = {.size = sizeof(none), .layer = 1};
    must(reef_pool_freeze(pool, &one, &changed, &why));
    assert_int_equal(changed, 1);
    must(reef_pool_freeze(pool, &some, &changed, &why));
    assert_int_equal(changed, 4);
    must(reef_pool_freeze(pool, NULL, &changed, &why));
    assert_int_equal(changed, 16 - 5);
    must(reef_pool_freeze(pool, &thaw, &changed, &why));
    assert_int_equal(changed, 16);
    must(reef_pool_freeze(pool, &busy, &changed, &why));
    assert_in_range(changed, 1, 8);
    assert_int_equal(reef_pool_freeze(pool, &none, &changed, &why), REEF_ERR_NOT_FOUND);
    reef_pool_close(pool);
    pool = lib_pool_open(path, 0, NULL, 1);
    must_fail(reef_pool_freeze(pool, NULL, NULL, &why), REEF_ERR_INVALID, "opened for reading");
    reef_pool_close(pool);
}

DIRECTORY_TEST(kinds_are_read_and_named) {
    char path[TEMP_DIR_BYTES], text[TEXT_BYTES];
    reef_kind_info kind = {.size = sizeof(kind)};
    temp_dir_join(path, directory, "pool");
    make_text(text, "abc abd ");
    must(reef_pool_create_model(path, SMALL, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    must(reef_pool_train(pool, "text", text, TEXT_BYTES, &why));
    must(reef_pool_seal(pool, 0, &why));
    must(reef_pool_name_kind(pool, 0, "first", &why));
    assert_int_equal(reef_pool_name_kind(pool, 1, "first", &why), REEF_ERR_INVALID);
    assert_int_equal(reef_pool_name_kind(pool, 2, "second", &why), REEF_ERR_NOT_FOUND);
    must(reef_pool_read_kind(pool, 0, &kind, &why));
    assert_string_equal(kind.name, "first");
    assert_false(kind.open || kind.learning);
    must(reef_pool_read_kind(pool, 1, &kind, &why));
    assert_string_equal(kind.name, "");
    assert_true(kind.open && kind.learning);
    assert_true(kind.began_at > 0 && isnan(kind.first_loss));
    assert_int_equal(reef_pool_read_kind(pool, 2, &kind, &why), REEF_ERR_NOT_FOUND);
    must(reef_pool_name_kind(pool, 0, NULL, &why));
    assert_int_equal(kind.merged_into, -1);
    reef_pool_close(pool);
    pool = lib_pool_open(path, 0, NULL, 1);
    must(reef_pool_read_kind(pool, 0, &kind, &why));
    assert_string_equal(kind.name, "");
    must_fail(reef_pool_name_kind(pool, 0, "a", &why), REEF_ERR_INVALID, "opened for reading");
    reef_pool_close(pool);
}

DIRECTORY_TEST(a_snapshot_can_be_given_up) {
    char path[TEMP_DIR_BYTES], text[TEXT_BYTES];
    reef_pool *then;
    reef_snapshot_info snapshot = {.size = sizeof(snapshot)};
    temp_dir_join(path, directory, "pool");
    make_text(text, "abc abd ");
    must(reef_pool_create_model(path, SMALL, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    must(reef_pool_train(pool, "text", text, TEXT_BYTES, &why));
    must(reef_pool_snapshot(pool, "kept", &why));
    must(reef_pool_snapshot(pool, "gone", &why));
    assert_int_equal(reef_pool_remove_snapshot(pool, "gon", &why), REEF_ERR_NOT_FOUND);
    must(reef_pool_remove_snapshot(pool, "gone", &why));
    must(reef_pool_read_snapshot(pool, 0, &snapshot, &why));
    assert_string_equal(snapshot.name, "kept");
    assert_int_equal(reef_pool_read_snapshot(pool, 1, &snapshot, &why), REEF_ERR_NOT_FOUND);
    const reef_pool_options gone = {.size = sizeof(gone), .as_of = "gone"};
    assert_int_equal(reef_pool_open(&then, path, &gone, &why), REEF_ERR_NOT_FOUND);
    must(reef_pool_snapshot(pool, "other", &why));
    reef_pool_close(pool);

    static const char RECORD[] = "kept\0REEF"; // the snapshot's key, and how its record begins
    data_bytes file = data_file_load(path);
    size_t at = data_file_find(&file, 0, RECORD, sizeof(RECORD) - 1), found = 0;
    for (; at != SIZE_MAX; at = data_file_find(&file, at + 1, RECORD, sizeof(RECORD) - 1), found++)
        file.data[at + 60] ^= 1; // behind the record's header
    assert_true(found > 0);
    data_file_replace(path, &file);
    pool = lib_pool_open(path, 1, NULL, 1);
    assert_int_equal(reef_pool_read_snapshot(pool, 0, &snapshot, &why), REEF_ERR_CORRUPT);
    must(reef_pool_read_snapshot(pool, 1, &snapshot, &why));
    assert_string_equal(snapshot.name, "other");
    must(reef_pool_remove_snapshot(pool, "kept", &why));
    assert_int_equal(reef_pool_read_snapshot(pool, 1, &snapshot, &why), REEF_ERR_NOT_FOUND);
    reef_pool_close(pool);
}

DIRECTORY_TEST(a_text_goes_on_as_it_was_learned) {
    char path[TEMP_DIR_BYTES], text[TEXT_BYTES], first[65] = "", second[65] = "";
    temp_dir_join(path, directory, "pool");
    make_text(text, "abcd");
    must(reef_pool_create_model(path, SMALL, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    for (int i = 0; i < 4; i++) must(reef_pool_train(pool, "text", text, TEXT_BYTES / 4 * 4, &why));
    must(reef_pool_generate(pool, "abcdab", 6, NULL, first, 8, &why));
    assert_string_equal(first, "cdabcdab");
    const reef_generate_options hot = {.size = sizeof(hot), .seed = 5, .temperature = 3},
                                other = {.size = sizeof(other), .seed = 6, .temperature = 3},
                                wrong = {.size = sizeof(wrong), .top_p = 2};
    must(reef_pool_generate(pool, NULL, 0, &hot, first, 64, &why));
    must(reef_pool_generate(pool, NULL, 0, &hot, second, 64, &why));
    assert_memory_equal(first, second, 64);
    must(reef_pool_generate(pool, NULL, 0, &other, second, 64, &why));
    assert_memory_not_equal(first, second, 64);
    assert_int_equal(reef_pool_generate(pool, NULL, 0, &wrong, first, 4, &why), REEF_ERR_INVALID);
    reef_pool_close(pool);
}

// A program that was built with an older, shorter struct, and one that was built with a newer,
// longer one. The locale of a program with decimal commas; false where this machine has no
// description of one.
static bool take_commas(const char *directory) {
    char command[2 * TEMP_DIR_BYTES];
    snprintf(command, sizeof(command),
             "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >'%s/log' 2>&1", directory, directory);
    (void)!system(command);
    setenv("LOCPATH", directory, 1);
    bool taken = setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    unsetenv("LOCPATH");
    return taken;
}

static double learn_and_ask(const char *path, const char *text, float *bits) {
    must(reef_pool_create_model(path, SMALL, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 1);
    must(reef_pool_train(pool, "text", text, TEXT_BYTES, &why));
    must(reef_pool_seal(pool, 0, &why)); // reports losses in an event
    must(reef_pool_train(pool, "text", text, TEXT_BYTES, &why));
    must(reef_pool_commit(pool, NULL, &why));
    reef_pool_close(pool);
    pool = lib_pool_open(path, 0, NULL, 1);
    double loss = loss_of(pool, text, bits);
    reef_pool_close(pool);
    return loss;
}

DIRECTORY_TEST(a_program_with_decimal_commas_has_the_same_pools) {
    WITHIN(directory, commas);
    WITHIN(directory, points);
    char text[TEXT_BYTES];
    float bits[500], same[500];
    make_text(text, "a reef of 3,000 corals. ");
    double loss = learn_and_ask(points, text, bits);
    assert_true(take_commas(directory)); // needs Debian's package locales
    double other = learn_and_ask(commas, text, same);
    assert_string_equal(localeconv()->decimal_point, ","); // as the program left it
    setlocale(LC_ALL, "C");
    assert_true(loss == other);
    assert_memory_equal(bits, same, sizeof(bits));
}

// As a library may leave it that was built with -ffast-math, or PyTorch after set_flush_denormal.
DIRECTORY_TEST(a_program_that_rounds_otherwise_has_the_same_pools) {
    WITHIN(directory, upward);
    WITHIN(directory, nearest);
    char text[TEXT_BYTES];
    float bits[500], same[500];
    make_text(text, "a reef of corals. ");
    double loss = learn_and_ask(nearest, text, bits);
    assert_int_equal(fesetround(FE_UPWARD), 0);
    double other = learn_and_ask(upward, text, same);
    assert_int_equal(fegetround(), FE_UPWARD); // as the program left it
    fesetround(FE_TONEAREST);
    assert_true(loss == other);
    assert_memory_equal(bits, same, sizeof(bits));
}

DIRECTORY_TEST(structs_may_be_older_or_newer) {
    char path[TEMP_DIR_BYTES];
    struct {
        reef_pool_info info;
        uint64_t newer;
    } grown = {.info = {.size = sizeof(grown)}, .newer = 1};
    union {
        struct {
            size_t size;
            const char *model;
        } older;
        unsigned char bytes[sizeof(reef_pool_info)];
    } cut;
    temp_dir_join(path, directory, "pool");
    must(reef_pool_create_model(path, SMALL, &why));
    reef_pool *pool = lib_pool_open(path, 0, NULL, 1);
    must(reef_pool_read_info(pool, &grown.info, &why));
    assert_int_equal(grown.info.size, sizeof(grown));
    assert_int_equal(grown.newer, 0);
    assert_int_equal(grown.info.generations, 1);
    memset(&cut, 0x5a, sizeof(cut));
    cut.older.size = sizeof(cut.older);
    must(reef_pool_read_info(pool, (reef_pool_info *)(void *)&cut, &why));
    assert_string_equal(cut.older.model, "lm");
    for (size_t i = sizeof(cut.older); i < sizeof(cut); i++) assert_int_equal(cut.bytes[i], 0x5a);
    grown.info.size = 0;
    must_fail(reef_pool_read_info(pool, &grown.info, &why), REEF_ERR_INVALID,
              "sizeof(reef_pool_info)");
    reef_pool_close(pool);
}

PLAIN_TEST(statuses_have_their_numbers_and_words) {
    const struct {
        reef_status status;
        const char *text;
    } all[] = {{REEF_OK, "ok"},
               {REEF_ERR_INVALID, "invalid"},
               {REEF_ERR_NOT_FOUND, "not found"},
               {REEF_ERR_CORRUPT, "corrupt"},
               {REEF_ERR_VERSION, "version"},
               {REEF_ERR_FULL, "full"},
               {REEF_ERR_BUSY, "busy"},
               {REEF_ERR_NO_MEMORY, "no memory"},
               {REEF_ERR_IO, "io"}};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        assert_int_equal(all[i].status, i);
        assert_string_equal(reef_status_text(all[i].status), all[i].text);
    }
    assert_int_equal(sizeof(reef_error), 260);
    assert_true(strlen(reef_library_version()) >= 5);
}

DIRECTORY_TEST(mistakes_are_reported) {
    char path[TEMP_DIR_BYTES];
    reef_pool *pool;
    temp_dir_join(path, directory, "pool");
    const char *const unknown[] = {"d_modle=16", NULL}, *const bare[] = {"d_model", NULL};
    must_fail(reef_pool_create_model(path, unknown, &why), REEF_ERR_INVALID,
              "did you mean d_model");
    assert_int_equal(reef_pool_create_model(path, bare, &why), REEF_ERR_INVALID);
    assert_int_equal(reef_pool_open(&pool, path, NULL, &why), REEF_ERR_NOT_FOUND);
    must(reef_pool_create_model(path, SMALL, &why));
    const reef_pool_options past = {.size = sizeof(past), .write = 1, .as_of = "0"};
    assert_int_equal(reef_pool_open(&pool, path, &past, &why), REEF_ERR_INVALID);
    const reef_pool_options none = {.size = sizeof(none), .as_of = "never"};
    assert_int_equal(reef_pool_open(&pool, path, &none, &why), REEF_ERR_NOT_FOUND);
    const reef_pool_options other = {.size = sizeof(other), .frozen = 3};
    must_fail(reef_pool_open(&pool, path, &other, &why), REEF_ERR_INVALID, "must be 0, 1 or 2");
    pool = lib_pool_open(path, 1, NULL, 1);
    float y[16];
    must_fail(reef_layer_forward(pool, NULL, 1, y, y, NULL, &why), REEF_ERR_INVALID, "lm");
    assert_int_equal(reef_pool_seal(pool, 9, &why), REEF_ERR_INVALID);
    assert_int_equal(reef_pool_seal(pool, 0, &why), REEF_ERR_INVALID); // nothing trained
    assert_int_equal(reef_pool_snapshot(pool, "not a name", &why), REEF_ERR_INVALID);
    reef_pool_close(pool);
    pool = lib_pool_open(path, 0, NULL, 1);
    must_fail(reef_pool_train(pool, "text", "abc", 3, &why), REEF_ERR_INVALID,
              "opened for reading");
    reef_pool_close(pool);
}

// In a child of fork(): 0, or the step that went another way.
static int use_inherited(reef_pool *writer, const char *path, const char *text, double expected) {
    reef_evaluation out = {.size = sizeof(out)};
    const reef_pool_options reading = {.size = sizeof(reading), .threads = 1};
    reef_pool *own;
    (void)alarm(60); // where it waits for threads that it does not have
    if (reef_pool_evaluate(writer, text, 500, NULL, &out, &why) != REEF_ERR_INVALID) return 1;
    if (strstr(why.message, path) == NULL || strstr(why.message, "forked") == NULL) return 2;
    if (reef_pool_commit(writer, NULL, &why) != REEF_ERR_INVALID) return 3;
    reef_pool_close(writer);
    if (reef_pool_open(&own, path, &reading, &why) != REEF_OK) return 4;
    if (reef_pool_evaluate(own, text, 500, NULL, &out, &why) != REEF_OK) return 5;
    if (memcmp(&out.bits_per_byte, &expected, sizeof(expected)) != 0) return 6;
    reef_pool_close(own);
    return 0;
}

DIRECTORY_TEST(a_forked_child_opens_the_pool_itself) {
    WITHIN(directory, path);
    char text[TEXT_BYTES];
    make_text(text, "the reef grows over what it was. ");
    must(reef_pool_create_model(path, SMALL, &why));
    reef_pool *pool = lib_pool_open(path, 1, NULL, 2);
    must(reef_pool_train(pool, "text", text, TEXT_BYTES, &why));
    double loss = loss_of(pool, text, NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(use_inherited(pool, path, text, loss));
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), 0);
    // The parent has its pool, and the lock of the writer, as before.
    reef_pool *second;
    const reef_pool_options writing = {.size = sizeof(writing), .write = 1};
    assert_int_equal(reef_pool_open(&second, path, &writing, &why), REEF_ERR_BUSY);
    must(reef_pool_train(pool, "text", text, TEXT_BYTES, &why));
    must(reef_pool_commit(pool, NULL, &why));
    reef_pool_close(pool);
}

typedef struct busy {
    atomic_bool done;
    const char *path;
    reef_pool *pool; // NULL: pools are opened and closed
} busy;

static void *keep_busy(void *context) {
    busy *b = context;
    uint64_t position;
    while (!atomic_load(&b->done)) {
        if (b->pool != NULL)
            must(reef_pool_cursor(b->pool, "text", &position, &why));
        else
            reef_pool_close(lib_pool_open(b->path, 0, NULL, 1));
    }
    return NULL;
}

// AddressSanitizer's own allocator is not made for fork (before GCC 14): where another thread
// allocates just then, the child waits for it for ever. So nothing is allocated there.
#ifdef __SANITIZE_ADDRESS__
#define BUSY_COUNT 1
#else
#define BUSY_COUNT 2
#endif

// A child has no threads but the one that forked, so memory held by the others is never freed.
DIRECTORY_TEST(a_child_that_is_forked_amid_calls_of_other_threads_waits_for_none) {
    WITHIN(directory, path);
    WITHIN(directory, other);
    must(reef_pool_create_model(path, SMALL, &why));
    must(reef_pool_create_model(other, SMALL, &why));
    busy work[] = {{.path = path, .pool = lib_pool_open(path, 1, NULL, 1)}, {.path = other}};
    pthread_t threads[BUSY_COUNT];
    for (int i = 0; i < BUSY_COUNT; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, &work[i]), 0);
    int ended = 0;
    for (int i = 0; i < 30 && ended == 0; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            const reef_pool_options reading = {.size = sizeof(reading), .threads = 1};
            reef_pool *own;
            (void)alarm(60);
            bool opened = reef_pool_open(&own, path, &reading, &why) == REEF_OK;
            _exit(opened ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &ended, 0), child);
    }
    for (int i = 0; i < BUSY_COUNT; i++) {
        atomic_store(&work[i].done, true);
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    reef_pool_close(work[0].pool);
    assert_int_equal(ended, 0); // of the last child: neither a failure nor the alarm
}

// The lock of the writer is the parent's alone: it ends with the parent, whatever its children do.
DIRECTORY_TEST(a_child_keeps_no_pool_from_the_next_writer) {
    WITHIN(directory, path);
    int ends[2], begun[2], ended;
    char byte = 0;
    must(reef_pool_create_model(path, SMALL, &why));
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(begun), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { // a writer that is killed, and leaves a child that continues
        (void)lib_pool_open(path, 1, NULL, 1);
        if (fork() == 0) {
            (void)close(ends[1]);
            (void)alarm(60);
            if (write(begun[1], &byte, 1) == 1) (void)!read(ends[0], &byte, 1);
            _exit(0); // when the test is over
        }
        (void)!read(begun[0], &byte, 1);
        (void)raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended));
    reef_pool_close(lib_pool_open(path, 1, NULL, 1));
    for (int i = 0; i < 2; i++) (void)(close(ends[i]) + close(begun[i]));
}

RUN_TESTS
