// See reef_watch.h. Lines are judged one by one; a silence is looked for once a minute.
#include "rare_bits.h"
#include "repeat_line.h"
#include "watch_internal.h"

#include <stdlib.h>
#include <string.h>

#define DAY_MS INT64_C(86400000)
#define EVENT_BITS 5.0
#define AGAIN_DAYS_MAX 2 // on which an error came, other than the first
#define FAULT_BITS 64.0
#define NOISE_BITS 32.0
#define STATUS_DIGITS 3
#define NUMBER_BITS 8.0    // of a number where other ones stood
#define SEVERITY_SHARE 0.5 // of the bits of a severity
#define SEVERITY_BITS_MAX 6.0
#define MINUTE_MS INT64_C(60000)
#define HOUR_MS INT64_C(3600000)
#define DOUBTED_LINES 3
#define RECENT_LINES 1024.0
#define NOISE_LINES (RECENT_LINES / 2.0) // of them that are new
#define TIMELESS_LINES 10000             // after so many a source without times is judged
#define RECORD_LINES_MAX 256             // what is longer is no stack trace
#define SOURCE_LINES_MIN 200             // that a source has before it is judged
#define DAILY 0.9                        // what news of a source counts for a day later

const char *reef_news_name(reef_news news) {
    static const char *const NAMES[REEF_NEWS_COUNT] = {"type",    "word",  "rate",
                                                       "silence", "again", "noise"};
    return NAMES[news];
}

const char *reef_decision_name(reef_decision decision) {
    static const char *const NAMES[REEF_DECISION_COUNT] = {"none", "normal", "mute", "fault"};
    return NAMES[decision];
}

const char *reef_severity_name(reef_severity severity) {
    static const char *const NAMES[] = {"none", "warning", "error", "critical"};
    return NAMES[severity];
}

// ---- making and freeing -------------------------------------------------------------------------

void reef_watch_options_set(reef_watch *watch) {
    watch->incidents.gap_s = watch->options.gap_s;
    watch->incidents.budget = watch->options.budget;
}

reef_status reef_watch_new(reef_watch **out,
                           const reef_watch_options *options,
                           reef_incident_heard *heard,
                           void *context,
                           reef_error *err) {
    *out = NULL;
    if (!(options->budget >= 0.0) || options->budget > REEF_WATCH_BUDGET_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "a budget is a number of incidents a day, above 0");
    reef_watch *watch = calloc(1, sizeof(*watch));
    if (watch == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to watch lines");
    reef_watch_options *o = &watch->options;
    *o = *options;
    if (o->gap_s == 0) o->gap_s = 60;
    if (o->budget == 0.0) o->budget = 5.0;
    if (o->quiet_s == 0) o->quiet_s = 3600;
    if (o->forget_days == 0) o->forget_days = 30;
    reef_watch_options_set(watch);
    watch->incidents.heard = heard;
    watch->incidents.context = context;
    reef_status status = reef_line_types_init(&watch->types, err);
    if (status != REEF_OK) {
        free(watch);
        return status;
    }
    *out = watch;
    return REEF_OK;
}

void reef_watch_free(reef_watch *watch) {
    if (watch == NULL) return;
    reef_incidents_release(&watch->incidents);
    reef_line_types_release(&watch->types);
    for (uint32_t i = 0; i < watch->source_count; i++) free(watch->sources[i].file);
    free(watch->sources);
    free(watch);
}

reef_status reef_watch_add_source(reef_watch *watch, uint32_t *out, reef_error *err) {
    if (watch->source_count == REEF_WATCH_SOURCES_MAX)
        return reef_fail(err, REEF_ERR_FULL, "at most %d sources are watched",
                         REEF_WATCH_SOURCES_MAX);
    reef_watch_source *sources =
        realloc(watch->sources, (watch->source_count + 1) * sizeof(*sources));
    if (sources == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %u sources",
                         watch->source_count + 1);
    watch->sources = sources;
    sources[watch->source_count] = (reef_watch_source){0};
    *out = watch->source_count++;
    return REEF_OK;
}

// ---- events -------------------------------------------------------------------------------------

// What few lines of a source say is worth more.
static double bits_of_severity(const reef_watch_source *s, reef_severity severity) {
    if (severity == REEF_SEVERITY_NONE) return 0.0;
    double lines = 0.5;
    for (reef_severity i = severity; i <= REEF_SEVERITY_CRITICAL; i++) lines += s->severe[i];
    return fmin(SEVERITY_SHARE * reef_log2_down((s->lines + 1.0) / lines), SEVERITY_BITS_MAX);
}

// A person does not want to hear of this type of line.
static bool is_silenced(const reef_watch *w, const reef_line_type *type) {
    return type->decision == REEF_DECISION_NORMAL ||
           (type->decision == REEF_DECISION_MUTE && w->now_ms < type->muted_ms);
}

// Without memory for it the event is only counted, as one without memory for its line.
static void set_file(reef_event *event, const char *file) {
    if (reef_file_copy(&event->file, file)) return;
    free(event->line);
    event->line = NULL;
}

static reef_status tell(reef_watch *w, reef_event *event, reef_line_type *type, reef_error *err) {
    uint32_t index;
    type->event_token = -1;
    type->is_rate = event->news == REEF_NEWS_RATE;
    event->type = type->name;
    event->source = type->source;
    event->bits += bits_of_severity(&w->sources[type->source], event->severity);
    w->counts.events[event->news]++;
    reef_status status = reef_incidents_add(&w->incidents, event, &type->incident, &index, err);
    type->event = index;
    return status;
}

// ---- the clock ----------------------------------------------------------------------------------

static void skip(reef_watch *w, int64_t ms) {
    for (uint32_t i = 0; i < w->types.count; i++) reef_rhythm_skip(&w->types.types[i].rhythm, ms);
    for (uint32_t i = 0; i < w->source_count; i++) {
        reef_watch_source *s = &w->sources[i];
        if (s->first_ms == 0 || ms > 0) continue;
        s->first_ms += ms;
        s->news_ms += ms;
    }
}

// A status is missed where its type comes without it. Where its type stops that is one silence.
static bool stops_with_type(const reef_line_types *types, uint32_t variant) {
    const reef_line_type *type = reef_line_types_of(types, variant);
    return type != NULL && type->rhythm.last_ms <= types->types[variant].rhythm.last_ms;
}

static void note_silence(reef_line_types *types, uint32_t type) {
    for (uint32_t i = 0; i < types->count; i++)
        if (reef_line_types_of(types, i) == &types->types[type] && stops_with_type(types, i))
            types->types[i].rhythm.is_silent = true;
}

static reef_status find_silent(reef_watch *w, reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t i = 0; status == REEF_OK && i < w->types.count; i++) {
        reef_line_type *type = &w->types.types[i];
        reef_event event = {.news = REEF_NEWS_SILENCE};
        if (type->name == 0 || !w->sources[type->source].judged || is_silenced(w, type) ||
            stops_with_type(&w->types, i) ||
            !reef_rhythm_is_silent(&type->rhythm, w->now_ms, &event.bits) ||
            event.bits < EVENT_BITS)
            continue;
        note_silence(&w->types, i);
        event.first_ms = event.last_ms = w->now_ms;
        event.offset = type->offset;
        event.line_bytes = type->sample_bytes;
        event.line = reef_line_copy((const uint8_t *)type->sample, type->sample_bytes);
        set_file(&event, type->file);
        status = tell(w, &event, type, err);
    }
    return status;
}

static void forget(reef_watch *w) {
    const int64_t old = w->now_ms - (int64_t)w->options.forget_days * DAY_MS;
    for (uint32_t i = 0; i < w->types.count; i++)
        if (w->types.types[i].name != 0 && w->types.types[i].rhythm.last_ms < old &&
            w->types.types[i].decision == REEF_DECISION_NONE)
            reef_line_types_remove(&w->types, i);
}

// A clock that is set, or a line that only looks as if it had a time: another hour is believed once
// several lines in a row have it, or later ones. Nobody was silent meanwhile.
static int64_t believe(reef_watch *w, int64_t time_ms) {
    if (time_ms == 0) return w->now_ms;
    if (w->now_ms == 0 || llabs(time_ms - w->now_ms) <= HOUR_MS) {
        w->doubted = 0;
        return w->now_ms == 0 || time_ms > w->now_ms ? time_ms : w->now_ms;
    }
    bool as_before =
        (time_ms > w->now_ms) == (w->doubted_ms > w->now_ms) && time_ms - w->doubted_ms >= -HOUR_MS;
    w->doubted = as_before ? w->doubted + 1 : 1;
    w->doubted_ms = time_ms;
    if (w->doubted < DOUBTED_LINES) return w->now_ms;
    skip(w, time_ms - w->now_ms);
    w->doubted = 0;
    return time_ms;
}

static reef_status pass_time(reef_watch *w, reef_error *err) {
    reef_incidents_advance(&w->incidents, w->now_ms);
    if (w->now_ms / MINUTE_MS == w->minute) return REEF_OK;
    w->minute = w->now_ms / MINUTE_MS;
    reef_status status = find_silent(w, err);
    if (w->now_ms / DAY_MS == w->day) return status;
    w->day = w->now_ms / DAY_MS;
    forget(w);
    return status;
}

// ---- a line -------------------------------------------------------------------------------------

// Days pass, and news of long ago says less. A source is judged once nothing new came for a while.
static void count_line(const reef_watch *w,
                       reef_watch_source *s,
                       reef_severity severity,
                       uint32_t lines) {
    if (s->first_ms == 0) {
        s->first_ms = s->news_ms = w->now_ms;
        s->day = w->now_ms / DAY_MS;
    }
    for (; s->day < w->now_ms / DAY_MS && s->lines > 1e-3; s->day++) {
        s->lines *= DAILY;
        s->news *= DAILY;
        for (int i = 0; i <= REEF_SEVERITY_CRITICAL; i++) s->severe[i] *= DAILY;
    }
    s->day = w->now_ms / DAY_MS;
    s->lines += lines;
    s->recent_news *= 1.0 - 1.0 / RECENT_LINES;
    s->severe[severity] += lines;
    s->read++;
    int64_t quiet = (int64_t)w->options.quiet_s * 1000;
    if (w->now_ms == 0)
        s->judged = s->read >= TIMELESS_LINES;
    else if (w->options.since_ms > 0)
        s->judged = w->now_ms >= w->options.since_ms;
    else if (!s->judged && s->read >= SOURCE_LINES_MIN &&
             (w->now_ms - s->news_ms >= quiet || w->now_ms - s->first_ms >= DAY_MS))
        s->judged = true;
}

static bool is_digit(uint8_t byte) {
    return (uint8_t)(byte - '0') < 10;
}

/** A line that is judged. */
typedef struct judged {
    reef_watch_source *source;
    uint32_t number; // of its source
    const uint8_t *line;
    size_t count;
    uint64_t offset;
    reef_line_tokens tokens;
    reef_type_match match;
    uint32_t lines;  // that it is, or stands for
    bool is_repeats; // it stands for lines as the last one
    bool goes_on;    // it belongs to the record of the line before
    bool is_event, is_suppressed;
} judged;

// It is news: an event, unless a person does not want to hear of it, or its record is one already.
static bool is_told(const reef_watch *w, judged *j, const reef_line_type *type) {
    const reef_watch_source *s = j->source;
    if (!s->judged || (j->goes_on && s->record_in_event)) return false;
    const bool is_hidden = is_silenced(w, type) || (j->goes_on && s->record_silenced);
    *(is_hidden ? &j->is_suppressed : &j->is_event) = true;
    return j->is_event;
}

static reef_event event_of(const reef_watch *w, const judged *j, reef_news news, double bits) {
    const size_t shown =
        j->count < REEF_WATCH_SHOWN_BYTES_MAX ? j->count : REEF_WATCH_SHOWN_BYTES_MAX;
    reef_event event = {.news = news,
                        .severity = j->tokens.severity,
                        .offset = j->offset,
                        .first_ms = w->now_ms,
                        .last_ms = w->now_ms,
                        .count = j->lines,
                        .bits = bits,
                        .line = reef_line_copy(j->line, shown),
                        .line_bytes = shown};
    set_file(&event, j->source->file);
    return event;
}

// What lies behind the part that is shown is not marked.
static void mark(reef_event *event, const reef_token *token) {
    if ((size_t)token->at + token->bytes > REEF_WATCH_SHOWN_BYTES_MAX) return;
    event->new_at = token->at;
    event->new_bytes = token->bytes;
}

// Where most lines are new, neither that nor a word such as "error" means anything.
static bool is_noise(const reef_watch_source *s) {
    return s->recent_news > NOISE_LINES;
}

static reef_status judge_type(reef_watch *w, judged *j, reef_error *err) {
    reef_watch_source *s = j->source;
    // By what the source did of late, and by its last lines: a log that was begun says little new.
    const double bits = fmax(reef_log2_down((s->lines + 1.0) / (s->news + 0.5)),
                             reef_log2_down((RECENT_LINES + 1.0) / (s->recent_news + 0.5)));
    const reef_line_type *near =
        j->match.nearest == UINT32_MAX ? NULL : &w->types.types[j->match.nearest];
    const size_t nearest_bytes = near == NULL ? 0 : near->sample_bytes;
    char *nearest =
        near == NULL ? NULL : reef_line_copy((const uint8_t *)near->sample, nearest_bytes);
    s->news += 1.0;
    s->recent_news += 1.0;
    s->news_ms = w->now_ms;
    reef_status status = reef_line_types_add(&w->types, j->number, &j->tokens, j->line, j->count,
                                             &j->match.type, err);
    if (status != REEF_OK || bits < EVENT_BITS || is_noise(s) ||
        !is_told(w, j, &w->types.types[j->match.type])) {
        free(nearest);
        return status;
    }
    reef_event event = event_of(w, j, REEF_NEWS_TYPE, bits);
    event.nearest = nearest;
    event.nearest_bytes = nearest == NULL ? 0 : nearest_bytes;
    return tell(w, &event, &w->types.types[j->match.type], err);
}

static reef_status judge_word(reef_watch *w, judged *j, reef_error *err) {
    const bool number = is_digit(j->line[j->tokens.tokens[j->match.news].at]);
    if (j->match.bits < (number ? NUMBER_BITS : EVENT_BITS)) return REEF_OK;
    j->source->news_ms = w->now_ms;
    reef_line_type *type = &w->types.types[j->match.type];
    if (!is_told(w, j, type)) return REEF_OK;
    const reef_token *token = &j->tokens.tokens[j->match.news];
    reef_event event = event_of(w, j, REEF_NEWS_WORD, j->match.bits);
    mark(&event, token);
    reef_status status = tell(w, &event, type, err);
    type->event_token = j->match.news;
    type->event_word = token->hash;
    return status;
}

// Lines like this one may follow as a number of them.
static void note_last(reef_watch *w, reef_watch_source *s, uint32_t number) {
    if (s->last_count == REEF_LAST_TYPES_MAX) return;
    s->last[s->last_count++] = (reef_named_type){number, w->types.types[number].name};
}

static bool is_known(const reef_watch *w, const reef_named_type *last) {
    return last->type < w->types.count && last->name != 0 &&
           w->types.types[last->type].name == last->name;
}

// token  whose number makes it a variant of its type; -1: none
static reef_status count_rate(
    reef_watch *w, judged *j, uint32_t number, int token, reef_error *err) {
    double bits = 0.0;
    reef_line_type *type = &w->types.types[number];
    bool rises = reef_rhythm_count(&type->rhythm, j->lines, w->now_ms, &bits);
    type->offset = j->offset;
    if (!reef_file_copy(&type->file, j->source->file))
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the name of a file");
    if (!rises || bits < EVENT_BITS || j->is_event || !is_told(w, j, type)) return REEF_OK;
    reef_event event = event_of(w, j, REEF_NEWS_RATE, bits);
    if (token >= 0) mark(&event, &j->tokens.tokens[token]);
    if (j->is_repeats) {
        event.severity = j->source->last_severity;
        event.nearest = reef_line_copy((const uint8_t *)type->sample, type->sample_bytes);
        event.nearest_bytes = event.nearest == NULL ? 0 : type->sample_bytes;
    }
    return tell(w, &event, type, err);
}

static reef_status judge_rate(reef_watch *w, judged *j, reef_error *err) {
    const uint32_t type = j->match.type;
    reef_status status = count_rate(w, j, type, -1, err);
    j->source->last_count = 0;
    note_last(w, j->source, type);
    for (size_t i = 0; status == REEF_OK && i < j->tokens.count; i++) {
        const reef_token *token = &j->tokens.tokens[i];
        uint32_t variant;
        if (token->bytes != STATUS_DIGITS || token->hash == REEF_TOKEN_VARIABLE ||
            !is_digit(j->line[token->at]) || reef_place_is_value(&w->types.types[type], i))
            continue;
        status = reef_line_types_variant(&w->types, type, i, token->hash, &variant, err);
        if (status != REEF_OK || variant == UINT32_MAX) continue;
        note_last(w, j->source, variant);
        status = count_rate(w, j, variant, (int)i, err);
    }
    return status;
}

// A number of lines as the last one. Their type is no news, but how many they are may be.
static reef_status judge_repeats(reef_watch *w, judged *j, reef_error *err) {
    const reef_watch_source *s = j->source;
    reef_status status = REEF_OK;
    w->types.types[j->match.type].lines += j->lines;
    for (uint32_t i = 0; status == REEF_OK && i < s->last_count; i++)
        if (is_known(w, &s->last[i])) status = count_rate(w, j, s->last[i].type, -1, err);
    return status;
}

// An error that is known, but came seldom: it may be what went wrong the last time. Or one that is
// new where so much is new that this alone is no event. What a person called a fault rings whenever
// it comes again.
static reef_status judge_again(reef_watch *w, judged *j, reef_error *err) {
    const reef_watch_source *s = j->source;
    reef_line_type *type = &w->types.types[j->match.type];
    const bool is_fault = type->decision == REEF_DECISION_FAULT;
    const bool came = type->rhythm.first_ms > 0;
    const bool is_seldom = j->tokens.severity >= REEF_SEVERITY_ERROR &&
                           w->now_ms - type->rhythm.last_ms >= DAY_MS &&
                           type->rhythm.days < AGAIN_DAYS_MAX;
    if (j->is_event || (!is_fault && (!is_seldom || (!came && is_noise(s))))) return REEF_OK;
    double bits = is_fault ? FAULT_BITS : reef_log2_down((s->lines + 1.0) / (double)type->lines);
    if (bits < EVENT_BITS || !is_told(w, j, type)) return REEF_OK;
    reef_event event = event_of(w, j, came ? REEF_NEWS_AGAIN : REEF_NEWS_TYPE, bits);
    return tell(w, &event, type, err);
}

// Said once, and again when it was not so for as long as makes a type of line new again.
static reef_status judge_noise(reef_watch *w, judged *j, reef_error *err) {
    reef_watch_source *s = j->source;
    if (s->noisy && w->now_ms - s->noise_ms > (int64_t)w->options.forget_days * DAY_MS)
        s->noisy = false;
    if (!is_noise(s)) return REEF_OK;
    s->noise_ms = w->now_ms;
    reef_line_type *type = &w->types.types[j->match.type];
    if (s->noisy || j->is_event || !is_told(w, j, type)) return REEF_OK;
    s->noisy = true;
    reef_event event = event_of(w, j, REEF_NEWS_NOISE, NOISE_BITS);
    reef_status status = tell(w, &event, type, err);
    s->noise_incident = type->incident;
    s->noise_event = type->event;
    return status;
}

// The open incident of whose event it is one more line; NULL: none.
static reef_open_incident *repeated(reef_watch *w, const judged *j, uint32_t *event) {
    const reef_watch_source *s = j->source;
    *event = s->noise_event;
    if (j->match.type == UINT32_MAX)
        return s->noisy && is_noise(s) && *event != UINT32_MAX
                   ? reef_incidents_find(&w->incidents, s->noise_incident)
                   : NULL;
    const reef_line_type *type = &w->types.types[j->match.type];
    *event = type->event;
    bool is_more =
        j->is_repeats ? j->source->last_in_event
        : type->is_rate
            ? type->rhythm.is_rising
            : type->event_token < 0 || j->tokens.tokens[type->event_token].hash == type->event_word;
    if (!is_more || *event == UINT32_MAX) return NULL;
    return reef_incidents_find(&w->incidents, type->incident);
}

static reef_status judge_line(reef_watch *w, judged *j, bool is_repeated, reef_error *err) {
    reef_status status = REEF_OK;
    if (j->match.type == UINT32_MAX)
        status = judge_type(w, j, err);
    else if (j->match.news >= 0)
        status = judge_word(w, j, err);
    if (status == REEF_OK && !is_repeated) status = judge_again(w, j, err);
    if (status == REEF_OK) status = judge_noise(w, j, err);
    return status == REEF_OK ? judge_rate(w, j, err) : status;
}

// Times stand at the head of records. Where they have none, only what is indented goes on.
static bool goes_on(const reef_watch_source *s, const judged *j, const reef_line_head *head) {
    const bool is_indented = j->count > 0 && (j->line[0] == ' ' || j->line[0] == '\t');
    return s->record_lines > 0 && s->record_lines < RECORD_LINES_MAX && head->time_bytes == 0 &&
           (is_indented || s->record_timed);
}

static void note_record(const reef_watch *w, const judged *j, bool in_event, bool timed) {
    reef_watch_source *s = j->source;
    s->record_in_event = in_event || (j->goes_on && s->record_in_event);
    s->record_lines = j->goes_on ? s->record_lines + 1 : 1;
    if (j->goes_on) return;
    s->record_timed = timed;
    s->record_silenced = is_silenced(w, &w->types.types[j->match.type]);
}

// A line that stands for so many as the last one is not judged as a line of its own.
static void read_repeats(const reef_watch *w, judged *j) {
    const reef_watch_source *s = j->source;
    const uint32_t repeats = reef_line_repeats(j->line, j->count, &j->tokens);
    j->lines = 1;
    j->is_repeats = repeats > 0 && s->last_count > 0 && is_known(w, &s->last[0]);
    if (!j->is_repeats) return;
    j->lines = repeats;
    j->match = (reef_type_match){.type = s->last[0].type, .nearest = UINT32_MAX, .news = -1};
}

reef_status reef_watch_line(reef_watch *w,
                            uint32_t number,
                            const uint8_t *line,
                            size_t count,
                            uint64_t offset,
                            int64_t time_ms,
                            reef_error *err) {
    reef_line_head head;
    judged j = {.source = &w->sources[number], .number = number, .line = line, .offset = offset};
    j.count = count < REEF_WATCH_LINE_BYTES_MAX ? count : REEF_WATCH_LINE_BYTES_MAX;
    w->now_ms = believe(w, time_ms);
    reef_status status = pass_time(w, err);
    if (status != REEF_OK) return status;
    reef_line_head_read(line, j.count, w->now_ms, &head);
    reef_line_tokens_read(line, j.count, &head, &j.tokens);
    read_repeats(w, &j);
    j.goes_on = goes_on(j.source, &j, &head);
    const bool is_part = j.goes_on && j.source->record_in_event;
    count_line(w, j.source, j.is_repeats ? j.source->last_severity : j.tokens.severity, j.lines);
    if (!j.is_repeats) reef_line_types_find(&w->types, number, &j.tokens, &j.match);
    uint32_t event;
    reef_open_incident *open = repeated(w, &j, &event);
    const uint64_t number_of_open = open != NULL ? open->incident.number : 0;
    status = j.is_repeats ? judge_repeats(w, &j, err) : judge_line(w, &j, open != NULL, err);
    if (status != REEF_OK) return status;
    if (open != NULL && !j.is_event && open->incident.number == number_of_open)
        reef_incidents_repeat(open, event, j.lines, w->now_ms);
    if (!j.is_repeats) j.source->last_severity = j.tokens.severity;
    j.source->last_in_event = j.is_event || open != NULL;
    note_record(w, &j, j.source->last_in_event, head.time_bytes > 0);
    w->counts.lines++;
    *(j.is_event || open != NULL || is_part ? &w->counts.in_events
      : j.is_suppressed                     ? &w->counts.suppressed
                                            : &w->counts.usual) += 1;
    w->counts.learning += !j.source->judged;
    return REEF_OK;
}

reef_status reef_watch_decide(reef_watch *w,
                              uint64_t incident,
                              reef_decision decision,
                              uint64_t for_s,
                              size_t *types,
                              int64_t *until_ms,
                              reef_error *err) {
    const int64_t muted_ms = decision == REEF_DECISION_MUTE ? w->now_ms + (int64_t)for_s * 1000 : 0;
    *types = 0;
    *until_ms = w->now_ms != 0 ? muted_ms : 0;
    const reef_told_incident *told = reef_incidents_told(&w->incidents, incident);
    if (decision <= REEF_DECISION_NONE || decision >= REEF_DECISION_COUNT)
        return reef_fail(err, REEF_ERR_INVALID, "a decision is normal, mute or fault");
    if (told == NULL)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "incident %llu never rang, or is not among the last %d that did",
                         (unsigned long long)incident, REEF_TOLD_MAX);
    for (uint32_t i = 0; i < w->types.count; i++) {
        reef_line_type *type = &w->types.types[i];
        bool is_one = false;
        for (uint32_t t = 0; t < told->type_count; t++) is_one |= told->types[t] == type->name;
        if (type->name == 0 || !is_one) continue;
        type->decision = decision;
        type->muted_ms = muted_ms;
        ++*types;
    }
    return REEF_OK;
}

static reef_status check_change(const reef_watch_options *change, reef_error *err) {
    // Negated, so that NaN is refused too.
    if (!(change->budget >= 0.0 && change->budget <= REEF_WATCH_BUDGET_MAX))
        return reef_fail(err, REEF_ERR_INVALID,
                         "a budget is above 0 and at most %.0f a day, not %g",
                         REEF_WATCH_BUDGET_MAX, change->budget);
    if (change->gap_s > REEF_WATCH_GAP_S_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "a gap is 1 to %u seconds, not %u",
                         REEF_WATCH_GAP_S_MAX, change->gap_s);
    if (change->quiet_s > REEF_WATCH_QUIET_S_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "quiet is 1 to %u seconds, not %u",
                         REEF_WATCH_QUIET_S_MAX, change->quiet_s);
    if (change->forget_days > REEF_WATCH_FORGET_DAYS_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "forget is 1 to %u days, not %u",
                         REEF_WATCH_FORGET_DAYS_MAX, change->forget_days);
    if (change->budget == 0.0 && change->gap_s == 0 && change->quiet_s == 0 &&
        change->forget_days == 0)
        return reef_fail(err, REEF_ERR_INVALID, "no budget, gap, quiet or forget above 0 is given");
    return REEF_OK;
}

reef_status reef_watch_change(reef_watch *w, const reef_watch_options *change, reef_error *err) {
    reef_status status = check_change(change, err);
    if (status != REEF_OK) return status;
    if (change->budget > 0.0) w->options.budget = change->budget;
    if (change->gap_s > 0) w->options.gap_s = change->gap_s;
    if (change->quiet_s > 0) w->options.quiet_s = change->quiet_s;
    if (change->forget_days > 0) w->options.forget_days = change->forget_days;
    reef_watch_options_set(w);
    return REEF_OK;
}

void reef_watch_read_options(const reef_watch *watch, reef_watch_options *out) {
    *out = watch->options;
}

void reef_watch_finish(reef_watch *watch) {
    reef_incidents_end(&watch->incidents);
}

void reef_watch_read_counts(const reef_watch *watch, reef_watch_counts *out) {
    *out = watch->counts;
    out->incidents = watch->incidents.number;
    out->rung = watch->incidents.rung;
    for (size_t i = 0; i < REEF_INCIDENTS_OPEN_MAX; i++)
        out->open +=
            watch->incidents.open[i].incident.rings && watch->incidents.open[i].incident.is_open;
    out->types = watch->types.count;
}
