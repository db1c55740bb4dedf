// A second map of a pool's file, whose addresses stay: LMDB moves its own when it grows.
//
// Records that never change are read there as long as they are in the file. The file is mapped in
// chunks, each when it is first needed; a chunk may begin before the file has grown to its end.
#ifndef REEF_STABLE_MAP_H
#define REEF_STABLE_MAP_H

#include <stddef.h>
#include <stdint.h>

#define REEF_STABLE_MAP_SPAN (UINT64_C(1) << 20) // bytes that one find may be about

typedef struct reef_stable_map {
    uint8_t **chunks; // owned: (count) NULL where nothing was needed
    size_t count;
} reef_stable_map;

/**
 * The address of `bytes` bytes at an offset of the file, REEF_STABLE_MAP_SPAN bytes at most. NULL:
 * no address space is left. Threads: one at a time.
 */
const uint8_t *reef_stable_map_find(reef_stable_map *map, int fd, uint64_t offset, size_t bytes);
/** What was found is gone. Accepts zeros. */
void reef_stable_map_release(reef_stable_map *map);

#endif
