// What users type and no program takes; see reef_gone.h.
#include "reef_gone.h"

#include <stdio.h>
#include <string.h>

// ---- what is gone: one line a name, in the order of the alphabet --------------------------------

#define NAME_BYTES_MAX 80

static const reef_gone GONE[] = {
    {"--adapt-ffw", "later generations always correct dense feed-forward networks"},
    {"--adapt-position", "later generations always correct the embedding of positions"},
    {"--adapt-whole", "corrections are always whole matrices"},
    {"--adapters", "corrections are always whole matrices"},
    {"--asking", "of a text those kinds are asked that its bytes name clearly"},
    {"--average", "the weights' running average moves by 0.01 a step, and is what is stored"},
    {"--bn-momentum", "it is 0.05"},
    {"--boundary-bytes", "reef seal, or marker lines with --boundary-mark"},
    {"--branch-new", NULL},
    {"--capacity-share", NULL},
    {"--capacity-uses", NULL},
    {"--context-memory", "--memory does its work"},
    {"--copy-experts", NULL},
    {"--cut-windows", NULL},
    {"--decay", "it is 400 steps"},
    {"--draw-from", "python/examples/class_incremental.py learns images over a layer"},
    {"--drift-bits", NULL},
    {"--drift-confirm", NULL},
    {"--drift-hold", NULL},
    {"--drift-share", NULL},
    {"--drift-warmup", NULL},
    {"--drift-window", NULL},
    {"--drift-z", NULL},
    {"--ewc-weight", NULL},
    {"--fire-max", "of the likeliest kind the newest generation answers a byte"},
    {"--gate", NULL},
    {"--gate-decay", NULL},
    {"--gate-negatives", NULL},
    {"--growth", "reef grow"},
    {"--image-columns", "python/examples/class_incremental.py learns images over a layer"},
    {"--inputs", "python/examples/class_incremental.py learns images over a layer"},
    {"--lwf-temperature", NULL},
    {"--lwf-weight", NULL},
    {"--moe-capacity", "a token is taken by one expert of a mixture on average"},
    {"--previous-bytes", "a token embeds the three before it"},
    {"--recognition", "text of a known kind is known again where it varies as well"},
    {"--recycle-after", NULL},
    {"--rehearse", NULL},
    {"--replay-share", "feed old text again, as a source of its own"},
    {"--reservoir-bytes", NULL},
    {"--reservoir-window", NULL},
    {"--retain-weight", NULL},
    {"--return-bytes", "the net of a kind follows after 128K"},
    {"--ridge", "python/examples/class_incremental.py learns images over a layer"},
    {"--side-new", "a generation begins with --side"},
    {"--size-new", "a generation begins with --side"},
    {"--sparse-slots", NULL},
    {"--strategy", "a baseline is made by what is fed: all at once, again, or alone"},
    {"--subkeys-new", NULL},
    {"--vector-gate", "python/examples/class_incremental.py learns images over a layer"},
    {"--vocab", "tokens are bytes"},
    {"--warmup", "it is 80 steps"},
    {"--weigh-older", NULL},
    {"bench", "reef-lab of research/, which is built with -DREEF_RESEARCH=ON"},
    {"branch", "when a kind returns, its net learns again by itself"},
    {"compact", "reefd merges windows of usage by itself"},
    {"completion", "bash completion is installed with reef"},
    {"config check", "reefd --config FILE --check"},
    {"config show", "reefd --check prints every setting, and where its value comes from"},
    {"consolidate", "small kinds are merged by themselves, reef prune gives states up"},
    {"eval --floor", NULL},
    {"eval --gates", NULL},
    {"eval --last-word", NULL},
    {"eval --memory", "reef init --memory is for memories of kinds, --rows-memory for rows"},
    {"eval --svg", NULL},
    {"experiment", "research/paper, over reef train and reef eval"},
    {"experts --as-of", NULL},
    {"experts --id", NULL},
    {"experts --places", NULL},
    {"experts --since", "reef usage --since"},
    {"experts --text", NULL},
    {"experts --until", "reef usage --until"},
    {"export generation", "reef import takes generations from a pool"},
    {"help --man", "the manual is installed with reef: man reef"},
    {"import --leak-max", NULL},
    {"init --beta1", "models learn with 0.9; libreef makes layers with others"},
    {"init --beta2", "models learn with 0.98; libreef makes layers with others"},
    {"init --clip", "models learn with 1; libreef makes layers with others"},
    {"init --config-out", "example.ini, which is installed, shows every setting of reefd"},
    {"init --epsilon", "models learn with 1e-8; libreef makes layers with others"},
    {"init --expert-rate", "models learn with 6; libreef makes layers with others"},
    {"init --from", "reef export pool copies a pool, reef import takes generations in"},
    {"init --leak-max", NULL},
    {"init --no-probe", "reef init measures nothing any more: reefd says its speed"},
    {"kind list --svg", NULL},
    {"kind merge", "a small kind of a much larger one's text is merged by itself"},
    {"kind near", NULL},
    {"kind show", "reef kind list POOL KIND"},
    {"plot forgetting", "reef eval --matrix, and the dashboard"},
    {"plot growth", "reef generations and reef timeline"},
    {"plot loss --svg", "reef plot loss --json, and the dashboard"},
    {"plot usage", "reef usage"},
    {"predict", "python/examples/class_incremental.py learns images over a layer"},
    {"reefd --commit-retries", "reefd tries 5 times, with pauses of 1 to 16 seconds"},
    {"reefd --memory", "reef init --memory is for memories of kinds, --rows-memory for rows"},
    {"reefd --new-shards", "ranks that join start over by themselves from copies of one pool"},
    {"reefd --open-max", "memories of kinds that rest have half of the machine's memory"},
    {"reefd --patience", "reefd waits 5 seconds for a live source that has nothing"},
    {"reefd --rank-deadline", "a rank waits 300 seconds for another one"},
    {"reefd --scrub-rate", "reefd reads 1M a second of what is sealed again"},
    {"reefd --streams", "each machine learns its own sources with --join-every"},
    {"reefd --turn", "a live source gives 4K at a time"},
    {"report", "reef eval --matrix; reef-lab report of research/"},
    {"run", "reefd --pool POOL --source FILE"},
    {"score --alarms", "reef watch rings; reef score ranks lines"},
    {"score --by", "reef score ranks lines by their score"},
    {"score --follow", "reef watch follows logs"},
    {"score --last", "reef watch follows logs"},
    {"score --outliers", "reef watch follows logs"},
    {"score --threshold", "reef watch follows logs"},
    {"score --window", "reef watch follows logs"},
    {"snapshot diff", NULL},
    {"snapshot show", "reef snapshot list"},
    {"train --cost-repeats", NULL},
    {"train --eval", "reef eval --matrix, after each text or at the end"},
    {"train --eval-at", NULL},
    {"train --flops", "research/paper, by the length of what is fed"},
    {"train --memory", "reef init --memory is for memories of kinds, --rows-memory for rows"},
    {"train --open-max", "memories of kinds that rest have half of the machine's memory"},
    {"train --results", "reef eval --matrix --json"},
    {"usage --npy", "reef usage --json, and counts of all experts in libreef"},
    {"verify --repair-plan", "reef verify names the remedy in one line"},
};

const reef_gone *reef_gone_all(size_t *count) {
    *count = sizeof(GONE) / sizeof(GONE[0]);
    return GONE;
}

static const reef_gone *find(const char *name) {
    for (size_t i = 0; i < sizeof(GONE) / sizeof(GONE[0]); i++)
        if (strcmp(GONE[i].name, name) == 0) return &GONE[i];
    return NULL;
}

// A command as a whole, or all commands that begin with its first word.
static const reef_gone *find_command(const char *command) {
    char first[NAME_BYTES_MAX];
    snprintf(first, sizeof(first), "%.*s", (int)strcspn(command, " "), command);
    const reef_gone *gone = find(command);
    return gone != NULL ? gone : find(first);
}

// An option of this command, or one that several had.
static const reef_gone *find_option(const char *command, const char *option) {
    char name[NAME_BYTES_MAX];
    int before = snprintf(name, sizeof(name), "%s%s--%.32s", command != NULL ? command : "",
                          command != NULL ? " " : "", option);
    if (before < 0 || (size_t)before >= sizeof(name)) return NULL;
    for (char *c = strstr(name, "--"); *c; c++)
        if (*c == '_') *c = '-';
    const reef_gone *gone = find(name);
    return gone != NULL ? gone : find(strstr(name, "--"));
}

bool reef_gone_report(const char *command, const char *option, reef_error *err) {
    const reef_gone *gone = option != NULL ? find_option(command, option) : find_command(command);
    if (gone == NULL) return false;
    (void)reef_fail(err, REEF_ERR_INVALID, "'%s' is gone: %s", gone->name,
                    gone->now != NULL ? gone->now : "nothing does it now");
    return true;
}

// ---- what was meant -----------------------------------------------------------------------------

#define WORD_MAX 64 // letters that are compared

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

// Optimal string alignment: as Levenshtein, and a swap of two neighbours counts as one.
size_t reef_edit_distance(const char *word, const char *other) {
    size_t row[3][WORD_MAX + 1];
    size_t rows = least(strlen(word), WORD_MAX), columns = least(strlen(other), WORD_MAX);
    for (size_t j = 0; j <= columns; j++) row[0][j] = j;
    for (size_t i = 1; i <= rows; i++) {
        size_t *now = row[i % 3], *above = row[(i + 2) % 3], *two_above = row[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t differs = word[i - 1] == other[j - 1] ? 0 : 1;
            now[j] = least(above[j - 1] + differs, least(above[j], now[j - 1]) + 1);
            bool swapped =
                i > 1 && j > 1 && word[i - 1] == other[j - 2] && word[i - 2] == other[j - 1];
            if (swapped) now[j] = least(now[j], two_above[j - 2] + 1);
        }
    }
    return row[rows % 3][columns];
}

void reef_guess(const char *word, const char *name, const char **guess) {
    size_t nearest = *guess != NULL ? reef_edit_distance(word, *guess) : strlen(word) / 2 + 1;
    if (reef_edit_distance(word, name) < nearest) *guess = name;
}
