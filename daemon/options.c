// The command line of reefd: parsing, bounds and help. Nothing here touches the file system; whether
// a source can be read is for input.c to say.
#include "options.h"

#include "reef_trainer.h"
#include "scrub.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COMMIT_STEPS_DEFAULT 50
#define COMMIT_SECONDS_DEFAULT 10
#define PATIENCE_SECONDS_DEFAULT 5
#define COMMIT_RETRIES_DEFAULT 5 // with pauses of 1, 2, 4, 8 and 16 seconds
#define COMMIT_RETRIES_MAX 10
#define COMMIT_SECONDS_MAX 86400.0
#define COMMIT_STEPS_MAX 1000000000u

static const char HELP[] =
    "Usage: reefd --pool DIR --source SOURCE [--source SOURCE ...] [options]\n"
    "\n"
    "Trains the pool in DIR on a stream and commits as it goes. Killed at any moment, it goes on "
    "from\n"
    "the last commit and ends with the same bits. Ends when the last source has ended.\n"
    "\n"
    "Sources are read in the order given, each from where the pool has got to:\n"
    "  file:PATH or PATH     a regular file\n"
    "  -                     standard input; what comes in continues the stream\n"
    "and for vector models ('reef init --model vector'):\n"
    "  idx:IMAGES,LABELS     IDX files, plain or gzip, such as those of MNIST\n"
    "  npy:X.npy,Y.npy       NumPy arrays\n"
    "  csv:FILE              a line per example; the label is the last column\n"
    "  jsonl:FILE            a line per example: {\"vector\": [0.5, 1], \"label\": 3}\n"
    "  Options follow after '?', joined by '&': label=COLUMN, names=A,B, header=yes|no, "
    "scale=1/255,\n"
    "  classes=0,1, shuffle=SEED, skip=N, first=N, permute=SEED; README.md explains them.\n"
    "\n"
    "Options:\n"
    "  --pool DIR            the pool, made by 'reef init'\n"
    "  --source SOURCE       something to read; may be given several times\n"
    "  --threads N           threads for arithmetic (default: one per core); never changes the "
    "result\n"
    "  --memory SIZE         what to hold in memory, such as 2G (default: all there is); when\n"
    "                        sealed experts take more than half of it, they are read where they\n"
    "                        lie in the pool\n"
    "  --commit-steps N      commit after N training steps (default 50; 0: not by steps)\n"
    "  --commit-seconds S    commit after S seconds (default 10; 0: not by time)\n"
    "  --patience S          how long others wait for a live source whose turn it is and that has "
    "nothing,\n"
    "                        in seconds, before it sits out (default 5)\n"
    "  --commit-retries N    tries after a commit failed, with growing pauses (default 5)\n"
    "  --scrub-rate SIZE     bytes a second of what is sealed that are read again and checked, "
    "beside\n"
    "                        training (default 1M; 0: none); never changes the result\n"
    "  --socket PATH         control socket (default: reefd.sock in the pool's directory)\n"
    "  --http [ADDRESS:]PORT answer HTTP: status, metrics, scores (default: not; ADDRESS "
    "127.0.0.1;\n"
    "                        port 0: any that is free; `reef status` says which)\n"
    "  --http-token FILE     who sends this token may change things; needed where other machines "
    "can\n"
    "                        reach ADDRESS\n"
    "  --stay                keep serving the socket after the last source has ended\n"
    "  --json-log            messages, events and progress as one JSON object a line\n"
    "  --quiet               errors only\n"
    "  --help                this text\n"
    "  --version             the version\n"
    "\n"
    "SIGTERM and SIGINT finish what was read, commit and end with 0; a second one ends at once.\n"
    "REEF_ISA=scalar|avx2|avx512 in the environment chooses the kernels.\n"
    "\n"
    "Exit codes: 0 done; 64 usage; 65 damaged pool, or a file that shrank; 66 no such pool or "
    "source,\n"
    "or nothing in any source; 71 memory; 73 disk full; 74 input or output; 75 pool in use.\n"
    "\n"
    "Example:\n"
    "  reef init reef.pool && reefd --pool reef.pool --source file:corpus.txt\n"
    "  reef init mnist.pool --model vector --inputs 784 &&\n"
    "      reefd --pool mnist.pool --source idx:train-images.gz,train-labels.gz\n";

enum {
    OPT_POOL = 256,
    OPT_SOURCE,
    OPT_THREADS,
    OPT_MEMORY,
    OPT_STEPS,
    OPT_SECONDS,
    OPT_PATIENCE,
    OPT_RETRIES,
    OPT_SCRUB_RATE,
    OPT_SOCKET,
    OPT_HTTP,
    OPT_HTTP_TOKEN,
    OPT_STAY,
    OPT_JSON,
    OPT_QUIET,
    OPT_HELP,
    OPT_VERSION
};

static const struct option LONG_OPTIONS[] = {
    {"pool", required_argument, NULL, OPT_POOL},
    {"source", required_argument, NULL, OPT_SOURCE},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"memory", required_argument, NULL, OPT_MEMORY},
    {"commit-steps", required_argument, NULL, OPT_STEPS},
    {"commit-seconds", required_argument, NULL, OPT_SECONDS},
    {"patience", required_argument, NULL, OPT_PATIENCE},
    {"commit-retries", required_argument, NULL, OPT_RETRIES},
    {"scrub-rate", required_argument, NULL, OPT_SCRUB_RATE},
    {"socket", required_argument, NULL, OPT_SOCKET},
    {"http", required_argument, NULL, OPT_HTTP},
    {"http-token", required_argument, NULL, OPT_HTTP_TOKEN},
    {"stay", no_argument, NULL, OPT_STAY},
    {"json-log", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

const char *reef_options_help(void) {
    return HELP;
}

static reef_status parse_count(const char *name,
                               const char *text,
                               uint64_t low,
                               uint64_t high,
                               uint64_t *out,
                               reef_error *err) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    // strtoull takes signs and leading blanks; a count starts with a digit.
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < low || value > high)
        return reef_fail(err, REEF_INVALID, "%s '%s' is not a whole number from %llu to %llu", name,
                         text, (unsigned long long)low, (unsigned long long)high);
    *out = value;
    return REEF_OK;
}

static reef_status parse_seconds(const char *name, const char *text, double *out, reef_error *err) {
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < 0 || value > COMMIT_SECONDS_MAX)
        return reef_fail(err, REEF_INVALID, "%s '%s' is not a number of seconds from 0 to %.0f",
                         name, text, COMMIT_SECONDS_MAX);
    *out = value;
    return REEF_OK;
}

static reef_status parse_rate(const char *text, uint64_t *out, reef_error *err) {
    *out = 0;
    if (!strcmp(text, "0")) return REEF_OK;
    if (reef_memory_parse(text, out, NULL) == REEF_OK) return REEF_OK;
    return reef_fail(err, REEF_INVALID,
                     "--scrub-rate '%.64s' is no number of bytes a second: 0, or a whole number, "
                     "or one with K, M, G or T, such as 4M",
                     text);
}

static reef_status add_source(reef_options *options, const char *text, reef_error *err) {
    if (options->source_count == REEF_INPUT_COUNT_MAX)
        return reef_fail(err, REEF_INVALID, "more than %d sources", REEF_INPUT_COUNT_MAX);
    options->sources[options->source_count++] = text;
    return REEF_OK;
}

static reef_status take_option(reef_options *options, int which, reef_error *err) {
    uint64_t value = 0;
    reef_status status = REEF_OK;
    switch (which) {
    case OPT_POOL:
        options->pool = optarg;
        break;
    case OPT_SOURCE:
        return add_source(options, optarg, err);
    case OPT_THREADS:
        status = parse_count("--threads", optarg, 1, REEF_THREAD_COUNT_MAX, &value, err);
        options->threads = (size_t)value;
        break;
    case OPT_MEMORY:
        return reef_memory_parse(optarg, &options->memory_bytes, err);
    case OPT_STEPS:
        return parse_count("--commit-steps", optarg, 0, COMMIT_STEPS_MAX, &options->commit_steps,
                           err);
    case OPT_SECONDS:
        return parse_seconds("--commit-seconds", optarg, &options->commit_seconds, err);
    case OPT_PATIENCE:
        return parse_seconds("--patience", optarg, &options->patience_seconds, err);
    case OPT_RETRIES:
        status = parse_count("--commit-retries", optarg, 0, COMMIT_RETRIES_MAX, &value, err);
        options->commit_retries = (uint32_t)value;
        break;
    case OPT_SCRUB_RATE:
        return parse_rate(optarg, &options->scrub_rate, err);
    case OPT_SOCKET:
        options->socket = optarg;
        break;
    case OPT_HTTP:
        options->http = optarg;
        break;
    case OPT_HTTP_TOKEN:
        options->http_token = optarg;
        break;
    case OPT_STAY:
        options->stay = true;
        break;
    case OPT_JSON:
        options->json_log = true;
        break;
    case OPT_QUIET:
        options->quiet = true;
        break;
    case OPT_HELP:
        options->action = REEF_ACTION_HELP;
        break;
    case OPT_VERSION:
        options->action = REEF_ACTION_VERSION;
        break;
    default:
        break; // getopt_long returns nothing else
    }
    return status;
}

static reef_status check_complete(const reef_options *options, reef_error *err) {
    if (!options->pool || !*options->pool)
        return reef_fail(err, REEF_INVALID, "which pool? give --pool DIR; see reefd --help");
    if (!options->source_count && !options->stay)
        return reef_fail(
            err, REEF_INVALID,
            "nothing to read: give --source file:PATH or --source -; see reefd --help");
    if (options->http_token && !options->http)
        return reef_fail(err, REEF_INVALID,
                         "--http-token without --http: say where to listen; see reefd --help");
    return REEF_OK;
}

// `given` is the argument just read, except in the middle of a cluster of letters.
static reef_status fail_unknown(const char *given, reef_error *err) {
    if (optopt > 0 && optopt < OPT_POOL)
        return reef_fail(err, REEF_INVALID, "unknown option '-%c'; see reefd --help", optopt);
    if (optopt >= OPT_POOL)
        return reef_fail(err, REEF_INVALID, "option '%s' takes no value; see reefd --help", given);
    return reef_fail(err, REEF_INVALID, "unknown option '%s'; see reefd --help", given);
}

reef_status reef_options_parse(reef_options *options, int argc, char **argv, reef_error *err) {
    *options = (reef_options){.commit_steps = COMMIT_STEPS_DEFAULT,
                              .commit_seconds = COMMIT_SECONDS_DEFAULT,
                              .patience_seconds = PATIENCE_SECONDS_DEFAULT,
                              .commit_retries = COMMIT_RETRIES_DEFAULT,
                              .scrub_rate = REEF_SCRUB_RATE_DEFAULT};
    opterr = 0; // the messages are ours
    optind = 1;
    int which = 0;
    while ((which = getopt_long(argc, argv, ":", LONG_OPTIONS, NULL)) != -1) {
        if (which == ':')
            return reef_fail(err, REEF_INVALID, "option '%s' needs a value; see reefd --help",
                             argv[optind - 1]);
        if (which == '?') return fail_unknown(argv[optind - 1], err);
        reef_status status = take_option(options, which, err);
        if (status != REEF_OK || options->action != REEF_ACTION_RUN) return status;
    }
    if (optind < argc)
        return reef_fail(err, REEF_INVALID, "unexpected argument '%s'; see reefd --help",
                         argv[optind]);
    return check_complete(options, err);
}
