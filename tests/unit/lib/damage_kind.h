// Damage in a pool that is read through the library: the records' names are not the library's.
#ifndef DAMAGE_KIND_H
#define DAMAGE_KIND_H

#include <stdint.h>

/** Damage what a kind had learned when it was sealed. No process has the pool open. */
void damage_kind(const char *pool, uint32_t kind);

#endif
