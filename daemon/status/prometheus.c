// Metrics for Prometheus; see status.h. Names end in their unit, base units only; nothing is
// labelled by expert, and no text of the stream is shown. Labels are few: sources, generations,
// kinds, states of experts, phases of a step.
//
// A counter begins at 0 with the process, or counts what is committed. One that fell back to the
// last commit after a crash would look like a reset, and all that was ever trained would count
// again.
#include "status.h"

#include "alarms.h"
#include "crew.h"
#include "joins.h"
#include "push.h"
#include "reef_kernels.h"
#include "syslog_counts.h"
#include "tail.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define NO_LIST NULL, NULL
#define COUNT_MAX 9e15 // up to here a double has every whole number

static void prometheus_head(FILE *out, const char *name, const char *kind, const char *help) {
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

static void number(FILE *out, double value) {
    if (isnan(value))
        fputs("NaN\n", out);
    else if (value == floor(value) && fabs(value) < COUNT_MAX)
        fprintf(out, "%.0f\n", value); // a count, to its last digit
    else
        fprintf(out, "%.12g\n", value);
}

static void gauge(FILE *out, const char *name, const char *help, double value) {
    prometheus_head(out, name, "gauge", help);
    fprintf(out, "%s ", name);
    number(out, value);
}

static void counter(FILE *out, const char *name, const char *help, uint64_t value) {
    prometheus_head(out, name, "counter", help);
    fprintf(out, "%s %" PRIu64 "\n", name, value);
}

// A label's value: quotes, backslashes and ends of lines are escaped.
static void labelled(FILE *out, const char *name, const char *label, const char *value) {
    fprintf(out, "%s{%s=\"", name, label);
    for (const char *at = value; *at; at++) {
        if (*at == '\n')
            fputs("\\n", out);
        else if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else
            fputc(*at, out);
    }
    fputs("\"} ", out);
}

// One family, with a sample for each value of its label.
static void family(FILE *out,
                   const char *name,
                   const char *kind,
                   const char *help,
                   const char *label,
                   size_t count,
                   const char *const *labels,
                   const double *values) {
    prometheus_head(out, name, kind, help);
    for (size_t i = 0; i < count; i++) {
        labelled(out, name, label, labels[i]);
        number(out, values[i]);
    }
}

// What is known of one source; NAN: nothing, and no sample of it.
typedef struct source_figures {
    double read, lag, loss, scored, loss_sum;
    double zeros, lost, unfit;                                   // of followed files
    double batches, records, duplicates, refused, busy, journal; // of one that is pushed into
    double dropped, denied, cut, connections;                    // of syslog
} source_figures;

static source_figures figures_of(const reef_status_view *monitor, size_t i) {
    const reef_progress *progress = &monitor->progress[i];
    const double none = (double)NAN;
    uint64_t bytes = monitor->sources[i].bytes, cursor = progress->cursor;
    bool sized = bytes != REEF_BYTES_UNKNOWN;
    reef_push_counts counts;
    reef_tail_losses losses;
    bool followed = reef_tail_losses_of(&monitor->sources[i], &losses);
    bool pushed = reef_push_counts_read(&monitor->sources[i], &counts);
    reef_syslog_counts syslog;
    bool logged = reef_syslog_counts_read(&monitor->sources[i], &syslog);
    return (source_figures){
        .read = (double)progress->committed,
        .lag = !sized           ? none
               : bytes > cursor ? (double)(bytes - cursor)
                                : 0,
        .loss = progress->loss.scored ? progress->loss.recent : none,
        .scored = (double)progress->loss.scored,
        .loss_sum = progress->loss.sum,
        .zeros = followed ? (double)losses.zero_bytes : none,
        .lost = followed ? (double)losses.lost_bytes : none,
        .unfit = followed ? (double)losses.refused : none,
        .batches = pushed ? (double)counts.batches : none,
        .records = pushed ? (double)counts.records : none,
        .duplicates = pushed ? (double)counts.duplicates : none,
        .refused = pushed ? (double)counts.refused : none,
        .busy = pushed ? (double)counts.busy : none,
        .journal = pushed ? (double)counts.journal_bytes : none,
        .dropped = logged ? (double)syslog.dropped : none,
        .denied = logged ? (double)syslog.denied : none,
        .cut = logged ? (double)syslog.cut : none,
        .connections = logged ? (double)syslog.connections : none,
    };
}

// Samples of a family stand together; one without any is left out.
static void write_sources(FILE *out, const reef_status_view *monitor) {
#define AT(field) offsetof(source_figures, field)
    static const struct {
        const char *name, *kind, *help;
        size_t at;
    } FAMILIES[] = {
        {"reef_source_read_bytes_total", "counter",
         "Bytes of a source that are in a commit, since ever.", AT(read)},
        {"reef_source_lag_bytes", "gauge", "Bytes of a source that are there and not accepted yet.",
         AT(lag)},
        {"reef_source_zero_bytes_total", "counter",
         "NUL bytes of followed files that were passed over, since the process started.",
         AT(zeros)},
        {"reef_source_lost_bytes_total", "counter",
         "Bytes of followed files that went before they were read, since the process started.",
         AT(lost)},
        {"reef_source_files_refused", "gauge", "Followed files that are no text and are not read.",
         AT(unfit)},
        {"reef_push_batches_total", "counter",
         "Pushed batches that were journalled, since the process started.", AT(batches)},
        {"reef_push_records_total", "counter", "Records in these: lines.", AT(records)},
        {"reef_push_duplicates_total", "counter",
         "Pushed batches that were there already and were dropped, since the process started.",
         AT(duplicates)},
        {"reef_push_refused_total", "counter",
         "Pushed batches that were refused for any reason, since the process started.",
         AT(refused)},
        {"reef_push_busy_total", "counter",
         "Of these, batches that were refused because too much waited, or the daemon ended.",
         AT(busy)},
        {"reef_push_journal_bytes", "gauge",
         "Pushed bytes that wait in the journal for the commit that takes them.", AT(journal)},
        {"reef_syslog_dropped_total", "counter",
         "Messages that came faster than they were journalled, since the process started.",
         AT(dropped)},
        {"reef_syslog_denied_total", "counter",
         "Messages, of TCP connections, that were refused, since the process started.", AT(denied)},
        {"reef_syslog_cut_total", "counter",
         "Messages that were taken in part, since the process started.", AT(cut)},
        {"reef_syslog_connections", "gauge", "TCP connections that are open.", AT(connections)},
        {"reef_source_loss", "gauge",
         "Bits per byte of a source before it was learned, recent mean.", AT(loss)},
        {"reef_source_scored_bytes_total", "counter",
         "How much of a source has a loss, since the process started.", AT(scored)},
        {"reef_source_loss_sum_total", "counter",
         "Bits that these took, since the process started.", AT(loss_sum)},
    };
#undef AT
    for (size_t f = 0; f < COUNT(FAMILIES); f++) {
        bool begun = false;
        for (size_t i = 0; i < monitor->source_count; i++) {
            double value;
            const source_figures figures = figures_of(monitor, i);
            memcpy(&value, (const char *)&figures + FAMILIES[f].at, sizeof(value));
            if (isnan(value)) continue;
            if (!begun) prometheus_head(out, FAMILIES[f].name, FAMILIES[f].kind, FAMILIES[f].help);
            begun = true;
            labelled(out, FAMILIES[f].name, "source", monitor->sources[i].name);
            number(out, value);
        }
    }
}

static void write_refusals(FILE *out, const reef_status_view *monitor) {
    double counts[REEF_PUSH_REFUSALS];
    for (size_t i = 0; i < REEF_PUSH_REFUSALS; i++) counts[i] = (double)monitor->push_refusals[i];
    family(out, "reef_push_refusals_total", "counter",
           "Pushes that were refused, of known sources and others, since the process started.",
           "reason", REEF_PUSH_REFUSALS, reef_push_refusal_names, counts);
}

// From these a rate shows what training spends its time on.
static void write_phases(FILE *out, const reef_trainer_status *status) {
    static const char *const PHASES[] = {"forward", "backward", "update", "commit"};
    const double seconds[] = {status->seconds_forward, status->seconds_backward,
                              status->seconds_update, status->seconds_commit};
    family(out, "reef_phase_seconds_total", "counter",
           "Time spent in the phases of training, since the process started.", "phase", 4, PHASES,
           seconds);
}

static void write_experts(FILE *out, const reef_trainer_status *status) {
    static const char *const STATES[] = {"open", "sealed"};
    const double counts[] = {(double)status->experts_open,
                             (double)(status->experts - status->experts_open)};
    family(out, "reef_experts", "gauge", "Experts in all layers, by the state of their generation.",
           "state", 2, STATES, counts);
}

static void write_commits(FILE *out, const reef_training_view *view) {
    static const char *const NAME = "reef_commit_duration_seconds";
    static const double BOUNDS[REEF_COMMIT_BUCKETS] = REEF_COMMIT_BOUNDS;
    prometheus_head(out, NAME, "histogram", "Time that commits took, since the process started.");
    // Prometheus histograms are cumulative: each bucket counts what is at most its bound.
    uint64_t below = 0;
    for (size_t i = 0; i < REEF_COMMIT_BUCKETS; i++) {
        below += view->commits.buckets[i];
        fprintf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", NAME, BOUNDS[i], below);
    }
    fprintf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", NAME, view->commits.count);
    fprintf(out, "%s_sum %.9g\n%s_count %" PRIu64 "\n", NAME, view->commits.seconds, NAME,
            view->commits.count);
    gauge(out, "reef_last_commit_timestamp_seconds", "When the last commit was made, Unix time.",
          (double)view->last.commit.unix_ms / 1000);
    counter(out, "reef_commit_number_total", "Commits of the pool, since ever.",
            view->last.commit.number);
    gauge(out, "reef_commit_failing", "1 while the last commit failed and is retried.",
          view->failing[0] != 0);
}

// Names of kinds have no character that a label would escape.
static void label_one(FILE *out, const char *family_name, const char *what, const json_t *one) {
    const char *name = json_string_value(json_object_get(one, "name"));
    fprintf(out, "%s{%s=\"%" JSON_INTEGER_FORMAT "\"", family_name, what,
            json_integer_value(json_object_get(one, what)));
    if (strcmp(what, "kind") == 0) fprintf(out, ",name=\"%s\"", name != NULL ? name : "");
    fputs("} ", out);
}

// A family from a member of what `status` and reef_query_stats have, or of each object of a list of
// it, which `what` tells apart.
typedef struct member_family {
    const char *name, *kind, *help, *list, *what, *field;
} member_family;

static void write_members(FILE *out, json_t *object, const member_family *of, size_t count) {
    for (; object != NULL && count > 0; of++, count--) {
        size_t i;
        json_t *one;
        prometheus_head(out, of->name, of->kind, of->help);
        if (of->list == NULL) {
            fprintf(out, "%s ", of->name);
            number(out, json_number_value(json_object_get(object, of->field)));
            continue;
        }
        json_array_foreach(json_object_get(object, of->list), i, one) {
            const json_t *value = json_object_get(one, of->field);
            // What has no value, such as a generation without a memory, has no sample.
            if (!json_is_number(value)) continue;
            label_one(out, of->name, of->what, one);
            number(out, json_number_value(value));
        }
    }
}

// What ranks exchange and wait for, as of the last commit; a process alone has no such families.
static void write_ranks(FILE *out, const reef_status_view *monitor) {
#define RANK "ranks", "rank"
    static const member_family FAMILIES[] = {
        {"reef_ranks", "gauge", "Processes that train the pool together.", NO_LIST, "count"},
        {"reef_epoch_number_total", "counter",
         "Commits of all ranks, since the first one of these.", NO_LIST, "epoch"},
        {"reef_rank_sent_bytes_total", "counter",
         "Bytes that a rank sent to others for steps of the net, since it started.", RANK,
         "sent_bytes"},
        {"reef_rank_received_bytes_total", "counter", "Bytes that it received for them.", RANK,
         "received_bytes"},
        {"reef_rank_exchanges_total", "counter", "Exchanges of a rank with all others for steps.",
         RANK, "exchanges"},
        {"reef_rank_computing_seconds_total", "counter", "Time in which a rank computed.", RANK,
         "computing_s"},
        {"reef_rank_waiting_seconds_total", "counter",
         "Time in which a rank waited for the network and slower ranks.", RANK, "waiting_s"},
        {"reef_rank_telling_seconds_total", "counter",
         "Time in which rank 0 told what is next, and others waited to hear it.", RANK,
         "telling_s"},
        {"reef_rank_lag_seconds", "gauge",
         "By how much less than the rank that waited longest a rank has waited.", RANK, "lag_s"},
        {"reef_rank_peak_memory_bytes", "gauge", "Resident memory of a rank at its largest.", RANK,
         "memory_peak_bytes"},
    };
#undef RANK
    json_t *ranks = reef_crew_json(monitor->crew);
    write_members(out, ranks, FAMILIES, COUNT(FAMILIES));
    json_decref(ranks);
}

// Of a rank that learns apart and joins others.
static void write_joins(FILE *out, const reef_status_view *monitor) {
    static const member_family FAMILIES[] = {
        {"reef_joins_total", "counter", "Joins of this rank with all others.", NO_LIST, "count"},
        {"reef_join_kinds_total", "counter", "Kinds that it took in from others.", NO_LIST,
         "kinds"},
        {"reef_join_sent_bytes_total", "counter", "Bytes that it gave to others in joins.", NO_LIST,
         "sent_bytes"},
        {"reef_join_received_bytes_total", "counter", "Bytes that it received in joins.", NO_LIST,
         "received_bytes"},
        {"reef_join_left_out_bytes_total", "counter",
         "Bytes that its kinds learned and that were too old to be given.", NO_LIST,
         "left_out_bytes"},
        {"reef_join_waiting_seconds_total", "counter",
         "Time in which this rank waited for others to arrive at a join.", NO_LIST, "waiting_s"},
    };
    json_t *joins = reef_joins_json(monitor->joins);
    write_members(out, joins, FAMILIES, COUNT(FAMILIES));
    if (joins != NULL)
        gauge(out, "reef_join_missing_ranks", "Ranks for which this one waits now.",
              (double)json_array_size(json_object_get(joins, "waits_for")));
    json_decref(joins);
}

// Of each generation, each kind, or the pool. They are collected beside training; before the first
// time they are missing.
static void write_stats(FILE *out, json_t *stats) {
#define GENERATION "generations", "generation"
#define KIND "kinds", "kind"
    static const member_family FAMILIES[] = {
        {"reef_expert_usage_ratio", "gauge",
         "Share of a generation's experts that were ever chosen, all layers.", GENERATION,
         "used_share"},
        {"reef_expert_unevenness", "gauge",
         "Distance from uniform use of a generation's experts, nats, mean of layers.", GENERATION,
         "unevenness"},
        {"reef_generation_memory_learned_bytes", "gauge",
         "Bytes that a generation's context memory has learned, as committed.", GENERATION,
         "memory_learned_bytes"},
        {"reef_generation_memory_bytes", "gauge",
         "Bytes of a generation's context memory when it was stored last.", GENERATION,
         "memory_bytes"},
        {"reef_generation_memory_used_ratio", "gauge",
         "Share of its slots that were in use then, estimated.", GENERATION, "memory_used_share"},
        {"reef_kind_learned_bytes", "gauge",
         "Bytes that a kind's memory has learned, as committed; of those that learned last.", KIND,
         "learned_bytes"},
        {"reef_kind_visits", "gauge", "Visits of a kind, likewise.", KIND, "visits"},
        {"reef_kind_loss", "gauge",
         "Bits per byte of a kind's last visit, before they were learned.", KIND,
         "last_bits_per_byte"},
        {"reef_pool_free_bytes", "gauge", "Bytes of the pool's file that can be used again.",
         NO_LIST, "free_bytes"},
        {"reef_readers", "gauge", "Read transactions that are open on the pool.", NO_LIST,
         "readers"},
        {"reef_reader_age_commits", "gauge",
         "Commits since the oldest open read transaction began.", NO_LIST, "reader_lag"},
        {"reef_longest_read_seconds", "gauge",
         "The longest read transaction of this process so far.", NO_LIST, "longest_read_s"},
    };
#undef GENERATION
#undef KIND
    write_members(out, stats, FAMILIES, COUNT(FAMILIES));
}

static void write_http(FILE *out, size_t connections, const uint64_t replies[6]) {
    static const char *const CODES[] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};
    double counts[6];
    for (size_t i = 0; i < 6; i++) counts[i] = (double)replies[i];
    family(out, "reef_http_answers_total", "counter",
           "HTTP answers by the first digit of their code; malformed requests are not counted.",
           "code", 6, CODES, counts);
    gauge(out, "reef_http_connections", "HTTP connections that are open.", (double)connections);
}

static void write_training(FILE *out, const reef_training_view *view) {
    const reef_trainer_status *status = &view->trainer;
    // Counters are of committed state: what a crash takes back must not have been counted.
    const reef_trainer_status *committed = &view->committed;
    counter(out, "reef_steps_total",
            "Training steps that are in a commit, since the pool was made.", committed->step);
    counter(out, "reef_stream_bytes_total", "Bytes of the stream that were dealt with, likewise.",
            committed->stream_bytes);
    if (!committed->learns_all)
        counter(out, "reef_not_learned_bytes_total",
                "Bytes recognised as an older domain, or at a mark, and not learned, likewise.",
                committed->not_learned_bytes);
    counter(out, "reef_visited_bytes_total",
            "Bytes learned by the memories of kinds that came back, likewise.",
            committed->visited_bytes);
    gauge(out, "reef_carried_bytes", "Bytes accepted and not trained yet.",
          (double)status->pending_bytes);
    gauge(out, "reef_queue_bytes", "Bytes read and not accepted yet.", (double)view->queue_bytes);
    gauge(out, "reef_generation", "The open generation.", status->generation);
    gauge(out, "reef_kind", "The kind that is being learned.", status->kind);
    gauge(out, "reef_kinds", "Kinds of the stream that were found.", status->kinds);
    gauge(out, "reef_loss", "Bits per byte before it was learned, recent median.",
          status->bits_per_byte);
    gauge(out, "reef_learning_rate", "Learning rate of dense parameters.", status->learning_rate);
}

// As committed, like all that a crash takes back. Lines read = usual + in events + suppressed.
static void write_watch(FILE *out, const reef_training_view *view) {
    static const char *const NAMES[] = {"usual", "in_events", "suppressed"};
    const reef_watch_counts *watch = &view->committed.watch;
    if (!view->committed.watches) return;
    const double lines[] = {(double)watch->usual, (double)watch->in_events,
                            (double)watch->suppressed};
    const char *sorts[REEF_NEWS_COUNT];
    double events[REEF_NEWS_COUNT];
    for (reef_news news = 0; news < REEF_NEWS_COUNT; news++) {
        sorts[news] = reef_news_name(news);
        events[news] = (double)watch->events[news];
    }
    family(out, "reef_watched_lines_total", "counter",
           "Lines that were judged and are in a commit, by what they were found to be.", "verdict",
           COUNT(NAMES), NAMES, lines);
    family(out, "reef_events_total", "counter", "What was new in them, by its sort.", "sort",
           REEF_NEWS_COUNT, sorts, events);
    counter(out, "reef_incidents_total", "Incidents that rang.", watch->rung);
    gauge(out, "reef_incidents_open", "Incidents that ring and have not ended.",
          (double)watch->open);
}

static void write_alarms(FILE *out, const reef_status_view *monitor) {
    const char *ways[REEF_ALARM_WAY_COUNT];
    double delivered[REEF_ALARM_WAY_COUNT], failures[REEF_ALARM_WAY_COUNT],
        refused[REEF_ALARM_WAY_COUNT];
    size_t count = 0;
    for (reef_alarm_way way = 0; way < REEF_ALARM_WAY_COUNT; way++) {
        reef_alarm_view view;
        reef_alarms_view_read(monitor->alarms, way, &view);
        if (!view.used) continue;
        ways[count] = reef_alarm_way_name(way);
        delivered[count] = (double)view.delivered;
        failures[count] = (double)view.failures;
        refused[count++] = (double)view.refused;
    }
    if (count == 0) return;
    family(out, "reef_alarms_delivered_total", "counter", "Alarms that a receiver took.", "way",
           count, ways, delivered);
    family(out, "reef_alarm_failures_total", "counter",
           "Attempts that failed; the alarm is tried again.", "way", count, ways, failures);
    family(out, "reef_alarms_refused_total", "counter",
           "Alarms that a receiver said it will never take.", "way", count, ways, refused);
}

char *reef_prometheus_text(reef_status_view *monitor,
                           size_t connections,
                           const uint64_t replies[6],
                           json_t *stats) {
    char *text = NULL;
    size_t bytes = 0;
    // Written into memory first: a scrape is answered whole or not at all.
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) return NULL;
    reef_training_view view;
    // One reading for the whole text, so that its numbers belong to one moment.
    reef_training_view_read(monitor->training, &view, monitor->progress);
    prometheus_head(out, "reef_build_info", "gauge", "Always 1; what is running.");
    fprintf(out, "reef_build_info{version=\"%s\",kernels=\"%s\"} 1\n", REEF_VERSION_TEXT,
            reef_kernels_name());
    gauge(out, "reef_uptime_seconds", "Since the process started.",
          (double)(uv_hrtime() - monitor->started_ns) / 1e9);
    write_training(out, &view);
    write_watch(out, &view);
    write_alarms(out, monitor);
    write_sources(out, monitor);
    write_refusals(out, monitor);
    write_phases(out, &view.trainer);
    write_experts(out, &view.trainer);
    write_commits(out, &view);
    write_ranks(out, monitor);
    write_joins(out, monitor);
    gauge(out, "reef_pool_file_bytes", "Size of the pool's data file.",
          reef_status_view_file_bytes(monitor));
    gauge(out, "reef_resident_memory_bytes", "Memory of the process that is resident.",
          reef_status_view_resident_bytes());
    write_stats(out, stats);
    write_http(out, connections, replies);
    // fclose sets the final pointer and size; only then the text may be used.
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}
