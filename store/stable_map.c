// See stable_map.h.
#include "stable_map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_LOG2 30
#define CHUNK_BYTES (UINT64_C(1) << CHUNK_LOG2)
// What begins in a chunk may end behind it.
#define MAPPED_BYTES (CHUNK_BYTES + REEF_STABLE_MAP_SPAN)

static uint8_t **find_chunk(reef_stable_map *map, size_t chunk) {
    if (chunk >= map->count) {
        uint8_t **chunks = realloc(map->chunks, (chunk + 1) * sizeof(*chunks));
        if (chunks == NULL) return NULL;
        memset(chunks + map->count, 0, (chunk + 1 - map->count) * sizeof(*chunks));
        map->chunks = chunks;
        map->count = chunk + 1;
    }
    return &map->chunks[chunk];
}

const uint8_t *reef_stable_map_find(reef_stable_map *map, int fd, uint64_t offset, size_t bytes) {
    uint8_t **chunk = find_chunk(map, (size_t)(offset >> CHUNK_LOG2));
    assert(bytes <= REEF_STABLE_MAP_SPAN);
    (void)bytes;
    if (chunk == NULL) return NULL;
    if (*chunk == NULL) {
        void *mapped = mmap(NULL, MAPPED_BYTES, PROT_READ, MAP_SHARED, fd,
                            (off_t)(offset >> CHUNK_LOG2 << CHUNK_LOG2));
        if (mapped == MAP_FAILED) return NULL;
        // Matches jump: what lies behind a byte is seldom read next.
        (void)posix_madvise(mapped, MAPPED_BYTES, POSIX_MADV_RANDOM);
        *chunk = mapped;
    }
    return *chunk + (offset & (CHUNK_BYTES - 1));
}

void reef_stable_map_release(reef_stable_map *map) {
    for (size_t i = 0; i < map->count; i++)
        if (map->chunks[i] != NULL) munmap(map->chunks[i], MAPPED_BYTES);
    free(map->chunks);
    *map = (reef_stable_map){0};
}
