// The state of a watch as bytes, and back. One function for each struct says its layout: it writes,
// or reads and checks. Integers are little-endian, numbers the 64 bits of a double.
//
//   part 0      options, clocks, counts, sources, incidents
//   part 1      incidents that rang
//   part 2..    types of lines, TYPES_OF_PART each
#include "reef_byte_order.h"
#include "watch_internal.h"

#include <stdlib.h>
#include <string.h>

#define TYPES_OF_PART 48u
#define FIRST_OF_TYPES 2u

typedef struct coder {
    bool writes, bad; // what was read makes no sense, or there is no memory
    uint8_t *bytes;   // owned where it writes; (count)
    size_t count, room;
    const uint8_t *at, *end; // where it reads
} coder;

// ---- values -------------------------------------------------------------------------------------

// Of so many bytes: where they are.
static uint8_t *take(coder *c, size_t count) {
    if (c->bad) return NULL;
    if (!c->writes) {
        c->bad = (size_t)(c->end - c->at) < count;
        if (c->bad) return NULL;
        c->at += count;
        return (uint8_t *)(uintptr_t)(c->at - count);
    }
    if (c->room - c->count < count) {
        size_t size = 2 * (c->count + count);
        uint8_t *bytes = realloc(c->bytes, size);
        c->bad = bytes == NULL;
        if (c->bad) return NULL;
        c->bytes = bytes;
        c->room = size;
    }
    c->count += count;
    return c->bytes + c->count - count;
}

static void code_u64(coder *c, uint64_t *value) {
    uint8_t *at = take(c, 8);
    if (at == NULL) return;
    if (c->writes)
        reef_put_le64(at, *value);
    else
        *value = reef_get_le64(at);
}

static void code_u32(coder *c, uint32_t *value) {
    uint8_t *at = take(c, 4);
    if (at == NULL) return;
    if (c->writes)
        reef_put_le32(at, *value);
    else
        *value = reef_get_le32(at);
}

static void code_i64(coder *c, int64_t *value) {
    uint64_t bits = (uint64_t)*value;
    code_u64(c, &bits);
    *value = (int64_t)bits;
}

static void code_real(coder *c, double *value) {
    uint64_t bits;
    memcpy(&bits, value, sizeof(bits));
    code_u64(c, &bits);
    memcpy(value, &bits, sizeof(bits));
}

static void code_bool(coder *c, bool *value) {
    uint32_t number = *value;
    code_u32(c, &number);
    *value = number != 0;
}

// A number that is at most `most`.
static void code_count(coder *c, uint32_t *value, uint32_t most) {
    code_u32(c, value);
    if (!c->bad && *value > most) c->bad = true;
    if (c->bad && !c->writes) *value = 0;
}

static void code_bytes(coder *c, uint8_t *bytes, size_t count) {
    uint8_t *at = take(c, count);
    if (at != NULL && count > 0) memcpy(c->writes ? at : bytes, c->writes ? bytes : at, count);
}

// Bytes of a line on the heap, with a NUL behind them, or NULL.
static void code_line(coder *c, char **line, size_t *line_bytes) {
    uint32_t count = *line == NULL ? UINT32_MAX : (uint32_t)*line_bytes;
    code_u32(c, &count);
    if (c->bad || count == UINT32_MAX) return;
    c->bad = count > REEF_WATCH_SHOWN_BYTES_MAX;
    if (c->bad) return;
    if (!c->writes) *line = calloc(1, count + 1);
    c->bad = *line == NULL;
    *line_bytes = count;
    if (!c->bad) code_bytes(c, (uint8_t *)*line, count);
}

// The name of a file, or NULL.
static void code_file(coder *c, char **file) {
    size_t bytes = *file == NULL ? 0 : strlen(*file);
    code_line(c, file, &bytes);
}

// ---- structs ------------------------------------------------------------------------------------

static void code_source(coder *c, reef_watch_source *s) {
    code_real(c, &s->lines);
    code_real(c, &s->news);
    code_real(c, &s->recent_news);
    for (int i = 0; i <= REEF_SEVERITY_CRITICAL; i++) code_real(c, &s->severe[i]);
    code_i64(c, &s->day);
    code_i64(c, &s->first_ms);
    code_i64(c, &s->news_ms);
    code_u64(c, &s->read);
    code_bool(c, &s->judged);
    code_bool(c, &s->noisy);
    code_i64(c, &s->noise_ms);
    code_u64(c, &s->noise_incident);
    code_u32(c, &s->noise_event);
    uint32_t severity = s->last_severity;
    code_count(c, &s->last_count, REEF_LAST_TYPES_MAX);
    for (uint32_t i = 0; i < s->last_count; i++) {
        code_u32(c, &s->last[i].type);
        code_u64(c, &s->last[i].name);
    }
    code_count(c, &severity, REEF_SEVERITY_CRITICAL);
    code_bool(c, &s->last_in_event);
    code_bool(c, &s->record_timed);
    code_bool(c, &s->record_in_event);
    code_bool(c, &s->record_silenced);
    code_u32(c, &s->record_lines);
    s->last_severity = severity;
    code_count(c, &s->line_bytes, REEF_WATCH_LINE_BYTES_MAX);
    code_u64(c, &s->line_at);
    code_file(c, &s->file);
    code_bytes(c, s->line, s->line_bytes);
}

static void code_event(coder *c, reef_event *e) {
    uint32_t news = e->news, severity = e->severity;
    uint64_t new_at = e->new_at, new_bytes = e->new_bytes;
    code_count(c, &news, REEF_NEWS_COUNT - 1);
    code_count(c, &severity, REEF_SEVERITY_CRITICAL);
    code_u32(c, &e->source);
    code_u64(c, &e->type);
    code_u64(c, &e->offset);
    code_file(c, &e->file);
    code_i64(c, &e->first_ms);
    code_i64(c, &e->last_ms);
    code_u64(c, &e->count);
    code_real(c, &e->bits);
    code_line(c, &e->line, &e->line_bytes);
    code_u64(c, &new_at);
    code_u64(c, &new_bytes);
    code_line(c, &e->nearest, &e->nearest_bytes);
    e->news = news;
    e->severity = severity;
    e->new_at = (size_t)new_at;
    e->new_bytes = (size_t)new_bytes;
    if (!c->bad &&
        (e->line == NULL || new_at > e->line_bytes || new_bytes > e->line_bytes - new_at))
        c->bad = true;
}

static void code_open(coder *c, reef_open_incident *open) {
    reef_incident *i = &open->incident;
    uint32_t count = (uint32_t)i->event_count, rarest = (uint32_t)i->rarest;
    code_u64(c, &i->number);
    code_i64(c, &i->first_ms);
    code_i64(c, &i->last_ms);
    code_real(c, &i->bits);
    code_bool(c, &i->rings);
    code_bool(c, &i->is_open);
    code_bool(c, &i->lingers);
    code_bool(c, &i->said);
    code_u64(c, &i->more);
    code_i64(c, &open->news_ms);
    code_u32(c, &open->source);
    code_count(c, &count, REEF_WATCH_EVENTS_MAX);
    code_count(c, &rarest, count > 0 ? count - 1 : 0);
    if (!c->writes && count > 0) {
        i->events = calloc(count, sizeof(*i->events));
        c->bad |= i->events == NULL;
    }
    if (c->bad) return;
    i->event_count = count;
    i->rarest = rarest;
    for (uint32_t e = 0; e < count; e++) code_event(c, &i->events[e]);
}

static void code_incidents(coder *c, reef_incidents *all) {
    uint32_t past = (uint32_t)all->past_count;
    for (size_t i = 0; i < REEF_INCIDENTS_OPEN_MAX; i++) code_open(c, &all->open[i]);
    code_u64(c, &all->number);
    code_i64(c, &all->first_ms);
    code_u64(c, &all->rung);
    code_count(c, &past, REEF_INCIDENTS_MAX);
    all->past_count = past;
    for (uint32_t i = 0; i < past; i++) {
        code_i64(c, &all->past[i].ms);
        code_real(c, &all->past[i].bits);
    }
}

static void code_told(coder *c, reef_told_incident *told) {
    code_u64(c, &told->number);
    if (c->bad || told->number == 0) return;
    code_count(c, &told->type_count, REEF_TOLD_TYPES_MAX);
    for (uint32_t t = 0; t < told->type_count; t++) code_u64(c, &told->types[t]);
}

static void code_rhythm(coder *c, reef_rhythm *r) {
    code_i64(c, &r->first_ms);
    code_i64(c, &r->last_ms);
    code_i64(c, &r->day);
    code_u32(c, &r->days);
    for (int w = 0; w < REEF_RHYTHM_WINDOWS; w++) {
        code_i64(c, &r->window[w]);
        code_u32(c, &r->count[w]);
        for (int d = 0; d < REEF_RHYTHM_DAYS; d++) code_u32(c, &r->most[w][d]);
    }
    for (int d = 0; d < REEF_RHYTHM_DAYS; d++) {
        code_u32(c, &r->gap_s[d]);
        code_u32(c, &r->windows[d]);
    }
    code_bool(c, &r->is_rising);
    code_bool(c, &r->is_silent);
}

static void code_place(coder *c, reef_place *place) {
    uint32_t count = place->is_open ? UINT32_MAX : place->count;
    code_u32(c, &count);
    place->is_open = count == UINT32_MAX;
    code_u32(c, &place->values);
    if (place->is_open) return;
    c->bad |= count > REEF_PLACE_STATUSES_MAX;
    if (c->bad) return;
    place->count = (uint8_t)count;
    for (uint32_t i = 0; i < count; i++) code_u32(c, &place->words[i]);
}

static void code_type(coder *c, reef_line_type *t, uint32_t source_count, uint32_t type_count) {
    uint32_t event_token = (uint32_t)t->event_token, decision = t->decision;
    code_u64(c, &t->name);
    if (c->bad) return;
    if (t->name == 0) { // free
        t->next = UINT32_MAX;
        return;
    }
    code_bool(c, &t->is_variant);
    if (t->is_variant) {
        code_u32(c, &t->of);
        code_u64(c, &t->of_name);
    }
    code_u32(c, &t->source);
    code_count(c, &t->place_count, REEF_TOKENS_MAX);
    code_u64(c, &t->lines);
    code_line(c, &t->sample, &t->sample_bytes);
    code_u64(c, &t->offset);
    code_file(c, &t->file);
    code_rhythm(c, &t->rhythm);
    code_u64(c, &t->incident);
    code_u32(c, &t->event);
    code_bool(c, &t->is_rate);
    code_u32(c, &event_token);
    t->event_token = (int32_t)event_token;
    code_u32(c, &t->event_word);
    code_count(c, &decision, REEF_DECISION_COUNT - 1);
    code_i64(c, &t->muted_ms);
    t->decision = decision;
    code_u32(c, &t->next);
    if (c->bad) return;
    c->bad = t->sample == NULL || t->source >= source_count ||
             (t->next != UINT32_MAX && t->next >= type_count) || t->event_token < -1 ||
             (t->event_token >= 0 && (uint32_t)t->event_token >= t->place_count);
    if (!c->writes && !c->bad && !t->is_variant) {
        t->places = calloc(t->place_count > 0 ? t->place_count : 1, sizeof(*t->places));
        c->bad = t->places == NULL;
    }
    for (uint32_t i = 0; !c->bad && !t->is_variant && i < t->place_count; i++)
        code_place(c, &t->places[i]);
}

static void code_options(coder *c, reef_watch_options *o) {
    code_real(c, &o->budget);
    code_u32(c, &o->gap_s);
    code_u32(c, &o->quiet_s);
    code_u32(c, &o->forget_days);
    c->bad |= !(o->budget > 0.0 && o->budget <= REEF_WATCH_BUDGET_MAX) || o->gap_s == 0 ||
              o->quiet_s == 0 || o->forget_days == 0;
}

static void code_head(coder *c, reef_watch *w, uint32_t *sources, uint32_t *types) {
    reef_watch_counts *counts = &w->counts;
    code_options(c, &w->options);
    code_i64(c, &w->now_ms);
    code_i64(c, &w->minute);
    code_i64(c, &w->day);
    code_i64(c, &w->doubted_ms);
    code_u32(c, &w->doubted);
    code_u64(c, &counts->lines);
    code_u64(c, &counts->usual);
    code_u64(c, &counts->in_events);
    code_u64(c, &counts->suppressed);
    code_u64(c, &counts->learning);
    for (int i = 0; i < REEF_NEWS_COUNT; i++) code_u64(c, &counts->events[i]);
    code_incidents(c, &w->incidents);
    code_count(c, sources, REEF_WATCH_SOURCES_MAX);
    code_count(c, types, REEF_WATCH_TYPES_MAX);
}

// ---- parts --------------------------------------------------------------------------------------

static reef_status put_part(
    coder *c, uint32_t number, reef_watch_put *put, void *context, reef_error *err) {
    reef_status status =
        c->bad ? reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the state of a watch")
               : put(context, number, c->bytes, c->count, err);
    c->count = 0;
    return status;
}

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

reef_status reef_watch_write(
    reef_watch *w, reef_watch_put *put, void *context, uint32_t *parts, reef_error *err) {
    coder c = {.writes = true};
    uint32_t sources = w->source_count, types = w->types.count, part = 0;
    code_head(&c, w, &sources, &types);
    for (uint32_t i = 0; i < sources; i++) code_source(&c, &w->sources[i]);
    reef_status status = put_part(&c, part++, put, context, err);
    for (size_t i = 0; i < REEF_TOLD_MAX; i++) code_told(&c, &w->incidents.told[i]);
    if (status == REEF_OK) status = put_part(&c, part++, put, context, err);
    for (uint32_t at = 0; status == REEF_OK && at < types; at += TYPES_OF_PART) {
        for (uint32_t i = at; i < min_u32(at + TYPES_OF_PART, types); i++)
            code_type(&c, &w->types.types[i], sources, types);
        status = put_part(&c, part++, put, context, err);
    }
    free(c.bytes);
    *parts = part;
    return status;
}

static reef_status get_part(
    coder *c, uint32_t number, reef_watch_get *get, void *context, reef_error *err) {
    size_t count;
    *c = (coder){0};
    reef_status status = get(context, number, &c->at, &count, err);
    if (status == REEF_OK) c->end = c->at + count;
    return status;
}

static reef_status check_part(const coder *c, uint32_t number, reef_error *err) {
    if (!c->bad && c->at == c->end) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT, "part %u of the state of a watch makes no sense",
                     number);
}

static reef_status read_types(
    reef_watch *w, uint32_t types, reef_watch_get *get, void *context, reef_error *err) {
    reef_line_types *t = &w->types;
    coder c;
    if (types == 0) return REEF_OK;
    t->types = calloc(types, sizeof(*t->types));
    if (t->types == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %u types of lines", types);
    t->capacity = t->count = types;
    reef_status status = REEF_OK;
    for (uint32_t at = 0, part = FIRST_OF_TYPES; status == REEF_OK && at < types;
         at += TYPES_OF_PART, part++) {
        status = get_part(&c, part, get, context, err);
        if (status != REEF_OK) break;
        for (uint32_t i = at; i < min_u32(at + TYPES_OF_PART, types); i++)
            code_type(&c, &t->types[i], w->source_count, types);
        status = check_part(&c, part, err);
    }
    if (status == REEF_OK) reef_line_types_linked(t);
    return status;
}

reef_status reef_watch_read(reef_watch *w, reef_watch_get *get, void *context, reef_error *err) {
    coder c;
    uint32_t sources = 0, types = 0;
    reef_status status = get_part(&c, 0, get, context, err);
    if (status != REEF_OK) return status;
    code_head(&c, w, &sources, &types);
    reef_watch_options_set(w);
    for (uint32_t i = 0; status == REEF_OK && i < sources; i++) {
        uint32_t number;
        status = reef_watch_add_source(w, &number, err);
        if (status == REEF_OK) code_source(&c, &w->sources[i]);
    }
    if (status == REEF_OK) status = check_part(&c, 0, err);
    if (status == REEF_OK) status = get_part(&c, 1, get, context, err);
    for (size_t i = 0; status == REEF_OK && i < REEF_TOLD_MAX; i++)
        code_told(&c, &w->incidents.told[i]);
    if (status == REEF_OK) status = check_part(&c, 1, err);
    return status == REEF_OK ? read_types(w, types, get, context, err) : status;
}
