// Texts coded by the context memories of a pool, as of a state of it.
//
// The better the pool knows a text, the smaller its archive. Expanding needs the pool, or a copy of
// it, with the same state in it. A state as of a sealed generation or of a snapshot never changes,
// and a memory computes in whole numbers alone. So an archive expands to the same bytes on every
// machine, however much the pool has learned since.
//
// The text is cut into pieces that are coded by themselves: threads share them, and a range of the
// text can be read without the rest. Each is coded by the memory of one generation, that which
// takes the least for its beginning.
#ifndef REEF_ARCHIVE_H
#define REEF_ARCHIVE_H

#include "reef_store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_ARCHIVE_PIECE_BYTES_MIN (4u << 10)
#define REEF_ARCHIVE_PIECE_BYTES_DEFAULT (1u << 20)
#define REEF_ARCHIVE_PIECE_BYTES_MAX (64u << 20)
#define REEF_ARCHIVE_TEXT_BYTES_MAX (UINT64_C(1) << 30)
#define REEF_ARCHIVE_HEADER_BYTES_MAX (32u << 20) // more than that of the smallest pieces
/** An archive of the longest text, none of which becomes shorter. */
#define REEF_ARCHIVE_FILE_BYTES_MAX (REEF_ARCHIVE_TEXT_BYTES_MAX + REEF_ARCHIVE_HEADER_BYTES_MAX)

typedef struct reef_archive_options {
    uint32_t piece_bytes;  // of writing: MIN .. MAX; 0: REEF_ARCHIVE_PIECE_BYTES_DEFAULT
    size_t threads;        // 0: one per core
    bool (*stopped)(void); // NULL, or asked for often and from any thread: true ends the work
    /**
     * NULL, or called from the calling thread; bytes of text read, and to be read in all. False
     * ends the work.
     */
    bool (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
} reef_archive_options;

/** What one generation's memory coded. */
typedef struct reef_archive_share {
    uint32_t generation;
    uint32_t piece_count;
    uint64_t text_bytes, bytes;
} reef_archive_share;

/** Facts of an archive, from its header. */
typedef struct reef_archive_info {
    char state[REEF_NAME_BYTES_MAX + 1]; // as behind --as-of
    bool of_snapshot;
    uint64_t stream_bytes;              // where the state stands in its pool's stream
    uint8_t pool[REEF_HASH_BYTES];      // identity of the pool
    uint64_t pool_made_ms;              // unix ms
    uint64_t text_bytes, bytes;         // of the text, and of the archive
    uint8_t text_hash[REEF_HASH_BYTES]; // XXH3-128
    uint32_t piece_bytes, piece_count;
    uint32_t raw_count; // pieces that are stored as they are: no memory makes them shorter
    size_t share_count;
    reef_archive_share *shares; // (share_count) owned, by generation
} reef_archive_info;

/**
 * Check the header of a whole archive, and say what there is in it.
 *
 * archive  (count)
 * out      written; reef_archive_info_release it. Empty after an error
 *
 * Errors: INVALID it is no archive; VERSION a newer program wrote it; CORRUPT it is damaged, cut
 * off, or longer than it says; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_archive_read_info(reef_archive_info *out,
                                                            const uint8_t *archive,
                                                            size_t count,
                                                            reef_error *err);
REEF_API void reef_archive_info_release(reef_archive_info *info); // accepts zeros

/**
 * Code a text as of a state of the pool. The result does not depend on the number of threads, nor
 * on the machine.
 *
 * as_of    a sealed generation's number, or a snapshot or the beginning of its name. NULL: of these
 *          states the one that has seen most of the stream
 * text     (count)
 * options  NULL: all-zero
 * archive  written: (*archive_bytes) on the heap, the caller's; NULL after an error
 *
 * Holds the text, the archive, one generation's memory, and a session a thread.
 *
 * Errors: NOT_FOUND no such state; INVALID the pool has no context memories, the state has none, or
 * it is not one that stays as it is (an open generation), sizes out of bounds; BUSY it was stopped,
 * or the state was changed by another program meanwhile; CORRUPT; NO_MEMORY; IO. Threads: as
 * reef_txn_begin for a read.
 */
REEF_API REEF_MUST_CHECK reef_status reef_archive_write(reef_store *store,
                                                        const char *as_of,
                                                        const uint8_t *text,
                                                        size_t count,
                                                        const reef_archive_options *options,
                                                        uint8_t **archive,
                                                        size_t *archive_bytes,
                                                        reef_error *err);

/**
 * The bytes begin .. end - 1 of an archive's text. Only the pieces in which they lie are expanded.
 * A memory is looked for by what it has learned: first in the state that the archive names, then in
 * all others of the pool.
 *
 * archive  (count)
 * text     (end - begin) written; unspecified after an error
 *
 * Errors: those of reef_archive_read_info; INVALID begin .. end is not a range of the text, or the
 * archive is of another pool; NOT_FOUND the state is gone; CORRUPT also a piece, or the whole text,
 * does not have its checksum; BUSY as above. Threads: as above.
 */
REEF_API REEF_MUST_CHECK reef_status reef_archive_read(reef_store *store,
                                                       const uint8_t *archive,
                                                       size_t count,
                                                       uint64_t begin,
                                                       uint64_t end,
                                                       const reef_archive_options *options,
                                                       uint8_t *text,
                                                       reef_error *err);

// ---- files --------------------------------------------------------------------------------------

/**
 * Whether a file may be written under `path`, as far as that shows now. Errors: INVALID it belongs
 * to a pool, is no regular file, or exists and `replace` is not set.
 */
REEF_API REEF_MUST_CHECK reef_status reef_archive_file_check(const char *path,
                                                             bool replace,
                                                             reef_error *err);
/**
 * Write an archive, or a text. It is written as PATH.part, synced, and renamed: a file appears
 * under its name only when it is whole and on the disk; after an error nothing is left.
 *
 * stopped  NULL, or asked for now and then: true ends it
 *
 * Errors: those of the check; INVALID PATH.part exists; NOT_FOUND no such directory; FULL; BUSY it
 * was stopped; IO.
 */
REEF_API REEF_MUST_CHECK reef_status reef_archive_file_write(const char *path,
                                                             bool replace,
                                                             const uint8_t *bytes,
                                                             size_t count,
                                                             bool (*stopped)(void),
                                                             reef_error *err);
/**
 * Read a regular file as a whole: an archive, or a text for one.
 *
 * bytes  written: (*count) on the heap, the caller's; NULL after an error
 *
 * Errors: NOT_FOUND; INVALID no regular file, or more bytes than one has room for; NO_MEMORY; IO.
 */
REEF_API REEF_MUST_CHECK reef_status reef_archive_file_read(const char *path,
                                                            uint8_t **bytes,
                                                            size_t *count,
                                                            reef_error *err);

#endif
