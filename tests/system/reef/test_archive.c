// `reef compress` and `reef expand` as a user runs them.
#include "tools_world.h"

#include "small_disk.h"
#include "whole_file.h"

#include <sys/stat.h>
#include <unistd.h>

// A pool with context memories, trained as the world's: generation 0 sealed on English, "kept" a
// snapshot while C was learned, and more since.
typedef struct memory_world {
    world *world;
    char *pool, *other; // two pools that have learned different things
} memory_world;

static char *memory_pool(world *w, const char *name, const char *seed) {
    char *path = path_in(w->directory, name);
    program p = reef("init", path, TINY_OPTIONS, "--memory", "4194304", "--net-share", "1",
                     "--seed", seed, NULL);
    if (p.code != 0) fail_msg("init: %s", p.err);
    return path;
}

static int setup(void **state) {
    memory_world *m = reef_cli_alloc(1, sizeof(*m));
    int failed = world_make((void **)&m->world);
    m->pool = memory_pool(m->world, "memory", "1");
    m->other = memory_pool(m->world, "other", "2");
    tiny_pool_train(m->pool);
    char *net = path_in(m->world->directory, "net"); // a net alone writes no archives
    (void)reef_json("init", net, TINY_OPTIONS, "--memory", "0", NULL);
    tiny_pool_train(net);
    *state = m;
    return failed;
}

static int teardown(void **state) {
    memory_world *m = *state;
    int failed = world_remove((void **)&m->world);
    return failed;
}

// Runs a line of shell in the world's directory, where $REEF is the program.
static void shell(program *p, const memory_world *m, const char *line) {
    char *script =
        formatted("cd '%s' && export REEF='%s' && %s", m->world->directory, REEF_BINARY, line);
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    program_run(p, argv, NULL);
}

static void assert_shell(const memory_world *m, const char *line) {
    program p;
    shell(&p, m, line);
    if (p.code != 0) fail_msg("%s: exit %d: %s%s", line, p.code, p.out, p.err);
}

static void assert_refused(const memory_world *m, int code, const char *says, const char *line) {
    program p;
    shell(&p, m, line);
    if (p.code != code || strstr(p.err, says) == NULL)
        fail_msg("%s: exit %d, not %d with '%s': %s", line, p.code, code, says, p.err);
    assert_int_equal(line_count(p.err), 1);
    assert_string_equal(p.out, "");
}

static bool is_there(const memory_world *m, const char *name) {
    char *path = path_in(m->world->directory, name);
    return access(path, F_OK) == 0;
}

#define FIXTURE_TEST(name) TEST_WITH(name, NULL, NULL, memory_world *m)

FIXTURE_TEST(a_file_becomes_an_archive_and_comes_back) {
    program p = reef("compress", m->pool, m->world->english, "--as-of", "0", NULL);
    assert_int_equal(p.code, 0);
    const char *says[] = {"archive   ", "english.txt.reef", "bits per byte",
                          "as of     generation 0", "coded by  generation 0: 1 piece, 400 B in "};
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++)
        if (strstr(p.out, says[i]) == NULL) fail_msg("'%s' is not in:\n%s", says[i], p.out);
    assert_string_equal(p.err, "");
    // Both are there now, and neither gives way unasked.
    assert_refused(m, 64,
                   "english.txt.reef exists; it is replaced only if that is asked for (--force)",
                   "$REEF compress memory english.txt");
    assert_refused(m, 64, "english.txt exists; it is replaced only if",
                   "$REEF expand memory english.txt.reef");
    assert_shell(m, "cp english.txt was.txt && $REEF expand memory english.txt.reef --force && "
                    "cmp was.txt english.txt");
    assert_shell(m, "rm english.txt && $REEF expand memory english.txt.reef && "
                    "cmp was.txt english.txt");
    assert_shell(m, "$REEF expand memory english.txt.reef --out again && cmp was.txt again");
    assert_shell(m, "$REEF compress memory english.txt --as-of kept --force");
    assert_shell(m, "test $(wc -c < english.txt.reef) -lt 400 && ! ls | grep part");
}

FIXTURE_TEST(programs_are_answered_in_json) {
    char *archive = path_in(m->world->directory, "j.reef"),
         *back = path_in(m->world->directory, "j.c");
    json_t *answer = reef_json("compress", m->pool, m->world->code, "--out", archive, NULL);
    assert_int_equal(integer(answer, "text_bytes"), 300);
    assert_string_equal(string(answer, "as_of"), "kept");
    assert_true(is_true(answer, "snapshot"));
    struct stat info;
    assert_int_equal(stat(archive, &info), 0);
    assert_int_equal(integer(answer, "archive_bytes"), info.st_size);
    expect_keys(answer, "archive text_hash stream_bytes pool piece_bytes pieces raw_pieces "
                        "generations done");
    answer = reef_json("expand", m->pool, archive, "--range", "10-20", "--out", back, NULL);
    assert_int_equal(integer(answer, "begin"), 10);
    assert_int_equal(integer(answer, "end"), 20);
    assert_refused(m, 64, "name a file with --out",
                   "$REEF compress memory < code.c --json "
                   "> /dev/null");
}

FIXTURE_TEST(standard_input_and_output_are_files_too) {
    assert_shell(m, "$REEF compress memory --as-of 0 < code.c > s.reef && test -s s.reef");
    assert_shell(m, "$REEF compress memory - --as-of 0 --out - < code.c | cmp - s.reef");
    assert_shell(m, "$REEF compress memory code.c --as-of 0 --out - | cmp - s.reef");
    assert_shell(m, "$REEF expand memory < s.reef | cmp - code.c");
    assert_shell(m, "$REEF expand memory s.reef --out - | cmp - code.c");
    assert_shell(m, "cat s.reef | $REEF expand memory - --out from-stdin && cmp from-stdin code.c");
    assert_shell(m, "REEF_POOL=memory $REEF compress --as-of 0 < code.c | cmp - s.reef");
    program p;
    shell(&p, m, "$REEF expand memory s.reef --range 4-12");
    assert_int_equal(p.code, 0);
    assert_int_equal(strlen(p.out), 8);
    assert_shell(m,
                 "$REEF expand memory s.reef --range 290- | cmp - code.c --ignore-initial=0:290");
    assert_shell(m,
                 "for t in 1 2 3; do $REEF compress memory code.c --as-of 0 --piece 4K --threads "
                 "$t --out - | cmp - s4.reef 2>/dev/null || $REEF compress memory code.c --as-of "
                 "0 --piece 4K --out s4.reef; done; test -s s4.reef");
}

FIXTURE_TEST(an_option_has_a_letter) {
    assert_shell(m, "$REEF compress memory code.c --as-of 0 -o l.reef && $REEF compress memory "
                    "code.c --as-of 0 -ol2.reef && cmp l.reef l2.reef");
    assert_shell(m, "$REEF expand -o l memory l.reef && cmp l code.c");
    assert_shell(m, "$REEF expand memory l.reef -o - | cmp - code.c");
    // The last one counts, whichever way it is written.
    assert_shell(m, "$REEF expand memory l.reef -o l3 --out l4 && test ! -e l3 && test -e l4");
    assert_shell(m, "$REEF expand -h | grep -q -e '-o, --out PATH'");
    assert_refused(m, 64, "option '-o' needs a value", "$REEF expand memory l.reef -o");
    assert_refused(m, 64, "unknown option '-z'", "$REEF expand memory l.reef -z");
    assert_refused(m, 64, "unknown option '-o'", "$REEF status memory -o l");
}

FIXTURE_TEST(an_empty_file_stays_empty) {
    assert_shell(m, "$REEF compress memory empty --as-of 0 && rm empty && "
                    "$REEF expand memory empty.reef && test -e empty && ! test -s empty");
    assert_shell(m, "$REEF expand memory empty.reef --range 0-0 | cmp - empty");
}

FIXTURE_TEST(who_names_no_state_is_told_which) {
    program p;
    shell(&p, m, "$REEF compress memory code.c --out told.reef");
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "as of     snapshot kept"));
    assert_non_null(strstr(p.err, "as of snapshot kept; the "));
    assert_non_null(strstr(p.err, "reef snapshot create"));
}

FIXTURE_TEST(a_dry_run_writes_nothing) {
    program p;
    shell(&p, m, "$REEF compress memory code.c --as-of 0 --out dry.reef --dry-run");
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "would write:\narchive   dry.reef"));
    assert_false(is_there(m, "dry.reef"));
    assert_shell(m, "$REEF compress memory code.c --as-of 0 --out wet.reef");
    shell(&p, m, "$REEF expand memory wet.reef --dry-run");
    assert_int_equal(p.code, 0);
    assert_string_equal(p.out, "would write wet, 300 B\n");
    assert_false(is_there(m, "wet"));
}

FIXTURE_TEST(what_cannot_be_done_is_said_in_one_line) {
    assert_shell(m, "$REEF compress memory code.c --as-of 0 --out r.reef");
    assert_shell(m, "$REEF compress memory code.c --as-of kept --out kept.reef");
    assert_shell(m, "head -c 150 r.reef > cut.reef; cp r.reef long.reef; echo >> long.reef");
    assert_shell(m, "cp r.reef newer.reef && "
                    "printf '\\002' | dd of=newer.reef bs=1 seek=8 conv=notrunc 2>/dev/null");
    assert_shell(m, "cp r.reef bad.reef && "
                    "printf '~' | dd of=bad.reef bs=1 seek=225 conv=notrunc 2>/dev/null");
    static const struct {
        int code;
        const char *says, *line;
    } CASES[] = {
        {64, "is open", "$REEF compress memory code.c --as-of now --out n"},
        {66, "there is no state 'nowhere'", "$REEF compress memory code.c --as-of nowhere --out n"},
        {66, "missing", "$REEF compress memory missing"},
        {66, "missing", "$REEF compress missing code.c --out n"},
        {64, "--memory", "$REEF compress net code.c --out n"},
        {64, "no state for ever", "$REEF compress other code.c --out n"},
        {64, "must be a number of bytes, 4K to 64M",
         "$REEF compress memory code.c --out n --piece 4"},
        {64, "must be a number of bytes", "$REEF compress memory code.c --out n --piece 65M"},
        {64, "must be a number of bytes", "$REEF compress memory code.c --out n --piece big"},
        {64, "not a regular file", "$REEF compress memory code.c --out not-a-pool"},
        {66, "no-directory", "$REEF compress memory code.c --out no-directory/n"},
        {64, "pool", "$REEF compress memory code.c --out memory/n"},
        {64, "does not end in .reef", "$REEF expand memory code.c"},
        {64, "no archive", "$REEF expand memory code.c --out n"},
        {64, "no archive", "$REEF expand memory empty --out n"},
        {65, "cut off", "$REEF expand memory cut.reef --out n"},
        {65, "1 bytes follow", "$REEF expand memory long.reef --out n"},
        {65, "format version 2", "$REEF expand memory newer.reef --out n"},
        {65, "damaged: piece 0", "$REEF expand memory bad.reef --out n"},
        {64, "beyond the text, which has 300 bytes", "$REEF expand memory r.reef --range 9-301"},
        {64, "beyond the text", "$REEF expand memory r.reef --range 301-"},
        {64, "BEGIN-END", "$REEF expand memory r.reef --range 9-8"},
        {64, "BEGIN-END", "$REEF expand memory r.reef --range nine"},
        {64, "BEGIN-END", "$REEF expand memory r.reef --range 1-+3"},
        {64, "of another pool", "$REEF expand other r.reef --out n"},
        {64, "--memory", "$REEF expand net r.reef --out n"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        assert_refused(m, CASES[i].code, CASES[i].says, CASES[i].line);
        assert_false(is_there(m, "n") || is_there(m, "n.part"));
    }
    // And what is gone.
    assert_shell(m, "cp -r memory later && $REEF expand later kept.reef --out k && cmp k code.c && "
                    "$REEF snapshot remove later kept --yes");
    assert_refused(m, 66, "as snapshot 'kept' had it", "$REEF expand later kept.reef --out n");
    assert_shell(m, "$REEF expand later r.reef --out k --force && cmp k code.c");
}

// ---- the same for ever --------------------------------------------------------------------------

FIXTURE_TEST(every_kernel_writes_and_reads_the_same_archive) {
    static const char *const ISAS[] = {"scalar", "avx2", "avx512"};
    assert_shell(m, "cat english.txt code.c english.txt > both && for s in 0 kept; do "
                    "$REEF compress memory both --as-of $s -o both.$s || exit 1; done");
    for (size_t i = 0; i < sizeof(ISAS) / sizeof(ISAS[0]); i++) {
        if (!isa_runs_here(ISAS[i])) continue;
        char *line = formatted("export REEF_ISA=%s && for s in 0 kept; do "
                               "$REEF compress memory both --as-of $s -o - | cmp - both.$s && "
                               "$REEF expand memory both.$s -o - | cmp - both || exit 1; done",
                               ISAS[i]);
        assert_shell(m, line);
    }
}

// Each command is a process of its own.
FIXTURE_TEST(an_archive_outlives_training_sealing_and_copies) {
    assert_shell(m, "cat code.c english.txt code.c > old && $REEF compress memory old --as-of 0 -o "
                    "old.0 && $REEF compress memory old --as-of kept -o old.kept");
    assert_shell(m, "cp -r memory on && $REEF train on english.txt both code.c "
                    "&& $REEF seal on && $REEF train on code.c && $REEF snapshot create on third");
    assert_shell(m, "$REEF export pool on copied && $REEF snapshot restore on third restored");
    assert_shell(m, "for p in on copied restored; do for s in 0 kept; do "
                    "$REEF expand $p old.$s -o - | cmp - old || exit 1; "
                    "$REEF compress $p old --as-of $s -o - | cmp - old.$s || exit 1; done; done");
}

// Its number is another one in the pool that it comes to.
FIXTURE_TEST(an_archive_goes_with_its_generation) {
    assert_shell(m, "for i in 0 1 2; do tail -c +$((i * 4000 + 1)) '" REEF_TEST_DATA_DIR
                    "/../README.md' | head -c 4000 > part.$i; done");
    assert_shell(m, "cp -r other from && $REEF train from part.0 && $REEF seal from && "
                    "cp -r from to && $REEF train from part.1 && $REEF seal from && "
                    "$REEF compress from part.1 --as-of 1 -o part.reef");
    assert_shell(m, "$REEF train to part.2 && $REEF seal to");
    assert_refused(m, 66, "needs generation 1 with root", "$REEF expand to part.reef -o n");
    assert_shell(m, "$REEF import to from --generations 1 && "
                    "$REEF expand to part.reef -o - | cmp - part.1");
}

// What a memory says of a text is what its archive takes.
FIXTURE_TEST(an_archive_is_as_long_as_eval_says) {
    assert_shell(m, "$REEF init alone-memory --memory 4M --net-share 0 --boundaries given "
                    "--d-model 16 --layers 1 --side 4 --topk 2 --heads 2 --attention-heads 2 "
                    "--d-key 8 && head -c 40000 '" REEF_TEST_DATA_DIR "/../README.md' > whole && "
                    "head -c 10000 whole > learned && tail -c +10001 whole > held && "
                    "$REEF train alone-memory learned && $REEF seal alone-memory && "
                    "$REEF compress alone-memory held --as-of 0 -o held.reef");
    char *held = path_in(m->world->directory, "held"),
         *archive = path_in(m->world->directory, "held.reef"),
         *pool = path_in(m->world->directory, "alone-memory");
    json_t *document = reef_json("eval", pool, "--as-of", "0", held, NULL);
    double bytes = number(document, "files.0.bits") / 8.0;
    struct stat info;
    assert_int_equal(stat(archive, &info), 0);
    print_message("%.0f bytes by eval, %lld in the archive\n", bytes, (long long)info.st_size);
    assert_true(bytes > 3000.0);
    assert_true((double)info.st_size <= bytes * 1.003 + 200.0);
    assert_true((double)info.st_size >= bytes);
}

FIXTURE_TEST(whatever_goes_wrong_leaves_nothing) {
    assert_shell(m, "$REEF compress memory code.c --as-of 0 --out w.reef");
    assert_refused(m, 73, "cannot write standard output",
                   "$REEF expand memory w.reef --out - "
                   "> /dev/full");
    // The name that it writes under first belongs to somebody.
    assert_shell(m, "echo mine > taken.part");
    assert_refused(m, 64, "taken.part exists", "$REEF expand memory w.reef --out taken");
    assert_shell(m, "test \"$(cat taken.part)\" = mine && test ! -e taken");
    // Interrupted in the middle of some seconds of work.
    assert_shell(m, "for i in 1 2 3 4 5 6 7 8 9; do cat english.txt code.c; done > part.txt; "
                    "for i in 1 2 3 4 5 6 7 8 9; do cat part.txt part.txt part.txt part.txt; done "
                    "> long.txt; for i in 1 2 3 4 5 6; do cat long.txt long.txt long.txt; done "
                    "> longest.txt");
    assert_shell(m, "timeout -s INT 0.5 $REEF compress memory longest.txt --as-of 0 --out i.reef; "
                    "test $? -ne 0 && test ! -e i.reef && test ! -e i.reef.part");
}

FIXTURE_TEST(a_full_disk_is_an_error_that_leaves_nothing) {
    char *disk = path_in(m->world->directory, "disk"), *filler = path_in(disk, "filler");
    assert_int_equal(mkdir(disk, 0700), 0);
    if (small_disk_mount(disk, "64k")) {
        small_disk_fill(filler);
        program p;
        shell(&p, m, "$REEF compress memory code.c --as-of 0 --out disk/n");
        int code = p.code;
        bool said = strstr(p.err, "cannot ") != NULL && strstr(p.err, "No space left") != NULL;
        bool left = is_there(m, "disk/n") || is_there(m, "disk/n.part");
        small_disk_unmount(disk);
        assert_int_equal(code, 73);
        assert_true(said);
        assert_false(left);
    }
}

// There is room for the beginning of an archive, and none for the rest.
FIXTURE_TEST(a_disk_that_gets_full_leaves_what_was_there) {
    char *disk = path_in(m->world->directory, "narrow");
    assert_int_equal(mkdir(disk, 0700), 0);
    if (small_disk_mount(disk, "64k")) {
        program p[2];
        bool left = false;
        // Noise, that no memory makes shorter.
        assert_shell(m, "head -c 90000 /dev/urandom > noise && echo mine > narrow/mine && "
                        "$REEF compress memory noise --as-of 0 -o noise.reef");
        shell(&p[0], m, "$REEF compress memory noise --as-of 0 -o narrow/mine --force");
        left |= is_there(m, "narrow/mine.part");
        shell(&p[1], m, "$REEF expand memory noise.reef -o narrow/n");
        left |= is_there(m, "narrow/n") || is_there(m, "narrow/n.part");
        program kept;
        shell(&kept, m, "test \"$(cat narrow/mine)\" = mine");
        small_disk_unmount(disk);
        assert_int_equal(kept.code, 0);
        assert_false(left);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(p[i].code, 73);
            assert_non_null(strstr(p[i].err, "No space left"));
        }
    }
}

RUN_TESTS_IN(setup, teardown)
