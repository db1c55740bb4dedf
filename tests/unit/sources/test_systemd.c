// Files of systemd's journal as one stream of lines: every entry once, whatever becomes of the
// files, and from any byte on.
#include "draw.h"
#include "journal_file.h"
#include "systemd_internal.h"
#include "temp_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#define BEGIN_US UINT64_C(1700000000000000) // 2023-11-14T22:13:20Z
#define SECOND_US UINT64_C(1000000)
#define MARKS_MAX 1024

typedef struct world {
    char folder[TEMP_DIR_BYTES];
    char spec[TEMP_DIR_BYTES + 200];
    reef_systemd *journal;
    char *given, *expected; // text
    size_t given_count, room;
    size_t mark_count;
    struct {
        uint64_t begin;
        char *json;
    } marks[MARKS_MAX];
    char words[4096]; // events and their texts
} world;

static int setup(void **state) {
    world *w = *state = calloc(1, sizeof(*w));
    temp_dir_new(w->folder);
    w->given = calloc(1, 1 << 22);
    w->expected = calloc(1, 1 << 22);
    w->room = 1000;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    reef_systemd_close(w->journal);
    temp_dir_remove(w->folder);
    for (size_t i = 0; i < w->mark_count; i++) free(w->marks[i].json);
    free(w->given);
    free(w->expected);
    free(w);
    return 0;
}

#define JOURNAL_TEST(name) TEST_WITH(name, setup, teardown, world *w)

// ---- writing ------------------------------------------------------------------------------------

static const char *path_of(const world *w, const char *name) {
    char *path = room(TEMP_DIR_BYTES);
    temp_dir_join(path, w->folder, name);
    return path;
}

static void expect(world *w, const char *text) {
    strcat(w->expected, text);
}

// Entries of one second each; `expected` as well if it is asked for.
static void write_entries(
    world *w, const char *name, const char *host, uint64_t first, uint64_t count, bool expected) {
    journal_file file = {.count = first};
    journal_begin(&file, path_of(w, name));
    for (uint64_t i = first; i < first + count; i++) {
        char fields[200], message[100], line[200];
        snprintf(fields, sizeof(fields), "SYSLOG_IDENTIFIER=%s\n_PID=%" PRIu64 "\n", host, i);
        const int bytes = snprintf(message, sizeof(message), "order %" PRIu64 " of %s", i, host);
        journal_add(&file, BEGIN_US + i * SECOND_US, fields, message, (size_t)bytes);
        const uint64_t s = 22 * 3600 + 13 * 60 + 20 + i;
        snprintf(line, sizeof(line),
                 "2023-11-14T%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 ".000Z %s[%" PRIu64 "]: %s\n",
                 s / 3600, s / 60 % 60, s % 60, host, i, message);
        if (expected) expect(w, line);
    }
    journal_end(&file);
}

static void shell(const char *line) {
    if (system(line) != 0) fail_msg("failed: %s", line);
}

// ---- reading ------------------------------------------------------------------------------------

// What was given after the cursor is forgotten, as by a process that died.
static void open_at(world *w, const char *options, uint64_t cursor) {
    reef_error err = {0};
    reef_input_offset offset = {.cursor = cursor};
    reef_systemd_close(w->journal);
    snprintf(w->spec, sizeof(w->spec), "dir=%s%s", w->folder, options);
    if (reef_systemd_open(&w->journal, w->spec, &err) != REEF_OK) fail_msg("%s", err.message);
    while (w->mark_count > 0 && w->marks[w->mark_count - 1].begin > cursor)
        free(w->marks[--w->mark_count].json);
    if (w->mark_count > 0 && cursor > 0) {
        offset.begin = w->marks[w->mark_count - 1].begin;
        offset.checkpoint = w->marks[w->mark_count - 1].json;
    }
    if (reef_systemd_seek(w->journal, &offset, &err) != REEF_OK) fail_msg("%s", err.message);
    w->given_count = cursor;
}

static size_t pull_once(world *w) {
    reef_error err = {0};
    size_t count = 0;
    bool more = true;
    char *checkpoint = NULL;
    while (count == 0 && more)
        assert_int_equal(reef_systemd_read(w->journal, (uint8_t *)w->given + w->given_count,
                                           w->room, &count, &more, &checkpoint, &err),
                         REEF_OK);
    assert_true((checkpoint != NULL) == (count > 0));
    if (count > 0) {
        assert_true(w->mark_count < MARKS_MAX);
        w->marks[w->mark_count].begin = w->given_count;
        w->marks[w->mark_count++].json = checkpoint;
    }
    w->given_count += count;
    w->given[w->given_count] = '\0';
    for (size_t i = 0; i < w->journal->event_count; i++) {
        const size_t used = strlen(w->words);
        snprintf(w->words + used, sizeof(w->words) - used, "%s: %s\n", w->journal->events[i].event,
                 w->journal->events[i].text);
    }
    w->journal->event_count = 0;
    return count;
}

// Until nothing more comes, through several scans.
static void pull(world *w) {
    for (int empty = 0; empty < 4;) {
        if (pull_once(w) > 0) {
            empty = 0;
        } else {
            empty++;
            w->journal->scanned_ms = 0; // nobody waits
        }
    }
}

static void assert_as_expected(world *w) {
    pull(w);
    assert_string_equal(w->given, w->expected);
    assert_string_equal(w->words, "");
}

// ---- entries ------------------------------------------------------------------------------------

#define ADD(fields, message)                                                                       \
    journal_add(&file, BEGIN_US + 123456, fields, message, sizeof(message) - 1)

JOURNAL_TEST(an_entry_is_a_line_as_journalctl_shows_it) {
    journal_file file = {0};
    journal_begin(&file, path_of(w, "x.journal"));
    ADD("SYSLOG_IDENTIFIER=app\n_PID=7\n_COMM=other\n", "one");
    ADD("_COMM=tool\nSYSLOG_PID=8\n", "two");
    ADD("PRIORITY=3\n", "three");
    ADD("SYSLOG_IDENTIFIER=app\n_SOURCE_REALTIME_TIMESTAMP=4102444800999999\n", "of the future");
    ADD("SYSLOG_IDENTIFIER=app\n", "Traceback:\n\n\tat x\n\n");
    ADD("SYSLOG_IDENTIFIER=app\n", "nul\0here, \xff\x01 stay\0\0");
    ADD("SYSLOG_IDENTIFIER=app\n", "");
    journal_add(&file, BEGIN_US, "SYSLOG_IDENTIFIER=silent\n", NULL, 0);
    ADD("SYSLOG_IDENTIFIER=app\n", "last");
    journal_end(&file);
    expect(w, "2023-11-14T22:13:20.123Z app[7]: one\n"
              "2023-11-14T22:13:20.123Z tool[8]: two\n"
              "2023-11-14T22:13:20.123Z unknown: three\n"
              "2100-01-01T00:00:00.999Z app: of the future\n"
              "2023-11-14T22:13:20.123Z app: Traceback:\n    \n    \tat x\n"
              "2023-11-14T22:13:20.123Z app: nul here, \xff\x01 stay\n"
              "2023-11-14T22:13:20.123Z app: \n"
              "2023-11-14T22:13:20.123Z app: last\n");
    open_at(w, "", 0);
    pull(w);
    assert_string_equal(w->given, w->expected);
    assert_non_null(strstr(w->words, "source_unfit: entry 8 of '"));
    assert_null(strchr(strchr(w->words, '\n') + 1, '\n'));
}

JOURNAL_TEST(a_long_message_is_cut) {
    const size_t bytes = REEF_SYSTEMD_MESSAGE_BYTES_MAX + 5000;
    journal_file file = {0};
    char *message = room(bytes);
    memset(message, 'x', bytes);
    w->room = 60000;
    journal_begin(&file, path_of(w, "x.journal"));
    journal_add(&file, BEGIN_US, "SYSLOG_IDENTIFIER=app\n", message, bytes);
    ADD("SYSLOG_IDENTIFIER=app\n", "next");
    journal_end(&file);
    expect(w, "2023-11-14T22:13:20.000Z app: ");
    strncat(w->expected, message, REEF_SYSTEMD_MESSAGE_BYTES_MAX);
    expect(w, "\n2023-11-14T22:13:20.123Z app: next\n");
    open_at(w, "", 0);
    pull(w);
    assert_int_equal(w->given_count, strlen(w->expected));
    assert_string_equal(w->given, w->expected);
}

static void choose(world *w, const char *options, const char *expected) {
    w->words[0] = '\0';
    open_at(w, options, 0);
    pull(w);
    char heads[200] = "";
    for (const char *at = strstr(w->given, ": "); at != NULL; at = strstr(at + 1, ": "))
        strncat(heads, at + 2, 1);
    if (strcmp(heads, expected) != 0) fail_msg("%s: %s and not %s", options, heads, expected);
    assert_string_equal(w->words, "");
}

JOURNAL_TEST(matches_choose_entries) {
    journal_file file = {0};
    journal_begin(&file, path_of(w, "x.journal"));
    ADD("_SYSTEMD_UNIT=a.service\nSYSLOG_IDENTIFIER=x\nPRIORITY=6\n_UID=0\n", "1");
    ADD("_SYSTEMD_UNIT=b.service\nSYSLOG_IDENTIFIER=x\nPRIORITY=3\n", "2");
    ADD("_SYSTEMD_UNIT=a.socket\nSYSLOG_IDENTIFIER=y\nPRIORITY=4\n", "3");
    ADD("_SYSTEMD_UNIT=b.service\nSYSLOG_IDENTIFIER=z\n", "4");
    ADD("_SYSTEMD_UNIT=c.service\nSYSLOG_IDENTIFIER=y\nPRIORITY=0\n_UID=0\n", "5");
    journal_end(&file);
    choose(w, "", "12345");
    choose(w, "&unit=a.service", "1");
    choose(w, "&unit=a", "1");
    choose(w, "&unit=a.socket&unit=b", "234");
    choose(w, "&unit=b&identifier=x", "2");
    choose(w, "&priority=err", "25");
    choose(w, "&priority=4", "235");
    choose(w, "&priority=emerg&_UID=0", "5");
    choose(w, "&_UID=0", "15");
    choose(w, "&unit=none", "");
}

JOURNAL_TEST(what_names_nothing_is_refused) {
    static const char *const CASES[][2] = {
        {"unit=", "unit needs a value"},
        {"unit", "takes NAME=VALUE"},
        {"unti=nginx", "does not know 'unti'"},
        {"unit=a&", "takes NAME=VALUE"},
        {"=x", "does not know ''"},
        {"lower=x", "does not know 'lower'"},
        {"1X=x", "does not know '1X'"},
        {"priority=8", "priority '8' is none"},
        {"priority=error", "priority 'error' is none"},
        {"dir=logs", "is not an absolute path"},
        {"dir=/tmp&dir=/tmp", "one dir"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        reef_error err = {0};
        assert_int_equal(reef_systemd_open(&w->journal, CASES[i][0], &err), REEF_ERR_INVALID);
        if (strstr(err.message, CASES[i][1]) == NULL) fail_msg("%s", err.message);
        assert_null(w->journal);
    }
    reef_error err = {0};
    assert_int_equal(reef_systemd_open(&w->journal, "dir=/nowhere/x", &err), REEF_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "cannot read the journal in '/nowhere/x'"));
}

JOURNAL_TEST(what_may_not_be_read_is_refused_or_said) {
    const bool is_root = geteuid() == 0;
    reef_error err = {0};
    write_entries(w, "x.journal", "x", 0, 3, false);
    assert_int_equal(chmod(path_of(w, "x.journal"), 0), 0);
    assert_int_equal(chmod(w->folder, 0755), 0);
    if (is_root) assert_int_equal(seteuid(65534), 0);
    snprintf(w->spec, sizeof(w->spec), "dir=%s", w->folder);
    assert_int_equal(reef_systemd_open(&w->journal, w->spec, &err), REEF_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "this user may read no file of it"));
    if (is_root) assert_int_equal(seteuid(0), 0);
    // One that may be read is.
    write_entries(w, "y.journal", "y", 3, 3, true);
    assert_int_equal(chmod(path_of(w, "y.journal"), 0644), 0);
    if (is_root) assert_int_equal(seteuid(65534), 0);
    open_at(w, "", 0);
    pull(w);
    if (is_root) assert_int_equal(seteuid(0), 0);
    assert_string_equal(w->given, w->expected);
    assert_non_null(strstr(w->words, "source_denied: cannot read '"));
    assert_null(strchr(strchr(w->words, '\n') + 1, '\n'));
}

// ---- where reading continues --------------------------------------------------------------------

JOURNAL_TEST(reading_continues_from_any_byte) {
    uint64_t seed = 3;
    static const char *const NAMES[] = {"x", "a", "m", "z", "b", "y"};
    open_at(w, "", 0);
    for (uint64_t i = 0; i < 120; i += 12) { // found in another order by those that open it anew
        char name[20];
        snprintf(name, sizeof(name), "%s.journal", NAMES[i / 12 % 6]);
        write_entries(w, name, NAMES[i / 12 % 6], i, 12, true);
        assert_as_expected(w);
    }
    for (size_t i = 0; i < 60; i++) {
        w->room = 1 + draw_bits(&seed) % 700;
        open_at(w, "", draw_bits(&seed) % (w->given_count + 1));
        for (uint64_t k = draw_bits(&seed) % 8; k > 0; k--) (void)pull_once(w);
    }
    write_entries(w, "x.journal", "x", 120, 50, true);
    w->room = 5000;
    assert_as_expected(w);
    open_at(w, "", w->given_count);
    assert_int_equal(pull_once(w), 0);
}

JOURNAL_TEST(entries_are_given_as_they_are_written_and_by_the_time_at_first) {
    write_entries(w, "b.journal", "b", 1, 1, false);
    write_entries(w, "a.journal", "a", 0, 1, false);
    write_entries(w, "a.journal", "a", 2, 2, false);
    expect(w, "2023-11-14T22:13:20.000Z a[0]: order 0 of a\n"
              "2023-11-14T22:13:21.000Z b[1]: order 1 of b\n"
              "2023-11-14T22:13:22.000Z a[2]: order 2 of a\n"
              "2023-11-14T22:13:23.000Z a[3]: order 3 of a\n");
    open_at(w, "", 0);
    assert_as_expected(w);
    // Those of another host that come late are none the less read, and from where reading ended.
    write_entries(w, "b.journal", "b", 2, 2, true);
    assert_as_expected(w);
    open_at(w, "", w->given_count);
    write_entries(w, "c.journal", "c", 0, 3, true);
    assert_as_expected(w);
}

JOURNAL_TEST(boots_and_a_clock_that_is_set_back_change_no_order) {
    journal_file file = {0};
    journal_begin(&file, path_of(w, "x.journal"));
    for (uint64_t i = 0; i < 6; i++) {
        char message[10], line[100];
        snprintf(message, sizeof(message), "%" PRIu64, i);
        if (i % 2 == 0) file.boot++;
        file.count = 10 - i;
        journal_add(&file, BEGIN_US + (10 - i) * SECOND_US, "SYSLOG_IDENTIFIER=x\n", message, 1);
        snprintf(line, sizeof(line), "2023-11-14T22:13:%02" PRIu64 ".000Z x: %" PRIu64 "\n", 30 - i,
                 i);
        expect(w, line);
    }
    journal_end(&file);
    open_at(w, "", 0);
    w->room = 50;
    assert_true(pull_once(w) > 0);
    open_at(w, "", w->given_count);
    assert_as_expected(w);
}

JOURNAL_TEST(a_copy_is_not_read_again_and_a_renamed_file_goes_on) {
    char line[1200];
    write_entries(w, "x.journal", "x", 0, 20, true);
    snprintf(line, sizeof(line), "cp '%s' '%s'", path_of(w, "x.journal"), path_of(w, "y.journal"));
    shell(line);
    open_at(w, "", 0);
    assert_as_expected(w);
    assert_int_equal(rename(path_of(w, "x.journal"), path_of(w, "x@1.journal")), 0);
    assert_int_equal(unlink(path_of(w, "y.journal")), 0);
    assert_as_expected(w);
    open_at(w, "", w->given_count);
    assert_as_expected(w);
}

JOURNAL_TEST(a_file_that_is_removed_is_read_to_its_end) {
    write_entries(w, "x.journal", "x", 0, 100, true);
    open_at(w, "", 0);
    assert_true(pull_once(w) > 0);
    assert_int_equal(unlink(path_of(w, "x.journal")), 0);
    write_entries(w, "y.journal", "y", 100, 3, true);
    assert_as_expected(w);
}

JOURNAL_TEST(an_empty_folder_is_waited_in) {
    open_at(w, "", 0);
    assert_as_expected(w);
    write_entries(w, "x.journal", "x", 0, 3, true);
    assert_as_expected(w);
    char machine[TEMP_DIR_BYTES];
    temp_dir_join(machine, w->folder, "0123456789abcdef0123456789abcdef");
    assert_int_equal(mkdir(machine, 0755), 0);
    write_entries(w, "0123456789abcdef0123456789abcdef/y.journal", "y", 3, 3, true);
    assert_as_expected(w);
}

JOURNAL_TEST(an_entry_that_was_read_in_part_and_removed_is_reported) {
    write_entries(w, "x.journal", "x", 0, 3, false);
    open_at(w, "", 0);
    w->room = 70;
    assert_int_equal(pull_once(w), 70);
    assert_int_equal(unlink(path_of(w, "x.journal")), 0);
    open_at(w, "", 70);
    write_entries(w, "y.journal", "y", 0, 1, false);
    pull(w);
    assert_non_null(strstr(w->words, "source_loss: entry 2 of the journal "));
    assert_string_equal(w->given + 70, "2023-11-14T22:13:20.000Z y[0]: order 0 of y\n");
}

JOURNAL_TEST(a_checkpoint_of_another_source_is_refused) {
    static const char *const BAD[] = {
        NULL,
        "{}",
        "[1]",
        "{\"writers\": 1, \"skip\": 0, \"entries\": []}",
        "{\"writers\": [], \"skip\": 0, \"entries\": [[0, 1, 100, \"\", 0]]}",
        "{\"writers\": [], \"skip\": -1, \"entries\": []}",
        "{\"writers\": [[\"x\", 1, \"\", 0, false]], \"skip\": 0, \"entries\": [[0, 1, 9, \"\", "
        "0]]}"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++) {
        reef_error err = {0};
        open_at(w, "", 0);
        const reef_input_offset offset = {.cursor = 10, .checkpoint = BAD[i]};
        assert_int_equal(reef_systemd_seek(w->journal, &offset, &err), REEF_ERR_CORRUPT);
        assert_non_null(strstr(err.message, "10 bytes"));
    }
}

// ---- damage -------------------------------------------------------------------------------------

static void overwrite(const char *path, long from, long to) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, from, SEEK_SET), 0);
    for (long i = from; i < to; i++) fputc(0x5a, file);
    assert_int_equal(fclose(file), 0);
}

// From the byte `from` on; what remains are whole entries, each once, and the other file is read.
static void damage(world *w, long from, long to) {
    w->words[0] = w->expected[0] = '\0';
    (void)unlink(path_of(w, "x.journal"));
    write_entries(w, "x.journal", "x", 0, 200, false);
    overwrite(path_of(w, "x.journal"), from, to);
    (void)unlink(path_of(w, "y.journal"));
    write_entries(w, "y.journal", "y", 1000, 50, true);
    open_at(w, "", 0);
    pull(w);
    assert_non_null(strstr(w->given, w->expected));
    size_t lines = 0;
    for (const char *at = strchr(w->given, '\n'); at != NULL; at = strchr(at + 1, '\n')) lines++;
    if (lines < 250 && strstr(w->words, "source_") == NULL)
        fail_msg("%ld to %ld: %zu lines, %s", from, to, lines, w->words);
    uint64_t last = 0;
    for (const char *at = strstr(w->given, "order "); at != NULL; at = strstr(at + 1, "order ")) {
        const uint64_t number = strtoull(at + 6, NULL, 10);
        assert_true(at == strstr(w->given, "order ") || number > last);
        last = number;
    }
}

static long used_bytes(world *w) {
    write_entries(w, "x.journal", "x", 0, 200, false);
    char *bytes = room(1 << 24);
    FILE *file = fopen(path_of(w, "x.journal"), "rb");
    size_t count = fread(bytes, 1, 1 << 24, file);
    assert_int_equal(fclose(file), 0);
    while (count > 0 && bytes[count - 1] == 0) count--;
    return (long)count;
}

JOURNAL_TEST(a_damaged_file_is_reported_and_others_are_read) {
    uint64_t seed = 7;
    const long used = used_bytes(w);
    const long objects = used - 60000;
    damage(w, 0, 300); // the header
    damage(w, used / 2, used);
    for (size_t i = 0; i < 8; i++) {
        const long from = objects + (long)(draw_bits(&seed) % 55000);
        damage(w, from, from + 4000);
    }
    w->words[0] = '\0';
    FILE *file = fopen(path_of(w, "z.journal"), "w");
    fputs("this is no journal", file);
    assert_int_equal(fclose(file), 0);
    pull(w);
    assert_non_null(strstr(w->words, "source_broken: '"));
    assert_non_null(strstr(w->words, "z.journal' is damaged"));
}

RUN_TESTS
