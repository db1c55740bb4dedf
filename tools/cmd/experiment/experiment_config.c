// Reading the file of an experiment.
//
//   [experiment]   train, valid, budgets, ...: lists are separated by blanks
//   [model]        fields of the configuration, of every model
//   [size NAME]    fields of one size; [system NAME]: fields of one system, and `middle`
//   [datasets]     NAME = FILE: texts of the table
//   [quick]        keys of [experiment] and fields that take the place of all others with --quick
#include "eval_set.h"
#include "experiment.h"

#include "cli_pool.h"
#include "cli_vectors.h"
#include "reef_config_file.h"
#include "reef_edit_distance.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define LIST_COUNT_MAX 32

typedef enum key_kind { KEY_PATH, KEY_WORD, KEY_BYTES, KEY_LIST, KEY_WHOLE_LIST } key_kind;

// key, what it is
#define KEY_LIST_TABLE(X)                                                                          \
    X(train, KEY_PATH)                                                                             \
    X(valid, KEY_PATH)                                                                             \
    X(valid_bytes, KEY_BYTES)                                                                      \
    X(tune_size, KEY_WORD)                                                                         \
    X(budgets, KEY_LIST)                                                                           \
    X(learning_rates, KEY_LIST)                                                                    \
    X(seeds, KEY_WHOLE_LIST)                                                                       \
    X(vary_side, KEY_WHOLE_LIST)                                                                   \
    X(vary_heads, KEY_WHOLE_LIST)                                                                  \
    X(vary_active, KEY_WHOLE_LIST)

static const struct key {
    const char *name;
    key_kind kind;
    size_t offset;
} KEYS[] = {
#define KEY_ROW(name, kind) {#name, kind, offsetof(experiment, name)},
    KEY_LIST_TABLE(KEY_ROW)
#undef KEY_ROW
};
#define KEY_COUNT (sizeof(KEYS) / sizeof(KEYS[0]))

typedef struct reading {
    experiment *e;
    bool quick;
} reading;

static const struct key *find_key(const char *name) {
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (strcmp(KEYS[i].name, name) == 0) return &KEYS[i];
    return NULL;
}

static const reef_config_field *find_field(const char *name) {
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, name) == 0) return &fields[i];
    return NULL;
}

// ---- keys of [experiment] -----------------------------------------------------------------------

static bool is_whole(double value) {
    return value == floor(value) && value <= 9007199254740991.0;
}

static reef_status read_list(
    const reading *r, const struct key *key, const char *value, unsigned line, reef_error *err) {
    // The table of keys has the offset of each member.
    reef_experiment_list *list = (reef_experiment_list *)(void *)((char *)r->e + key->offset);
    // A later key replaces an earlier one: [quick] shortens the lists.
    free(list->values);
    *list = (reef_experiment_list){.values = reef_cli_alloc(LIST_COUNT_MAX, sizeof(double))};
    const char *at = value + strspn(value, " \t");
    while (*at) {
        char *end;
        errno = 0;
        double number = strtod(at, &end);
        // A number ends at a blank or at the end: "1e13x" is a typing mistake.
        bool ends = *end == '\0' || *end == ' ' || *end == '\t';
        // Numbers of heads and seeds must be whole.
        bool whole = key->kind == KEY_LIST || is_whole(number);
        // All values of an experiment are sizes, rates or counts, so none is negative or zero.
        if (end == at || !ends || errno != 0 || !isfinite(number) || number <= 0 || !whole)
            return reef_fail(
                err, REEF_ERR_INVALID,
                "%.120s:%u: %s is '%.64s', but must be %s above 0, with blanks between them",
                r->e->path, line, key->name, value,
                key->kind == KEY_LIST ? "numbers" : "whole numbers");
        if (list->count == LIST_COUNT_MAX)
            return reef_fail(err, REEF_ERR_INVALID, "%.120s:%u: %s has more than %d numbers",
                             r->e->path, line, key->name, LIST_COUNT_MAX);
        // Order matters: the first seed and rate are those of tuning.
        list->values[list->count++] = number;
        at = end + strspn(end, " \t");
    }
    if (list->count > 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "%.120s:%u: %s has no number", r->e->path, line,
                     key->name);
}

static reef_status read_key(
    const reading *r, const struct key *key, const char *value, unsigned line, reef_error *err) {
    // Named by the table of keys, so that one function reads all simple members.
    char *field = (char *)r->e + key->offset;
    if (key->kind == KEY_LIST || key->kind == KEY_WHOLE_LIST)
        return read_list(r, key, value, line, err);
    // An empty value is more likely a mistake than a wish.
    if (value[0] == '\0')
        return reef_fail(err, REEF_ERR_INVALID, "%.120s:%u: %s is empty", r->e->path, line,
                         key->name);
    if (key->kind == KEY_BYTES) {
        reef_error reason;
        // Sizes such as 200M are read by the same function as --memory.
        if (reef_memory_parse(value, (uint64_t *)(void *)field, &reason) == REEF_OK) return REEF_OK;
        return reef_fail(err, REEF_ERR_INVALID, "%.120s:%u: %s is '%.64s': %.100s", r->e->path,
                         line, key->name, value, reason.message);
    }
    char **text = (char **)(void *)field;
    free(*text);
    // Paths are relative to the data directory, so that the file can be moved.
    bool relative = key->kind == KEY_PATH && value[0] != '/';
    *text = relative ? reef_cli_format("%s/%s", r->e->data_directory, value)
                     : reef_cli_format("%s", value);
    return REEF_OK;
}

// ---- groups of settings -------------------------------------------------------------------------

static reef_experiment_group *group_in(reef_experiment_group **groups,
                                       size_t *count,
                                       const char *name,
                                       unsigned line) {
    // The same section may appear twice; its settings add up.
    for (size_t i = 0; i < *count; i++)
        if (strcmp((*groups)[i].name, name) == 0) return &(*groups)[i];
    // Groups are few, so growing by one is good enough.
    reef_experiment_group *grown = reef_cli_alloc(*count + 1, sizeof(*grown));
    if (*count > 0) memcpy(grown, *groups, *count * sizeof(*grown));
    free(*groups);
    *groups = grown;
    // The line is kept for messages about settings that do not fit together.
    grown[*count] = (reef_experiment_group){.name = reef_cli_format("%s", name), .line = line};
    return &grown[(*count)++];
}

static reef_status unknown_key(
    const reading *r, const char *section, const char *key, unsigned line, reef_error *err) {
    const char *guess = NULL;
    // A guess is offered only if it is near: a third of the letters may differ.
    size_t nearest = strlen(key) / 3 + 1, field_count;
    // [experiment] has keys of its own; all other sections take fields of the configuration.
    const reef_config_field *fields = reef_config_fields(&field_count);
    bool is_experiment = strcmp(section, "experiment") == 0;
    for (size_t i = 0; i < KEY_COUNT + field_count; i++) {
        // Only names that this section takes are candidates.
        if ((i < KEY_COUNT) != is_experiment) continue;
        const char *name = i < KEY_COUNT ? KEYS[i].name : fields[i - KEY_COUNT].name;
        size_t distance = reef_edit_distance(key, name);
        if (distance >= nearest) continue;
        nearest = distance;
        guess = name;
    }
    return reef_fail(err, REEF_ERR_INVALID, "%.120s:%u: [%.40s] knows no '%.64s'%s%s%s", r->e->path,
                     line, section, key, guess != NULL ? "; did you mean " : "",
                     guess != NULL ? guess : "", guess != NULL ? "?" : "");
}

static reef_status add_setting(const reading *r,
                               reef_experiment_group *group,
                               const char *section,
                               const char *key,
                               const char *value,
                               unsigned line,
                               reef_error *err) {
    const reef_config_field *field = find_field(key);
    // The same names as `reef init`, so that nothing is to be learned twice.
    if (field == NULL) return unknown_key(r, section, key, line, err);
    reef_config scratch;
    reef_error reason;
    reef_config_default(&scratch);
    // Tried on a default configuration: the value is checked here, with its line.
    if (reef_config_set(&scratch, key, value, &reason) != REEF_OK)
        return reef_fail(err, REEF_ERR_INVALID, "%.100s:%u: %.140s", r->e->path, line,
                         reason.message);
    reef_experiment_setting *grown = reef_cli_alloc(group->count + 1, sizeof(*grown));
    if (group->count > 0) memcpy(grown, group->settings, group->count * sizeof(*grown));
    free(group->settings);
    group->settings = grown;
    // The text is kept and applied later, because sizes and systems are combined.
    grown[group->count++] = (reef_experiment_setting){
        .field = field, .value = reef_cli_format("%s", value), .line = line};
    return REEF_OK;
}

static reef_status read_middle(const reading *r,
                               reef_experiment_group *system,
                               const char *value,
                               unsigned line,
                               reef_error *err) {
    // p, k, m and d are the paper's four kinds of feed-forward layer.
    if (strlen(value) != 1 || strchr("pkmd", value[0]) == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s:%u: middle is '%.20s', but must be p, "
                         "k, m or d, the letter of the middle block",
                         r->e->path, line, value);
    system->middle = value[0];
    return REEF_OK;
}

static reef_status add_set(
    const reading *r, const char *name, const char *value, unsigned line, reef_error *err) {
    experiment *e = r->e;
    for (size_t i = 0; i < e->set_count; i++)
        // Two data sets of one name would share a column.
        if (strcmp(e->sets[i].name, name) == 0)
            return reef_fail(err, REEF_ERR_INVALID, "%.120s:%u: %.64s is given twice", e->path,
                             line, name);
    reef_experiment_set *grown = reef_cli_alloc(e->set_count + 1, sizeof(*grown));
    if (e->set_count > 0) memcpy(grown, e->sets, e->set_count * sizeof(*grown));
    free(e->sets);
    e->sets = grown;
    grown[e->set_count++] = (reef_experiment_set){
        .name = reef_cli_format("%s", name),
        // Relative to the data directory, like all paths of the file.
        .path = value[0] == '/' ? reef_cli_format("%s", value)
                                : reef_cli_format("%s/%s", e->data_directory, value)};
    return REEF_OK;
}

// "size NAME": where NAME begins, or NULL.
static const char *named(const char *section, const char *word) {
    size_t length = strlen(word);
    if (strncmp(section, word, length) != 0 || section[length] != ' ') return NULL;
    const char *name = section + length + strspn(section + length, " ");
    return *name ? name : NULL;
}

// Names are written as JSON, which is UTF-8 only: refused here, and not after a model has been
// trained.
static reef_status check_name(const reading *r, const char *name, unsigned line, reef_error *err) {
    json_t *text = json_string(name);
    if (text == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "%.120s:%u: the name '%.64s' is not UTF-8",
                         r->e->path, line, name);
    json_decref(text);
    return REEF_OK;
}

static reef_status on_key(void *context,
                          const char *section,
                          const char *key,
                          const char *value,
                          unsigned line,
                          reef_error *err) {
    const reading *r = context;
    experiment *e = r->e;
    const char *name;
    reef_status status = check_name(r, section, line, err);
    if (status == REEF_OK) status = check_name(r, key, line, err);
    if (status != REEF_OK) return status;
    bool is_quick = strcmp(section, "quick") == 0;
    // Without --quick the section is read only for mistakes.
    if (is_quick && !r->quick) {
        bool known = find_key(key) != NULL || find_field(key) != NULL;
        return known ? REEF_OK : unknown_key(r, section, key, line, err);
    }
    // [quick] may replace keys of [experiment] and fields of the model alike.
    if (is_quick || strcmp(section, "experiment") == 0) {
        const struct key *found = find_key(key);
        if (found != NULL) return read_key(r, found, value, line, err);
        // In [quick] an unknown key may still be a field of the model.
        if (!is_quick) return unknown_key(r, section, key, line, err);
        return add_setting(r, &e->quick, section, key, value, line, err);
    }
    if (strcmp(section, "model") == 0)
        return add_setting(r, &e->model, section, key, value, line, err);
    if (strcmp(section, "datasets") == 0) return add_set(r, key, value, line, err);
    // One section per size and system, with the name behind the word.
    if ((name = named(section, "size")))
        return add_setting(r, group_in(&e->sizes, &e->size_count, name, line), section, key, value,
                           line, err);
    if ((name = named(section, "system"))) {
        reef_experiment_group *system = group_in(&e->systems, &e->system_count, name, line);
        // "middle" names the layer kind, which is not a field of the configuration.
        if (strcmp(key, "middle") == 0) return read_middle(r, system, value, line, err);
        return add_setting(r, system, section, key, value, line, err);
    }
    // Sections are checked strictly: a misspelt one would silently do nothing.
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.120s:%u: there is no section [%.40s]; there are [experiment], [model], "
                     "[size NAME], [system NAME], [datasets] and [quick]",
                     e->path, line, section);
}

// ---- as a whole ---------------------------------------------------------------------------------

static reef_status config_missing(const experiment *e, const char *what, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID, "%.120s: there is no %s", e->path, what);
}

static void set_default(reef_experiment_list *list, double value) {
    if (list->count > 0) return;
    free(list->values);
    list->values = reef_cli_alloc(1, sizeof(double));
    list->values[0] = value;
    list->count = 1;
}

static reef_status check_whole(experiment *e, reef_error *err) {
    // Each message says where the missing key belongs.
    if (e->train == NULL)
        return config_missing(e, "train in [experiment]: the text to train on", err);
    if (e->valid == NULL) return config_missing(e, "valid in [experiment]: the held-out text", err);
    if (e->budgets.count == 0)
        return config_missing(e, "budgets in [experiment]: FLOPs such as 1e13 4e13", err);
    if (e->size_count == 0) return config_missing(e, "section [size NAME]", err);
    if (e->system_count == 0) return config_missing(e, "section [system NAME]", err);
    reef_config standard;
    reef_config_default(&standard);
    // What most experiments do not vary has a default.
    set_default(&e->seeds, 1);
    set_default(&e->learning_rates, (double)standard.learning_rate);
    // The first size is the smallest in practice, and tuning should be cheap.
    if (e->tune_size == NULL) e->tune_size = reef_cli_format("%s", e->sizes[0].name);
    if (reef_experiment_size(e, e->tune_size) != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.120s: tune_size is '%.40s', but there is no [size %.40s]", e->path,
                     e->tune_size, e->tune_size);
}

static void cut_to_valid_bytes(const experiment *e, reef_cli_file *file) {
    if (e->valid_bytes > 0)
        *file = reef_eval_file_beginning(&e->first, file, (size_t)e->valid_bytes);
}

static reef_status read_texts(experiment *e, reef_error *err) {
    reef_cli_file train = {0};
    reef_status status = reef_cli_examples_read(&train, e->train, &e->first, err);
    // The hash of the text is part of each cell's name: another text is another cell.
    if (status == REEF_OK) e->train_hash = XXH3_64bits(train.bytes, train.count);
    reef_cli_file_release(&train);
    if (status == REEF_OK)
        status = reef_cli_examples_read(&e->valid_file, e->valid, &e->first, err);
    // Cut to the length that the file asks for, so that evaluation time is known.
    if (status == REEF_OK) cut_to_valid_bytes(e, &e->valid_file);
    for (size_t i = 0; i < e->set_count && status == REEF_OK; i++) {
        status = reef_cli_examples_read(&e->sets[i].file, e->sets[i].path, &e->first, err);
        if (status == REEF_OK) cut_to_valid_bytes(e, &e->sets[i].file);
        if (status == REEF_OK)
            // Hashed after cutting, because that is what is measured.
            e->sets[i].hash = XXH3_64bits(e->sets[i].file.bytes, e->sets[i].file.count);
    }
    return status;
}

reef_status reef_experiment_read(
    experiment *e, const char *path, const char *data, bool quick, reef_error *err) {
    char *copy = reef_cli_format("%s", path);
    // By default data is looked for beside the file.
    *e = (experiment){.path = reef_cli_format("%s", path),
                      .data_directory = reef_cli_format("%s", data != NULL ? data : dirname(copy))};
    free(copy);
    reading r = {.e = e, .quick = quick};
    reef_status status = reef_config_file_read_all(path, on_key, &r, err);
    if (status == REEF_OK) status = check_whole(e, err);
    // Combinations that do not fit are reported by reef_experiment_check; here only the unit of a
    // token is needed.
    if (status == REEF_OK)
        (void)!reef_experiment_config(e, &e->systems[0], &e->sizes[0], &e->first, NULL);
    return status == REEF_OK ? read_texts(e, err) : status;
}

static void group_release(reef_experiment_group *group) {
    for (size_t i = 0; i < group->count; i++) free(group->settings[i].value);
    free(group->settings);
    free(group->name);
}

void reef_experiment_release(experiment *e) {
    // Groups first: they own their settings.
    for (size_t i = 0; i < e->size_count; i++) group_release(&e->sizes[i]);
    for (size_t i = 0; i < e->system_count; i++) group_release(&e->systems[i]);
    group_release(&e->model);
    group_release(&e->quick);
    for (size_t i = 0; i < e->set_count; i++) {
        free(e->sets[i].name);
        free(e->sets[i].path);
        reef_cli_file_release(&e->sets[i].file);
    }
    reef_experiment_list *const lists[] = {&e->budgets,   &e->learning_rates, &e->seeds,
                                           &e->vary_side, &e->vary_heads,     &e->vary_active};
    // Released by one loop: all are lists of numbers.
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) free(lists[i]->values);
    char *const texts[] = {e->path, e->data_directory, e->train, e->valid, e->tune_size};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) free(texts[i]);
    reef_cli_file_release(&e->valid_file);
    free(e->sizes);
    free(e->systems);
    free(e->sets);
    *e = (experiment){0};
}

// ---- configurations -----------------------------------------------------------------------------

const reef_experiment_group *reef_experiment_size(const experiment *e, const char *name) {
    for (size_t i = 0; i < e->size_count; i++)
        if (strcmp(e->sizes[i].name, name) == 0) return &e->sizes[i];
    return NULL;
}

bool reef_experiment_retrieves(const reef_config *config) {
    return strpbrk(config->ffw, "pk") != NULL;
}

// Values were tried when they were read.
static void apply_config(const reef_experiment_group *group, reef_config *config) {
    for (size_t i = 0; i < group->count; i++)
        (void)!reef_config_set(config, group->settings[i].field->name, group->settings[i].value,
                               NULL);
}

// The middle of 12 blocks is the sixth, as in the paper.
static void set_middle(reef_config *config, char letter) {
    memset(config->ffw, 'd', config->layers);
    config->ffw[(config->layers - 1) / 2] = letter;
    config->ffw[config->layers] = '\0';
}

reef_status reef_experiment_config(const experiment *e,
                                   const reef_experiment_group *system,
                                   const reef_experiment_group *size,
                                   reef_config *out,
                                   reef_error *err) {
    reef_config_default(out);
    // An experiment has one task, so nothing of lifelong learning takes part.
    out->boundaries = REEF_BOUNDARIES_GIVEN;
    // No rehearsal: the compared systems do not have it either.
    out->rehearse = 0;
    out->adapters = 0;
    // The smallest allowed: nothing is drawn from it.
    out->reservoir_bytes = 65536;
    out->reservoir_window = 1024;
    // From general to special: model, size, system; [quick] overrides all.
    apply_config(&e->model, out);
    apply_config(size, out);
    apply_config(system, out);
    apply_config(&e->quick, out);
    // There is no later generation.
    out->side_new = out->side;
    if (system->middle) set_middle(out, system->middle);
    reef_error reason;
    // The message names the line of the size, where most contradictions arise.
    if (reef_config_check(out, &reason) == REEF_OK) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "%.100s:%u: system %.30s in size %.30s: %.120s",
                     e->path, size->line, system->name, size->name, reason.message);
}

reef_status reef_experiment_check(const experiment *e, reef_experiment_kind kind, reef_error *err) {
    // Each kind of experiment varies something that the file must list.
    bool sides = kind == EXPERIMENT_EXPERTS || kind == EXPERIMENT_BATCHNORM;
    if (sides && e->vary_side.count == 0)
        return config_missing(
            e, "vary_side in [experiment]: roots of numbers of experts, such as 128 256", err);
    if (kind == EXPERIMENT_ACTIVE && e->vary_heads.count == 0)
        return config_missing(e, "vary_heads in [experiment]: numbers of heads, such as 1 2 4 8",
                              err);
    if (kind == EXPERIMENT_ACTIVE && e->vary_active.count == 0)
        return config_missing(e, "vary_active in [experiment]: experts a token, such as 32 64 128",
                              err);
    if (kind == EXPERIMENT_DATASETS && e->set_count == 0)
        return config_missing(e, "section [datasets] with NAME = FILE", err);
    reef_status status = REEF_OK;
    // All combinations are tried before the first is trained.
    for (size_t i = 0; i < e->system_count; i++)
        for (size_t z = 0; status == REEF_OK && z < e->size_count; z++) {
            reef_config config;
            status = reef_experiment_config(e, &e->systems[i], &e->sizes[z], &config, err);
            // Tokens of different vocabularies cannot be compared by perplexity.
            if (status == REEF_OK && config.vocab != e->first.vocab)
                status = reef_fail(err, REEF_ERR_INVALID,
                                   "%.120s: all systems and sizes read the same texts: "
                                   "vocab belongs in [model]",
                                   e->path);
        }
    return status;
}
