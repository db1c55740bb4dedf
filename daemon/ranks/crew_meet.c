// What ranks compare before they train; see crew.h.
#include "ranks_internal.h"

#include "reef_kernels.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

// ---- the judgement ------------------------------------------------------------------------------

static reef_status judge_program(const reef_crew_card *card,
                                 const reef_crew_card *first,
                                 size_t rank,
                                 reef_error *err) {
    if (strncmp(card->version, first->version, sizeof(card->version)) != 0 ||
        card->card_bytes != first->card_bytes)
        return reef_fail(err, REEF_ERR_VERSION,
                         "rank %zu: it runs reefd %.60s, rank 0 runs %.60s: install one version on "
                         "all machines",
                         rank, card->version, first->version);
    if (card->status != REEF_OK)
        return reef_fail(err, (reef_status)card->status, "rank %zu: %.200s", rank, card->message);
    if (card->join_every != first->join_every)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: it was started with join-every %" PRIu64
                         ", rank 0 with %" PRIu64 " bytes (0: without)",
                         rank, card->join_every, first->join_every);
    // Ranks that learn apart send what they know, not how to round.
    if (card->join_every > 0) return REEF_OK;
    if (strncmp(card->kernels, first->kernels, sizeof(card->kernels)) != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: it computes with kernels %.60s, rank 0 with %.60s, which round "
                         "differently: give all REEF_ISA and OPENBLAS_CORETYPE that each CPU has",
                         rank, card->kernels, first->kernels);
    return REEF_OK;
}

static reef_status judge_shard(const reef_crew_card *card,
                               const reef_crew_card *first,
                               size_t rank,
                               size_t count,
                               reef_error *err) {
    const reef_shard *shard = &card->shard;
    if (card->has_joined)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool learns apart and joins the others: start all with "
                         "--join-every %" PRIu64,
                         rank, card->join.every);
    if (shard->count == 0 && first->shard.count > 0)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "rank %zu: its pool is not a shard, but rank 0's is: restore its shard, or "
            "make all shards again",
            rank);
    if (shard->count == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool is whole, and ranks train one that is divided: reef "
                         "shards POOL DIR --to %zu makes it so; or let each learn from sources of "
                         "its own (--join-every)",
                         rank, count);
    if (memcmp(shard->pool, first->shard.pool, sizeof(shard->pool)) != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its shard is of another pool than rank 0's", rank);
    if (shard->rank != rank)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool is the shard of rank %" PRIu32
                         ", which is then there twice, or in the wrong place",
                         rank, shard->rank);
    if (shard->count != count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its shard is one of %" PRIu32
                         ", and %zu ranks were started: start mpirun -n %" PRIu32,
                         rank, shard->count, count, shard->count);
    uint64_t epoch = first->shard.epoch;
    if (shard->epoch < epoch)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its shard is stale, of epoch %" PRIu64
                         ", and rank 0's is of epoch %" PRIu64,
                         rank, shard->epoch, epoch);
    if (shard->epoch > epoch + 1)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its shard is of epoch %" PRIu64
                         ", and rank 0's is stale, of epoch %" PRIu64,
                         rank, shard->epoch, epoch);
    return REEF_OK;
}

static reef_status judge_config(const reef_crew_card *card,
                                const reef_crew_card *first,
                                size_t rank,
                                reef_error *err) {
    if (card->config == first->config) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "rank %zu: its pool has another configuration than rank 0's", rank);
}

static reef_status judge_state(const reef_crew_card *card,
                               const reef_crew_card *first,
                               size_t rank,
                               reef_error *err) {
    char root[2 * REEF_HASH_BYTES + 1], of_first[2 * REEF_HASH_BYTES + 1];
    reef_status status = judge_config(card, first, rank, err);
    if (status != REEF_OK || memcmp(card->root, first->root, sizeof(card->root)) == 0)
        return status;
    reef_hash_format(card->root, root);
    reef_hash_format(first->root, of_first);
    return reef_fail(err, REEF_ERR_INVALID, "rank %zu: the root of its pool is %s, rank 0's is %s",
                     rank, root, of_first);
}

// ---- of ranks that learn apart ------------------------------------------------------------------

// Ranks that learn apart have different pools. So this compares the configuration, the generation
// that all began with, and the number of joins.

static reef_status judge_base(const reef_crew_card *card,
                              const reef_crew_card *first,
                              size_t rank,
                              reef_error *err) {
    reef_status status = judge_config(card, first, rank, err);
    if (status != REEF_OK) return status;
    if (card->shard.count > 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool is a shard of one training: start it without "
                         "--join-every, or let copies of a whole pool (reef shards DIR NEW --to 1) "
                         "join",
                         rank);
    if (card->base_is_open)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: generation 0 of its pool is open, and what ranks exchange "
                         "builds on a sealed one that all have: let one pool learn something, seal "
                         "it (reef seal), and copy it to all ranks",
                         rank);
    if (memcmp(card->base_root, first->base_root, sizeof(card->base_root)) != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: generation 0 of its pool is not that of rank 0's: all begin "
                         "with copies of one pool",
                         rank);
    return REEF_OK;
}

static reef_status judge_join(
    const reef_crew_card *cards, size_t rank, size_t count, uint64_t most, reef_error *err) {
    const reef_crew_card *card = &cards[rank];
    const reef_join *join = &card->join, *first = &cards[0].join;
    size_t has = 0; // one of them
    while (has + 1 < count && !cards[has].has_joined) has++;
    if (!card->has_joined)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool has not joined others, but that of rank %zu has: "
                         "restore it, or let all start over from copies of one pool",
                         rank, has);
    if (memcmp(join->training, first->training, sizeof(join->training)) != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool joins others than rank 0's does", rank);
    if (join->rank != rank)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool is that of rank %" PRIu32
                         ", which is then there twice, or in the wrong place",
                         rank, join->rank);
    if (join->count != count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool is one of %" PRIu32
                         ", and %zu ranks were started: start mpirun -n %" PRIu32
                         ", or let all start over from copies of one pool",
                         rank, join->count, count, join->count);
    if (join->every != card->join_every)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool joins others every %" PRIu64 " bytes, not %" PRIu64
                         ": what is learned depends on it",
                         rank, join->every, card->join_every);
    // Nobody begins a join before all have done the one before it.
    if (join->joins + 1 >= most) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "rank %zu: its pool has done %" PRIu64 " joins, and another one %" PRIu64
                     ": it is an older copy",
                     rank, join->joins, most);
}

static reef_status fail_unequal(const reef_crew_card *cards, size_t rank, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID,
                     "rank %zu: its pool is not equal to rank 0's: at step %" PRIu64
                     ", byte %" PRIu64 " of the stream, and rank 0's at step %" PRIu64
                     ", byte %" PRIu64 "; all begin with copies of one pool",
                     rank, cards[rank].step, cards[rank].stream_bytes, cards[0].step,
                     cards[0].stream_bytes);
}

// Pools of different trainings start a new one if they are equal copies of one pool. No rank learns
// before all have stored that, so an interrupted start finds equal copies again.
static reef_status judge_apart(const reef_crew_card *cards,
                               size_t count,
                               bool *anew,
                               reef_error *err) {
    reef_status status = REEF_OK;
    uint64_t most = 0;
    size_t unequal = 0;
    bool any_joined = false;
    for (size_t r = count; r-- > 0;) {
        if (cards[r].join.joins > most) most = cards[r].join.joins;
        if (memcmp(cards[r].root, cards[0].root, sizeof(cards[r].root)) != 0) unequal = r;
        any_joined = any_joined || cards[r].has_joined;
    }
    for (size_t r = 0; status == REEF_OK && r < count; r++)
        status = judge_base(&cards[r], &cards[0], r, err);
    if (status != REEF_OK) return status;
    if (!any_joined && unequal > 0) return fail_unequal(cards, unequal, err);
    for (size_t r = 0; any_joined && status == REEF_OK && r < count; r++)
        status = judge_join(cards, r, count, most, err);
    *anew = !any_joined || (status != REEF_OK && unequal == 0 && count > 1);
    return *anew ? REEF_OK : status;
}

// ---- the judgement of both ----------------------------------------------------------------------

reef_status reef_crew_judge(
    const reef_crew_card *cards, size_t count, bool *back, bool *anew, reef_error *err) {
    reef_status status = REEF_OK;
    *anew = false;
    // Programs first: what one of another version says of its pool may mean something else.
    for (size_t r = 0; status == REEF_OK && r < count; r++)
        status = judge_program(&cards[r], &cards[0], r, err);
    if (status == REEF_OK && cards[0].join_every > 0) return judge_apart(cards, count, anew, err);
    for (size_t r = 0; status == REEF_OK && r < count; r++) {
        status = judge_shard(&cards[r], &cards[0], r, count, err);
        back[r] = status == REEF_OK && cards[r].shard.epoch == cards[0].shard.epoch + 1;
        // A state that is given up needs not be that of rank 0.
        if (status == REEF_OK && !back[r]) status = judge_state(&cards[r], &cards[0], r, err);
    }
    return status;
}

// ---- cards --------------------------------------------------------------------------------------

static reef_status read_join(reef_crew_card *card, reef_txn *txn, reef_error *err) {
    reef_generation_record base;
    reef_status status = reef_join_read(txn, &card->join, err);
    card->has_joined = status == REEF_OK;
    if (status == REEF_OK || status == REEF_ERR_NOT_FOUND)
        status = reef_generation_read(txn, 0, &base, err);
    if (status != REEF_OK) return status;
    card->base_is_open = !base.sealed;
    memcpy(card->base_root, base.root, sizeof(card->base_root));
    return REEF_OK;
}

static reef_status read_pool(reef_crew_card *card, reef_store *store, reef_error *err) {
    static const reef_key config_key = {.db = REEF_DB_META, .name = "config"};
    reef_txn *txn = NULL;
    reef_commit commit;
    reef_view config;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, err);
    if (status == REEF_OK) status = reef_record_view(txn, &config_key, &config, err);
    if (status == REEF_OK) {
        card->config = XXH3_64bits(config.data, config.bytes);
        card->step = commit.step;
        card->stream_bytes = commit.stream_bytes;
        memcpy(card->root, commit.root, sizeof(card->root));
        status = reef_shard_read(txn, &card->shard, err);
        if (status == REEF_ERR_NOT_FOUND) status = REEF_OK;
    }
    if (status == REEF_OK) status = read_join(card, txn, err);
    reef_txn_abort(txn);
    return status;
}

static void fill_card(const reef_crew *crew,
                      reef_crew_card *card,
                      reef_store *store,
                      reef_status status,
                      const reef_error *err) {
    reef_error found = {.status = REEF_OK};
    *card = (reef_crew_card){.card_bytes = sizeof(*card), .join_every = crew->join_every};
    snprintf(card->version, sizeof(card->version), "%s", REEF_VERSION_TEXT);
    snprintf(card->kernels, sizeof(card->kernels), "%s %s", reef_kernels_name(), reef_gemm_name());
    if (status != REEF_OK)
        found = *err;
    else
        status = read_pool(card, store, &found);
    card->status = (uint32_t)status;
    snprintf(card->message, sizeof(card->message), "%s", found.message);
}

static reef_status step_back(reef_crew *crew, reef_store **store, reef_error *err) {
    reef_store_close(*store);
    *store = NULL;
    reef_status status = reef_store_step_back(crew->pool, err);
    if (status != REEF_OK) return status;
    return reef_store_open(store, crew->pool, &(reef_store_options){.write = true}, err);
}

// Versions travel first and alone: a card of another version may have another size. Where they
// differ the cards are left as they are, with the versions in them.
static void exchange_cards(reef_crew *crew, reef_crew_card *cards) {
    size_t count = reef_ranks_count(crew->ranks);
    const reef_ranks_array versions = {cards, sizeof(*cards), sizeof(cards->version)};
    reef_ranks_gather(crew->ranks, count, 1, &versions);
    for (size_t r = 0; r < count; r++)
        if (strncmp(cards[r].version, cards[0].version, sizeof(cards->version)) != 0) return;
    const reef_ranks_array each = {cards, sizeof(*cards), sizeof(*cards)};
    reef_ranks_gather(crew->ranks, count, 1, &each);
}

typedef struct outcome {
    uint32_t status;
    char message[256];
} outcome;

reef_status reef_crew_agree(reef_crew *crew, reef_status status, reef_error *err) {
    size_t count = reef_ranks_count(crew->ranks), rank = reef_ranks_rank(crew->ranks);
    static outcome outcomes[REEF_RANKS_MAX]; // too large for comfort on a stack
    outcomes[rank] = (outcome){.status = (uint32_t)status};
    if (status != REEF_OK)
        snprintf(outcomes[rank].message, sizeof(outcomes[rank].message), "%s", err->message);
    const reef_ranks_array each = {outcomes, sizeof(*outcomes), sizeof(*outcomes)};
    reef_ranks_gather(crew->ranks, count, 1, &each);
    // A rank is busy also where another one failed: that one knows why.
    const outcome *first = NULL;
    for (size_t r = 0; r < count; r++) {
        if (outcomes[r].status == REEF_OK) continue;
        if (first == NULL ||
            (first->status == REEF_ERR_BUSY && outcomes[r].status != first->status))
            first = &outcomes[r];
    }
    if (first == NULL) return REEF_OK;
    crew->ended = true; // nobody listens any more
    return reef_fail(err, (reef_status)first->status, "rank %zu: %.230s",
                     (size_t)(first - outcomes), first->message);
}

// A new training has a number that no other one has.
static reef_status begin_apart(reef_crew *crew,
                               const reef_crew_card *cards,
                               bool anew,
                               reef_error *err) {
    size_t count = reef_ranks_count(crew->ranks), rank = reef_ranks_rank(crew->ranks);
    crew->join_is_new = anew;
    crew->join = cards[rank].join;
    for (size_t r = 0; !anew && r < count; r++) {
        if (cards[r].join.joins > crew->joins_done) crew->joins_done = cards[r].join.joins;
        crew->joins_differ = crew->joins_differ || cards[r].join.joins != cards[0].join.joins;
    }
    if (!anew) return REEF_OK;
    if (rank == 0 && cards[0].has_joined)
        reef_report_warning(crew->report, "joins_anew",
                            "all pools are copies of one that has joined others: they start over");
    crew->join =
        (reef_join){.rank = (uint32_t)rank, .count = (uint32_t)count, .every = crew->join_every};
    if (getrandom(crew->join.training, sizeof(crew->join.training), 0) !=
        (ssize_t)sizeof(crew->join.training))
        return reef_fail(err, REEF_ERR_IO, "the system has no random numbers");
    reef_ranks_tell(crew->ranks, crew->join.training, sizeof(crew->join.training));
    return REEF_OK;
}

reef_status reef_crew_meet(
    reef_crew *crew, reef_store **store, reef_status status, reef_shard *shard, reef_error *err) {
    size_t count = reef_ranks_count(crew->ranks), rank = reef_ranks_rank(crew->ranks);
    reef_crew_card *cards = calloc(count, sizeof(*cards));
    bool *back = calloc(count, sizeof(*back)), stepped = true, anew = false;
    static const reef_error no_memory = {REEF_ERR_NO_MEMORY, "no memory to meet the others"};
    if (cards == NULL || back == NULL) reef_crew_fail(crew, &no_memory);
    // A second time if somebody went back: then all have to be equal.
    for (int round = 0; stepped && round < 2; round++) {
        fill_card(crew, &cards[rank], *store, status, err);
        exchange_cards(crew, cards);
        stepped = false;
        status = reef_crew_judge(cards, count, back, &anew, err);
        if (status != REEF_OK) break;
        for (size_t r = 0; r < count; r++) stepped = stepped || back[r];
        if (back[rank]) status = step_back(crew, store, err);
    }
    if (status == REEF_OK && stepped)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "a shard is a commit ahead of rank 0's although it went back one");
    *shard = cards[rank].shard;
    if (status == REEF_OK && crew->join_every > 0) status = begin_apart(crew, cards, anew, err);
    crew->met = status == REEF_OK;
    free(cards);
    free(back);
    return status;
}
