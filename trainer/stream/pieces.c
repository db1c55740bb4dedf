// See pieces.h.
#include "pieces.h"
#include "boundary.h"
#include "pending.h"
#include "recognition.h"
#include "room.h"

// Older kinds have learned all that came since the open generation was opened: it is still new.
static bool open_is_unused(const reef_trainer *trainer) {
    const reef_generation_record *open = &reef_open_generation(trainer)->info;
    return trainer->generation_step == 0 && open->continues == 0 &&
           trainer->kinds.current != open->generation;
}

// The first batches of a new kind. Where there is no room for another, the last one that began
// takes all that is strange, and the others stay clean.
static reef_status begin_kind(reef_trainer *trainer, size_t count, size_t *steps, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    uint32_t open = reef_open_generation(trainer)->info.generation;
    size_t first = (count - 1) % reef_piece_batches(config) + 1;
    reef_status status = REEF_OK;
    bool unused = open_is_unused(trainer);
    if (!unused && !reef_room_is_full(trainer))
        status = reef_growth_begin(trainer, "contexts", trainer->stream.pending,
                                   count * reef_batch_bytes(config), err);
    if (status != REEF_OK) return status;
    bool opened = unused || reef_open_generation(trainer)->info.generation != open;
    trainer->kinds.current = reef_open_generation(trainer)->info.generation;
    // Of a new kind only the first piece: what follows may be the next one already.
    return reef_pending_learn(trainer, trainer->kinds.current, opened ? first : count, steps, err);
}

reef_status reef_pieces_next(reef_trainer *trainer, size_t *steps, reef_error *err) {
    size_t batches = reef_piece_batches(&trainer->network.config);
    size_t pieces = trainer->stream.deferred_batches / batches;
    uint32_t current = trainer->kinds.current;
    reef_kind_decision decision;
    reef_status status = reef_recognise_piece(trainer, pieces, &decision, err);
    if (status != REEF_OK) return status;
    pieces++;
    if (decision.verdict == REEF_VERDICT_DEFER) {
        trainer->stream.deferred_batches += batches;
        return REEF_OK;
    }
    trainer->stream.deferred_batches = 0;
    if (decision.verdict == REEF_VERDICT_CURRENT) {
        for (size_t i = 0; i < pieces; i++) reef_recognition_count(trainer, i, current);
        return reef_pending_learn(trainer, current, pieces * batches, steps, err);
    }
    size_t left = pieces * batches - decision.from_batch;
    status = reef_pending_learn(trainer, current, decision.from_batch, steps, err);
    if (status != REEF_OK) return status;
    if (decision.verdict == REEF_VERDICT_NEW) return begin_kind(trainer, left, steps, err);
    // A piece that is another's in part says nothing of either.
    for (size_t i = (decision.from_batch + batches - 1) / batches; i < pieces; i++)
        reef_recognition_count(trainer, i, decision.kind);
    trainer->kinds.current = decision.kind;
    return reef_pending_learn(trainer, decision.kind, left, steps, err);
}

reef_status reef_pieces_end(reef_trainer *trainer, size_t *steps, reef_error *err) {
    size_t batch = reef_batch_bytes(&trainer->network.config);
    size_t usable = reef_pending_usable_bytes(trainer);
    trainer->stream.deferred_batches = 0;
    if (usable <= batch) return REEF_OK;
    // The last batch needs the token after it, for its last target.
    usable -= 1;
    return reef_pending_learn(trainer, trainer->kinds.current, usable / batch, steps, err);
}
