// The beginning of an archive: which text, which memories code it, and where its pieces are.
//
//   offset  size  field
//        0     8  the letters REEFARCH
//        8     4  version of the format, 1
//       12     4  H: bytes of all that comes before the first piece
//       16     4  mode: 1, coded by context memories alone
//       20     4  version of what memories predict, 4: see REEF_ARCHIVE_CODER
//       24    16  identity of the pool: see pool_memory.c
//       40     8  when the pool was made, ms since 1970, or zero
//       48     8  `memory` of its configuration
//       56     4  the state: 1 a snapshot, 0 as of a sealed generation
//       60     4  S: bytes of its name, 1 to 64
//       64     8  where it stands in the pool's stream
//       72    16  its root: a snapshot's root hash, or that of the generation
//       88     8  bytes of the text
//       96    16  XXH3-128 of the text
//      112     4  bytes of a piece of the text; the last one is shorter
//      116     4  P: pieces
//      120     4  M: memories that code them
//      124     4  zero
//      128     S  the name of the state: of a snapshot, or the number of a generation
//          48 * M memories, each:  4  generation
//                                  4  1 sealed, 0 a snapshot's copy of an open one
//                                  8  bytes that it has learned
//                                 16  its chain: XXH3-128 of what it learned, see FORMAT.md
//                                 16  root of the generation; zero of a copy
//          24 * P pieces, each:    4  bytes in this file
//                                  4  the memory that codes it, 0 to M - 1; 2^32 - 1: as it is
//                                  8  XXH3-64 of these bytes
//                                  8  XXH3-64 of its text
//     H - 8     8  XXH3-64 of all before
//        H         the pieces, without gaps, to the end of the file
//
// Little-endian; XXH3-128 in canonical byte order. A coded piece is shorter than its text.
#ifndef REEF_ARCHIVE_FORMAT_H
#define REEF_ARCHIVE_FORMAT_H

#include "reef_archive.h"

#define REEF_ARCHIVE_VERSION 1u
#define REEF_ARCHIVE_MODE_MEMORY 1u
/**
 * To be raised with every change of context/ after which a memory that learned the same bytes
 * predicts others: older archives are then refused instead of expanded to nonsense. A test has the
 * code of a text, and fails after such a change.
 */
#define REEF_ARCHIVE_CODER 5u
#define REEF_ARCHIVE_RAW UINT32_MAX // the memory of a piece that is stored as it is

/** Which memory: all that it learned makes it what it is. */
typedef struct reef_archive_memory {
    uint32_t generation;
    bool sealed;
    uint64_t learned_bytes;
    uint8_t chain[REEF_HASH_BYTES];
    uint8_t root[REEF_HASH_BYTES];
} reef_archive_memory;

typedef struct reef_archive_piece {
    uint32_t bytes;  // in the archive
    uint32_t memory; // its index among the memories, or REEF_ARCHIVE_RAW
    uint64_t sum, text_sum;
    uint64_t at; // where it begins in the archive; not stored
} reef_archive_piece;

typedef struct reef_archive_header {
    uint8_t pool[REEF_HASH_BYTES];
    uint64_t pool_made_ms;
    uint64_t memory_bytes_max;
    bool of_snapshot;
    char state[REEF_NAME_BYTES_MAX + 1];
    uint64_t stream_bytes;
    uint8_t root[REEF_HASH_BYTES];
    uint64_t text_bytes;
    uint8_t text_hash[REEF_HASH_BYTES];
    uint32_t piece_bytes, piece_count, memory_count;
    reef_archive_memory *memories; // (memory_count) owned
    reef_archive_piece *pieces;    // (piece_count) owned
} reef_archive_header;

void reef_archive_header_release(reef_archive_header *header); // accepts zeros

/** Bytes of the text of a piece. */
size_t reef_archive_piece_text_bytes(const reef_archive_header *header, uint32_t piece);

size_t reef_archive_header_bytes(const reef_archive_header *header);
/** out  (reef_archive_header_bytes) written */
void reef_archive_header_write(const reef_archive_header *header, uint8_t *out);
/**
 * Check and read the header of a whole archive; that of its pieces is left to their readers.
 *
 * Errors: INVALID it is no archive; VERSION; CORRUPT damaged, cut off or too long; NO_MEMORY.
 * `out` is then empty.
 */
REEF_MUST_CHECK reef_status reef_archive_header_parse(reef_archive_header *out,
                                                      const uint8_t *archive,
                                                      size_t count,
                                                      reef_error *err);

uint64_t reef_archive_sum(const void *bytes, size_t count);
void reef_archive_hash(const void *bytes, size_t count, uint8_t out[REEF_HASH_BYTES]);

#endif
