// Runs a harness over files, and all files of directories, in the order of their names: the corpora
// as tests, in builds without libFuzzer. Also repeats a single input.
#include "fuzz.h"

#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    return 0;
}

// As it is, no gzip unpacked; a copy of exactly its size, so that reading beyond its end is seen.
static void run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (file == NULL || stat(path, &info) != 0) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    size_t count = (size_t)info.st_size;
    uint8_t *bytes = malloc(count ? count : 1);
    assert(bytes != NULL);
    size_t got = fread(bytes, 1, count, file);
    fclose(file);
    assert(got == count);
    fprintf(stderr, "%s: %zu bytes\n", path, count); // before: it names the input of a crash
    (void)LLVMFuzzerTestOneInput(bytes, count);
    free(bytes);
}

static size_t run_path(const char *path) {
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0) {
        run_file(path);
        return 1;
    }
    size_t done = 0;
    for (int i = 0; i < count; i++) {
        char child[4096];
        snprintf(child, sizeof(child), "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') done += run_path(child);
        free(entries[i]);
    }
    free(entries);
    return done;
}

int main(int argc, char **argv) {
    size_t done = 0;
    if (LLVMFuzzerInitialize(&argc, &argv) != 0) return 1;
    for (int i = 1; i < argc; i++) done += run_path(argv[i]);
    fprintf(stderr, "%zu inputs\n", done);
    return done ? 0 : 1; // an empty corpus tests nothing
}
