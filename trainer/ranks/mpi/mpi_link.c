// See reef_mpi.h. An exchange is one message to and one from every peer, all under way at once.
//
// A wait gives the processor away after a while: ranks may outnumber cores, and one that waits for
// the next bytes of a stream may wait for hours. Its deadline is that of silence: it begins anew
// with every message that arrives, so a slow network is not taken for a rank that hangs.
#include "reef_mpi.h"

#include "reef_system.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// MPI counts in int, so a message travels in parts.
#define PART_BYTES ((size_t)1 << 30)
#define SPINS_MAX 200      // tests before a wait sleeps
#define SLEEP_SHARE 8      // between two tests then: this part of the wait so far,
#define SLEEP_NS_MIN 20000 // within these bounds
#define SLEEP_NS_MAX 2000000
#define STEP_SECONDS_MAX 0.1 // between two tests: more is not counted as waiting
#define WHY_BYTES_MAX 400    // of a message to people
#define EXCHANGE_TAG 1
#define NOTICE_TAG 2

struct reef_mpi {
    MPI_Comm comm;
    int rank, count;
    double deadline_seconds;
    void (*on_end)(void *context, const char *why);
    void *context;
    MPI_Request *requests; // (capacity) of one exchange: those that receive first
    int *peers;            // (capacity) whose each is
    int *done;             // (capacity) scratch of a test
    size_t capacity;
    int request_count;
    // Bytes that others say at any time: a receive from each is always posted once one was asked
    // for.
    MPI_Request *notices; // (count)
    uint8_t *said;        // (count)
};

static void end_all(void *context, const char *why) {
    reef_mpi *mpi = context;
    if (mpi->on_end != NULL) mpi->on_end(mpi->context, why);
    (void)MPI_Abort(mpi->comm, EXIT_FAILURE);
    abort(); // MPI_Abort does not return
}

static void end_for(reef_mpi *mpi, int code, const char *what, int peer) {
    char text[MPI_MAX_ERROR_STRING] = "", why[WHY_BYTES_MAX];
    int length = 0;
    (void)MPI_Error_string(code, text, &length);
    (void)snprintf(why, sizeof(why), "rank %d: %s rank %d failed: %.200s", mpi->rank, what, peer,
                   text);
    end_all(mpi, why);
}

static void reserve(reef_mpi *mpi, size_t count) {
    if (count <= mpi->capacity) return;
    free(mpi->requests);
    free(mpi->peers);
    free(mpi->done);
    mpi->requests = calloc(count, sizeof(MPI_Request));
    mpi->peers = calloc(count, sizeof(*mpi->peers));
    mpi->done = calloc(count, sizeof(*mpi->done));
    mpi->capacity = count;
    if (mpi->requests == NULL || mpi->peers == NULL || mpi->done == NULL)
        end_all(mpi, "no memory for an exchange between ranks");
}

static size_t part_count(const reef_mpi *mpi, const reef_ranks_message *messages) {
    size_t parts = 0;
    for (int r = 0; r < mpi->count; r++)
        if (r != mpi->rank) parts += (messages[r].size + PART_BYTES - 1) / PART_BYTES;
    return parts;
}

static void start(reef_mpi *mpi, const reef_ranks_message *messages, bool receive) {
    for (int i = 1; i < mpi->count; i++) {
        // Each rank begins with the one after it, so that not all meet at the same one.
        int peer = (mpi->rank + i) % mpi->count, code;
        for (size_t at = 0; at < messages[peer].size; at += PART_BYTES) {
            size_t rest = messages[peer].size - at;
            int size = (int)(rest < PART_BYTES ? rest : PART_BYTES);
            unsigned char *bytes = (unsigned char *)messages[peer].bytes + at;
            MPI_Request *request = &mpi->requests[mpi->request_count];
            if (receive)
                code = MPI_Irecv(bytes, size, MPI_BYTE, peer, EXCHANGE_TAG, mpi->comm, request);
            else
                code = MPI_Isend(bytes, size, MPI_BYTE, peer, EXCHANGE_TAG, mpi->comm, request);
            if (code != MPI_SUCCESS) end_for(mpi, code, receive ? "hearing" : "telling", peer);
            mpi->peers[mpi->request_count++] = peer;
        }
    }
}

// The first peer that has not sent what is waited for; else one that has not taken what it was
// sent.
static int silent_peer(const reef_mpi *mpi) {
    for (int i = 0; i < mpi->request_count; i++)
        if (mpi->requests[i] != MPI_REQUEST_NULL) return mpi->peers[i];
    return mpi->rank;
}

static void sleep_ns(long ns) {
    (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void wait_for_all(reef_mpi *mpi) {
    double before = reef_seconds(), waited = 0.0;
    int left = mpi->request_count;
    for (int tests = 0; left > 0; tests++) {
        int count = 0;
        int code =
            MPI_Testsome(mpi->request_count, mpi->requests, &count, mpi->done, MPI_STATUSES_IGNORE);
        if (code != MPI_SUCCESS) end_for(mpi, code, "an exchange with", silent_peer(mpi));
        double now = reef_seconds(), passed = now - before;
        before = now;
        // Time in which this process itself stood still says nothing of others.
        waited += passed < STEP_SECONDS_MAX ? passed : STEP_SECONDS_MAX;
        if (count > 0) {
            left -= count;
            waited = 0.0;
            tests = 0;
            continue;
        }
        if (tests < SPINS_MAX) continue;
        double pause = waited * 1e9 / SLEEP_SHARE;
        sleep_ns(pause < SLEEP_NS_MIN   ? SLEEP_NS_MIN
                 : pause > SLEEP_NS_MAX ? SLEEP_NS_MAX
                                        : (long)pause);
        // Several wait for the same one: the lowest rank speaks first, and for all.
        if (waited < mpi->deadline_seconds * (1.0 + 0.05 * mpi->rank)) continue;
        char why[WHY_BYTES_MAX];
        (void)snprintf(why, sizeof(why),
                       "rank %d has not answered for %.0f seconds: it hangs, or its machine or "
                       "network does; nothing that was committed is lost, start all ranks again",
                       silent_peer(mpi), mpi->deadline_seconds);
        end_all(mpi, why);
    }
}

static void exchange(void *context,
                     const reef_ranks_message *send,
                     const reef_ranks_message *receive) {
    reef_mpi *mpi = context;
    mpi->request_count = 0;
    reserve(mpi, part_count(mpi, send) + part_count(mpi, receive));
    start(mpi, receive, true);
    start(mpi, send, false);
    wait_for_all(mpi);
}

// ---- notices ------------------------------------------------------------------------------------

static void listen_to(reef_mpi *mpi, int peer) {
    int code =
        MPI_Irecv(&mpi->said[peer], 1, MPI_BYTE, peer, NOTICE_TAG, mpi->comm, &mpi->notices[peer]);
    if (code != MPI_SUCCESS) end_for(mpi, code, "hearing", peer);
}

static void notify(void *context, uint8_t what) {
    static uint8_t every[UINT8_MAX + 1]; // a byte under way must stay as it is: one of each value
    reef_mpi *mpi = context;
    every[what] = what;
    for (int r = 0; r < mpi->count; r++) {
        MPI_Request request;
        if (r == mpi->rank) continue;
        int code = MPI_Isend(&every[what], 1, MPI_BYTE, r, NOTICE_TAG, mpi->comm, &request);
        if (code != MPI_SUCCESS) end_for(mpi, code, "telling", r);
        // Nobody waits for it: it goes when MPI gets to it.
        (void)MPI_Request_free(&request);
    }
}

static bool heard(void *context, size_t rank, uint8_t *what) {
    reef_mpi *mpi = context;
    int done = 0, peer = (int)rank;
    if (mpi->notices[peer] == MPI_REQUEST_NULL) listen_to(mpi, peer);
    int code = MPI_Test(&mpi->notices[peer], &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) end_for(mpi, code, "hearing", peer);
    if (done) *what = mpi->said[peer];
    return done != 0;
}

static void stop_listening(reef_mpi *mpi) {
    for (int r = 0; mpi->notices != NULL && r < mpi->count; r++) {
        if (mpi->notices[r] == MPI_REQUEST_NULL) continue;
        (void)MPI_Cancel(&mpi->notices[r]);
        (void)MPI_Wait(&mpi->notices[r], MPI_STATUS_IGNORE);
    }
    free(mpi->notices);
    free(mpi->said);
}

static reef_status reserve_notices(reef_mpi *mpi, reef_error *err) {
    mpi->notices = calloc((size_t)mpi->count, sizeof(MPI_Request));
    mpi->said = calloc((size_t)mpi->count, 1);
    if (mpi->notices == NULL || mpi->said == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %d ranks", mpi->count);
    for (int r = 0; r < mpi->count; r++) mpi->notices[r] = MPI_REQUEST_NULL;
    return REEF_OK;
}

reef_status reef_mpi_begin(reef_mpi **out,
                           double deadline_seconds,
                           void (*on_end)(void *context, const char *why),
                           void *context,
                           reef_error *err) {
    *out = NULL;
    reef_mpi *mpi = calloc(1, sizeof(*mpi));
    if (mpi == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for MPI");
    int threads = MPI_THREAD_SINGLE;
    // Open MPI yields in every test where processes outnumber cores, which gives a whole time slice
    // away. A wait of ours sleeps, and comes back when its time is up.
    (void)setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads);
    if (code == MPI_SUCCESS && threads < MPI_THREAD_SERIALIZED) {
        (void)MPI_Finalize();
        free(mpi);
        return reef_fail(err, REEF_ERR_INVALID,
                         "this MPI does not let several threads call it one at a time");
    }
    // A communicator of its own: whatever else the process does with MPI does not mix with it.
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi->comm);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(mpi->comm, &mpi->rank);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(mpi->comm, &mpi->count);
    if (code != MPI_SUCCESS) {
        free(mpi);
        return reef_fail(err, REEF_ERR_IO, "MPI does not start: error %d", code);
    }
    reef_status status = reserve_notices(mpi, err);
    if (status != REEF_OK) {
        reef_mpi_end(mpi);
        return status;
    }
    mpi->deadline_seconds = deadline_seconds;
    mpi->on_end = on_end;
    mpi->context = context;
    *out = mpi;
    return REEF_OK;
}

void reef_mpi_link(reef_mpi *mpi, reef_ranks_link *out) {
    *out = (reef_ranks_link){.rank = (size_t)mpi->rank,
                             .count = (size_t)mpi->count,
                             .context = mpi,
                             .exchange = exchange,
                             .notify = notify,
                             .heard = heard,
                             .end = end_all};
}

void reef_mpi_end(reef_mpi *mpi) {
    if (mpi == NULL) return;
    stop_listening(mpi);
    (void)MPI_Comm_free(&mpi->comm);
    (void)MPI_Finalize();
    free(mpi->requests);
    free(mpi->peers);
    free(mpi->done);
    free(mpi);
}
