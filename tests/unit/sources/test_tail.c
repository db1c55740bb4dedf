// Followed files: whatever becomes of them, each line is given once, in order, and a checkpoint
// finds its position again.
//
// Files are real ones, and rotated by rename, by copying, and by logrotate.
#include "reef_system.h"
#include "tail_world.h"
#include "test.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- one file -----------------------------------------------------------------------------------

#define FIXTURE_TEST(name) TEST_WITH(name, world_new, world_remove, world *w)

FIXTURE_TEST(whole_lines_are_given_and_parts_of_lines_wait) {
    write_lines(w, "app.log", 100);
    follow(w);
    pull_all(w);
    write_name(w, "app.log", "half of a");
    assert_int_equal(pull(w), 0);
    assert_int_equal(reef_tail_unread(w->set), 9);
    write_name(w, "app.log", " line\nand");
    add(&w->expected, "half of a line\n", 15);
    pull_all(w);
    open_at(w, w->path, false, w->given.count);
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
    assert_string_equal(w->words, "");
}

FIXTURE_TEST(a_line_without_end_is_given_in_pieces) {
    size_t count = REEF_LINE_BYTES_MAX + 5000;
    char *line = malloc(count);
    memset(line, 'x', count);
    w->room = 65536;
    write_lines(w, "app.log", 3);
    write_to(w->path, line, count);
    add(&w->expected, line, count);
    follow(w);
    pull_all(w);
    write_name(w, "app.log", "end\n");
    add(&w->expected, "end\n", 4);
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
    free(line);
}

FIXTURE_TEST(a_file_that_is_not_there_is_waited_for) {
    follow(w);
    assert_nothing_for(w, 3000); // longer than a rotation may take
    assert_string_equal(w->words, "source_waits ");
    write_lines(w, "app.log", 10);
    pull_all(w);
    assert_string_equal(w->words, "source_waits source_back ");
}

FIXTURE_TEST(a_file_that_is_removed_and_made_again_is_read_from_its_start) {
    write_lines(w, "app.log", 10);
    follow(w);
    pull_all(w);
    int fd = open(w->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    delete (w, "app.log");
    assert_int_equal(pull(w), 0);
    assert_int_equal(write(fd, "late line\n", 10), 10); // its writer does not know
    add(&w->expected, "late line\n", 10);
    pull_all(w);
    close(fd);
    write_lines(w, "app.log", 10);
    pull_all(w);
    assert_int_equal(count_words(w, "source_loss"), 0);
}

FIXTURE_TEST(what_is_removed_unread_is_reported) {
    write_lines(w, "app.log", 100);
    follow(w);
    pull_all(w);
    open_at(w, w->path, false, 500);
    stop(w);
    delete (w, "app.log");
    w->expected.count = 500;
    write_lines(w, "app.log", 10);
    follow(w);
    pull_all(w);
    assert_nothing_for(w, REEF_SETTLE_MS + REEF_TAIL_SCAN_MS);
    assert_string_equal(w->words, "source_loss ");
}

// No process has it open after a restart, so a scan that does not find it could take it for gone.
FIXTURE_TEST(a_file_missed_for_a_moment_is_not_gone) {
    char away[TEMP_DIR_BYTES];
    temp_dir_join(away, w->folder, "away");
    assert_int_equal(mkdir(away, 0755), 0);
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    stop(w);
    write_lines(w, "app.log", 5); // unread
    move(w, "app.log", "app.log.1");
    move(w, "app.log.1", "away/app.log.1");
    follow(w);
    double begin = 1e3 * reef_seconds();
    assert_int_equal(pull(w), 0);
    assert_int_equal(pull(w), 0);
    move(w, "away/app.log.1", "app.log.1");
    (void)pull(w);
    if (1e3 * reef_seconds() - begin >= REEF_SETTLE_MS) {
        print_message("skipped: this machine was too busy to look again in time\n");
        skip();
    }
    write_lines(w, "app.log", 5);
    pull_all(w);
    assert_int_equal(count_words(w, "source_loss"), 0);
    assert_int_equal(reef_tail_count(w->set), 2);
}

FIXTURE_TEST(permission_may_be_lost_and_regained) {
    write_lines(w, "app.log", 10);
    assert_int_equal(chmod(w->folder, 0777), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { // root may read everything: continue as another user
        if (geteuid() == 0 && setuid(65534) != 0) _exit(3);
        follow(w);
        pull_all(w);
        move(w, "app.log", "app.log.1");
        write_lines(w, "app.log", 5);
        if (chmod(w->path, 0) != 0) _exit(4);
        for (int i = 0; i < 5; i++)
            if (pull(w)) _exit(5);
        if (strcmp(w->words, "source_denied ") != 0) _exit(6);
        if (chmod(w->path, 0644) != 0) _exit(7);
        pull_all(w);
        _exit(strcmp(w->words, "source_denied source_back ") != 0 ? 8 : 0);
    }
    int end = 0;
    assert_int_equal(waitpid(child, &end, 0), child);
    assert_true(WIFEXITED(end));
    assert_int_equal(WEXITSTATUS(end), 0);
}

// ---- rotation by hand ---------------------------------------------------------------------------

FIXTURE_TEST(a_renamed_file_is_read_to_its_end_before_the_new_one) {
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    write_lines(w, "app.log", 20);
    move(w, "app.log", "app.log.1");
    write_lines(w, "app.log.1", 5); // by a writer that has it open
    write_lines(w, "app.log", 10);
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
    write_lines(w, "app.log.1", 5); // not even lines that come very late are lost
    write_lines(w, "app.log", 5);
    pull_all(w);
    assert_string_equal(w->words, "");
}

// What was read last was found as app.log, and lies in this file of the folder at the byte that it
// has been said to.
static bool lies_in(const world *w, const char *name, size_t count) {
    char path[2 * TEMP_DIR_BYTES], bytes[1 << 16];
    uint64_t offset;
    snprintf(path, sizeof(path), "%s/app.log", w->folder);
    assert_string_equal(reef_tail_place(w->set, &offset), path);
    snprintf(path, sizeof(path), "%s/%s", w->folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    size_t there = fread(bytes, 1, count, file);
    assert_int_equal(fclose(file), 0);
    return there == count && memcmp(bytes, w->given.bytes + w->given.count - count, count) == 0;
}

FIXTURE_TEST(what_was_read_lies_in_its_file_through_rotation_and_restarts) {
    w->room = 100;
    write_lines(w, "app.log", 30);
    follow(w);
    for (size_t i = 0; i < 3; i++) assert_true(lies_in(w, "app.log", pull_once(w)));
    move(w, "app.log", "app.log.1");
    write_lines(w, "app.log", 30);
    stop(w);
    follow(w);
    size_t old = 0, count;
    while (w->given.count < w->expected.count) {
        if ((count = pull_once(w)) == 0) continue;
        const bool is_old = lies_in(w, "app.log.1", count);
        assert_true(is_old || lies_in(w, "app.log", count));
        old += is_old;
    }
    assert_true(old > 3);
    pull_all(w);
}

FIXTURE_TEST(a_last_line_without_end_gets_one_when_its_file_is_left) {
    write_lines(w, "app.log", 5);
    write_name(w, "app.log", "cut in the mid");
    follow(w);
    pull_all(w);
    move(w, "app.log", "app.log.1");
    add(&w->expected, "cut in the mid\n", 15);
    write_lines(w, "app.log", 5);
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
}

FIXTURE_TEST(many_rotations_at_once_are_read_in_their_order) {
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    for (int live = 0; live < 2; live++) {
        if (!live) stop(w);
        for (int i = 12; i-- > 0;) {
            for (int k = 11 + 12 * live; k >= 1; k--) {
                char a[32], b[32], path[TEMP_DIR_BYTES];
                snprintf(a, sizeof(a), "app.log.%d", k);
                snprintf(b, sizeof(b), "app.log.%d", k + 1);
                temp_dir_join(path, w->folder, a);
                if (access(path, F_OK) == 0) move(w, a, b);
            }
            move(w, "app.log", "app.log.1");
            write_lines(w, "app.log", 7);
        }
        if (!live) follow(w);
        pull_all(w);
    }
    assert_same_from_anywhere(w, false, w->path);
    assert_string_equal(w->words, "");
}

FIXTURE_TEST(a_cut_file_is_read_on_in_its_copy) {
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    for (int stopped = 0; stopped < 2; stopped++) {
        write_lines(w, "app.log", 20); // not seen before the cut
        if (stopped) stop(w);
        command("cd '%s' && { [ ! -e app.log.1 ] || mv app.log.1 app.log.2; }", w->folder);
        command("cp '%s' '%s.1'", w->path, w->path);
        if (!stopped) assert_true(pull(w) > 0); // between copy and cut
        assert_int_equal(truncate(w->path, 0), 0);
        write_lines(w, "app.log", stopped ? 200 : 3); // larger than before, or not
        if (stopped) follow(w);
        pull_all(w);
    }
    assert_same_from_anywhere(w, false, w->path);
    assert_string_equal(w->words, "");
}

FIXTURE_TEST(a_copy_that_stays_is_not_read_again) {
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    command("cp '%s' '%s.1'", w->path, w->path);
    assert_nothing_for(w, 3000);
    write_lines(w, "app.log", 50);
    pull_all(w);
    assert_string_equal(w->words, "");
}

FIXTURE_TEST(a_cut_without_copy_is_reported) {
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    assert_int_equal(truncate(w->path, 0), 0);
    write_lines(w, "app.log", 100); // past the position where reading stopped
    pull_all(w);
    assert_nothing_for(w, REEF_SETTLE_MS + REEF_TAIL_SCAN_MS);
    assert_string_equal(w->words, "source_loss ");
}

FIXTURE_TEST(a_file_that_was_cut_in_its_middle_is_read_from_its_start) {
    write_lines(w, "app.log", 100);
    follow(w);
    pull_all(w);
    size_t kept = REEF_PREFIX_BYTES_MAX + 200; // its first bytes are as before
    while (w->given.bytes[kept - 1] != '\n') kept++;
    assert_int_equal(truncate(w->path, (off_t)kept), 0);
    char *again = strndup(w->given.bytes, kept);
    add(&w->expected, again, kept);
    free(again);
    pull_all(w);
    assert_nothing_for(w, REEF_SETTLE_MS + REEF_TAIL_SCAN_MS);
    assert_string_equal(w->words, "source_loss ");
}

FIXTURE_TEST(packed_files_are_read_on) {
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    for (int stopped = 0; stopped < 2; stopped++) {
        write_lines(w, "app.log", 20);
        if (stopped) stop(w);
        command("cd '%s' && { [ ! -e app.log.1.gz ] || mv app.log.1.gz app.log.2.gz; }", w->folder);
        move(w, "app.log", "app.log.1");
        write_lines(w, "app.log", 10);
        command("gzip '%s.1'", w->path);
        if (stopped) follow(w);
        if (stopped) pull_all(w);
    }
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
    assert_string_equal(w->words, "");
}

// ---- logrotate ----------------------------------------------------------------------------------

static void logrotate(const world *w, const char *how) {
    if (strstr(how, "%s") != NULL) await_other_time(1001); // a name for each second
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, w->folder, "rotate.conf");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s {\n    rotate 400\n    missingok\n    %s\n}\n", w->path, how);
    fclose(file);
    assert_int_equal(chmod(w->folder, 0755), 0);
    assert_int_equal(chmod(path, 0644), 0);
    command("logrotate --force --state '%s/rotate.state' '%s'", w->folder, path);
}

static void rotate_by(world *w, const char *how) {
    write_lines(w, "app.log", 50);
    follow(w);
    pull_all(w);
    for (int i = 0; i < 3; i++) { // while it reads
        write_lines(w, "app.log", 30);
        logrotate(w, how);
        write_lines(w, "app.log", 5 + 40 * (i % 2));
        if (i != 1) pull_all(w);
    }
    pull_all(w);
    stop(w);
    for (int i = 0; i < 4; i++) { // and while it does not
        write_lines(w, "app.log", 30);
        logrotate(w, how);
        write_lines(w, "app.log", 40 * (i % 2));
    }
    follow(w);
    pull_all(w);
    write_lines(w, "app.log", 30);
    pull_all(w);
    assert_same_from_anywhere(w, false, w->path);
    assert_string_equal(w->words, "");
}

TEST_WITH(logrotate_creates, world_new, world_remove, void *made) {
    rotate_by(made, "create");
}

TEST_WITH(logrotate_copies_and_truncates, world_new, world_remove, void *made) {
    rotate_by(made, "copytruncate");
}

TEST_WITH(logrotate_compresses_later, world_new, world_remove, void *made) {
    rotate_by(made, "create\n    compress\n    delaycompress");
}

TEST_WITH(logrotate_compresses_at_once, world_new, world_remove, void *made) {
    rotate_by(made, "create\n    compress");
}

TEST_WITH(logrotate_compresses_copies, world_new, world_remove, void *made) {
    rotate_by(made, "copytruncate\n    compress\n    delaycompress");
}

TEST_WITH(logrotate_names_by_date, world_new, world_remove, void *made) {
    rotate_by(made, "create\n    dateext\n    dateformat -%Y%m%d-%s");
}

// ---- read too late ------------------------------------------------------------------------------

// Nothing is read while the trainer is behind: files rotated away meanwhile must still be read.
FIXTURE_TEST(files_that_are_deleted_while_nothing_is_read_are_kept) {
    reef_error err = {0};
    follow(w);
    for (int i = 0; i < 10; i++) {
        write_lines(w, "app.log", 30);
        assert_int_equal(reef_tail_rescan(w->set, &err), REEF_OK);
        command("rm -f '%s.1' && mv '%s' '%s.1'", w->path, w->path, w->path);
    }
    pull_all(w);
    assert_string_equal(w->words, "");
}

// A read pass is what was there when it began; the trainer may take hours for it, and asks again
// and again.
FIXTURE_TEST(files_that_are_deleted_during_a_long_round_are_kept) {
    w->room = 10;
    write_lines(w, "app.log", 50);
    follow(w);
    pull_once(w);
    for (int i = 0; i < 3; i++) {
        write_lines(w, "app.log", 30);
        pause_ms(REEF_TAIL_SCAN_MS + 50);
        assert_int_equal(pull_once(w), w->room);
        assert_int_equal(reef_tail_unread(w->set), w->expected.count - w->given.count);
        command("rm -f '%s.1' && mv '%s' '%s.1'", w->path, w->path, w->path);
    }
    pull_all(w);
    assert_string_equal(w->words, "");
}

// ---- what is refused ----------------------------------------------------------------------------

FIXTURE_TEST(what_cannot_be_followed_is_refused) {
    reef_error err = {0};
    assert_int_equal(reef_tail_open(&w->set, w->folder, false, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "dir:"));
    assert_int_equal(reef_tail_open(&w->set, "", false, &err), REEF_ERR_INVALID);
    assert_int_equal(reef_tail_open(&w->set, w->path, true, &err), REEF_ERR_NOT_FOUND);
    assert_int_equal(reef_tail_open(&w->set, "/no/such/*.log", true, &err), REEF_ERR_NOT_FOUND);
}

FIXTURE_TEST(marks_of_others_are_refused) {
    const char *const marks[] = {
        "",
        "{}",
        "[]",
        "{\"files\": []}",
        "{\"files\": [[1, 2, 3]]}",
        "{\"files\": [[1, 2, 3, 2, 0, \"0000000000000000\", 0, \"0000000000000000\", 0, \"\", "
        "\"a\"]]}",
        "{\"files\": [[1, 2, 3, 4, 9999, \"0000000000000000\", 0, \"0000000000000000\", 0, \"\", "
        "\"\"]]}",
        "{\"files\": [[1, 2, 3, 4, 5, \"zz\", 0, \"0000000000000000\", 0, \"\", \"\"]]}"};
    for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
        reef_error err = {0};
        reef_tail_close(w->set);
        assert_int_equal(reef_tail_open(&w->set, w->path, false, &err), REEF_OK);
        reef_input_offset offset = {.cursor = 5, .checkpoint = marks[i]};
        assert_int_equal(reef_tail_seek(w->set, &offset, &err), REEF_ERR_CORRUPT);
    }
    reef_error err = {0};
    assert_int_equal(reef_tail_seek(w->set, &(reef_input_offset){.cursor = 5}, &err),
                     REEF_ERR_CORRUPT);
}

// Overwritten again before the follower's patience with the last one ends.
FIXTURE_TEST(a_file_that_is_overwritten_all_the_time_is_read) {
    char line[80];
    follow(w);
    for (int i = 0; i < 30; i++) {
        int bytes = snprintf(line, sizeof(line), "line %03d %0*d\n", i, 10 + i % 7 * 7, i);
        command("printf '%%s' '%s' > '%s'", line, w->path);
        add(&w->expected, line, (size_t)bytes);
        for (int k = 0; k < 20 && w->given.count < w->expected.count; k++) {
            (void)pull(w);
            pause_ms(50);
        }
        assert_int_equal(w->given.count, w->expected.count);
        write_name(w, "app.log", "unended"); // and lost, for the line goes on in no file
        (void)pull(w);
    }
    assert_string_equal(w->given.bytes, w->expected.bytes);
}

// What was given and what was not, of a file that is held open by nobody else.
FIXTURE_TEST(what_goes_with_a_stop_is_said) {
    for (int folder = 0; folder < 2; folder++) {
        w->words[0] = 0;
        write_lines(w, "app.log", 100);
        open_at(w, folder ? w->folder : w->path, folder == 1, w->given.count);
        size_t before = w->given.count;
        for (int i = 0; i < 2; i++) (void)pull_once(w);
        assert_in_range(w->given.count, before + 1, before + 2000);
        delete (w, "app.log");
        uint64_t unread = w->expected.count - w->given.count;
        reef_tail_leave(w->set, 300); // were given, and are in no pool
        assert_int_equal(pull(w), unread > 0 ? unread : 0);
        assert_string_equal(w->words, "source_loss ");
        assert_int_equal(reef_tail_losses_read(w->set).lost_bytes, unread + 300);
        w->given.count = before;
        w->expected.count = before;
        stop(w);
        while (w->mark_count) free(w->marks[--w->mark_count].json);
        w->given.count = w->expected.count = 0;
    }
}

RUN_TESTS
