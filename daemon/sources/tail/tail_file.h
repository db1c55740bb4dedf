// One file of a followed source: its identity, how far it was read, and its bytes.
//
// A file is known by its device and inode, and by its head: a hash of its first bytes. Both are
// needed. The number of a deleted file's inode is given to a new file; and a copy, also a
// gzip-compressed one, has another inode and the same bytes.
#ifndef REEF_TAIL_FILE_H
#define REEF_TAIL_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <zlib.h>

#define REEF_HEAD_BYTES_MAX 1024
// A longer line is delivered in pieces, without waiting for its newline.
#define REEF_LINE_BYTES_MAX ((size_t)1 << 20)
#define REEF_UNPACK_BYTES_MAX ((uint64_t)1 << 40) // of one gzip file, decompressed

/** A file as a scan of its folder saw it. */
typedef struct reef_file_id {
    char name[NAME_MAX + 1];
    uint64_t device, inode, size;
    int64_t written_ns, changed_ns; // mtime and ctime since 1970
} reef_file_id;

typedef struct reef_tail_file {
    reef_file_id file_id; // device and inode 0: no known file has its bytes any more
    uint64_t offset;      // next byte to return
    uint64_t pass_end;    // end of the bytes that this read pass returns
    bool add_newline;     // return a newline after them: the file's last line lacks one
    bool newline_added;   // that newline was returned
    bool is_gzip;         // offsets and size are those of the decompressed bytes
    bool drained;         // rotated away and read to its end
    bool listed;          // its folder has it
    bool opened_once;     // this process has opened and checked it
    uint32_t head_bytes;
    uint64_t head;               // XXH3 of the first `head_bytes`
    uint64_t missing_since_ms;   // since when its folder does not list it; 0 when it does
    uint64_t unchanged_since_ms; // when its size last changed, on a monotonic clock
    int fd;                      // or -1
    gzFile zip;                  // of a copy of `fd`
    uint64_t size;               // its bytes as of the last scan
    uint8_t last_byte;           // of a gzip file
} reef_tail_file;

void reef_file_id_of(reef_file_id *file_id, const char *name, const struct stat *state);
bool reef_file_id_same(const reef_file_id *a, const reef_file_id *b); // the same inode

void reef_tail_file_init(reef_tail_file *file_entry);
/** Open the name in its folder. 0, or an errno; ESTALE when another file has the name by now. */
int reef_tail_file_open(reef_tail_file *file_entry, int folder);
/** Close its descriptors, if any are open. It can be opened again. */
void reef_tail_file_close(reef_tail_file *file_entry);
/** Read up to `room` bytes from offset `from`; 0 at the end, -1 when it cannot be read. */
ssize_t reef_tail_file_read(reef_tail_file *file_entry,
                            uint8_t *buffer,
                            size_t room,
                            uint64_t from);
/**
 * Set a gzip file's size and last byte by decompressing all of it. 0, ENODATA when it is truncated,
 * broken or too large, or the errno of a read.
 */
int reef_tail_file_measure(reef_tail_file *file_entry);
/** XXH3 of the first `count` bytes. 0, ENODATA when it has fewer, or the errno of a read. */
int reef_tail_file_hash(reef_tail_file *file_entry, uint32_t count, uint64_t *hash);
/** Extend the head to `count` bytes. False when the file does not begin with the present head. */
bool reef_tail_file_head_grow(reef_tail_file *file_entry, uint32_t count);
/** 0 when its first bytes still match the head, ENODATA when not, or the errno of a read. */
int reef_tail_file_check_head(reef_tail_file *file_entry);
/**
 * One past the last newline in [from, to), or `from` if there is none; -1 if it cannot be read.
 */
int64_t reef_tail_file_line_end(reef_tail_file *file_entry, uint64_t from, uint64_t to);

#endif
