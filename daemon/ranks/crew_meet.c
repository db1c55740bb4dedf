// What ranks compare before they train; see crew.h.
#include "crew_internal.h"

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
    if (!card->is_shard && first->is_shard)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "rank %zu: its pool is not a shard, but rank 0's is: restore its shard, or "
            "make all shards again",
            rank);
    if (!card->is_shard) return REEF_OK;
    if (first->is_shard && memcmp(shard->pool, first->shard.pool, sizeof(shard->pool)) != 0)
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
    if (shard->divided != first->shard.divided)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its shard has %s, and rank 0's %s: make all shards with reef "
                         "shards",
                         rank, shard->divided ? "only the rows that it owns" : "all rows",
                         shard->divided ? "has all rows" : "only those that it owns");
    uint64_t epoch = first->is_shard ? first->shard.epoch : 0;
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

static reef_status judge_state(const reef_crew_card *card,
                               const reef_crew_card *first,
                               size_t rank,
                               reef_error *err) {
    char root[2 * REEF_HASH_BYTES + 1], of_first[2 * REEF_HASH_BYTES + 1];
    if (card->new_shards != first->new_shards)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: it was started %s --new-shards, and rank 0 was not so", rank,
                         card->new_shards ? "with" : "without");
    if (card->config != first->config)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool has another configuration than rank 0's", rank);
    if (first->pieces > 0 && rank >= first->pieces)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu has no work: a step of this model has %" PRIu32
                         " windows, which ranks share: start at most so many",
                         rank, first->pieces);
    if (card->stream_bytes != first->stream_bytes || card->step != first->step)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool is at step %" PRIu64 ", byte %" PRIu64
                         " of the stream, rank 0's at step %" PRIu64 ", byte %" PRIu64,
                         rank, card->step, card->stream_bytes, first->step, first->stream_bytes);
    if (memcmp(card->root, first->root, sizeof(card->root)) == 0) return REEF_OK;
    reef_hash_format(card->root, root);
    reef_hash_format(first->root, of_first);
    return reef_fail(err, REEF_ERR_INVALID, "rank %zu: the root of its pool is %s, rank 0's is %s",
                     rank, root, of_first);
}

reef_status reef_crew_judge(const reef_crew_card *cards,
                            size_t count,
                            bool *back,
                            reef_error *err) {
    reef_status status = REEF_OK;
    // Programs first: what one of another version says of its pool may mean something else.
    for (size_t r = 0; status == REEF_OK && r < count; r++)
        status = judge_program(&cards[r], &cards[0], r, err);
    if (status == REEF_OK && cards[0].join_every > 0)
        return reef_crew_judge_apart(cards, count, err);
    for (size_t r = 0; status == REEF_OK && r < count; r++) {
        status = judge_shard(&cards[r], &cards[0], r, count, err);
        uint64_t epoch = cards[0].is_shard ? cards[0].shard.epoch : 0;
        back[r] = status == REEF_OK && cards[r].is_shard && cards[r].shard.epoch == epoch + 1;
        // A state that is given up needs not be that of rank 0.
        if (status == REEF_OK && !back[r]) status = judge_state(&cards[r], &cards[0], r, err);
    }
    return status;
}

// ---- cards --------------------------------------------------------------------------------------

static reef_status read_pieces(reef_crew_card *card, reef_txn *txn, reef_error *err) {
    reef_config config;
    reef_status status = reef_config_read(txn, &config, err);
    if (status != REEF_OK) return status;
    if (config.model == REEF_MODEL_LM && config.net_share > 0.0f) card->pieces = config.batch;
    return REEF_OK;
}

static reef_status read_join(reef_crew_card *card, reef_txn *txn, reef_error *err) {
    reef_generation_record base;
    reef_status status = reef_join_read(txn, &card->join, err);
    card->has_joined = status == REEF_OK && !card->new_shards;
    if (!card->has_joined) card->join = (reef_join){0};
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
        status = read_pieces(card, txn, err);
    }
    if (status == REEF_OK) {
        card->step = commit.step;
        card->stream_bytes = commit.stream_bytes;
        memcpy(card->root, commit.root, sizeof(card->root));
        status = reef_shard_read(txn, &card->shard, err);
        if (status == REEF_OK && card->shard.divided && card->new_shards)
            status = reef_fail(err, REEF_ERR_INVALID,
                               "its pool is one of %" PRIu32
                               " shards whose rows are divided: another number of ranks needs "
                               "shards that reef shards makes, not --new-shards",
                               card->shard.count);
        card->is_shard = status == REEF_OK && !card->new_shards;
        if (!card->is_shard) card->shard = (reef_shard){0};
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
    *card = (reef_crew_card){.card_bytes = sizeof(*card),
                             .new_shards = crew->new_shards,
                             .join_every = crew->join_every};
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
static reef_status draw_number(reef_crew *crew, uint8_t *out, size_t bytes, reef_error *err) {
    if (getrandom(out, bytes, 0) != (ssize_t)bytes)
        return reef_fail(err, REEF_ERR_IO, "the system has no random numbers");
    reef_ranks_tell(crew->ranks, out, bytes);
    return REEF_OK;
}

// Pools that were shards of one training are nobody's part any more.
static reef_status forget_shard(reef_store *store, reef_error *err) {
    reef_txn *txn = NULL;
    reef_commit commit;
    reef_shard shard;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    if (status != REEF_OK) return status;
    status = reef_shard_read(txn, &shard, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, err);
    if (status == REEF_OK) status = reef_shard_remove(txn, err);
    if (status == REEF_OK) return reef_txn_commit(txn, &commit, err);
    reef_txn_abort(txn);
    return status == REEF_ERR_NOT_FOUND ? REEF_OK : status;
}

static reef_status begin_apart(reef_crew *crew,
                               reef_store *store,
                               const reef_crew_card *cards,
                               reef_error *err) {
    size_t count = reef_ranks_count(crew->ranks), rank = reef_ranks_rank(crew->ranks);
    crew->join = cards[rank].join;
    for (size_t r = 0; r < count; r++) {
        crew->join_is_new = crew->join_is_new || !cards[r].has_joined;
        if (cards[r].join.joins > crew->joins_done) crew->joins_done = cards[r].join.joins;
        crew->joins_differ = crew->joins_differ || cards[r].join.joins != cards[0].join.joins;
    }
    if (!crew->join_is_new) return REEF_OK;
    crew->join =
        (reef_join){.rank = (uint32_t)rank, .count = (uint32_t)count, .every = crew->join_every};
    reef_status status = draw_number(crew, crew->join.training, sizeof(crew->join.training), err);
    return status == REEF_OK ? forget_shard(store, err) : status;
}

static reef_status begin_shards(reef_crew *crew, reef_shard *shard, reef_error *err) {
    *shard = (reef_shard){.rank = (uint32_t)reef_ranks_rank(crew->ranks),
                          .count = (uint32_t)reef_ranks_count(crew->ranks)};
    return draw_number(crew, shard->pool, sizeof(shard->pool), err);
}

reef_status reef_crew_meet(
    reef_crew *crew, reef_store **store, reef_status status, reef_shard *shard, reef_error *err) {
    size_t count = reef_ranks_count(crew->ranks), rank = reef_ranks_rank(crew->ranks);
    reef_crew_card *cards = calloc(count, sizeof(*cards));
    bool *back = calloc(count, sizeof(*back)), stepped = true;
    static const reef_error no_memory = {REEF_ERR_NO_MEMORY, "no memory to meet the others"};
    if (cards == NULL || back == NULL) reef_crew_fail(crew, &no_memory);
    // A second time if somebody went back: then all have to be equal.
    for (int round = 0; stepped && round < 2; round++) {
        fill_card(crew, &cards[rank], *store, status, err);
        exchange_cards(crew, cards);
        stepped = false;
        status = reef_crew_judge(cards, count, back, err);
        if (status != REEF_OK) break;
        for (size_t r = 0; r < count; r++) stepped = stepped || back[r];
        if (back[rank]) status = step_back(crew, store, err);
    }
    if (status == REEF_OK && stepped)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "a shard is a commit ahead of rank 0's although it went back one");
    *shard = cards[rank].shard;
    bool apart = crew->join_every > 0;
    if (status == REEF_OK && apart) status = begin_apart(crew, *store, cards, err);
    if (status == REEF_OK && !apart && !cards[rank].is_shard)
        status = begin_shards(crew, shard, err);
    crew->met = status == REEF_OK;
    free(cards);
    free(back);
    return status;
}
