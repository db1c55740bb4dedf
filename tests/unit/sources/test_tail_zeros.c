// Runs of NUL in followed files are passed over and counted, however they came there and wherever a
// process ended; shorter ones are text.
#include "tail_world.h"
#include "test.h"

#include <unistd.h>

#define FIXTURE_TEST(name) TEST_WITH(name, world_new, world_remove, world *w)

static void write_zeros(const world *w, size_t count) {
    char zeros[70000] = {0};
    for (size_t left = count, now; left > 0; left -= now) {
        now = left < sizeof(zeros) ? left : sizeof(zeros);
        write_to(w->path, zeros, now);
    }
}

static uint64_t passed(const world *w) {
    return reef_tail_losses_read(w->set).zero_bytes;
}

// What a writer without O_APPEND leaves after the file was cut: it goes on where it was.
FIXTURE_TEST(a_hole_of_gigabytes_costs_nothing) {
    const off_t hole = (off_t)10 << 30;
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    assert_int_equal(truncate(w->path, 0), 0);
    pause_ms(REEF_TAIL_SCAN_MS + 50);
    (void)pull(w);
    assert_int_equal(truncate(w->path, hole), 0);
    write_lines(w, "app.log", 10);
    pull_all(w);
    assert_int_equal(passed(w), hole);
    assert_int_equal(count_words(w, "source_zeros"), 1);
    assert_int_equal(reef_tail_unread(w->set), 0);
    uint64_t offset = 0;
    (void)reef_tail_place(w->set, &offset);
    assert_in_range(offset, hole, hole + 1000); // of the file
    write_lines(w, "app.log", 5);
    stop(w);
    follow(w);
    pull_all(w);
}

// Runs of every length at the borders of blocks and of reads: amid a line, at its end, at the head
// of the file.
static void write_mixed(world *w) {
    static const size_t COUNTS[] = {16, 1, 15, 17, 3, 4096, 65536, 131073, 40, 2};
    static const char *const AFTER[] = {"begun", " and ended\n", "", "x\n"};
    static const char LINE[] =
        "a first line, which is long enough to show that this is the text of a log\n";
    bool within = false;
    write_zeros(w, 16);
    write_to(w->path, LINE, sizeof(LINE) - 1);
    add(&w->expected, LINE, sizeof(LINE) - 1);
    for (size_t i = 0; i < 40; i++) {
        size_t count = COUNTS[i % 10];
        const char *after = AFTER[i % 4];
        if (!*after) after = "\n";
        write_zeros(w, count);
        write_to(w->path, after, strlen(after));
        // The rule, once more: 16 or more are no text, and end a line.
        if (count < 16) {
            char zeros[16] = {0};
            add(&w->expected, zeros, count);
        } else if (within) {
            add(&w->expected, "\n", 1);
        }
        add(&w->expected, after, strlen(after));
        within = after[strlen(after) - 1] != '\n';
    }
    write_to(w->path, "end\n", 4);
    add(&w->expected, "end\n", 4);
}

FIXTURE_TEST(runs_of_any_length_are_told_apart_wherever_a_read_ends) {
    static const size_t ROOMS[] = {1, 7, 16, 1000, 65536};
    write_mixed(w);
    for (size_t i = 0; i < 5; i++) {
        w->room = ROOMS[i];
        for (int folder = 0; folder < 2; folder++) {
            open_at(w, folder ? w->folder : w->path, folder == 1, 0);
            pull_all(w);
            assert_int_equal(passed(w), 16 + 4 * (16 + 17 + 4096 + 65536 + 131073 + 40));
            assert_same_from_anywhere(w, folder == 1, folder ? w->folder : w->path);
        }
    }
}

// Read while it is written, a byte at a time: the same stream.
FIXTURE_TEST(a_run_that_grows_is_the_same_run) {
    follow(w);
    write_lines(w, "app.log", 3);
    write_to(w->path, "cut", 3);
    for (size_t i = 0; i < 40; i++) {
        write_zeros(w, 1);
        pause_ms(REEF_TAIL_SCAN_MS);
        (void)pull(w);
    }
    write_to(w->path, "off\n", 4);
    add(&w->expected, "cut\noff\n", 8);
    pull_all(w);
    assert_int_equal(passed(w), 40);
    assert_same_from_anywhere(w, false, w->path);
}

// The files of a folder are read one after the other, also where one has a hole.
FIXTURE_TEST(a_run_does_not_change_the_order_of_files) {
    write_lines(w, "app.log", 20);
    write_zeros(w, 100);
    write_lines(w, "app.log", 20);
    write_to(w->path, "cut", 3);
    add(&w->expected, "cut\n", 4);
    write_zeros(w, 100);
    write_lines(w, "app.log", 20);
    write_lines(w, "later.log", 20);
    follow_folder(w);
    pull_all(w);
    assert_same_from_anywhere(w, true, w->folder);
}

// Space that a writer has reserved with NUL is written later.
FIXTURE_TEST(reserved_space_is_read_when_it_is_written) {
    write_zeros(w, 5000);
    follow(w);
    assert_nothing_for(w, 3000);
    assert_int_equal(reef_tail_unread(w->set), 0);
    FILE *file = fopen(w->path, "r+");
    assert_non_null(file);
    for (size_t i = 0; i < 100; i++) {
        char line[64];
        int bytes = snprintf(line, sizeof(line), "line %zu in reserved space\n", i);
        assert_int_equal(fwrite(line, 1, (size_t)bytes / 2, file), bytes / 2);
        assert_int_equal(fflush(file), 0);
        pause_ms(REEF_TAIL_SCAN_MS);
        (void)pull(w);
        assert_true(fputs(line + bytes / 2, file) >= 0);
        assert_int_equal(fflush(file), 0);
        add(&w->expected, line, (size_t)bytes);
        pull_all(w);
    }
    fclose(file);
    assert_int_equal(passed(w), 0);
    move(w, "app.log", "app.log.1");
    write_lines(w, "app.log", 5);
    pull_all(w);
    assert_int_equal(passed(w),
                     5000 - (w->expected.count - 5 * strlen("line 999 of what is written\n")));
    assert_string_equal(w->words, "source_zeros ");
}

FIXTURE_TEST(a_packed_file_has_them_too) {
    write_lines(w, "app.log", 20);
    write_zeros(w, 100000);
    write_lines(w, "app.log", 20);
    move(w, "app.log", "app.log.1");
    command("gzip '%s.1'", w->path);
    follow(w);
    pull_all(w);
    assert_int_equal(passed(w), 100000);
    assert_same_from_anywhere(w, false, w->path);
}

RUN_TESTS
