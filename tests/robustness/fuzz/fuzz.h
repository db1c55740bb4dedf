// What harnesses share. A harness is one file with LLVMFuzzerTestOneInput: it hands bytes to the
// code that is to bear them, and asserts what must hold whatever they are. It links with libFuzzer
// (preset fuzz) or, in all other builds, with replay.c, which runs it over the files of its corpus.
#ifndef FUZZ_H
#define FUZZ_H

#include "reef_error.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerInitialize(
    int *argc, char ***argv); // of a harness that sets something up; else replay's weak one
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** Path of `name` in a directory of this process, which is removed when it ends. It stays. */
char *fuzz_path(const char *name);
/** Make the file what `bytes` are. */
void fuzz_write(const char *path, const void *bytes, size_t count);
/** The file `path`, unpacked where it is gzip; on the heap. */
uint8_t *fuzz_unpack(const char *path, size_t *count);
/** Setting up must work: end the process with the message when it did not. */
void fuzz_must(reef_status status, const reef_error *err);
/** A failure has its status, and a message for people. */
void fuzz_failure(reef_status status, const reef_error *err);

/** Bytes of an input as numbers; zeros after its end. */
typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input;
uint8_t fuzz_u8(fuzz_input *input);
uint16_t fuzz_u16(fuzz_input *input);
/** The next bytes, at most `count`; *taken says how many. */
const uint8_t *fuzz_take(fuzz_input *input, size_t count, size_t *taken);

#endif
