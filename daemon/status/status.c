// Status and progress; see status.h. Everything comes from one copy of the trainer's view, so the
// figures of one reply belong together.
#include "status.h"
#include "alarms.h"
#include "crew.h"
#include "joins.h"

#include "reef_kernels.h"
#include "reef_pool_check.h"
#include "reef_pool_json.h"
#include "reef_watch_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct totals {
    uint64_t accepted;    // bytes of all sources, since ever
    uint64_t file_bytes;  // sizes of the sources that have one
    uint64_t file_cursor; // how much of those was accepted
    bool unknown_left;    // a source whose end nobody knows has not ended
} totals;

static totals sum_up(const reef_status_view *monitor) {
    totals sum = {0};
    for (size_t i = 0; i < monitor->source_count; i++) {
        uint64_t cursor = monitor->progress[i].cursor;
        sum.accepted += cursor;
        // A live source never ends, so its remainder is unknown.
        sum.unknown_left |= monitor->sources[i].kind->live; // whatever size it has by now
        if (monitor->sources[i].bytes == REEF_BYTES_UNKNOWN) {
            sum.unknown_left |= !monitor->progress[i].ended;
            continue;
        }
        // Only files have a size that progress can be a share of.
        sum.file_bytes += monitor->sources[i].bytes;
        sum.file_cursor += cursor;
    }
    return sum;
}

void reef_status_view_sample(reef_status_view *monitor) {
    reef_training_view view;
    reef_training_view_read(monitor->training, &view, monitor->progress);
    size_t slot = monitor->sample_count++ % REEF_RATE_SAMPLES;
    monitor->samples[slot].ns = uv_hrtime();
    monitor->samples[slot].accepted = sum_up(monitor).accepted;
    for (size_t i = 0; i < monitor->source_count; i++)
        monitor->samples[slot].cursors[i] = monitor->progress[i].cursor;
}

#define ALL_SOURCES SIZE_MAX

static double bytes_per_second(const reef_status_view *monitor, size_t source) {
    if (monitor->sample_count < 2) return 0;
    size_t newest = (monitor->sample_count - 1) % REEF_RATE_SAMPLES;
    size_t oldest =
        monitor->sample_count <= REEF_RATE_SAMPLES ? 0 : monitor->sample_count % REEF_RATE_SAMPLES;
    double seconds = (double)(monitor->samples[newest].ns - monitor->samples[oldest].ns) / 1e9;
    uint64_t bytes =
        source == ALL_SOURCES
            ? monitor->samples[newest].accepted - monitor->samples[oldest].accepted
            : monitor->samples[newest].cursors[source] - monitor->samples[oldest].cursors[source];
    return (double)bytes / seconds;
}

// Seconds until the sources end, or NAN.
static double seconds_left(const totals *sum, double rate) {
    if (sum->unknown_left || rate <= 0 || sum->file_bytes < sum->file_cursor) return NAN;
    return (double)(sum->file_bytes - sum->file_cursor) / rate;
}

// Members that a kind of source has to say of itself come last and replace nothing.
static json_t *source_json(const reef_status_view *monitor, size_t i) {
    const reef_input *source = &monitor->sources[i];
    const reef_progress *progress = &monitor->progress[i];
    bool known = source->bytes != REEF_BYTES_UNKNOWN;
    // A source may shrink; a lag is never negative.
    uint64_t lag = known && source->bytes > progress->cursor ? source->bytes - progress->cursor : 0;
    json_t *one = json_object();
    json_object_set_new(one, "name", reef_json_text(source->name));
    json_object_set_new(one, "kind", json_string(source->kind->scheme));
    json_object_set_new(one, "cursor", reef_json_count(progress->cursor));
    json_object_set_new(one, "bytes", reef_json_known(known, source->bytes));
    json_object_set_new(one, "lag_bytes", reef_json_known(known, lag));
    json_object_set_new(one, "bytes_per_s", reef_json_number(bytes_per_second(monitor, i)));
    json_object_set_new(one, "weight", json_integer(source->weight));
    json_object_set_new(one, "sits_out", json_boolean(progress->idle));
    json_object_set_new(one, "ended", json_boolean(progress->ended));
    bool scored = progress->loss.scored > 0;
    json_object_set_new(one, "bits_per_byte",
                        reef_json_number(scored ? progress->loss.recent : (double)NAN));
    // A kind may add members, but cannot replace the common ones.
    json_t *own = source->kind->status != NULL ? source->kind->status(source) : NULL;
    if (own != NULL) (void)json_object_update_missing(one, own);
    json_decref(own);
    return one;
}

static json_t *sources_json(const reef_status_view *monitor) {
    json_t *list = json_array();
    for (size_t i = 0; i < monitor->source_count; i++)
        json_array_append_new(list, source_json(monitor, i));
    return list;
}

static void set_trainer_fields(json_t *object, const reef_trainer_status *status) {
// Fields and members have equal names, and the macro writes both. Two members keep names that are
// older than the fields'.
#define SET_COUNT(field) json_object_set_new(object, #field, reef_json_count(status->field))
#define SET_NUMBER(field) json_object_set_new(object, #field, reef_json_number(status->field))
    SET_COUNT(step);
    SET_COUNT(stream_bytes);
    json_object_set_new(object, "carried_bytes", reef_json_count(status->pending_bytes));
    if (!status->learns_all) SET_COUNT(not_learned_bytes);
    SET_COUNT(visited_bytes);
    SET_COUNT(generation);
    SET_COUNT(generation_step);
    SET_COUNT(kind);
    json_object_set_new(object, "kind_name",
                        status->kind_name[0] ? json_string(status->kind_name) : json_null());
    SET_COUNT(kinds);
    SET_COUNT(opened_at);
    SET_NUMBER(learning_rate);
    SET_COUNT(experts);
    SET_COUNT(experts_open);
    SET_COUNT(dirty_since_step);
    SET_NUMBER(seconds_forward);
    SET_NUMBER(seconds_backward);
    SET_NUMBER(seconds_router);
    SET_NUMBER(seconds_experts);
    SET_NUMBER(seconds_update);
    SET_NUMBER(seconds_commit);
#undef SET_NUMBER
#undef SET_COUNT
}

// Null in a pool without context memories.
static json_t *memory_json(const reef_memory_status *memory) {
    if (memory->stats.bytes_max == 0) return json_null();
    json_t *object = reef_memory_stats_json(&memory->stats);
    json_object_set_new(object, "inputs", reef_memory_inputs_json(memory->shares, memory->hits));
    return object;
}

// Null in a pool that watches no lines.
static json_t *watch_json(const reef_trainer_status *status) {
    const reef_watch_counts *watch = &status->watch;
    if (!status->watches) return json_null();
    json_t *events = json_object();
    json_t *object = reef_watch_options_json(&status->watch_options);
#define SET_COUNT(field) json_object_set_new(object, #field, reef_json_count(watch->field))
    SET_COUNT(lines);
    SET_COUNT(usual);
    SET_COUNT(in_events);
    SET_COUNT(suppressed);
    SET_COUNT(learning);
    SET_COUNT(types);
    SET_COUNT(incidents);
    SET_COUNT(rung);
    SET_COUNT(open);
#undef SET_COUNT
    for (reef_news news = 0; news < REEF_NEWS_COUNT; news++)
        json_object_set_new(events, reef_news_name(news), reef_json_count(watch->events[news]));
    json_object_set_new(object, "events", events);
    return object;
}

static json_t *refusals_json(const reef_status_view *monitor) {
    json_t *object = json_object();
    for (size_t i = 0; i < REEF_PUSH_REFUSALS; i++)
        json_object_set_new(object, reef_push_refusal_names[i],
                            reef_json_count(monitor->push_refusals[i]));
    return object;
}

// Null where alarms go nowhere.
static json_t *alarms_json(const reef_status_view *monitor) {
    if (monitor->alarms == NULL) return json_null();
    json_t *object = json_object();
    for (reef_alarm_way way = 0; way < REEF_ALARM_WAY_COUNT; way++) {
        reef_alarm_view view;
        reef_alarms_view_read(monitor->alarms, way, &view);
        if (!view.used) continue;
        json_t *one =
            json_pack("{s:o, s:o, s:o, s:o, s:o}", "delivered", reef_json_count(view.delivered),
                      "failures", reef_json_count(view.failures), "refused",
                      reef_json_count(view.refused), "past", reef_json_count(view.past), "error",
                      view.error[0] != '\0' ? reef_json_text(view.error) : json_null());
        json_object_set_new(object, reef_alarm_way_name(way), one);
    }
    return object;
}

static json_t *scrub_json(const reef_status_view *monitor) {
    reef_scrubber_view view;
    reef_scrubber_view_read(monitor->scrubber, &view);
    // Progress of the present pass, and the result of the last one.
    const reef_scrub *scrub = &view.scrub;
    json_t *object = reef_scrub_json(scrub);
    json_object_set_new(object, "rate", reef_json_count(view.rate));
    json_object_set_new(object, "began_ms", reef_json_count(scrub->began_ms));
    json_object_set_new(object, "damage_count", reef_json_count(view.damage_count));
    // "damage" is null where nothing is damaged or failing.
    json_object_set_new(object, "damage",
                        view.damage[0] ? reef_json_text(view.damage) : json_null());
    json_object_set_new(object, "error",
                        view.failing[0] ? reef_json_text(view.failing) : json_null());
    return object;
}

// A number for JSON and for metrics, where it may not be known.
double reef_status_view_file_bytes(const reef_status_view *monitor) {
    char path[4096];
    struct stat info;
    int bytes = snprintf(path, sizeof(path), "%s/data.mdb", monitor->pool);
    if (bytes < 0 || (size_t)bytes >= sizeof(path) || stat(path, &info) != 0) return (double)NAN;
    return (double)info.st_size;
}

double reef_status_view_resident_bytes(void) {
    unsigned long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    int fields = file != NULL ? fscanf(file, "%lu %lu", &pages, &resident) : 0;
    if (file != NULL) fclose(file);
    return fields == 2 ? (double)resident * (double)sysconf(_SC_PAGESIZE) : (double)NAN;
}

static json_t *bytes_json(double bytes) {
    return isnan(bytes) ? json_null() : reef_json_count((uint64_t)bytes);
}

json_t *reef_status_view_status(reef_status_view *monitor) {
    reef_training_view view;
    // Training's view is copied under its lock; everything below works on the copy.
    reef_training_view_read(monitor->training, &view, monitor->progress);
    totals sum = sum_up(monitor);
    double rate = bytes_per_second(monitor, ALL_SOURCES);
    json_t *object = json_object();
    json_object_set_new(object, "pool", reef_json_text(monitor->pool));
    json_object_set_new(object, "pid", json_integer(getpid()));
    json_object_set_new(object, "version", json_string(REEF_VERSION_TEXT));
    json_object_set_new(object, "state", json_string(reef_training_state_text(view.state)));
    json_object_set_new(object, "uptime_s",
                        reef_json_number((double)(uv_hrtime() - monitor->started_ns) / 1e9));
    json_object_set_new(object, "threads", reef_json_count(monitor->threads));
    json_object_set_new(object, "kernels", json_string(reef_kernels_name()));
    json_object_set_new(object, "http",
                        monitor->http != NULL ? json_string(monitor->http) : json_null());
    json_object_set_new(object, "sources", sources_json(monitor));
    json_object_set_new(object, "queue_bytes", reef_json_count(view.queue_bytes));
    json_object_set_new(object, "bytes_per_s", reef_json_number(rate));
    // No estimate while a live source is open: the stream has no end.
    json_object_set_new(object, "eta_s", reef_json_number(seconds_left(&sum, rate)));
    // Members of the trainer first, then of the last commit, then of the process.
    set_trainer_fields(object, &view.trainer);
    json_object_set_new(object, "bits_per_byte", reef_json_number(view.trainer.bits_per_byte));
    json_object_set_new(object, "last_bits_per_byte",
                        reef_json_number(view.trainer.last_bits_per_byte));
    json_object_set_new(object, "context_memory", memory_json(&view.trainer.memory));
    json_object_set_new(object, "kind_memory", memory_json(&view.trainer.kind_memory));
    json_object_set_new(object, "watch", watch_json(&view.trainer));
    json_object_set_new(object, "last_commit", reef_commit_view_json(&view.last));
    json_object_set_new(object, "commit_error",
                        view.failing[0] ? reef_json_text(view.failing) : json_null());
    json_object_set_new(object, "pool_file_bytes",
                        bytes_json(reef_status_view_file_bytes(monitor)));
    json_object_set_new(object, "resident_bytes", bytes_json(reef_status_view_resident_bytes()));
    json_object_set_new(object, "push_refusals", refusals_json(monitor));
    json_object_set_new(object, "alarms", alarms_json(monitor));
    json_object_set_new(object, "scrub", scrub_json(monitor));
    // A process alone has no such member.
    json_t *ranks = reef_crew_json(monitor->crew);
    if (ranks != NULL) json_object_set_new(object, "ranks", ranks);
    json_t *joins = reef_joins_json(monitor->joins);
    if (joins != NULL) json_object_set_new(object, "joins", joins);
    return object;
}

// ---- for people ---------------------------------------------------------------------------------

static void format_bytes(char *out, size_t room, double bytes) {
    static const char *const UNITS[] = {"B", "kB", "MB", "GB", "TB"};
    size_t unit = 0;
    for (; bytes >= 999.5 && unit < 4; unit++) bytes /= 1000;
    snprintf(out, room, unit && bytes < 99.5 ? "%.1f %s" : "%.0f %s", bytes, UNITS[unit]);
}

static void format_left(char *out, size_t room, double seconds) {
    if (isnan(seconds) || seconds > 1e7) {
        snprintf(out, room, "unknown");
        return;
    }
    uint64_t left = (uint64_t)seconds;
    if (left >= 3600)
        snprintf(out, room, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, left / 3600, left / 60 % 60,
                 left % 60);
    else
        snprintf(out, room, "%" PRIu64 ":%02" PRIu64, left / 60, left % 60);
}

// "45 % of 1.3 MB" when every source has a size, "0.6 MB" otherwise.
static void format_share(char *out, size_t room, const totals *sum) {
    char bytes[16];
    bool sized = sum->file_bytes && sum->file_cursor == sum->accepted;
    format_bytes(bytes, sizeof(bytes), (double)(sized ? sum->file_bytes : sum->accepted));
    if (sized)
        snprintf(out, room, "%.0f %% of %s",
                 floor(100.0 * (double)sum->file_cursor / (double)sum->file_bytes), bytes);
    else
        snprintf(out, room, "%s", bytes);
}

// The state comes first and the least important last, because a narrow terminal cuts the end off.
void reef_status_view_line(reef_status_view *monitor, char *out, size_t room) {
    reef_training_view view;
    reef_training_view_read(monitor->training, &view, monitor->progress);
    // The same totals as in the status, cut to one line.
    totals sum = sum_up(monitor);
    // One that waits has no speed: a mean that dies away would make new lines of nothing new.
    const bool waits = view.state == REEF_STATE_WAITING;
    double rate = waits ? 0 : bytes_per_second(monitor, ALL_SOURCES);
    char share[64], speed[16], left[32];
    format_share(share, sizeof(share), &sum);
    format_bytes(speed, sizeof(speed), rate);
    format_left(left, sizeof(left), seconds_left(&sum, rate));
    char loss[48];
    // Before the first batch no loss is known.
    if (isnan(view.trainer.bits_per_byte))
        snprintf(loss, sizeof(loss), "no loss yet");
    else
        snprintf(loss, sizeof(loss), "%.2f bits/byte", view.trainer.bits_per_byte);
    snprintf(out, room, "%s%s, generation %" PRIu32 ", %s, %s/s, eta %s, %s, step %" PRIu64,
             reef_training_state_text(view.state), view.failing[0] ? ", commit failing" : "",
             view.trainer.generation, share, speed, left, loss, view.trainer.step);
}

json_t *reef_commit_view_json(const reef_commit_view *view) {
    json_t *object = reef_commit_json(&view->commit);
    json_object_set_new(object, "ms", reef_json_number(view->ms));
    return object;
}
