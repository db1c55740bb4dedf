// What other programs make of the bytes that a pool learned: they compress them alone, and with the
// held out text behind them. What the second takes more is the text, read adapting.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): glibc owns the name.
#define _DEFAULT_SOURCE // wait4

#include "cli_format.h"
#include "cli_pool.h"
#include "lab_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define XZ_DICT_MIN 4096u
#define XZ_DICT_MAX (UINT64_C(1536) << 20)
#define ZPAQ_BLOCK_MIN 6u // by default a block has 2^6 MiB
#define ZPAQ_BLOCK_MAX 11u
#define ARGUMENTS_MAX 9

// What does not fit in a block is compressed as if nothing came before.
static char *zpaq_settings(uint64_t bytes) {
    uint32_t block = ZPAQ_BLOCK_MIN;
    while (block < ZPAQ_BLOCK_MAX && bytes > (UINT64_C(1) << (20 + block)) - 4096) block++;
    return reef_cli_format("-m5%" PRIu32 " -t1", block);
}

static char *ppmd_settings(uint64_t bytes) {
    (void)bytes; // 7-Zip takes less memory for a small input by itself
    return reef_cli_format("-t7z -m0=PPMd:o=16:mem=1536m -mmt=1");
}

static char *xz_settings(uint64_t bytes) {
    uint64_t dict = bytes < XZ_DICT_MIN ? XZ_DICT_MIN : bytes;
    return reef_cli_format("-T1 --lzma2=preset=9e,dict=%" PRIu64,
                           dict < XZ_DICT_MAX ? dict : XZ_DICT_MAX);
}

static const struct {
    const char *name, *program, *package;
    bool archives;                     // into a file that is named; or to standard output
    char *(*settings)(uint64_t bytes); // for an input of so many bytes; on the heap
} RIVALS[LAB_RIVALS] = {
    {"zpaq", "zpaq", "zpaq", true, zpaq_settings},
    {"ppmd", "7zz", "7zip", true, ppmd_settings},
    {"xz", "xz", "xz-utils", false, xz_settings},
};

const char *reef_lab_rival_name(size_t rival) {
    return RIVALS[rival].name;
}

// Whether a directory of PATH has it.
static bool is_installed(const char *program) {
    bool found = false;
    for (const char *at = getenv("PATH"); at != NULL && *at != '\0' && !found;) {
        size_t length = strcspn(at, ":");
        char *file = reef_cli_format("%.*s/%s", (int)length, at, program);
        found = access(file, X_OK) == 0;
        free(file);
        at += length + (at[length] == ':');
    }
    return found;
}

reef_status reef_lab_rivals_read(const char *names, bool *wanted, reef_error *err) {
    char *text = reef_cli_format("%s", names), *rest = NULL;
    reef_status status = REEF_OK;
    for (char *name = strtok_r(text, ",", &rest); name != NULL && status == REEF_OK;
         name = strtok_r(NULL, ",", &rest)) {
        size_t i = 0;
        while (i < LAB_RIVALS && strcmp(RIVALS[i].name, name) != 0) i++;
        if (i == LAB_RIVALS)
            status = reef_fail(err, REEF_ERR_INVALID,
                               "--rival '%.40s' is none of zpaq, ppmd and xz", name);
        else if (!is_installed(RIVALS[i].program))
            status = reef_fail(err, REEF_ERR_NOT_FOUND,
                               "--rival %s: there is no program %s; install the package %s", name,
                               RIVALS[i].program, RIVALS[i].package);
        else
            wanted[i] = true;
    }
    free(text);
    return status;
}

// ---- one run ------------------------------------------------------------------------------------

typedef struct run {
    double compressed_bytes, cpu_seconds, resident_bytes;
} run;

// In the child. It ends with us, however we end.
static void become(char **argv, const char *output) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    int out = output != NULL ? open(output, O_WRONLY | O_CREAT | O_TRUNC, 0666) : null;
    if (dup2(null, STDIN_FILENO) >= 0 && dup2(null, STDERR_FILENO) >= 0 &&
        dup2(out, STDOUT_FILENO) >= 0)
        execvp(argv[0], argv);
    _exit(127);
}

static reef_status compress(
    size_t rival, const char *settings, char *input, char *output, run *out, reef_error *err) {
    const bool archives = RIVALS[rival].archives;
    char *words = reef_cli_format("%s %s", RIVALS[rival].program, settings), *rest = NULL;
    char *argv[ARGUMENTS_MAX] = {strtok_r(words, " ", &rest), archives ? "a" : "-c"};
    size_t count = 2;
    if (archives) argv[count++] = output;
    argv[count++] = input;
    while (count < ARGUMENTS_MAX - 1 && (argv[count] = strtok_r(NULL, " ", &rest)) != NULL) count++;

    struct rusage usage = {0};
    struct stat made;
    int end = 0;
    (void)unlink(output); // an archive that is there would be added to
    // The most that a child has held begins with what it has of us before it becomes the program.
    (void)malloc_trim(0);
    pid_t child = fork();
    if (child == 0) become(argv, archives ? NULL : output);
    while (child > 0 && wait4(child, &end, 0, &usage) < 0 && errno == EINTR) {
    }
    bool whole = child > 0 && WIFEXITED(end) && WEXITSTATUS(end) == 0 && stat(output, &made) == 0;
    (void)unlink(output);
    free(words);
    if (!whole)
        return reef_fail(err, REEF_ERR_IO, "%s failed on %.160s: is there room for it?",
                         RIVALS[rival].name, input);
    *out = (run){.compressed_bytes = (double)made.st_size,
                 .cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                                1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec),
                 .resident_bytes = 1024 * (double)usage.ru_maxrss};
    return REEF_OK;
}

// ---- both runs ----------------------------------------------------------------------------------

reef_status reef_lab_file_write(
    const char *path, const char *mode, const void *bytes, size_t count, reef_error *err) {
    FILE *out = fopen(path, mode);
    bool whole = out != NULL && fwrite(bytes, 1, count, out) == count;
    if (out != NULL) whole &= fclose(out) == 0;
    return whole ? REEF_OK : reef_cli_write_failed(path, errno, err);
}

reef_status reef_lab_rival_measure(size_t rival,
                                   const char *work,
                                   const uint8_t *bytes,
                                   size_t count,
                                   const uint8_t *held,
                                   size_t held_count,
                                   json_t **row,
                                   reef_error *err) {
    char *input = reef_cli_format("%s/rival.in", work);
    char *output = reef_cli_format("%s/rival.%s", work, RIVALS[rival].name);
    // The same for both, so that only the text makes a difference.
    char *settings = RIVALS[rival].settings(count + held_count);
    run alone = {0}, both = {0};
    reef_status status = reef_lab_file_write(input, "wb", bytes, count, err);
    if (status == REEF_OK) status = compress(rival, settings, input, output, &alone, err);
    if (status == REEF_OK) status = reef_lab_file_write(input, "ab", held, held_count, err);
    if (status == REEF_OK) status = compress(rival, settings, input, output, &both, err);
    (void)unlink(input);
    double more = both.compressed_bytes - alone.compressed_bytes;
    *row = status != REEF_OK
               ? NULL
               : json_pack("{s:s, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "rival",
                           RIVALS[rival].name, "bytes", (json_int_t)count, "settings", settings,
                           "compressed_bytes", alone.compressed_bytes, "compressed_with_held_bytes",
                           both.compressed_bytes, "first_pass_bits_per_byte",
                           8 * alone.compressed_bytes / (double)count, "held_out_bits_per_byte",
                           8 * more / (double)held_count, "resident_bytes",
                           alone.resident_bytes > both.resident_bytes ? alone.resident_bytes
                                                                      : both.resident_bytes,
                           "cpu_seconds", alone.cpu_seconds);
    free(input);
    free(output);
    free(settings);
    return status;
}
