// reefd: trains a pool on a stream. This file puts the parts together and owns the process:
// signals, the loop, exit codes.
//
// The pool is opened, and every source checked, before anything runs. Then there are two threads of
// ours: the loop (reading, socket, signals, progress), which never computes or waits for the disk,
// and the trainer's (training_thread.c). The loop ends when the trainer's thread has.
#include "alarms.h"
#include "crew.h"
#include "http_server.h"
#include "joins.h"
#include "push.h"
#include "query_thread.h"
#include "reef_client.h"
#include "reef_log.h"
#include "reef_process.h"
#include "reef_settings.h"
#include "reef_source.h"
#include "reef_trainer.h"
#include "routes.h"
#include "service.h"
#include "status.h"
#include "stride.h"
#include "training_thread.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define TICK_MS 500     // rate, progress on a terminal
#define SIGNAL_EXIT 128 // a shell's way to say "ended by signal n"

typedef struct reef_daemon {
    reef_options options;
    struct sockaddr_un address;
    reef_report report;
    reef_input sources[REEF_INPUT_COUNT_MAX];
    reef_progress progress[REEF_INPUT_COUNT_MAX];
    size_t source_count;
    reef_crew *crew;   // the ranks that mpirun started; else NULL
    reef_joins *joins; // where they learn apart; else NULL
    reef_store *store;
    reef_trainer *trainer;
    reef_scrubber *scrubber;
    reef_alarms *alarms; // NULL: none are sent
    uint64_t alarmed;    // the last commit that they know of
    reef_training *training;
    reef_reader reader;
    reef_pusher pusher;
    reef_status_view monitor;
    reef_query_thread *queries;
    reef_routes routes;
    reef_http *http;
    reef_service service;
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t tick;
    uv_signal_t terminate, interrupt;
    uint64_t progress_ns; // when the last progress line was printed, and which it was
    char progress_line[512];
    bool stopping;      // asked to stop, or ending
    bool signalled;     // by a signal; the next one ends the process
    bool closing;       // the trainer's thread has ended and everything is being closed
    reef_error outcome; // what went wrong on the loop's side
} reef_daemon;

// ---- the loop's callbacks -----------------------------------------------------------------------

static void stop(void *context) {
    reef_daemon *daemon = context;
    if (daemon->stopping) return;
    daemon->stopping = true;
    reef_service_stopping(&daemon->service);
    reef_reader_stop(&daemon->reader);
    reef_training_stop(daemon->training);
}

static reef_status take_request(void *context, reef_request *request, reef_error *err) {
    reef_daemon *daemon = context;
    return reef_service_request(&daemon->service, request, err);
}

static void on_signal(uv_signal_t *handle, int number) {
    reef_daemon *daemon = handle->data;
    // A second signal means now. What was committed is safe, the rest is read again.
    if (daemon->signalled) _exit(SIGNAL_EXIT + number);
    daemon->signalled = true;
    reef_report_event(&daemon->report,
                      json_pack("{s:s, s:s}", "event", "stopping", "message",
                                "finishing what was read; a second signal ends at once"));
    stop(daemon);
}

static void on_read_error(void *context, const reef_error *err) {
    reef_daemon *daemon = context;
    daemon->outcome = *err;
    // Others are asked to stop as well, and should know because of whom.
    if (reef_crew_is_apart(daemon->crew))
        (void)!reef_fail(&daemon->outcome, err->status, "rank %zu: %.230s",
                         reef_crew_rank(daemon->crew), err->message);
    reef_report_error(&daemon->report, err->status, daemon->outcome.message);
    stop(daemon);
}

// What stays as it was is not told again, but on a terminal, where the line may have been covered.
static void report_progress(reef_daemon *daemon, bool rewritten) {
    char line[sizeof(daemon->progress_line)];
    reef_status_view_line(&daemon->monitor, line, sizeof(line));
    if (!rewritten && strcmp(line, daemon->progress_line) == 0) return;
    memcpy(daemon->progress_line, line, sizeof(line));
    reef_report_progress(&daemon->report, line, reef_status_view_status(&daemon->monitor));
}

static void on_tick(uv_timer_t *timer) {
    reef_daemon *daemon = timer->data;
    reef_status_view_sample(&daemon->monitor);
    if (daemon->closing) return;
    reef_http_tick(daemon->http);
    reef_routes_tick(&daemon->routes);
    bool rewritten = daemon->report.terminal && !daemon->report.json;
    if (!rewritten &&
        1e-9 * (double)(uv_hrtime() - daemon->progress_ns) < daemon->options.progress_seconds)
        return;
    daemon->progress_ns = uv_hrtime();
    report_progress(daemon, rewritten);
}

static void close_all(reef_daemon *daemon) {
    daemon->closing = true;
    daemon->stopping = true;
    // In the order in which they feed each other: first nobody may send anything new.
    reef_reader_stop(&daemon->reader);
    reef_http_close(daemon->http);
    daemon->http = NULL;
    reef_service_close(&daemon->service);
    // The loop ends by itself when its last handle is closed.
    uv_close((uv_handle_t *)&daemon->tick, NULL);
    uv_close((uv_handle_t *)&daemon->wake, NULL);
    // The signals stay caught to the very end, without keeping the loop alive: see run().
    uv_unref((uv_handle_t *)&daemon->terminate);
    uv_unref((uv_handle_t *)&daemon->interrupt);
}

static void on_wake(uv_async_t *handle) {
    reef_daemon *daemon = handle->data;
    reef_training_reply(daemon->training);
    reef_routes_reply(&daemon->routes);
    reef_reader_settle(&daemon->reader);
    reef_reader_resume(&daemon->reader);
    reef_training_view view;
    reef_training_view_read(daemon->training, &view, NULL);
    if (view.last.commit.number != daemon->alarmed) reef_alarms_poke(daemon->alarms);
    daemon->alarmed = view.last.commit.number;
    if (!view.ended || daemon->closing) return;
    reef_training_reply(daemon->training); // what was answered since, and with the end
    close_all(daemon);
}

static void on_event(void *context, const char *json) {
    reef_report_event_text(context, json);
}

// ---- putting it together ------------------------------------------------------------------------

static reef_status open_sources(reef_daemon *daemon, reef_error *err) {
    for (size_t i = 0; i < daemon->options.source_count; i++) {
        reef_input *source = &daemon->sources[i];
        // All sources are opened before the pool is: a typo must not leave a lock behind.
        if (reef_crew_is_apart(daemon->crew) && strcmp(daemon->options.sources[i], "-") == 0)
            return reef_fail(err, REEF_ERR_INVALID,
                             "standard input cannot be a source of ranks that join: what came "
                             "since the last join would be lost with a stop");
        reef_status status = reef_input_open(source, daemon->options.sources[i], err);
        daemon->source_count = i + 1; // also when it failed: it may hold a descriptor
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

// To the position of the pool's last commit, which has the offset of a live source's next byte.
static reef_status seek_source(reef_daemon *daemon, reef_input *source, reef_error *err) {
    reef_input_offset offset = {.cursor = reef_trainer_cursor(daemon->trainer, source->name)};
    char *checkpoint = NULL;
    source->store = daemon->store;
    source->report = &daemon->report;
    reef_status status = REEF_OK;
    // A live source may have moved since the last commit, so a byte count alone does not find the
    // position; the checkpoint does.
    if (source->kind->live && offset.cursor > 0)
        status = reef_source_checkpoint_read(daemon->store, source->name, &offset.begin,
                                             &checkpoint, err);
    // No checkpoint: the source was never committed, or the cursor alone finds its position.
    if (status == REEF_ERR_NOT_FOUND) status = REEF_OK; // its kind may know by itself
    offset.checkpoint = checkpoint;
    if (status == REEF_OK) status = reef_input_seek(source, &offset, err);
    free(checkpoint);
    return status;
}

static reef_status open_trainer(reef_daemon *daemon, reef_shard shard, reef_error *err) {
    const reef_options *options = &daemon->options;
    bool apart = reef_crew_is_apart(daemon->crew);
    // One rank tells people what all of them went through.
    bool tells = !reef_crew_follows(daemon->crew);
    reef_status status = reef_trainer_open(
        &daemon->trainer, daemon->store,
        &(reef_trainer_options){.threads = daemon->monitor.threads,
                                .memory_bytes = daemon->options.memory_bytes,
                                .pool_max = options->pool_max,
                                .ranks = apart ? NULL : reef_crew_ranks(daemon->crew),
                                .shard = shard,
                                .on_event = tells ? on_event : NULL,
                                .context = &daemon->report},
        err);
    return status;
}

// The pool, once the other ranks are found to have it as well; `status` is how this one fared so
// far.
static reef_status open_store(reef_daemon *daemon,
                              reef_status status,
                              reef_shard *shard,
                              reef_error *err) {
    *shard = (reef_shard){0};
    if (status == REEF_OK && daemon->crew == NULL)
        status = reef_crew_check_alone(daemon->options.pool, err);
    // The writer's lock is taken here: a second daemon on this pool fails now.
    if (status == REEF_OK)
        status = reef_store_open(&daemon->store, daemon->options.pool,
                                 &(reef_store_options){.write = true}, err);
    if (daemon->crew == NULL) return status;
    return reef_crew_meet(daemon->crew, &daemon->store, status, shard, err);
}

static reef_status check_count(const reef_daemon *daemon, reef_error *err) {
    const char *names[REEF_INPUT_COUNT_MAX];
    for (size_t i = 0; i < daemon->source_count; i++) names[i] = daemon->sources[i].name;
    return reef_trainer_sources_fit(daemon->trainer, names, daemon->source_count, err);
}

static reef_status open_pool(reef_daemon *daemon, reef_shard shard, reef_error *err) {
    reef_status status = open_trainer(daemon, shard, err);
    bool apart = reef_crew_is_apart(daemon->crew);
    if (daemon->crew != NULL && !apart) status = reef_crew_agree(daemon->crew, status, err);
    if (status == REEF_OK && apart)
        status = reef_joins_begin(&daemon->joins, daemon->crew, daemon->store, daemon->trainer,
                                  &daemon->report, err);
    // Sources are positioned after the trainer has read where it stopped.
    for (size_t i = 0; status == REEF_OK && i < daemon->source_count; i++)
        status = seek_source(daemon, &daemon->sources[i], err);
    // The number of sources is bounded for the life of a pool.
    if (status == REEF_OK) status = check_count(daemon, err);
    return status;
}

// Handles that do not fail to initialise on Linux share one check.
// The loop has its handles before anything can send to them.
static reef_status open_loop(reef_daemon *daemon, reef_error *err) {
    int code = uv_loop_init(&daemon->loop);
    if (!code) code = uv_async_init(&daemon->loop, &daemon->wake, on_wake);
    if (!code) code = uv_timer_init(&daemon->loop, &daemon->tick);
    if (!code) code = uv_signal_init(&daemon->loop, &daemon->terminate);
    if (!code) code = uv_signal_init(&daemon->loop, &daemon->interrupt);
    if (code)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "cannot set up the event loop: %s",
                         uv_strerror(code));
    daemon->wake.data = daemon->tick.data = daemon->terminate.data = daemon->interrupt.data =
        daemon;
    return REEF_OK;
}

static reef_status start_training(reef_daemon *daemon, reef_error *err) {
    const reef_options *options = &daemon->options;
    return reef_training_start(
        &daemon->training,
        &(reef_training_options){.store = daemon->store,
                                 .trainer = daemon->trainer,
                                 .sources = daemon->sources,
                                 .source_count = daemon->source_count,
                                 .patience_s = options->patience_seconds,
                                 .commits = reef_service_commit_policy(options),
                                 .stay = options->stay,
                                 .report = &daemon->report,
                                 .crew = reef_crew_is_apart(daemon->crew) ? NULL : daemon->crew,
                                 .joins = daemon->joins,
                                 .scrubber = daemon->scrubber,
                                 .wake = &daemon->wake},
        err);
}

// What can be reached from outside. The socket is bound before the trainer's thread exists, because
// the file mode mask that keeps it private belongs to the whole process.
static reef_status open_doors(reef_daemon *daemon, reef_error *err) {
    const reef_options *options = &daemon->options;
    // First the door: it fails when another daemon is there, before anything is started.
    reef_status status = reef_http_open(&daemon->http,
                                        &(reef_http_options){.loop = &daemon->loop,
                                                             .socket = &daemon->address,
                                                             .listen = options->http,
                                                             .token_file = options->http_token,
                                                             .begin = reef_routes_begin,
                                                             .handle = reef_routes_handle,
                                                             .forget = reef_routes_forget,
                                                             .hung_up = reef_routes_hung_up,
                                                             .replied = reef_routes_replied,
                                                             .context = &daemon->routes},
                                        err);
    if (status != REEF_OK) return status;
    daemon->monitor.http = reef_http_address(daemon->http);
    // The query thread reads the same store through transactions of its own.
    status =
        reef_query_thread_start(&daemon->queries,
                                &(reef_query_thread_options){.store = daemon->store,
                                                             .threads = 1,
                                                             .memory_bytes = options->memory_bytes,
                                                             .wake = &daemon->wake},
                                err);
    if (status == REEF_OK)
        status = reef_scrubber_new(&daemon->scrubber, daemon->store, daemon->options.scrub_rate,
                                   &daemon->report, err);
    if (status != REEF_OK) (void)unlink(daemon->address.sun_path);
    return status;
}

// Started before training, so that no commit is missed.
static reef_status start_alarms(reef_daemon *daemon, reef_error *err) {
    const reef_options *options = &daemon->options;
    const bool any = options->alarm_exec != NULL || options->alarm_hook != NULL;
    reef_trainer_status now;
    reef_trainer_status_read(daemon->trainer, &now);
    if (any && !now.watches)
        return reef_fail(err, REEF_ERR_INVALID,
                         "pool %.160s watches no lines, so nothing would be told: reef init POOL "
                         "--watch true makes one that does",
                         options->pool);
    return reef_alarms_start(&daemon->alarms,
                             &(reef_alarms_options){.store = daemon->store,
                                                    .exec = options->alarm_exec,
                                                    .hook = options->alarm_hook,
                                                    .report = &daemon->report},
                             err);
}

// Wire the parts to each other.
static reef_status connect_parts(reef_daemon *daemon, reef_error *err) {
    // Training starts at once.
    reef_status status = start_alarms(daemon, err);
    if (status == REEF_OK) status = start_training(daemon, err);
    if (status != REEF_OK) {
        (void)unlink(daemon->address.sun_path); // the process ends here, nothing else will
        return status;
    }

    // Only now are all parts there that the others point to.
    daemon->pusher.training = daemon->training;
    daemon->pusher.loop = &daemon->loop;
    daemon->pusher.inputs = daemon->sources;
    daemon->pusher.input_count = daemon->source_count;
    daemon->pusher.journal_bytes_max = daemon->options.journal_bytes;
    for (size_t i = 0; i < daemon->source_count; i++) daemon->sources[i].pusher = &daemon->pusher;
    daemon->monitor.training = daemon->training;
    daemon->monitor.scrubber = daemon->scrubber;
    daemon->monitor.alarms = daemon->alarms;
    daemon->monitor.crew = daemon->crew;
    daemon->monitor.joins = daemon->joins;
    daemon->monitor.pool = daemon->options.pool;
    daemon->monitor.sources = daemon->sources;
    daemon->monitor.source_count = daemon->source_count;
    daemon->monitor.progress = daemon->progress;
    daemon->reader = (reef_reader){.loop = &daemon->loop,
                                   .training = daemon->training,
                                   .sources = daemon->sources,
                                   .count = daemon->source_count,
                                   .report = &daemon->report,
                                   .on_error = on_read_error,
                                   .context = daemon};
    daemon->routes = (reef_routes){.monitor = &daemon->monitor,
                                   .training = daemon->training,
                                   .queries = daemon->queries,
                                   .pusher = &daemon->pusher,
                                   .report = &daemon->report,
                                   .on_stop = stop,
                                   .on_request = take_request,
                                   .context = daemon};
    daemon->service.loop = &daemon->loop;
    daemon->service.options = &daemon->options;
    daemon->service.report = &daemon->report;
    daemon->service.training = daemon->training;
    daemon->service.monitor = &daemon->monitor;
    daemon->service.scrubber = daemon->scrubber;
    daemon->service.http = daemon->http;
    return REEF_OK;
}

static void report_start(reef_daemon *daemon) {
    reef_report_event(
        &daemon->report,
        json_pack("{s:s, s:o, s:o, s:o*, s:s*, s:I, s:I, s:s}", "event", "started", "pool",
                  reef_json_text(daemon->options.pool), "socket",
                  reef_json_text(daemon->address.sun_path), "config",
                  daemon->options.config != NULL ? reef_json_text(daemon->options.config) : NULL,
                  "http", daemon->monitor.http, "pid", (json_int_t)getpid(), "threads",
                  (json_int_t)daemon->monitor.threads, "kernels", reef_kernels_name()));
    if (reef_gemm_advice() != NULL)
        reef_report_warning(&daemon->report, "kernels", "%s", reef_gemm_advice());
}

// What the ranks cost, as of the last commit.
static void report_ranks(reef_daemon *daemon) {
    json_t *event = reef_crew_json(daemon->crew);
    if (event == NULL) return;
    json_object_set_new(event, "event", json_string("ranks"));
    reef_report_event(&daemon->report, event);
}

static void report_end(reef_daemon *daemon, const reef_training_view *view) {
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(view->last.commit.root, root);
    // The pool keeps what is too little for a step.
    bool waits = view->trainer.step == 0 && view->trainer.pending_bytes > 0;
    reef_report_event(
        &daemon->report,
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:s}", "event", "ended", "step",
                  (json_int_t)view->trainer.step, "stream_bytes",
                  (json_int_t)view->trainer.stream_bytes, "carried_bytes",
                  (json_int_t)view->trainer.pending_bytes, "commit",
                  (json_int_t)view->last.commit.number, "root", root, "next",
                  waits ? "more text: what came is less than a step learns from, and waits"
                        : "reef score POOL FILE"));
}

static void run_loop(reef_daemon *daemon) {
    reef_error err;
    // Training is worth more than checks beside it.
    // A pool that is checked is better, but training is what the daemon is for: without memory for
    // the scrubber it runs on.
    if (reef_scrubber_start(daemon->scrubber, reef_training_poke, daemon->training, &err) !=
        REEF_OK)
        reef_report_warning(&daemon->report, "scrub_failed", "%s", err.message);
    (void)uv_signal_start(&daemon->terminate, on_signal, SIGTERM);
    (void)uv_signal_start(&daemon->interrupt, on_signal, SIGINT);
    daemon->progress_ns = uv_hrtime();
    // The first tick comes at once and writes the first status.
    (void)uv_timer_start(&daemon->tick, on_tick, 0, TICK_MS);
    report_start(daemon);
    if (daemon->options.passed_over != NULL)
        reef_report_warning(&daemon->report, "source_refused", "%s", daemon->options.passed_over);
    reef_service_start(&daemon->service);
    // Reading starts when everything that consumes it runs.
    reef_reader_resume(&daemon->reader);
    (void)uv_run(&daemon->loop, UV_RUN_DEFAULT);
}

// What the trainer's thread ended with, after what the loop ended with.
static reef_status report_outcome(reef_daemon *daemon) {
    reef_training_view view;
    reef_training_view_read(daemon->training, &view, NULL);
    if (view.outcome.status != REEF_OK) {
        bool told = reef_joins_failed_together(daemon->joins) && reef_crew_rank(daemon->crew) > 0;
        if (!told) reef_report_error(&daemon->report, view.outcome.status, view.outcome.message);
        return view.outcome.status;
    }
    for (size_t i = 0; i < daemon->source_count; i++) {
        reef_input *source = &daemon->sources[i];
        if (source->kind->left != NULL)
            source->kind->left(source, reef_trainer_cursor(daemon->trainer, source->name));
    }
    report_ranks(daemon);
    report_end(daemon, &view);
    return daemon->outcome.status;
}

static void release_daemon(reef_daemon *daemon) {
    reef_scrubber_stop(daemon->scrubber); // before the training, which it pokes
    reef_training_join(daemon->training);
    reef_alarms_stop(daemon->alarms); // after the last commit
    reef_joins_end(daemon->joins);
    reef_query_thread_stop(daemon->queries);
    reef_routes_release(&daemon->routes);
    reef_scrubber_free(daemon->scrubber);
    reef_trainer_close(daemon->trainer);
    reef_store_close(daemon->store);
    for (size_t i = 0; i < daemon->source_count; i++) reef_input_close(&daemon->sources[i]);
    reef_pusher_release(&daemon->pusher);
}

// A rank above 0 has nobody to talk to but rank 0, which decides when to stop, and reports what any
// of them failed with.
static reef_status follow(reef_daemon *daemon) {
    reef_error err = {.status = REEF_OK};
    reef_shard shard;
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    reef_status status = reef_program_choose_kernels(&err);
    if (status == REEF_OK) reef_program_guard("reefd", daemon->options.pool);
    status = open_store(daemon, status, &shard, &err);
    if (status == REEF_OK) {
        status = open_trainer(daemon, shard, &err);
        status = reef_crew_agree(daemon->crew, status, &err);
    }
    if (status == REEF_OK) reef_crew_follow(daemon->crew, daemon->trainer);
    reef_trainer_close(daemon->trainer);
    reef_store_close(daemon->store);
    return status;
}

// Everything between a good command line and the exit code. Handles of the loop are not closed one
// by one after a failed start: the process ends here.
static reef_status run_daemon(reef_daemon *daemon) {
    reef_error err = {.status = REEF_OK};
    // Its lists must be valid before anything can fail and release them.
    reef_pusher_init(&daemon->pusher);
    reef_status status =
        reef_address_init(&daemon->address, daemon->options.pool, daemon->options.socket, &err);
    // REEF_ISA is obeyed before the first kernel runs.
    if (status == REEF_OK) status = reef_program_choose_kernels(&err);
    if (status == REEF_OK) status = open_sources(daemon, &err);
    // From here on a damaged map may raise SIGBUS; the guard turns it into a message.
    if (status == REEF_OK) reef_program_guard("reefd", daemon->options.pool);
    reef_shard shard;
    status = open_store(daemon, status, &shard, &err);
    bool met = status == REEF_OK;
    if (met) status = open_pool(daemon, shard, &err);
    if (status == REEF_OK) status = open_loop(daemon, &err);
    if (status == REEF_OK) status = open_doors(daemon, &err);
    // Ranks that learn apart wait for each other from here on, so all of them have to begin.
    bool opened = status == REEF_OK;
    if (met && reef_crew_is_apart(daemon->crew))
        status = reef_crew_agree(daemon->crew, status, &err);
    if (opened && status != REEF_OK) (void)unlink(daemon->address.sun_path);
    if (status == REEF_OK) status = connect_parts(daemon, &err);
    if (status == REEF_OK) {
        run_loop(daemon);
        status = report_outcome(daemon);
    } else if (!reef_crew_is_apart(daemon->crew) || reef_crew_rank(daemon->crew) == 0) {
        // What all ranks end with is said by one.
        reef_report_error(&daemon->report, status, err.message);
    }
    release_daemon(daemon);
    return status;
}

// Alone, or as one of the ranks that mpirun started.
static reef_status run_rank(reef_daemon *daemon) {
    reef_error err;
    reef_status status = reef_crew_begin(&daemon->crew, &daemon->options, &daemon->report, &err);
    if (status != REEF_OK) {
        reef_report_error(&daemon->report, status, err.message);
        return status;
    }
    if (daemon->crew != NULL) daemon->options.pool = reef_crew_pool(daemon->crew);
    status = reef_crew_follows(daemon->crew) ? follow(daemon) : run_daemon(daemon);
    reef_crew_end(daemon->crew);
    return status;
}

int main(int argc, char **argv) {
    static reef_daemon daemon; // too large for comfort on a stack
    reef_program_begin("reefd");
    // A client that goes away must not kill the daemon.
    (void)signal(SIGPIPE, SIG_IGN);
    reef_service_prepare();

    reef_error err;
    reef_status status = reef_options_parse(&daemon.options, argc, argv, &err);
    // Help and version are answered even if other options are wrong.
    if (status == REEF_OK && daemon.options.action == REEF_ACTION_HELP) {
        fputs(reef_options_help(), stdout);
        return fflush(stdout) == 0 ? 0 : reef_status_exit_code(REEF_ERR_IO);
    }
    if (status == REEF_OK && daemon.options.action == REEF_ACTION_VERSION) {
        printf("reefd %s\n", REEF_VERSION_TEXT);
        return fflush(stdout) == 0 ? 0 : reef_status_exit_code(REEF_ERR_IO);
    }
    reef_report_init(&daemon.report, daemon.options.json_log, daemon.options.quiet);
    reef_program_log(daemon.report.json, daemon.report.journal);
    daemon.service.argc = argc;
    daemon.service.argv = argv;
    daemon.monitor.started_ns = uv_hrtime();
    daemon.monitor.threads =
        daemon.options.threads ? daemon.options.threads : uv_available_parallelism();
    bool check = daemon.options.action == REEF_ACTION_CHECK;
    // --check stops after the settings: no pool is opened.
    if (status == REEF_OK && check) status = reef_service_check(&daemon.options, &err);
    if (status != REEF_OK)
        reef_report_error(&daemon.report, status, err.message);
    else if (!check)
        status = run_rank(&daemon);
    reef_report_release(&daemon.report);
    reef_options_release(&daemon.options);
    return reef_status_exit_code(status);
}
