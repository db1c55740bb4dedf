// From accepted bytes to learned batches.
//
// Bytes that were accepted wait until a piece of the stream is whole. It is judged before anything
// learns it (pieces.h): the kind that is being learned takes it, or one that came before, or it
// begins a kind of its own. While that is not clear the piece is deferred. So nothing ever has to
// be taken back, and nothing is lost. Where boundaries are given, there is nothing to judge: the
// open generation learns each batch.
//
//   pending:  | deferred piece | deferred piece | next piece | part of a piece ...
//             ^ stream_bytes, gating
//
// A marker line (marker_line.h) is a boundary at exactly its offset. What is pending before it is
// learned first. The rest, fewer bytes than a batch and its next byte, goes with the marker line.
// Generations on both sides see nothing of each other's data, and all gates restart behind it,
// since another stream begins there. A marker line before anything was learned since the last
// boundary is only taken out of the stream.
#include "stream.h"
#include "boundary.h"
#include "kind_memories.h"
#include "pending.h"
#include "pieces.h"
#include "recognition.h"
#include "trainer_internal.h"

#include <string.h>

static size_t ready_bytes(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    size_t batches = reef_recognises_by_contexts(trainer) ? reef_piece_batches(config) : 1;
    return reef_pending_deferred_bytes(trainer) + batches * reef_batch_bytes(config) + 1;
}

static bool is_ready(const reef_trainer *trainer) {
    return reef_pending_usable_bytes(trainer) >= ready_bytes(trainer);
}

static reef_status learn_next(reef_trainer *trainer, size_t *steps, reef_error *err) {
    if (reef_recognises_by_contexts(trainer)) return reef_pieces_next(trainer, steps, err);
    return reef_pending_learn(trainer, reef_open_kind(trainer), 1, steps, err);
}

// All gates at the beginning of a stream.
static reef_status restart_gates(reef_trainer *trainer, reef_error *err) {
    reef_gating_release(&trainer->net.gating);
    return reef_gating_init(&trainer->net.gating, &trainer->network, err);
}

// The pending bytes end in a marker line, and no piece before it is whole.
static reef_status boundary_at_marker(reef_trainer *trainer, size_t *steps, reef_error *err) {
    reef_status status = REEF_OK;
    // What was deferred before the marker line belongs to the kind that ends here.
    if (reef_recognises_by_contexts(trainer)) status = reef_pieces_end(trainer, steps, err);
    if (status != REEF_OK) return status;
    bool grows = trainer->generation_step > 0;
    // The marker line is not trained. With a boundary everything pending goes with it: it is less
    // than a batch, and is of the old domain.
    size_t gone = grows ? trainer->stream.pending_bytes : trainer->stream.marker.line_bytes;
    trainer->stream.marker.line_bytes = 0;
    trainer->stream.pending_bytes -= gone;
    trainer->stream_bytes += gone;
    trainer->stream.not_learned_bytes += gone;
    if (!grows) return REEF_OK;
    status = restart_gates(trainer, err);
    return status == REEF_OK ? reef_growth_begin(trainer, "mark", NULL, 0, err) : status;
}

// Accept bytes until a piece is whole or a marker line has been read; counts them in `taken`.
static reef_status accept_bytes(
    reef_trainer *trainer, const uint8_t *bytes, size_t count, size_t *taken, reef_error *err) {
    const char *text = trainer->network.config.boundary_mark;
    // Only what the next piece lacks is accepted: a failing batch must not have swallowed bytes
    // beyond it.
    size_t need = ready_bytes(trainer) - reef_pending_usable_bytes(trainer);
    // Maybe before: a line that turns out not to be a marker adds its bytes at once.
    if (count > need) count = need;
    reef_status status =
        reef_trainer_reserve_pending(trainer, trainer->stream.pending_bytes + count, err);
    if (status != REEF_OK) return status;
    memcpy(trainer->stream.pending + trainer->stream.pending_bytes, bytes, count);
    if (text[0] == '\0') {
        trainer->stream.pending_bytes += count;
        *taken += count;
        return REEF_OK;
    }
    // Byte by byte, because a marker line may end anywhere, and bytes behind it belong to the next
    // generation.
    for (size_t i = 0; i < count && !is_ready(trainer) && trainer->stream.marker.line_bytes == 0;
         i++) {
        reef_marker_line_read(&trainer->stream.marker, text, bytes[i]);
        trainer->stream.pending_bytes++;
        ++*taken;
    }
    return REEF_OK;
}

// A refused boundary has not begun. After any other failure a batch may be half counted, with gates
// ahead of it, or what follows a step has not been done: read on from here it would be another
// model.
static reef_status settled(reef_trainer *trainer, reef_status status) {
    if (status != REEF_OK && status != REEF_ERR_INVALID && status != REEF_ERR_FULL)
        reef_trainer_break(trainer, status);
    return status;
}

reef_status reef_stream_push(reef_trainer *trainer,
                             const uint8_t *bytes,
                             size_t count,
                             size_t *taken,
                             size_t *steps,
                             reef_error *err) {
    reef_status status = REEF_OK;
    *taken = *steps = 0;
    // Pieces first: bytes are accepted only when no decision is open.
    while (status == REEF_OK && *steps == 0) {
        if (is_ready(trainer))
            status = settled(trainer, learn_next(trainer, steps, err));
        else if (trainer->stream.marker.line_bytes > 0)
            status = settled(trainer, boundary_at_marker(trainer, steps, err));
        else if (*taken < count)
            status = accept_bytes(trainer, bytes + *taken, count - *taken, taken, err);
        else
            break;
    }
    return status;
}
