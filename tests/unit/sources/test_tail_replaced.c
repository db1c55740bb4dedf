// A followed file in whose place another one stands, with the same first bytes: the other one is
// read from its start, and what may be lost of the first is said.
#include "tail_world.h"
#include "test.h"

#include <unistd.h>

#define WORLDS_MAX 16
#define PATIENCE_MS 20000

typedef enum replacement { REMOVED, MOVED_OVER, CUT, COPIED_OVER } replacement;

// One file of one world: a banner that both files begin with, and whether the follower was stopped
// meanwhile.
typedef struct replaced {
    world *w;
    bool folder, stopped;
    size_t banner;
} replaced;

static void add_lines(text *to, const char *word, size_t bytes) {
    char line[64];
    for (size_t i = 0, end = to->count + bytes; to->count < end; i++)
        add(to, line, (size_t)snprintf(line, sizeof(line), "%s %zu of this file\n", word, i));
}

static void write_file(const world *w, const char *name, const text *bytes) {
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, w->folder, name);
    write_to(path, bytes->bytes, bytes->count);
}

static void replace(const world *w, replacement how, const text *with) {
    const char *const dir = w->folder;
    write_file(w, ".next", with);
    if (how == MOVED_OVER) move(w, ".next", "app.log");
    if (how == REMOVED) command("cd '%s' && rm app.log && cat .next > app.log", dir);
    if (how == CUT) command("cd '%s' && : > app.log && cat .next >> app.log", dir);
    if (how == COPIED_OVER) command("cd '%s' && cp .next app.log", dir);
}

static void begin(replaced *one, replacement how) {
    static const char BANNER[] = "# the same banner stands at the head of each of these files #\n";
    world *w = one->w;
    text old = {0}, new = {0};
    while (old.count < one->banner) {
        size_t left = one->banner - old.count, bytes = sizeof(BANNER) - 1;
        add(&old, BANNER, left < bytes ? left : bytes);
    }
    add(&new, old.bytes, old.count);
    add_lines(&old, "old", 5000);
    add_lines(&new, "new", 9000);
    write_file(w, "app.log", &old);
    add(&w->expected, old.bytes, old.count);
    open_at(w, one->folder ? w->folder : w->path, one->folder, 0);
    pull_all(w);
    if (one->stopped) stop(w);
    replace(w, how, &new);
    add(&w->expected, new.bytes, new.count);
    if (one->stopped) open_at(w, one->folder ? w->folder : w->path, one->folder, w->given.count);
    free(old.bytes);
    free(new.bytes);
}

// All at once: each waits until its file is settled.
static void read_all(replacement how) {
    static const size_t BANNERS[] = {600, 1023, 1024, 1500};
    replaced all[WORLDS_MAX];
    for (size_t i = 0; i < WORLDS_MAX; i++) {
        void *made = NULL;
        (void)world_new(&made);
        all[i] = (replaced){
            .w = made, .folder = (i & 1) != 0, .stopped = (i & 2) != 0, .banner = BANNERS[i / 4]};
        begin(&all[i], how);
    }
    bool waits = true;
    for (unsigned ms = 0; waits && ms < PATIENCE_MS; ms += 50) {
        waits = false;
        for (size_t i = 0; i < WORLDS_MAX; i++) {
            (void)pull(all[i].w);
            waits |= all[i].w->given.count < all[i].w->expected.count;
        }
        pause_ms(50);
    }
    for (size_t i = 0; i < WORLDS_MAX; i++) {
        world *w = all[i].w;
        pull_all(w);
        // A removed file that was open was read to its end, and nothing can have been lost.
        bool whole = !all[i].stopped && (how == REMOVED || how == MOVED_OVER);
        assert_string_equal(w->words, whole ? "" : "source_loss ");
        void *done = w;
        (void)world_remove(&done);
    }
}

PLAIN_TEST(a_file_made_in_the_place_of_a_removed_one_is_read_whole) {
    read_all(REMOVED);
}

PLAIN_TEST(a_file_moved_over_another_is_read_whole) {
    read_all(MOVED_OVER);
}

PLAIN_TEST(a_file_that_was_cut_and_written_again_is_read_whole) {
    read_all(CUT);
}

PLAIN_TEST(a_file_copied_over_another_is_read_whole) {
    read_all(COPIED_OVER);
}

// copytruncate with a writer that writes between the copy and the cut: its lines are nowhere.
TEST_WITH(what_was_written_between_copy_and_cut_is_said_to_be_lost,
          world_new,
          world_remove,
          world *w) {
    reef_error err = {0};
    write_lines(w, "app.log", 10);
    follow(w);
    pull_all(w);
    write_lines(w, "app.log", 200);
    command("cp '%s' '%s.1'", w->path, w->path);
    size_t copied = w->expected.count;
    write_lines(w, "app.log", 20);
    w->expected.count = copied;
    assert_int_equal(pull_once(w), w->room); // reading is behind
    assert_int_equal(truncate(w->path, 0), 0);
    assert_int_equal(reef_tail_rescan(w->set, &err), REEF_OK);
    write_lines(w, "app.log", 20);
    pull_all(w);
    assert_string_equal(w->words, "source_loss ");
}

RUN_TESTS
