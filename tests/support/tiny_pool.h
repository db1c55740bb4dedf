// A pool small enough to train in milliseconds, with two generations, a snapshot and some history.
#ifndef TINY_POOL_H
#define TINY_POOL_H

#include <stddef.h>

// Options of `reef init` for a pool of that size, in pairs.
#define TINY_OPTIONS                                                                               \
    "--layers", "2", "--ffw", "pd", "--d-model", "16", "--attention-heads", "2", "--context",      \
        "16", "--batch", "2", "--heads", "1", "--topk", "2", "--d-key", "8", "--side", "4",        \
        "--d-ffw", "16", "--memory", "4M"

#define TINY_SIDE 4

/**
 * Train the pool in `path`, made with TINY_OPTIONS: English, sealed; then C, with a snapshot "kept"
 * and some more. Fails the running test when something goes wrong.
 */
void tiny_pool_train(const char *path);

/** `count` bytes of the same kinds of text, for evaluation; on the heap, with a final zero. */
char *tiny_text(const char *kind, size_t count); // "english" or "c"

#endif
