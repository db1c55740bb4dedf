// Shared by the files of this folder: the table of followed files, and what each file offers.
//
// Parameters: `entry` is a file of the table, `found` one that this scan has opened.
//
// Words for a file's state:
//
//   active    written now: the file at the followed path; with dir: every listed file
//   settled   no write for REEF_SETTLE_MS
//   finished  settled and not active: nobody writes it any more; a gzip file need not be settled
//   drained   finished and read to its end; it stays in the table, so that copies are recognised
//   listed    the last scan found it in its folder; missing: it did not, perhaps during a rename
//   lost      truncated or replaced: no known inode has its bytes (device and inode are 0)
//   refused   no text by its first bytes (text_kind.h): it is in the table and never read
//   broken    a gzip file that does not decompress to its end
//
//   listed --> missing --(REEF_SETTLE_MS, and no open descriptor with unread bytes)--> removed
//     |           |
//     '-> lost ---'--(an unknown file has its bytes: the entry continues in that)--> listed
//
//   unknown: listed, and not in the table
//     '--(it may be a partial copy)--> candidate --(settled)--> NEW | COPY | NEVER (tail_scan.c)
#ifndef REEF_TAIL_INTERNAL_H
#define REEF_TAIL_INTERNAL_H

#include "reef_watch.h"
#include "tail.h"
#include "text_kind.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <zlib.h>

// ---- tail_file.c --------------------------------------------------------------------------------
//
// One file of a followed source: its identity, how far it was read, and its bytes.
//
// A file is known by its device and inode, by the hash of its first bytes (its prefix), and by that
// of the last bytes that were seen in it. All are needed. The number of a deleted file's inode is
// given to a new file; many files begin with the same banner; and a copy, also a gzip-compressed
// one, has another inode and the same bytes.

#define REEF_PREFIX_BYTES_MAX 1024 // and as many before the last byte that was seen
// A longer line is delivered in pieces, without waiting for its newline.
#define REEF_LINE_BYTES_MAX ((size_t)1 << 20)
#define REEF_UNPACK_BYTES_MAX ((uint64_t)1 << 40) // of one gzip file, decompressed

/** A file as a scan of its folder saw it. */
typedef struct reef_file_id {
    char name[NAME_MAX + 1];
    uint64_t device, inode, size;
    int64_t mtime_ns, ctime_ns; // since 1970
} reef_file_id;

typedef struct reef_tail_file {
    reef_file_id file_id;        // device and inode are 0 of a lost file
    char begun_as[NAME_MAX + 1]; // its name when it was found first
    uint64_t offset;             // next byte to return
    uint64_t pass_end;           // end of the bytes that this read pass returns
    bool add_newline;            // return a newline after them: the file's last line lacks one
    bool newline_added;          // that newline was returned
    bool is_gzip;                // offsets and size are those of the decompressed bytes
    bool drained;                // finished and read to its end
    bool judged;                 // its first bytes are text, or it is refused
    bool refused;                // they are no text, and nothing of it is returned
    bool listed;                 // by the last scan; otherwise it is missing
    bool opened_once;            // this process has opened and checked it
    uint32_t prefix_bytes;
    uint64_t prefix_hash;        // XXH3 of the first `prefix_bytes`
    uint64_t seen_end;           // of the bytes that were planned or returned: at least `offset`
    uint64_t seen_hash;          // XXH3 of those before it, up to REEF_PREFIX_BYTES_MAX
    uint64_t read_end;           // of the bytes that this process returned last
    uint64_t read_hash;          // as seen_hash
    uint64_t zeros_from;         // a run of NUL that was seen: begin
    uint64_t zeros_end;          // and how far it is known to go
    bool before_zeros;           // this read pass ends where such a run begins
    uint64_t given_from;         // the last bytes in a row that were returned of it, counted as
    uint64_t given_to;           // in tail->given
    uint64_t missing_since_ms;   // 0 while it is listed
    uint64_t unchanged_since_ms; // when its size or name last changed, it was found or went missing
    int fd;                      // or -1
    gzFile zip;                  // of a copy of `fd`
    uint64_t size;               // its bytes as of the last scan
} reef_tail_file;

void reef_file_id_of(reef_file_id *file_id, const char *name, const struct stat *state);
bool reef_file_id_same(const reef_file_id *a, const reef_file_id *b); // the same inode

void reef_tail_file_init(reef_tail_file *file);
/** Open the name in its folder. 0, or an errno; ESTALE when another file has the name by now. */
int reef_tail_file_open(reef_tail_file *file, int folder);
/** Close its descriptors, if any are open. It can be opened again. */
void reef_tail_file_close(reef_tail_file *file);
/** Read up to `room` bytes from offset `from`; 0 at the end, -1 when it cannot be read. */
ssize_t reef_tail_file_read(reef_tail_file *file, uint8_t *buffer, size_t room, uint64_t from);
/**
 * Set a gzip file's size by decompressing all of it. 0, ENODATA when it is truncated,
 * broken or too large, or the errno of a read.
 */
int reef_tail_file_measure(reef_tail_file *file);
/**
 * XXH3 of the `count` bytes from `from` on, REEF_PREFIX_BYTES_MAX at most. 0, ENODATA when it has
 * fewer, or the errno of a read.
 */
int reef_tail_file_hash(reef_tail_file *file, uint64_t from, uint32_t count, uint64_t *hash);
/** Hash `count` bytes from now on. False when the file does not begin with the present prefix. */
bool reef_tail_file_extend_prefix(reef_tail_file *file, uint32_t count);
/** 0 when it still begins with its prefix, ENODATA when not, or the errno of a read. */
int reef_tail_file_check_prefix(reef_tail_file *file);
/** 0 when the bytes before `end` have this hash, ENODATA when not, or the errno of a read. */
int reef_tail_file_check_before(reef_tail_file *file, uint64_t end, uint64_t hash);
/**
 * Is it still the file that was read, by its first bytes and by the last that were seen? As above.
 */
int reef_tail_file_check(reef_tail_file *file);
/**
 * Its bytes up to `end` were seen. 0, ENODATA when it is not the same file any more, or the errno
 * of a read.
 */
int reef_tail_file_note_seen(reef_tail_file *file, uint64_t end);
/** Its bytes up to `offset` were returned. */
void reef_tail_file_note_read(reef_tail_file *file);
/**
 * One past the last newline in [from, to), or `from` if there is none; -1 if it cannot be read.
 */
int64_t reef_tail_file_line_end(reef_tail_file *file, uint64_t from, uint64_t to);

// ---- tail_zeros.c -------------------------------------------------------------------------------

/**
 * Of the `count` bytes that were read at `offset`: how many come before the first run of NUL. -1
 * when it cannot be read whether one begins at their end.
 */
ssize_t reef_tail_zeros_cut(reef_tail_file *entry,
                            const uint8_t *bytes,
                            size_t count,
                            uint64_t offset);
/**
 * Pass over a run of NUL at the offset; first a newline is given (add_newline) where a line ends
 * there without one. A run that is not `finished` waits.
 *
 * end     written: where the bytes end that may be given; the offset: none now
 * passed  written: bytes that were passed over
 *
 * False when the file cannot be read; errno says why, 0 when it is shorter.
 */
bool reef_tail_zeros_plan(reef_tail_file *entry, bool finished, uint64_t *end, uint64_t *passed);

// ---- the table ----------------------------------------------------------------------------------

#define REEF_TAIL_EVENTS_MAX 16
#define REEF_TAIL_OPEN_MAX 256 // descriptors kept open between scans

/** An unknown file that may be a partial copy; it is classified once it is settled. */
typedef struct reef_tail_candidate {
    reef_file_id file_id;
    uint64_t unchanged_since_ms; // when its size last changed
    bool seen;                   // by this scan
    bool no_known_prefix;        // no entry begins like it: a new file, once it is settled
    bool broken;                 // it was reported, and is not read
} reef_tail_candidate;

/** The names and inodes of one scan. */
typedef struct reef_listing {
    reef_file_id *items;
    bool *known;   // (count) it is a file of the table
    bool *matches; // (count) its name belongs to this source
    size_t count, capacity;
    size_t active; // index of the active file, or SIZE_MAX; SIZE_MAX for dir:
    bool moved;    // follow: a rename ran during the scan, so a file may be missing
} reef_listing;

struct reef_tail {
    bool is_directory;     // all files of a folder; otherwise one path
    char *folder, *name;   // name: of the followed file, or a pattern, or NULL
    DIR *dir;              // of the last scan
    reef_tail_file *files; // (count) the table, in reading order; follow: the active one last
    size_t count, capacity;
    bool active;     // follow: the last file is the active one
    bool first_pass; // no read pass with bytes has begun in this process
    reef_tail_candidate *candidates;
    size_t candidate_count, candidate_capacity;
    bool reported_waiting, reported_denied, reported_full, reported_zeros;
    bool denied_now;  // by this scan
    bool failed;      // a read failed since the last plan, which a scan alone does not see
    int folder_errno; // that was reported for the folder, or 0
    uint64_t waiting_since_ms;
    uint64_t now_ms;                           // of this scan, on a clock that only moves forward
    int64_t wall_ns;                           // of this scan, on the wall clock
    reef_tail_losses losses;                   // of this process
    uint64_t given;                            // bytes returned by this process
    uint64_t cut_said_ms;                      // when a cut was reported that lost nothing known
    char place[REEF_WATCH_FILE_BYTES_MAX + 1]; // of the bytes that were read last
    uint64_t place_offset;
    reef_tail_event events[REEF_TAIL_EVENTS_MAX];
    size_t event_first, event_count;
    size_t events_dropped; // since the queue was empty
};

// ---- tail_table.c: events -----------------------------------------------------------------------

/** Queue an event for tail_source.c. A full queue counts what it drops. */
void reef_tail_report(reef_tail *tail, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Report that a file could not be opened or read, once until all can be; `code` is the errno. */
void reef_tail_report_denied(reef_tail *tail, const char *name, int code);
/** Report that an open file could not be read; `code` is the errno, or 0 for a short read. */
void reef_tail_report_failed(reef_tail *tail, const reef_tail_file *entry, int code);

// ---- tail_table.c -------------------------------------------------------------------------------

/** Was it truncated or replaced? Then no known inode has its bytes. */
bool reef_tail_is_lost(const reef_tail_file *entry);
/** Is a file settled, by its ctime or by `unchanged_since_ms`? */
bool reef_tail_settled(const reef_tail *tail,
                       uint64_t unchanged_since_ms,
                       const reef_file_id *file_id);
/** Insert a copy of `entry` at index `at`; the table owns it. False: out of memory. */
bool reef_tail_insert(reef_tail *tail, size_t at, const reef_tail_file *entry);
void reef_tail_remove(reef_tail *tail, size_t at);
/** Hash more of the first bytes of a file that has grown to `size` bytes. */
void reef_tail_extend_prefix(reef_tail_file *entry, uint64_t size);
/**
 * Close the file if REEF_TAIL_OPEN_MAX others are open and it can be opened again. `open` counts
 * the open files of this loop.
 */
void reef_tail_limit_open(reef_tail_file *entry, size_t *open);
/** Were all bytes that the last scan saw returned? */
bool reef_tail_is_read(const reef_tail_file *entry);
/** Bytes that exist and were not returned yet. */
uint64_t reef_tail_unread_of(const reef_tail_file *entry);
/** Drop the rest of the read pass: a file has changed under it. */
void reef_tail_drop_read_pass(reef_tail *tail);
/** The table as it is, as JSON on the heap; NULL when memory runs out. */
char *reef_tail_checkpoint(const reef_tail *tail);
/** Load the table from a checkpoint. */
REEF_MUST_CHECK reef_status reef_tail_checkpoint_load(reef_tail *tail,
                                                      const char *checkpoint,
                                                      reef_error *err);

// ---- tail_dir.c ---------------------------------------------------------------------------------

/** 0, or the errno for which the folder cannot be read. */
int reef_listing_make(reef_listing *list, reef_tail *tail);
void reef_listing_release(reef_listing *list);
/** The index of the file with this device and inode, or SIZE_MAX. */
size_t reef_listing_find(const reef_listing *list, const reef_file_id *file_id);
bool reef_name_is_gzip(const char *name);
/** Does `name` begin with the stem of `of`? app.log.2.gz does for app.log.1 and for app.log. */
bool reef_name_shares_stem(const char *name, const char *of);
/** Orders unknown files: oldest first. For qsort. */
int reef_tail_file_compare_age(const void *a, const void *b);

// ---- tail_scan.c --------------------------------------------------------------------------------

typedef enum reef_tail_scan_state {
    REEF_TAIL_SCAN_DONE,
    REEF_TAIL_SCAN_AGAIN, // a rename ran during the scan
    REEF_TAIL_SCAN_NO_MEMORY,
} reef_tail_scan_state;

/** Bring the table up to date. Sizes of known plain files are read after it (stat_all). */
reef_tail_scan_state reef_tail_scan(reef_tail *tail);

#endif
