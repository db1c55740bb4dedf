// One file of a followed source: its identity, how far it was read, and its bytes.
//
// A file is known by its device and inode, by the hash of its first bytes (its prefix), and by that
// of the last bytes that were seen in it. All are needed. The number of a deleted file's inode is
// given to a new file; many files begin with the same banner; and a copy, also a gzip-compressed
// one, has another inode and the same bytes.
#ifndef REEF_TAIL_FILE_H
#define REEF_TAIL_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <zlib.h>

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
    reef_file_id file_id; // device and inode are 0 of a lost file
    uint64_t offset;      // next byte to return
    uint64_t pass_end;    // end of the bytes that this read pass returns
    bool add_newline;     // return a newline after them: the file's last line lacks one
    bool newline_added;   // that newline was returned
    bool is_gzip;         // offsets and size are those of the decompressed bytes
    bool drained;         // finished and read to its end
    bool listed;          // by the last scan; otherwise it is missing
    bool opened_once;     // this process has opened and checked it
    uint32_t prefix_bytes;
    uint64_t prefix_hash;        // XXH3 of the first `prefix_bytes`
    uint64_t seen_end;           // of the bytes that were planned or returned: at least `offset`
    uint64_t seen_hash;          // XXH3 of those before it, up to REEF_PREFIX_BYTES_MAX
    uint64_t read_end;           // of the bytes that this process returned last
    uint64_t read_hash;          // as seen_hash
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
/** Is it still the file that was read, by its first bytes and by the last that were seen? As above. */
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

#endif
