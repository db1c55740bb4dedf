// Folders of followed files: each file of it is given whole and once, whatever becomes of its name.
#include "tail_world.h"
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#define FIXTURE_TEST(name) TEST_WITH(name, world_new, world_remove, world *w)

FIXTURE_TEST(a_folder_is_read_file_by_file) {
    write_lines(w, "b", 10);
    await_other_time(20);
    write_lines(w, "a", 10);
    write_name(w, ".hidden", "no\n");
    write_name(w, "packed.gz", "no\n");
    follow_folder(w);
    pull_all(w);
    assert_same_from_anywhere(w, true, w->folder);
    write_lines(w, "b", 5); // the one seen first comes first
    write_lines(w, "a", 5);
    pull_all(w);
    move(w, "b", "b.1"); // the same file
    pull_all(w);
    write_lines(w, "b.1", 5);
    write_lines(w, "b", 5);
    pull_all(w);
    move(w, "a", ".a"); // also where it would not have been found
    write_lines(w, ".a", 5);
    pull_all(w);
    follow_folder(w);
    pull_all(w);
    delete (w, ".a");
    delete (w, "b.1");
    assert_nothing_for(w, 3000);
    assert_int_equal(reef_tail_count(w->set), 1);
    assert_string_equal(w->words, "");
}

FIXTURE_TEST(a_pattern_chooses_files_of_a_folder) {
    char pattern[TEMP_DIR_BYTES];
    temp_dir_join(pattern, w->folder, "*.gz");
    open_at(w, pattern, true, 0);
    write_name(w, "other", "no\n");
    write_lines(w, "plain", 100);
    command("gzip '%s/plain'", w->folder);
    pull_all(w);
    assert_same_from_anywhere(w, true, pattern);
}

static void make_link(const world *w, const char *name, const char *target) {
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, w->folder, name);
    assert_int_equal(symlink(target, path), 0);
}

// Where it leads cannot be looked at, and not because nothing is there: no name of a file is so
// long.
static void make_bad_link(const world *w, const char *name) {
    char target[301] = {0};
    memset(target, 'x', sizeof(target) - 1);
    make_link(w, name, target);
}

FIXTURE_TEST(a_link_that_cannot_be_followed_hides_no_other_file) {
    make_bad_link(w, "bad");
    write_lines(w, "a", 10);
    make_link(w, "through", "a/file"); // a link to nothing is passed over without a word
    follow_folder(w);
    pull_all(w);
    write_lines(w, "b", 10);
    pull_all(w);
    assert_string_equal(w->words, "source_denied ");
    delete (w, "bad");
    pull(w);
    assert_string_equal(w->words, "source_denied source_back ");
}

FIXTURE_TEST(a_link_that_no_pattern_fits_is_not_reported) {
    char pattern[TEMP_DIR_BYTES];
    temp_dir_join(pattern, w->folder, "*.log");
    make_bad_link(w, "bad");
    open_at(w, pattern, true, 0);
    write_lines(w, "app.log", 10);
    pull_all(w);
    assert_string_equal(w->words, "");
}

FIXTURE_TEST(a_file_whose_link_cannot_be_followed_is_not_gone) {
    char away[TEMP_DIR_BYTES];
    temp_dir_join(away, w->folder, "away");
    assert_int_equal(mkdir(away, 0755), 0);
    write_lines(w, "away/file", 10);
    make_link(w, "link", "away/file");
    follow_folder(w);
    pull_all(w);
    stop(w); // no process has it open any more
    delete (w, "link");
    make_bad_link(w, "link");
    follow_folder(w);
    assert_nothing_for(w, 3000); // longer than a rotation may take
    assert_int_equal(reef_tail_count(w->set), 1);
    delete (w, "link");
    make_link(w, "link", "away/file");
    write_lines(w, "away/file", 10);
    pull_all(w);
    assert_int_equal(count_words(w, "source_loss"), 0);
}

// More trouble in one scan than the queue of events holds: the rest is counted.
FIXTURE_TEST(events_that_are_dropped_are_counted) {
    char pattern[TEMP_DIR_BYTES];
    temp_dir_join(pattern, w->folder, "*.gz");
    command("cd '%s' && for i in $(seq 20); do echo not packed > $i.gz; done", w->folder);
    open_at(w, pattern, true, 0);
    for (int i = 0; i < 40 && count_words(w, "source_broken") == 0; i++) {
        assert_int_equal(pull(w), 0);
        pause_ms(100);
    }
    assert_int_equal(count_words(w, "source_broken"), 16);
    assert_int_equal(count_words(w, "source_events"), 1);
}

FIXTURE_TEST(a_cut_file_of_a_folder_is_read_on_in_its_copy) {
    write_lines(w, "app.log", 50);
    follow_folder(w);
    pull_all(w);
    write_lines(w, "app.log", 20);
    command("cp '%s' '%s.1'", w->path, w->path);
    assert_true(pull(w) > 0);
    assert_int_equal(truncate(w->path, 0), 0);
    write_lines(w, "app.log", 10);
    pull_all(w);
    assert_string_equal(w->words, "");
}

FIXTURE_TEST(files_that_are_alike_are_all_read) {
    follow_folder(w);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "job.%d", i);
        write_name(w, name, "done\n");
        add(&w->expected, "done\n", 5);
        pull_all(w);
        delete (w, name);
        for (int k = 0; k < 2 * i; k++) pull(w);
    }
    assert_string_equal(w->words, "");
}

// Thousands of names, which a disk would take seconds for.
static int world_in_memory(void **state) {
    if (access("/dev/shm", W_OK) == 0) assert_int_equal(setenv("TMPDIR", "/dev/shm", 1), 0);
    return world_new(state);
}

TEST_WITH(a_folder_may_hold_more_files_than_are_kept_open,
          world_in_memory,
          world_remove,
          world *w) {
    for (int i = 0; i < REEF_DIR_FILES_MAX + 10; i++) {
        char name[16], line[32];
        snprintf(name, sizeof(name), "f%05d", i);
        snprintf(line, sizeof(line), "file number %05d\n", i);
        write_name(w, name, line);
        if (i < REEF_DIR_FILES_MAX) add(&w->expected, line, strlen(line));
    }
    follow_folder(w);
    pull(w);
    assert_int_equal(w->given.count, w->expected.count);
    assert_string_equal(w->words, "source_full ");
    assert_int_equal(reef_tail_count(w->set), REEF_DIR_FILES_MAX);
    w->words[0] = 0;
    follow_folder(w); // a new process
    assert_int_equal(pull(w), 0);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%05d", 40 * i);
        delete (w, name);
    }
    follow_folder(w);
    size_t count = 0, left = 10 * strlen("file number 00000\n");
    // There is room once those deleted count as gone, which need not be all at once.
    for (int i = 0; i < 100 && count < left; i++) {
        count += pull(w);
        pause_ms(100);
    }
    assert_int_equal(count, left);
}

// Links to nothing: such names are quick to make, and none is a file.
TEST_WITH(a_folder_of_too_many_names_is_reported_and_read_once_some_are_gone,
          world_in_memory,
          world_remove,
          world *w) {
    char name[16];
    write_lines(w, "a", 10);
    for (int i = 0; i < REEF_FOLDER_NAMES_MAX; i++) {
        snprintf(name, sizeof(name), "l%05d", i);
        make_link(w, name, "nothing");
    }
    follow_folder(w);
    assert_int_equal(pull(w), 0);
    assert_string_equal(w->words, "source_away ");
    delete (w, name); // and now as many as there may be
    pull(w);
    assert_int_equal(w->given.count, w->expected.count);
    assert_string_equal(w->words, "source_away ");
}

// By their bytes, whatever they are called: once said, never given, and other files go on.
FIXTURE_TEST(files_that_are_no_text_are_refused_by_their_bytes) {
    command(
        "cd '%s' && head -c 30000 /dev/zero | tr '\\0' 'x' > big && gzip -c big > packed.log && "
        "printf 'BZh91AY&SYbinary' > b.log && xz -c big > x.log && rm big && "
        "head -c 3000 /proc/self/exe > program && printf 'BZh' > text.log",
        w->folder);
    write_name(w, "text.log", " is how it begins\n");
    add(&w->expected, "BZh is how it begins\n", 21);
    follow_folder(w);
    pull_all(w);
    write_lines(w, "text.log", 5);
    write_name(w, "b.log", "more of it\n");
    pull_all(w);
    assert_int_equal(count_words(w, "source_refused"), 4);
    assert_int_equal(reef_tail_losses_read(w->set).refused, 4);
    assert_int_equal(reef_tail_unread(w->set), 0);
    // Neither a new process nor another text in its place is taken in by what was there.
    w->words[0] = 0;
    assert_same_from_anywhere(w, true, w->folder);
    assert_int_equal(count_words(w, "source_loss"), 0);
    delete (w, "x.log");
    write_lines(w, "x.log", 5);
    pull_all(w);
    for (int i = 0; i < 3; i++) {
        pause_ms(REEF_SETTLE_MS);
        assert_int_equal(pull(w), 0);
    }
    assert_int_equal(reef_tail_losses_read(w->set).refused, 3);
}

RUN_TESTS
