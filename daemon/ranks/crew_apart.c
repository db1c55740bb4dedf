// What ranks that learn apart compare before they train; see crew.h and joins.h. Their pools differ
// once they have learned anything. So what is compared is the configuration, what all began with,
// and how many joins each has done.
#include "crew_internal.h"

#include <inttypes.h>
#include <string.h>

static reef_status judge_pool(const reef_crew_card *card,
                              const reef_crew_card *first,
                              size_t rank,
                              reef_error *err) {
    if (card->new_shards != first->new_shards)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: it was started %s --new-shards, and rank 0 was not so", rank,
                         card->new_shards ? "with" : "without");
    if (card->config != first->config)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool has another configuration than rank 0's", rank);
    if (card->is_shard)
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool is a shard of one training: start it without "
                         "--join-every, or let equal copies start a new training (--new-shards)",
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

// Nobody learns before all have written down that they join. So where some have and others have
// not, nothing was learned yet, and all start over.
static reef_status judge_new(const reef_crew_card *card,
                             const reef_crew_card *first,
                             size_t rank,
                             size_t fresh, // the first rank that has not
                             reef_error *err) {
    if (card->has_joined && (card->join.joins > 0 || card->join.since > 0))
        return reef_fail(err, REEF_ERR_INVALID,
                         "rank %zu: its pool has not joined others, but that of rank %zu has: "
                         "restore it, or start over from equal copies (--new-shards)",
                         fresh, rank);
    if (memcmp(card->root, first->root, sizeof(card->root)) == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "rank %zu: its pool is not equal to rank 0's: at step %" PRIu64
                     ", byte %" PRIu64 " of the stream, and rank 0's at step %" PRIu64
                     ", byte %" PRIu64 "; all begin with copies of one pool",
                     rank, card->step, card->stream_bytes, first->step, first->stream_bytes);
}

static reef_status judge_join(const reef_crew_card *card,
                              const reef_crew_card *first,
                              size_t rank,
                              size_t count,
                              uint64_t most,
                              reef_error *err) {
    const reef_join *join = &card->join;
    if (memcmp(join->training, first->join.training, sizeof(join->training)) != 0)
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
                         ", or start over from equal copies (--new-shards)",
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

reef_status reef_crew_judge_apart(const reef_crew_card *cards, size_t count, reef_error *err) {
    reef_status status = REEF_OK;
    uint64_t most = 0;
    size_t fresh = count;
    for (size_t r = count; r-- > 0;) {
        if (cards[r].join.joins > most) most = cards[r].join.joins;
        if (!cards[r].has_joined) fresh = r;
    }
    for (size_t r = 0; status == REEF_OK && r < count; r++) {
        status = judge_pool(&cards[r], &cards[0], r, err);
        if (status == REEF_OK && fresh < count)
            status = judge_new(&cards[r], &cards[0], r, fresh, err);
        else if (status == REEF_OK)
            status = judge_join(&cards[r], &cards[0], r, count, most, err);
    }
    return status;
}
