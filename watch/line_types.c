// See line_types.h.
#include "line_types.h"
#include "rare_bits.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HEADS 4096u // a power of two; sources of like number share one, and are told apart
#define CACHED 65536u
#define DIFFERENT_SHARE 4 // of the words of a line one in so many may be none of its type, and
#define DIFFERENT_MIN 1   // at least so many; not all
#define STATUS_DIGITS 3
#define SAMPLE_BYTES_MAX 200
#define VARIANT_LINES_MIN 100 // that a type has before its numbers are told apart
#define VARIANTS_MAX (REEF_WATCH_TYPES_MAX / 4)
#define COMPARED_MAX 512 // types of one length; of those the latest
#define FORGOTTEN_AT_ONCE (REEF_WATCH_TYPES_MAX / 16)

reef_status reef_line_types_init(reef_line_types *t, reef_error *err) {
    *t = (reef_line_types){0};
    t->heads = malloc(HEADS * sizeof(*t->heads));
    t->cached = calloc(CACHED, sizeof(*t->cached));
    t->answers = calloc(CACHED, sizeof(*t->answers));
    if (t->heads == NULL || t->cached == NULL || t->answers == NULL) {
        reef_line_types_release(t);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for types of lines");
    }
    memset(t->heads, 0xff, HEADS * sizeof(*t->heads));
    return REEF_OK;
}

static void release_type(reef_line_type *type) {
    free(type->places);
    free(type->sample);
    free(type->file);
}

void reef_line_types_release(reef_line_types *t) {
    for (uint32_t i = 0; i < t->count; i++) release_type(&t->types[i]);
    free(t->types);
    free(t->heads);
    free(t->cached);
    free(t->answers);
    *t = (reef_line_types){0};
}

char *reef_line_copy(const uint8_t *line, size_t count) {
    char *copy = malloc(count + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, line, count);
    copy[count] = '\0';
    return copy;
}

bool reef_file_copy(char **to, const char *file) {
    if (file == *to || (file != NULL && *to != NULL && strcmp(*to, file) == 0)) return true;
    char *copy = file == NULL ? NULL : reef_line_copy((const uint8_t *)file, strlen(file));
    if (file != NULL && copy == NULL) return false;
    free(*to);
    *to = copy;
    return true;
}

// ---- comparing ----------------------------------------------------------------------------------

static uint32_t *head_of(const reef_line_types *t, uint32_t source, size_t count) {
    return &t->heads[(source * (REEF_TOKENS_MAX + 1) + (uint32_t)count) & (HEADS - 1)];
}

static uint64_t name_of(uint32_t source, const reef_line_tokens *tokens) {
    uint32_t hashes[REEF_TOKENS_MAX];
    for (size_t i = 0; i < tokens->count; i++) hashes[i] = tokens->tokens[i].hash;
    uint64_t name = XXH3_64bits_withSeed(hashes, tokens->count * sizeof(*hashes), source + 1);
    return name != 0 ? name : 1;
}

// What is cached is only what would be found anyway: an answer holds until any type changes.
static uint64_t cached_name(const reef_line_types *t, uint64_t name) {
    return name + t->epoch * UINT64_C(0x9e3779b97f4a7c15);
}

static bool has_word(const reef_place *place, uint32_t hash) {
    for (size_t i = 0; i < place->count; i++)
        if (place->words[i] == hash) return true;
    return false;
}

bool reef_place_is_value(const reef_line_type *type, size_t place) {
    const reef_place *p = &type->places[place];
    return p->is_open || 2 * (uint64_t)p->values > type->lines;
}

static bool is_usual(const reef_line_type *type, size_t place, const reef_token *token) {
    return type->places[place].is_open || has_word(&type->places[place], token->hash) ||
           (token->is_number && reef_place_is_value(type, place));
}

static void count_values(reef_line_type *type, const reef_line_tokens *tokens) {
    for (size_t i = 0; i < tokens->count; i++)
        type->places[i].values +=
            tokens->tokens[i].hash == REEF_TOKEN_VARIABLE && type->places[i].values < UINT32_MAX;
    type->lines++;
}

// How many words of a line never stood where they stand, and how many did.
static size_t count_different(const reef_line_type *type,
                              const reef_line_tokens *tokens,
                              size_t *same) {
    size_t different = 0;
    *same = 0;
    for (size_t i = 0; i < tokens->count; i++) {
        const reef_place *place = &type->places[i];
        if (place->is_open) continue;
        bool has = has_word(place, tokens->tokens[i].hash);
        different += !is_usual(type, i, &tokens->tokens[i]);
        *same += has && tokens->tokens[i].hash != REEF_TOKEN_VARIABLE;
    }
    return different;
}

static uint32_t find_nearest(const reef_line_types *t,
                             uint32_t source,
                             const reef_line_tokens *tokens,
                             size_t *different) {
    uint32_t best = UINT32_MAX, compared = 0;
    size_t best_same = 0;
    *different = SIZE_MAX;
    for (uint32_t i = *head_of(t, source, tokens->count);
         i != UINT32_MAX && compared < COMPARED_MAX; i = t->types[i].next) {
        const reef_line_type *type = &t->types[i];
        size_t same;
        if (type->source != source || type->place_count != tokens->count) continue;
        compared++;
        size_t off = count_different(type, tokens, &same);
        if (off > *different || (off == *different && same <= best_same)) continue;
        *different = off;
        best_same = same;
        best = i;
        if (off == 0 && same == tokens->words) break;
    }
    return best;
}

// Such as those of HTTP, of which there are more than other words at a place. Counts have other
// lengths too.
static bool is_status(const reef_token *token) {
    return token->is_number && token->bytes == STATUS_DIGITS;
}

// Of so many lines in which a few different words stood at a place, another one comes: as often as
// one did that was new. Words are learned; false: all were known.
static bool learn_words(reef_line_type *type,
                        const reef_line_tokens *tokens,
                        reef_type_match *out) {
    bool changed = false;
    for (size_t i = 0; i < tokens->count; i++) {
        reef_place *place = &type->places[i];
        uint32_t hash = tokens->tokens[i].hash;
        if (is_usual(type, i, &tokens->tokens[i])) continue;
        changed = true;
        double bits = reef_log2_down(((double)type->lines + 1.0) / ((double)place->count - 0.5));
        if (hash != REEF_TOKEN_VARIABLE && (out->news < 0 || bits > out->bits)) {
            out->news = (int)i;
            out->bits = bits;
        }
        const size_t most =
            is_status(&tokens->tokens[i]) ? REEF_PLACE_STATUSES_MAX : REEF_PLACE_WORDS_MAX;
        if (place->count >= most || hash == REEF_TOKEN_VARIABLE)
            place->is_open = true;
        else
            place->words[place->count++] = hash;
    }
    return changed;
}

void reef_line_types_find(reef_line_types *t,
                          uint32_t source,
                          const reef_line_tokens *tokens,
                          reef_type_match *out) {
    *out = (reef_type_match){.type = UINT32_MAX, .nearest = UINT32_MAX, .news = -1};
    const uint64_t name = name_of(source, tokens);
    const size_t slot = name & (CACHED - 1);
    if (t->cached[slot] == cached_name(t, name)) {
        out->type = out->nearest = t->answers[slot];
        count_values(&t->types[out->type], tokens);
        return;
    }
    size_t different;
    out->nearest = find_nearest(t, source, tokens, &different);
    if (out->nearest == UINT32_MAX) return;
    size_t most = tokens->words / DIFFERENT_SHARE;
    if (most < DIFFERENT_MIN) most = DIFFERENT_MIN;
    if (different > most || (different > 0 && different >= tokens->words)) return;
    out->type = out->nearest;
    if (learn_words(&t->types[out->type], tokens, out)) t->epoch++;
    count_values(&t->types[out->type], tokens);
    t->cached[slot] = cached_name(t, name);
    t->answers[slot] = out->type;
}

// ---- adding and removing ------------------------------------------------------------------------

static void unlink_type(reef_line_types *t, uint32_t type) {
    if (t->types[type].is_variant) return;
    uint32_t *at = head_of(t, t->types[type].source, t->types[type].place_count);
    while (*at != type) at = &t->types[*at].next;
    *at = t->types[type].next;
}

// Its place is free; lists may still have it.
static void clear_type(reef_line_types *t, uint32_t type) {
    const uint32_t next = t->types[type].next;
    t->variant_count -= t->types[type].is_variant;
    release_type(&t->types[type]);
    t->types[type] = (reef_line_type){.next = next};
    t->free_count++;
    if (type < t->free_from) t->free_from = type;
    t->epoch++;
}

void reef_line_types_remove(reef_line_types *t, uint32_t type) {
    unlink_type(t, type);
    clear_type(t, type);
    t->types[type].next = UINT32_MAX;
}

// ---- room ---------------------------------------------------------------------------------------

typedef struct last_seen {
    int64_t ms;
    uint32_t type;
} last_seen;

static int by_time(const void *a, const void *b) {
    const last_seen *x = a, *y = b;
    if (x->ms != y->ms) return x->ms < y->ms ? -1 : 1;
    return (x->type > y->type) - (x->type < y->type);
}

// Those that may go: what a person decided about stays, unless that is all there is.
static size_t list_types(const reef_line_types *t, uint32_t but, bool decided, last_seen *out) {
    size_t count = 0;
    for (uint32_t i = 0; i < t->count; i++)
        if (i != but && t->types[i].name != 0 &&
            (t->types[i].decision != REEF_DECISION_NONE) == decided)
            out[count++] = (last_seen){t->types[i].rhythm.last_ms, i};
    return count;
}

static void drop_cleared(reef_line_types *t) {
    for (size_t i = 0; i < HEADS; i++)
        for (uint32_t *at = &t->heads[i]; *at != UINT32_MAX;) {
            reef_line_type *type = &t->types[*at];
            if (type->name != 0) {
                at = &type->next;
                continue;
            }
            *at = type->next;
            type->next = UINT32_MAX;
        }
}

// Types that came least recently go, so many at once that lines which are all new cost little.
static reef_status make_room(reef_line_types *t, uint32_t but, reef_error *err) {
    last_seen *all = malloc(t->count * sizeof(*all));
    if (all == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to sort %u types of lines", t->count);
    size_t count = list_types(t, but, false, all);
    if (count == 0) count = list_types(t, but, true, all);
    qsort(all, count, sizeof(*all), by_time);
    for (size_t i = 0; i < count && i < FORGOTTEN_AT_ONCE; i++) clear_type(t, all[i].type);
    free(all);
    drop_cleared(t);
    return REEF_OK;
}

// A free one, which is not `but`.
static reef_status reserve(reef_line_types *t, uint32_t but, uint32_t *out, reef_error *err) {
    if (t->count == REEF_WATCH_TYPES_MAX) {
        reef_status status = t->free_count == 0 ? make_room(t, but, err) : REEF_OK;
        if (status != REEF_OK) return status;
        while (t->types[t->free_from].name != 0) t->free_from++;
        *out = t->free_from;
        return REEF_OK;
    }
    if (t->count == t->capacity) {
        uint32_t capacity = t->capacity > 0 ? 2 * t->capacity : 64;
        reef_line_type *types = realloc(t->types, capacity * sizeof(*types));
        if (types == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %u types of lines", capacity);
        t->types = types;
        t->capacity = capacity;
    }
    *out = t->count;
    return REEF_OK;
}

static void take(reef_line_types *t, uint32_t type) {
    if (type == t->count)
        t->count++;
    else
        t->free_count--;
}

reef_status reef_line_types_add(reef_line_types *t,
                                uint32_t source,
                                const reef_line_tokens *tokens,
                                const uint8_t *line,
                                size_t count,
                                uint32_t *out,
                                reef_error *err) {
    reef_place *places = calloc(tokens->count > 0 ? tokens->count : 1, sizeof(*places));
    const size_t sample_bytes = count < SAMPLE_BYTES_MAX ? count : SAMPLE_BYTES_MAX;
    char *sample = reef_line_copy(line, sample_bytes);
    reef_status status = places != NULL && sample != NULL
                             ? reserve(t, UINT32_MAX, out, err)
                             : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a type of lines");
    if (status != REEF_OK) {
        free(places);
        free(sample);
        return status;
    }
    for (size_t i = 0; i < tokens->count; i++) {
        places[i].words[0] = tokens->tokens[i].hash;
        places[i].count = 1;
        places[i].values = tokens->tokens[i].hash == REEF_TOKEN_VARIABLE;
    }
    uint32_t *head = head_of(t, source, tokens->count);
    take(t, *out);
    t->types[*out] = (reef_line_type){.name = name_of(source, tokens),
                                      .source = source,
                                      .lines = 1,
                                      .place_count = (uint32_t)tokens->count,
                                      .places = places,
                                      .sample = sample,
                                      .sample_bytes = sample_bytes,
                                      .event_token = -1,
                                      .next = *head};
    *head = *out;
    t->epoch++;
    return REEF_OK;
}

// What is no other's next is the first of its list.
void reef_line_types_linked(reef_line_types *t) {
    bool is_next[REEF_WATCH_TYPES_MAX] = {false};
    memset(t->heads, 0xff, HEADS * sizeof(*t->heads));
    for (uint32_t i = 0; i < t->count; i++)
        if (t->types[i].next != UINT32_MAX) is_next[t->types[i].next] = true;
    t->variant_count = t->free_count = t->free_from = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const reef_line_type *type = &t->types[i];
        t->variant_count += type->is_variant;
        t->free_count += type->name == 0;
        if (type->name != 0 && !type->is_variant && !is_next[i])
            *head_of(t, type->source, type->place_count) = i;
    }
}

reef_status reef_line_types_variant(reef_line_types *t,
                                    uint32_t type,
                                    size_t place,
                                    uint32_t word,
                                    uint32_t *out,
                                    reef_error *err) {
    const uint64_t key[3] = {t->types[type].name, place, word};
    const uint64_t name = XXH3_64bits(key, sizeof(key)) | 1;
    const size_t slot = name & (CACHED - 1);
    if (t->cached[slot] == cached_name(t, name)) {
        *out = t->answers[slot];
        return REEF_OK;
    }
    *out = UINT32_MAX;
    if (t->types[type].lines < VARIANT_LINES_MIN) return REEF_OK;
    // Rarely: two that share a slot.
    for (*out = 0; *out < t->count; ++*out)
        if (t->types[*out].is_variant && t->types[*out].name == name) break;
    reef_status status = REEF_OK;
    if (*out == t->count && t->variant_count == VARIANTS_MAX) {
        *out = UINT32_MAX;
        return REEF_OK;
    }
    if (*out == t->count) {
        const uint32_t source = t->types[type].source;
        const size_t sample_bytes = t->types[type].sample_bytes;
        char *sample = reef_line_copy((const uint8_t *)t->types[type].sample, sample_bytes);
        status = sample != NULL
                     ? reserve(t, type, out, err)
                     : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a type of lines");
        if (status != REEF_OK) {
            free(sample);
            return status;
        }
        take(t, *out);
        t->variant_count++;
        t->types[*out] = (reef_line_type){.name = name,
                                          .is_variant = true,
                                          .source = source,
                                          .sample = sample,
                                          .sample_bytes = sample_bytes,
                                          .event_token = -1,
                                          .next = UINT32_MAX};
    }
    // It may have been forgotten, and come again in another place.
    t->types[*out].of = type;
    t->types[*out].of_name = t->types[type].name;
    t->cached[slot] = cached_name(t, name);
    t->answers[slot] = *out;
    return REEF_OK;
}

const reef_line_type *reef_line_types_of(const reef_line_types *t, uint32_t variant) {
    const reef_line_type *v = &t->types[variant];
    const bool is_known = v->is_variant && v->of < t->count && t->types[v->of].name == v->of_name;
    return is_known ? &t->types[v->of] : NULL;
}
