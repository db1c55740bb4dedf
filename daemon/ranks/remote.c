// Rank 0's side of sources of other ranks; see remote.h.
#include "remote.h"

#include "reef_clock.h"
#include "remote_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_SECONDS 0.05            // until a source that had nothing is asked again
#define GIVE_BYTES_MAX (256u << 10) // at a time

typedef struct reef_remote {
    reef_crew *crew;
    size_t rank, index;
    // for the first GIVE, set by seek
    reef_remote_place place;
    char *checkpoint; // owned
    bool sought;
    double asked_at; // when it had nothing
    // protected by the crew's lock:
    uint8_t *at; // the reader's space, where bytes are wanted
    size_t room;
    bool wanted, answered;
    reef_remote_answer answer;
    char *answer_checkpoint; // owned until it is the reader's
} reef_remote;

// ---- as a kind of source ------------------------------------------------------------------------

static reef_status remote_check(reef_input *input, const reef_config *config, reef_error *err) {
    // Its own rank has looked at it.
    (void)input;
    (void)config;
    (void)err;
    return REEF_OK;
}

static reef_status remote_seek(reef_input *input,
                               const reef_input_offset *offset,
                               reef_error *err) {
    reef_remote *remote = input->state;
    remote->place = (reef_remote_place){.cursor = offset->cursor, .begin = offset->begin};
    if (offset->checkpoint == NULL) return REEF_OK;
    remote->checkpoint = strdup(offset->checkpoint);
    return remote->checkpoint != NULL
               ? REEF_OK
               : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source of another rank");
}

static void remote_read(reef_input *input, uint8_t *at, size_t room) {
    reef_remote *remote = input->state;
    pthread_mutex_lock(&remote->crew->lock);
    remote->at = at;
    remote->room = room < GIVE_BYTES_MAX ? room : GIVE_BYTES_MAX;
    remote->wanted = true;
    pthread_mutex_unlock(&remote->crew->lock);
    // It may be waiting for bytes, for long.
    if (remote->crew->poke != NULL) remote->crew->poke(remote->crew->poke_context);
}

static void remote_stop(reef_input *input) {
    reef_remote *remote = input->state;
    pthread_mutex_lock(&remote->crew->lock);
    remote->wanted = false;
    pthread_mutex_unlock(&remote->crew->lock);
}

static void remote_close(reef_input *input) {
    (void)input; // the crew's
}

// Those that end, and those that do not.
static const reef_input_kind REMOTE = {.scheme = "rank",
                                       .again = true,
                                       .check = remote_check,
                                       .seek = remote_seek,
                                       .read = remote_read,
                                       .stop = remote_stop,
                                       .close = remote_close};
static const reef_input_kind REMOTE_LIVE = {.scheme = "rank",
                                            .live = true,
                                            .again = true,
                                            .check = remote_check,
                                            .seek = remote_seek,
                                            .read = remote_read,
                                            .stop = remote_stop,
                                            .close = remote_close};

// ---- which there are ----------------------------------------------------------------------------

void reef_remote_message(reef_crew *crew, size_t from, void *bytes, size_t size) {
    reef_ranks *ranks = crew->ranks;
    size_t own = reef_ranks_rank(ranks), count = reef_ranks_count(ranks);
    static size_t sizes[REEF_RANKS_MAX];
    memset(sizes, 0, count * sizeof(*sizes));
    if (own == from) sizes[0] = size;
    reef_ranks_message *send = reef_ranks_room(ranks, false, sizes);
    if (own == from && size > 0) memcpy(send[0].bytes, bytes, size);
    memset(sizes, 0, count * sizeof(*sizes));
    if (own == 0) sizes[from] = size;
    reef_ranks_message *receive = reef_ranks_room(ranks, true, sizes);
    reef_ranks_set_part(ranks, REEF_RANKS_TELL);
    reef_ranks_exchange(ranks);
    reef_ranks_set_part(ranks, REEF_RANKS_STEP);
    if (own == 0 && size > 0) memcpy(bytes, receive[from].bytes, size);
}

static reef_status add_remote(reef_crew *crew,
                              size_t rank,
                              size_t index,
                              const reef_remote_card *card,
                              reef_input *out,
                              reef_error *err) {
    reef_remote *remote = &crew->remotes[crew->remote_count];
    *out = (reef_input){.kind = card->live ? &REMOTE_LIVE : &REMOTE,
                        .weight = card->weight,
                        .bytes = card->bytes,
                        .state = remote};
    snprintf(out->group, sizeof(out->group), "rank-%zu", rank);
    int length = snprintf(out->name, sizeof(out->name), "rank-%zu:%s", rank, card->name);
    if (length < 0 || (size_t)length >= sizeof(out->name))
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: the name of its source '%.100s' is too long", rank, card->name);
    out->spec = out->label = out->name;
    *remote = (reef_remote){.crew = crew, .rank = rank, .index = index};
    crew->remote_count++;
    return REEF_OK;
}

// From every other rank: how many, then what each is.
static reef_status hear_rank(
    reef_crew *crew, size_t rank, reef_input *sources, size_t *count, reef_error *err) {
    bool first = reef_ranks_rank(crew->ranks) == 0, own = reef_ranks_rank(crew->ranks) == rank;
    uint64_t theirs = own ? *count : 0;
    reef_remote_message(crew, rank, &theirs, sizeof(theirs));
    if (!first && !own) theirs = 0;
    reef_remote_card *cards = calloc(theirs + 1, sizeof(*cards));
    static const reef_error no_memory = {REEF_ERR_NO_MEMORY, "no memory for names of sources"};
    if (cards == NULL) reef_crew_fail(crew, &no_memory);
    for (size_t i = 0; own && i < *count; i++) {
        snprintf(cards[i].name, sizeof(cards[i].name), "%s", sources[i].name);
        cards[i].weight = sources[i].weight;
        cards[i].live = sources[i].kind->live;
        cards[i].bytes = sources[i].bytes;
    }
    reef_remote_message(crew, rank, cards, theirs * sizeof(*cards));
    reef_status status = REEF_OK;
    if (first && *count + theirs > REEF_INPUT_COUNT_MAX)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "rank %zu: with its %llu sources all ranks have more than %d", rank,
                           (unsigned long long)theirs, REEF_INPUT_COUNT_MAX);
    for (size_t i = 0; first && status == REEF_OK && i < theirs; i++) {
        status = add_remote(crew, rank, i, &cards[i], &sources[*count], err);
        if (status == REEF_OK) ++*count;
    }
    free(cards);
    return status;
}

reef_status reef_remote_gather(reef_crew *crew,
                               reef_input *sources,
                               size_t *count,
                               reef_error *err) {
    reef_status status = REEF_OK;
    static const reef_error no_memory = {REEF_ERR_NO_MEMORY, "no memory for sources of ranks"};
    if (!reef_crew_streams_each(crew)) return REEF_OK;
    crew->remotes = calloc(REEF_INPUT_COUNT_MAX, sizeof(*crew->remotes));
    if (crew->remotes == NULL) reef_crew_fail(crew, &no_memory);
    // All of them, also after a failure: the others say it in any case.
    for (size_t r = 1; r < reef_ranks_count(crew->ranks); r++) {
        reef_error found;
        reef_status heard = hear_rank(crew, r, sources, count, &found);
        if (heard != REEF_OK && status == REEF_OK)
            status = reef_fail(err, heard, "%s", found.message);
    }
    return status;
}

// ---- asking -------------------------------------------------------------------------------------

static void tell_place(reef_crew *crew, reef_remote *remote) {
    size_t text = remote->checkpoint != NULL ? strlen(remote->checkpoint) : 0;
    size_t size = sizeof(remote->place) + text;
    static const reef_error no_memory = {REEF_ERR_NO_MEMORY, "no memory for a source's position"};
    char *payload = malloc(size);
    if (payload == NULL) reef_crew_fail(crew, &no_memory);
    memcpy(payload, &remote->place, sizeof(remote->place));
    if (text > 0) memcpy(payload + sizeof(remote->place), remote->checkpoint, text);
    reef_crew_tell(crew,
                   (reef_crew_order){.kind = REEF_CREW_SEEK,
                                     .number = (uint32_t)remote->rank,
                                     .other = (uint32_t)remote->index},
                   payload, size);
    free(payload);
    free(remote->checkpoint);
    remote->checkpoint = NULL;
    remote->sought = true;
}

static void ask(reef_crew *crew, reef_remote *remote, uint8_t *at, size_t room) {
    static const reef_error no_memory = {REEF_ERR_NO_MEMORY, "no memory for bytes of a rank"};
    reef_remote_answer answer = {0};
    if (!remote->sought) tell_place(crew, remote);
    reef_crew_tell(crew,
                   (reef_crew_order){.kind = REEF_CREW_GIVE,
                                     .number = (uint32_t)remote->rank,
                                     .other = (uint32_t)remote->index,
                                     .payload_max = room},
                   NULL, 0);
    reef_remote_message(crew, remote->rank, &answer, sizeof(answer));
    size_t size = (size_t)(answer.count + answer.checkpoint_bytes);
    char *bytes = malloc(size + 1);
    if (bytes == NULL) reef_crew_fail(crew, &no_memory);
    reef_remote_message(crew, remote->rank, bytes, size);
    char *checkpoint = answer.checkpoint_bytes > 0
                           ? strndup(bytes + answer.count, (size_t)answer.checkpoint_bytes)
                           : NULL;
    remote->asked_at = reef_seconds();
    pthread_mutex_lock(&crew->lock);
    // A reader that was stopped meanwhile has no space any more.
    if (remote->wanted && (answer.count > 0 || answer.ended)) {
        memcpy(at, bytes, (size_t)answer.count);
        remote->wanted = false;
        remote->answered = true;
        remote->answer = answer;
        remote->answer_checkpoint = checkpoint;
        checkpoint = NULL;
    }
    pthread_mutex_unlock(&crew->lock);
    free(checkpoint);
    free(bytes);
}

void reef_remote_serve(reef_crew *crew, uv_async_t *wake) {
    if (crew == NULL || crew->remote_count == 0) return;
    double now = reef_seconds();
    bool any = false;
    for (size_t i = 0; i < crew->remote_count; i++) {
        reef_remote *remote = &crew->remotes[i];
        pthread_mutex_lock(&crew->lock);
        bool wanted = remote->wanted;
        uint8_t *at = remote->at;
        size_t room = remote->room;
        pthread_mutex_unlock(&crew->lock);
        if (!wanted || now - remote->asked_at < ASK_SECONDS) continue;
        ask(crew, remote, at, room);
        pthread_mutex_lock(&crew->lock);
        if (remote->answered) remote->asked_at = 0; // it may have more at once
        any |= remote->answered;
        pthread_mutex_unlock(&crew->lock);
    }
    if (any) (void)uv_async_send(wake);
}

double reef_remote_patience(const reef_crew *crew) {
    return crew != NULL && crew->remote_count > 0 ? ASK_SECONDS : (double)INFINITY;
}

static void settle_one(reef_crew *crew, reef_input *input) {
    reef_remote *remote = input->state;
    pthread_mutex_lock(&crew->lock);
    bool answered = remote->answered;
    reef_remote_answer answer = remote->answer;
    char *checkpoint = remote->answer_checkpoint;
    remote->answered = false;
    remote->answer_checkpoint = NULL;
    pthread_mutex_unlock(&crew->lock);
    if (!answered) return;
    input->bytes = answer.bytes;
    if (answer.ended)
        reef_input_ended(input);
    else
        reef_input_took(input, (size_t)answer.count, checkpoint);
    if (answer.ended) free(checkpoint);
}

void reef_remote_settle(reef_crew *crew, reef_input *sources, size_t count) {
    for (size_t i = 0; crew != NULL && crew->remote_count > 0 && i < count; i++)
        if (sources[i].kind == &REMOTE || sources[i].kind == &REMOTE_LIVE)
            settle_one(crew, &sources[i]);
}

void reef_remote_on_wanted(reef_crew *crew, void (*poke)(void *context), void *context) {
    if (crew == NULL) return;
    crew->poke = poke;
    crew->poke_context = context;
}

void reef_remote_release(reef_crew *crew) {
    if (crew == NULL) return;
    for (size_t i = 0; i < crew->remote_count; i++) {
        free(crew->remotes[i].checkpoint);
        free(crew->remotes[i].answer_checkpoint);
    }
    free(crew->remotes);
    crew->remotes = NULL;
    crew->remote_count = 0;
}
