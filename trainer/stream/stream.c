// From accepted bytes to learned batches.
//
// Bytes that were accepted wait until a piece of the stream is whole. It is judged before anything
// learns it (recognition.h): the kind being learned takes it, or one that came before, or it
// begins a kind of its own. While that is not clear the piece is deferred. So nothing ever has to
// be taken back, and nothing is lost. Where boundaries are given, there is nothing to judge: the
// open generation learns each batch.
//
//   pending:  | deferred piece | deferred piece | next piece | part of a piece ...
//             ^ stream_bytes
//
// A marker line (marker_line.c) is a boundary at exactly its offset. What is pending before it is
// learned first. The rest, fewer bytes than a batch and its next byte, goes with the marker line.
// Generations on both sides see nothing of each other's data. A marker line before anything was
// learned since the last boundary is only taken out of the stream.
#include "stream.h"
#include "boundary.h"
#include "kind_memories.h"
#include "merge_small.h"
#include "recognition.h"
#include "room.h"

#include <stdlib.h>
#include <string.h>

// ---- pieces -------------------------------------------------------------------------------------

// Older kinds have learned all that came since the open generation was opened: it is still new.
static bool open_is_unused(const reef_trainer *trainer) {
    const reef_generation_record *open = &reef_open_generation(trainer)->info;
    return trainer->generation_step == 0 && open->continues == 0 &&
           trainer->kinds.current != open->generation;
}

// The last kind that began and is still one: generations behind it may continue older ones.
static uint32_t last_kind(const reef_trainer *trainer) {
    uint32_t kind = reef_open_generation(trainer)->info.generation;
    while (kind > 0 && (!reef_is_kind(trainer, kind) || reef_kind_is_merged(trainer, kind, NULL)))
        kind--;
    return kind;
}

// The first batches of a new kind. Where there is no room for another, the last one that began
// takes all that is strange, and the others stay clean.
static reef_status begin_kind(reef_trainer *trainer, size_t count, size_t *steps, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    uint32_t open = reef_open_generation(trainer)->info.generation;
    size_t first = (count - 1) % reef_piece_batches(config) + 1;
    reef_status status = REEF_OK;
    bool unused = open_is_unused(trainer);
    if (!unused && !reef_room_is_full(trainer)) {
        status = reef_growth_begin(trainer, "contexts", err);
        // What follows decides it: the new kind is the current one, and has learned nothing.
        if (status == REEF_OK) trainer->kinds.current = last_kind(trainer);
        if (status == REEF_OK) status = reef_kind_merge_small(trainer, open, err);
    }
    if (status != REEF_OK) return status;
    bool opened = unused || reef_open_generation(trainer)->info.generation != open;
    trainer->kinds.current = last_kind(trainer);
    // Of a new kind only what is its own of the first piece: what follows may be the next one.
    return reef_pending_learn(trainer, trainer->kinds.current, opened ? first : count, steps, err);
}

// Judge the piece behind the deferred ones, and learn what is decided by it.
static reef_status judge_next(reef_trainer *trainer, size_t *steps, reef_error *err) {
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

// Before a marker line: the current kind learns all whole batches that are pending.
static reef_status learn_rest(reef_trainer *trainer, size_t *steps, reef_error *err) {
    size_t batch = reef_batch_bytes(&trainer->network.config);
    size_t usable = reef_pending_usable_bytes(trainer);
    trainer->stream.deferred_batches = 0;
    if (usable <= batch) return REEF_OK;
    // The last batch needs the token after it, for its last target.
    usable -= 1;
    return reef_pending_learn(trainer, trainer->kinds.current, usable / batch, steps, err);
}

// ---- bytes --------------------------------------------------------------------------------------

static size_t ready_bytes(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    size_t batches = reef_recognises_by_contexts(trainer) ? reef_piece_batches(config) : 1;
    return (trainer->stream.deferred_batches + batches) * reef_batch_bytes(config) + 1;
}

static bool is_ready(const reef_trainer *trainer) {
    return reef_pending_usable_bytes(trainer) >= ready_bytes(trainer);
}

static reef_status learn_next(reef_trainer *trainer, size_t *steps, reef_error *err) {
    if (reef_recognises_by_contexts(trainer)) return judge_next(trainer, steps, err);
    return reef_pending_learn(trainer, reef_open_kind(trainer), 1, steps, err);
}

// The pending bytes end in a marker line, and no piece before it is whole.
static reef_status boundary_at_marker(reef_trainer *trainer, size_t *steps, reef_error *err) {
    reef_status status = REEF_OK;
    // What was deferred before the marker line belongs to the kind that ends here.
    if (reef_recognises_by_contexts(trainer)) status = learn_rest(trainer, steps, err);
    if (status != REEF_OK) return status;
    bool grows = trainer->generation_step > 0;
    // The marker line is not trained. With a boundary everything pending goes with it: it is less
    // than a batch, and is of the old domain.
    size_t gone = grows ? trainer->stream.pending_bytes : trainer->stream.marker.line_bytes;
    trainer->stream.marker.line_bytes = 0;
    trainer->stream.pending_bytes -= gone;
    trainer->stream_bytes += gone;
    trainer->stream.not_learned_bytes += gone;
    return grows ? reef_growth_begin(trainer, "mark", err) : REEF_OK;
}

static reef_status reserve_pending(reef_trainer *trainer, size_t bytes, reef_error *err) {
    if (bytes <= trainer->stream.pending_capacity) return REEF_OK;
    uint8_t *pending = realloc(trainer->stream.pending, bytes);
    if (pending == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to hold %zu bytes of the stream",
                         bytes);
    trainer->stream.pending = pending;
    trainer->stream.pending_capacity = bytes;
    return REEF_OK;
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
    reef_status status = reserve_pending(trainer, trainer->stream.pending_bytes + count, err);
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

// A refused boundary has not begun. After any other failure a batch may be half counted, or what
// follows a step has not been done: read on from here it would be another model.
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
