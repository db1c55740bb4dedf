// See joins.h: when ranks meet, and what they do then.
#include "ranks_internal.h"

#include "reef_exchange.h"
#include "reef_fail_point.h"
#include "reef_system.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAITING_SECONDS 0.02   // between two looks whether all have arrived
#define LISTENING_SECONDS 0.25 // between two looks while there is nothing to learn

// ---- what a rank remembers of joins -------------------------------------------------------------
//
// Whose copies its kinds are, and where files of a join lie.

size_t reef_joins_rank(const reef_joins *joins) {
    return reef_ranks_rank(joins->crew->ranks);
}

size_t reef_joins_count(const reef_joins *joins) {
    return reef_ranks_count(joins->crew->ranks);
}

reef_status reef_joins_fail_file(const char *doing, const char *what, reef_error *err) {
    int code = errno;
    bool full = code == ENOSPC || code == EDQUOT || code == EFBIG;
    return reef_fail(err, full ? REEF_ERR_FULL : REEF_ERR_IO, "cannot %s %.160s: %s", doing, what,
                     strerror(code));
}

void reef_joins_path(const reef_joins *joins,
                     uint64_t number,
                     size_t from,
                     char out[PATH_BYTES_MAX]) {
    snprintf(out, PATH_BYTES_MAX, "%.4000s/" JOINS_FOLDER "/%" PRIu64 ".%s-%zu", joins->crew->pool,
             number, from == reef_joins_rank(joins) ? "of" : "from", from);
}

// ---- kinds --------------------------------------------------------------------------------------

reef_status reef_joins_add_kind(reef_joins *joins, reef_join_kind kind, reef_error *err) {
    reef_join_kind *kinds = realloc(joins->kinds, (joins->kind_count + 1) * sizeof(*kinds));
    if (kinds == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for kinds of ranks");
    joins->kinds = kinds;
    kinds[joins->kind_count++] = kind;
    joins->kinds_changed = true;
    return REEF_OK;
}

bool reef_joins_find_kind(const reef_joins *joins, uint32_t owner, uint32_t kind, uint32_t *out) {
    for (size_t i = 0; i < joins->kind_count; i++) {
        const reef_join_kind *one = &joins->kinds[i];
        if (one->owner == owner && one->owner_kind == kind)
            return reef_trainer_kind_goes_on(joins->trainer, one->kind, out);
    }
    return false;
}

static bool has_kind(const reef_joins *joins, uint32_t owner, uint32_t kind) {
    for (size_t i = 0; i < joins->kind_count; i++)
        if (joins->kinds[i].owner == owner && joins->kinds[i].owner_kind == kind) return true;
    return false;
}

static uint32_t open_generation(const reef_joins *joins) {
    reef_trainer_status status;
    reef_trainer_status_read(joins->trainer, &status);
    return status.generation;
}

// Kinds that all pools have had from the beginning are nobody's; what came since is this rank's.
static reef_status add_own_kinds(reef_joins *joins, uint32_t owner, reef_error *err) {
    reef_status status = REEF_OK;
    uint32_t end = open_generation(joins);
    for (uint32_t kind = joins->record.own_from; status == REEF_OK && kind < end; kind++) {
        if (!has_kind(joins, owner, kind))
            status = reef_joins_add_kind(
                joins, (reef_join_kind){.kind = kind, .owner = owner, .owner_kind = kind}, err);
    }
    return status;
}

// What each kind has learned by now counts as given.
static void note_returned(reef_joins *joins) {
    for (size_t i = 0; i < joins->kind_count; i++)
        joins->kinds[i].returned = reef_trainer_kind_returned(joins->trainer, joins->kinds[i].kind);
    joins->kinds_changed = true;
}

// ---- the record ---------------------------------------------------------------------------------

static void show(reef_joins *joins) {
    pthread_mutex_lock(&joins->lock);
    joins->shown.record = joins->record;
    for (size_t r = 0; r < reef_joins_count(joins); r++)
        joins->shown.here[r] = joins->peers[r].said != 0;
    pthread_mutex_unlock(&joins->lock);
}

reef_status reef_joins_write(reef_joins *joins, reef_txn *txn, reef_error *err) {
    if (joins == NULL) return REEF_OK;
    joins->record.accepted = reef_trainer_accepted(joins->trainer);
    reef_status status = reef_join_put(txn, &joins->record, err);
    // A commit that fails is tried again and writes this again: until then it stays marked as new.
    if (status == REEF_OK && joins->kinds_changed)
        status = reef_join_kinds_put(txn, joins->kinds, joins->kind_count, err);
    show(joins);
    return status;
}

// ---- life ---------------------------------------------------------------------------------------

static reef_status write_first(void *context, reef_txn *txn, reef_error *err) {
    return reef_joins_write(context, txn, err);
}

// All write it before any of them learns.
static reef_status begin_record(reef_joins *joins, reef_error *err) {
    joins->record = joins->crew->join;
    joins->record.own_from = 0;
    reef_status status = add_own_kinds(joins, REEF_JOIN_NOBODY, err);
    joins->record.own_from = open_generation(joins);
    note_returned(joins);
    if (status == REEF_OK) status = reef_trainer_write(joins->trainer, write_first, joins, err);
    joins->kinds_changed = false;
    return status;
}

static reef_status read_record(reef_joins *joins, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, joins->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_join_read(txn, &joins->record, err);
    if (status == REEF_OK)
        status = reef_join_kinds_read(txn, &joins->kinds, &joins->kind_count, err);
    reef_txn_abort(txn);
    if (status != REEF_OK) return status;
    uint64_t accepted = reef_trainer_accepted(joins->trainer);
    if (accepted == joins->record.accepted) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "its pool was at byte %" PRIu64
                     " of its sources when it last was one of those "
                     "that join, and is at %" PRIu64 ": it was trained or restored without them; "
                     "let all start over from copies of one pool",
                     joins->record.accepted, accepted);
}

static reef_status new_joins(reef_joins **out, const reef_crew *crew, reef_error *err) {
    size_t count = reef_ranks_count(crew->ranks);
    reef_joins *joins = calloc(1, sizeof(*joins));
    if (joins != NULL) {
        (void)pthread_mutex_init(&joins->lock, NULL);
        joins->peers = calloc(count, sizeof(*joins->peers));
        joins->shown.here = calloc(count, sizeof(*joins->shown.here));
    }
    *out = joins;
    return joins != NULL && joins->peers != NULL && joins->shown.here != NULL
               ? REEF_OK
               : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to join %zu ranks", count);
}

// Of its own: nothing is written beside a pool's files.
static reef_status make_folder(const reef_crew *crew, reef_error *err) {
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof(path), "%.4000s/" JOINS_FOLDER, crew->pool);
    return mkdir(path, 0700) == 0 || errno == EEXIST ? REEF_OK
                                                     : reef_joins_fail_file("make", path, err);
}

reef_status reef_joins_begin(reef_joins **out,
                             reef_crew *crew,
                             reef_store *store,
                             reef_trainer *trainer,
                             reef_report *report,
                             reef_error *err) {
    *out = NULL;
    reef_joins *joins = NULL;
    reef_status status = new_joins(&joins, crew, err);
    if (status == REEF_OK) {
        joins->crew = crew;
        joins->store = store;
        joins->trainer = trainer;
        joins->report = report;
        joins->again_number = crew->joins_done;
        joins->again = crew->joins_differ;
        status = reef_trainer_exchange_check(trainer, err);
    }
    if (status == REEF_OK) status = make_folder(crew, err);
    if (status == REEF_OK)
        status = crew->join_is_new ? begin_record(joins, err) : read_record(joins, err);
    if (status != REEF_OK) {
        reef_joins_end(joins);
        return status;
    }
    show(joins);
    *out = joins;
    return REEF_OK;
}

void reef_joins_end(reef_joins *joins) {
    if (joins == NULL) return;
    free(joins->peers);
    free(joins->shown.here);
    free(joins->kinds);
    free(joins);
}

// ---- when to meet -------------------------------------------------------------------------------

uint64_t reef_joins_room(const reef_joins *joins) {
    return joins == NULL ? UINT64_MAX : joins->record.every - joins->record.since;
}

void reef_joins_accepted(reef_joins *joins, uint64_t bytes) {
    if (joins != NULL) joins->record.since += bytes;
}

// A rank that has finished the join may arrive for the next one while others are at it still.
static void listen_to(reef_joins *joins, size_t rank) {
    reef_joins_peer *peer = &joins->peers[rank];
    uint8_t what;
    while (peer->said_next == 0 && reef_ranks_heard(joins->crew->ranks, rank, &what)) {
        if (what & (JOINS_URGES | JOINS_STOPS)) joins->urged = true;
        if (what == JOINS_URGES) continue;
        *(peer->said == 0 ? &peer->said : &peer->said_next) = what;
    }
}

static void arrive(reef_joins *joins, bool ended, bool stops) {
    uint8_t what = JOINS_ARRIVED;
    if (joins->record.since > 0) what |= JOINS_HAS;
    if (ended) what |= JOINS_ENDED;
    if (stops) what |= JOINS_STOPS;
    joins->peers[reef_joins_rank(joins)].said = what;
    reef_ranks_notify(joins->crew->ranks, what);
    joins->arrived_at = reef_seconds();
}

// What all have said together; 0: not all have arrived.
static uint8_t all_said(const reef_joins *joins, uint8_t *any) {
    uint8_t all = UINT8_MAX;
    *any = 0;
    for (size_t r = 0; r < reef_joins_count(joins); r++) {
        all &= joins->peers[r].said;
        *any |= joins->peers[r].said;
    }
    return all;
}

static void show_waiting(reef_joins *joins, bool waits) {
    pthread_mutex_lock(&joins->lock);
    joins->shown.waits = waits;
    joins->shown.arrived_at = joins->arrived_at;
    for (size_t r = 0; r < reef_joins_count(joins); r++)
        joins->shown.here[r] = joins->peers[r].said != 0;
    pthread_mutex_unlock(&joins->lock);
}

// Said until it is done: something else may have been more urgent. Daemons that stay after their
// streams have ended still end together.
static reef_joins_turn after_the_last(reef_joins *joins, bool stopping) {
    if (stopping && !joins->urged) {
        reef_ranks_notify(joins->crew->ranks, JOINS_URGES);
        joins->urged = true;
    }
    joins->leaves |= joins->urged;
    return joins->leaves && !stopping ? REEF_JOINS_LEAVE : REEF_JOINS_LEARN;
}

reef_joins_turn reef_joins_next(reef_joins *joins, bool ended, bool stopping) {
    if (joins == NULL) return REEF_JOINS_LEARN;
    if (joins->again) return REEF_JOINS_MEET;
    for (size_t r = 0; r < reef_joins_count(joins); r++)
        if (r != reef_joins_rank(joins)) listen_to(joins, r);
    if (joins->over) return after_the_last(joins, stopping);
    reef_joins_peer *own = &joins->peers[reef_joins_rank(joins)];
    bool stops = stopping || joins->urged, due = reef_joins_room(joins) == 0;
    if (own->said == 0 && (due || ended || stops)) arrive(joins, ended, stops);
    if (own->said == 0) return REEF_JOINS_LEARN;
    // What was said cannot be taken back, but others may not come for hours.
    if (stopping && !joins->urged && !(own->said & JOINS_STOPS)) {
        reef_ranks_notify(joins->crew->ranks, JOINS_URGES);
        joins->urged = true;
    }
    uint8_t any, all = all_said(joins, &any);
    show_waiting(joins, all == 0);
    if (all == 0) return REEF_JOINS_WAIT;
    if (!(any & JOINS_STOPS) && (any & JOINS_HAS)) return REEF_JOINS_MEET;
    // Nobody has anything, which takes that all have ended; or one was asked to stop.
    joins->over = true;
    joins->leaves = (any & JOINS_STOPS) != 0;
    joins->urged |= joins->leaves; // all know of the stop
    return joins->leaves && !stopping ? REEF_JOINS_LEAVE : REEF_JOINS_LEARN;
}

double reef_joins_patience(const reef_joins *joins) {
    return joins->peers[reef_joins_rank(joins)].said != 0 ? WAITING_SECONDS : LISTENING_SECONDS;
}

// ---- a join -------------------------------------------------------------------------------------

static void remove_files(reef_joins *joins, uint64_t number, bool of_others) {
    char path[PATH_BYTES_MAX];
    for (size_t r = 0; r < reef_joins_count(joins); r++) {
        if ((r != reef_joins_rank(joins)) != of_others) continue;
        reef_joins_path(joins, number, r, path);
        (void)unlink(path);
    }
}

// What this rank gives. It is made once, before anything of others is taken in; a rank that has
// done the join, or a part of it, still has it.
static reef_status prepare(
    reef_joins *joins, uint64_t number, bool takes, reef_joins_pack *pack, reef_error *err) {
    bool begun = !takes || joins->record.step > 0;
    if (begun) return reef_joins_pack_check(joins, number, reef_joins_rank(joins), pack, err);
    reef_status status = reef_trainer_exchange_seal(joins->trainer, err);
    REEF_FAIL_POINT(JOIN_SEALED);
    if (status != REEF_OK) return status;
    joins->kinds_changed = false; // that commit has written them
    status = reef_joins_pack_check(joins, number, reef_joins_rank(joins), pack, err);
    if (status != REEF_OK || pack->accepted != joins->record.accepted)
        status = reef_joins_pack_make(joins, number, pack, err);
    // Before any of others are there.
    return status == REEF_OK ? add_own_kinds(joins, (uint32_t)reef_joins_rank(joins), err) : status;
}

// All of it is in; the commit that says so ends the join.
static reef_status finish(reef_joins *joins, uint64_t number, reef_error *err) {
    note_returned(joins);
    joins->record.joins = number;
    joins->record.since = 0;
    joins->record.step = 0;
    joins->record.own_from = open_generation(joins);
    joins->record.joined_ms = reef_unix_ms();
    reef_status status = reef_trainer_commit(joins->trainer, NULL, err);
    if (status == REEF_OK) joins->kinds_changed = false;
    REEF_FAIL_POINT(JOIN_FINISHED);
    return status;
}

static reef_status take_in(reef_joins *joins,
                           uint64_t number,
                           void (*advanced)(void *context),
                           void *context,
                           reef_error *err) {
    reef_status status = REEF_OK;
    uint32_t before = 0;
    for (size_t r = 0; status == REEF_OK && r < reef_joins_count(joins); r++) {
        reef_joins_pack pack;
        if (r == reef_joins_rank(joins)) continue;
        status = reef_joins_pack_check(joins, number, r, &pack, err);
        if (status == REEF_OK)
            status = reef_joins_pack_take(joins, number, r, before, advanced, context, err);
        before += pack.items;
    }
    return status == REEF_OK ? finish(joins, number, err) : status;
}

static void report_join(reef_joins *joins, uint64_t number, const reef_joins_pack *pack) {
    pthread_mutex_lock(&joins->lock);
    json_t *event =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "event", "join", "join", (json_int_t)number,
                  "sent_bytes", (json_int_t)joins->shown.last_sent_bytes, "received_bytes",
                  (json_int_t)joins->shown.last_received_bytes, "left_out_bytes",
                  (json_int_t)pack->left_out_bytes, "seconds", joins->shown.last_seconds);
    pthread_mutex_unlock(&joins->lock);
    reef_report_event(joins->report, event);
}

static void begin_showing(reef_joins *joins, double now) {
    pthread_mutex_lock(&joins->lock);
    if (joins->arrived_at > 0) joins->shown.waiting_seconds += now - joins->arrived_at;
    joins->shown.waits = false;
    joins->shown.joining = true;
    pthread_mutex_unlock(&joins->lock);
}

static void end_showing(reef_joins *joins, double began, uint64_t sent, uint64_t received) {
    pthread_mutex_lock(&joins->lock);
    joins->shown.joining = false;
    joins->shown.last_seconds = reef_seconds() - began;
    joins->shown.last_sent_bytes = sent;
    joins->shown.last_received_bytes = received;
    pthread_mutex_unlock(&joins->lock);
    show(joins);
}

// The next meeting: whoever arrived for it already is there.
static void turn_over(reef_joins *joins) {
    uint8_t any;
    if (joins->again) {
        joins->again = false;
        return; // nobody had arrived for it
    }
    joins->over = (all_said(joins, &any) & JOINS_ENDED) != 0;
    for (size_t r = 0; r < reef_joins_count(joins); r++)
        joins->peers[r] = (reef_joins_peer){.said = joins->peers[r].said_next};
    joins->arrived_at = 0;
}

reef_status reef_joins_meet(reef_joins *joins,
                            void (*advanced)(void *context),
                            void *context,
                            reef_error *err) {
    uint64_t number = joins->again ? joins->again_number : joins->record.joins + 1;
    uint64_t received = 0, others = reef_joins_count(joins) - 1;
    bool takes = joins->record.joins < number;
    double began = reef_seconds();
    reef_joins_pack pack = {0};
    begin_showing(joins, began);
    reef_status status = prepare(joins, number, takes, &pack, err);
    status = reef_crew_agree(joins->crew, status, err);
    if (status != REEF_OK) {
        joins->over = joins->failed_together = true;
        return status;
    }
    // All have arrived here, so all have done the join before.
    remove_files(joins, number - 1, false);
    reef_ranks_set_part(joins->crew->ranks, REEF_RANKS_JOIN);
    status = reef_joins_exchange(joins, number, pack.bytes, &received, err);
    REEF_FAIL_POINT(JOIN_EXCHANGED);
    if (status == REEF_OK && takes) {
        joins->record.sent_bytes += joins->record.step == 0 ? pack.bytes * others : 0;
        joins->record.received_bytes += joins->record.step == 0 ? received : 0;
        joins->record.left_out_bytes += joins->record.step == 0 ? pack.left_out_bytes : 0;
        status = take_in(joins, number, advanced, context, err);
    }
    remove_files(joins, number, true);
    // The others wait for nothing of this join any more, and would wait for this rank at the next.
    if (status != REEF_OK) reef_crew_fail(joins->crew, err);
    turn_over(joins);
    end_showing(joins, began, pack.bytes * others, received);
    report_join(joins, number, &pack);
    return REEF_OK;
}

bool reef_joins_failed_together(const reef_joins *joins) {
    return joins != NULL && joins->failed_together;
}

void reef_joins_fail(const reef_joins *joins, const reef_error *err) {
    if (joins != NULL && !joins->over) reef_crew_fail(joins->crew, err);
}

// ---- for people ---------------------------------------------------------------------------------

json_t *reef_joins_json(reef_joins *joins) {
    if (joins == NULL) return NULL;
    json_t *waits_for = json_array();
    pthread_mutex_lock(&joins->lock);
    const reef_join *record = &joins->shown.record;
    double waiting = joins->shown.waiting_seconds;
    if (joins->shown.waits) waiting += reef_seconds() - joins->shown.arrived_at;
    for (size_t r = 0; joins->shown.waits && r < reef_joins_count(joins); r++)
        if (!joins->shown.here[r]) json_array_append_new(waits_for, reef_json_count(r));
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:I, s:I, s:I, s:I, s:f, s:o}", "rank",
        (json_int_t)reef_joins_rank(joins), "ranks", (json_int_t)reef_joins_count(joins),
        "every_bytes", (json_int_t)record->every, "since_bytes", (json_int_t)record->since, "count",
        (json_int_t)record->joins, "state",
        joins->shown.joining ? "joining" : (joins->shown.waits ? "waiting" : "apart"), "waits_for",
        waits_for, "kinds", (json_int_t)record->kinds, "sent_bytes", (json_int_t)record->sent_bytes,
        "received_bytes", (json_int_t)record->received_bytes, "left_out_bytes",
        (json_int_t)record->left_out_bytes, "waiting_s", waiting, "last",
        record->joined_ms == 0
            ? json_null()
            : json_pack("{s:I, s:f, s:I, s:I}", "unix_ms", (json_int_t)record->joined_ms, "seconds",
                        joins->shown.last_seconds, "sent_bytes",
                        (json_int_t)joins->shown.last_sent_bytes, "received_bytes",
                        (json_int_t)joins->shown.last_received_bytes));
    pthread_mutex_unlock(&joins->lock);
    return object;
}
