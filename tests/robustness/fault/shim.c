// A library to be preloaded that makes the n-th thing go wrong, or puts the clock back. What it
// does stands in the environment:
//
//   REEF_FAULT_COUNTS=FILE       16 bytes: how many writes and allocations were counted so far, as
//                                two u64
//   REEF_FAULT_IO=ACTION:n[+]    ACTION is eio, enospc or kill: what happens to the n-th write or
//                                sync of a file called data.mdb; with + to all from the n-th on
//   REEF_FAULT_MEMORY=n[+]       the n-th allocation since main began fails; with + all from there
//                                on
//   REEF_FAULT_CLOCK=SECONDS     added to the time of day
//
// Counts live in a shared map, so they outlast whatever ends the process, and children count on.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // RTLD_NEXT
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef struct counts {
    atomic_uint_fast64_t io, memory;
} counts;

typedef struct fault {
    uint64_t nth; // 0: never
    bool on;      // and all after it
} fault;

static counts own;
static counts *counted = &own;
static fault io_fault, memory_fault;
static int io_error; // 0: the process is killed instead
static atomic_bool in_main;
static time_t clock_shift;

// The next definition of a function, looked up once. ISO C has no conversion from void *.
#define NEXT(name)                                                                                 \
    do {                                                                                           \
        if (next_##name == NULL) *(void **)&next_##name = dlsym(RTLD_NEXT, #name);                 \
    } while (0)

static bool strikes(const fault *f, atomic_uint_fast64_t *count) {
    uint64_t now = atomic_fetch_add(count, 1) + 1;
    return f->nth != 0 && (now == f->nth || (f->on && now > f->nth));
}

static fault fault_parse(const char *text) {
    char *end = NULL;
    fault f = {0};
    if (text == NULL) return f;
    f.nth = strtoull(text, &end, 10);
    f.on = *end == '+';
    return f;
}

static void counts_map(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(counts)) != 0) _exit(125);
    void *map = mmap(NULL, sizeof(counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) _exit(125);
    counted = map;
    close(fd);
}

__attribute__((constructor)) static void shim_begin(void) {
    const char *io = getenv("REEF_FAULT_IO"), *path = getenv("REEF_FAULT_COUNTS");
    const char *shift = getenv("REEF_FAULT_CLOCK");
    if (path != NULL) counts_map(path);
    if (shift != NULL) clock_shift = (time_t)strtoll(shift, NULL, 10);
    memory_fault = fault_parse(getenv("REEF_FAULT_MEMORY"));
    if (io == NULL || strchr(io, ':') == NULL) return;
    io_fault = fault_parse(strchr(io, ':') + 1);
    if (strncmp(io, "eio", 3) == 0) io_error = EIO;
    if (strncmp(io, "enospc", 6) == 0) io_error = ENOSPC;
}

// ---- writing and syncing ------------------------------------------------------------------------

static bool is_data_file(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof(path) - 1);
    if (length < 9) return false;
    return memcmp(path + length - 9, "/data.mdb", 9) == 0;
}

// Whether the call fails; errno says how.
static bool io_strikes(int fd) {
    int before = errno;
    bool struck = is_data_file(fd) && strikes(&io_fault, &counted->io);
    if (struck && io_error == 0) (void)raise(SIGKILL);
    errno = struck ? io_error : before;
    return struck;
}

#define WRAP_IO(type, name, parameters, arguments)                                                 \
    type name parameters {                                                                         \
        static type(*next_##name) parameters;                                                      \
        NEXT(name);                                                                                \
        return io_strikes(fd) ? -1 : next_##name arguments;                                        \
    }

WRAP_IO(ssize_t, write, (int fd, const void *data, size_t bytes), (fd, data, bytes))
WRAP_IO(ssize_t, pwrite, (int fd, const void *data, size_t bytes, off_t at), (fd, data, bytes, at))
WRAP_IO(ssize_t,
        pwrite64,
        (int fd, const void *data, size_t bytes, off64_t at),
        (fd, data, bytes, at))
WRAP_IO(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
WRAP_IO(ssize_t,
        pwritev,
        (int fd, const struct iovec *parts, int count, off_t at),
        (fd, parts, count, at))
WRAP_IO(ssize_t,
        pwritev64,
        (int fd, const struct iovec *parts, int count, off64_t at),
        (fd, parts, count, at))
WRAP_IO(int, fsync, (int fd), (fd))
WRAP_IO(int, fdatasync, (int fd), (fd))

// ---- memory -------------------------------------------------------------------------------------

static bool memory_strikes(void) {
    if (!atomic_load(&in_main) || !strikes(&memory_fault, &counted->memory)) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) {
    static void *(*next_malloc)(size_t);
    NEXT(malloc);
    return memory_strikes() ? NULL : next_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    static void *(*next_calloc)(size_t, size_t);
    NEXT(calloc);
    return memory_strikes() ? NULL : next_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
    static void *(*next_realloc)(void *, size_t);
    NEXT(realloc);
    return memory_strikes() ? NULL : next_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    static void *(*next_aligned_alloc)(size_t, size_t);
    NEXT(aligned_alloc);
    return memory_strikes() ? NULL : next_aligned_alloc(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    static int (*next_posix_memalign)(void **, size_t, size_t);
    NEXT(posix_memalign);
    return memory_strikes() ? ENOMEM : next_posix_memalign(out, alignment, bytes);
}

// What libraries allocate before and after main is not ours to survive.
typedef int main_function(int, char **, char **);
static main_function *program_main;

static int counted_main(int argc, char **argv, char **environment) {
    atomic_store(&in_main, true);
    int code = program_main(argc, argv, environment);
    atomic_store(&in_main, false);
    return code;
}

// NOLINTNEXTLINE(bugprone-reserved-identifier): what the C library's start code calls.
int __libc_start_main(main_function *main,
                      int argc,
                      char **argv,
                      void (*init)(void),
                      void (*fini)(void),
                      void (*loader_fini)(void),
                      void *stack_end);
int __libc_start_main(main_function *main,
                      int argc,
                      char **argv,
                      void (*init)(void),
                      void (*fini)(void),
                      void (*loader_fini)(void),
                      void *stack_end) {
    static int (*next___libc_start_main)(main_function *, int, char **, void (*)(void),
                                         void (*)(void), void (*)(void), void *);
    NEXT(__libc_start_main);
    program_main = main;
    return next___libc_start_main(counted_main, argc, argv, init, fini, loader_fini, stack_end);
}

// ---- the time of day ----------------------------------------------------------------------------

int clock_gettime(clockid_t clock, struct timespec *out) {
    static int (*next_clock_gettime)(clockid_t, struct timespec *);
    NEXT(clock_gettime);
    int code = next_clock_gettime(clock, out);
    if (code == 0 && clock == CLOCK_REALTIME) out->tv_sec += clock_shift;
    return code;
}
