// A text read over a memory that does not change: views of its tables, and its mixer. The session
// has a copy of the mixer from the first byte on that it learns: most kinds that are asked about a
// text predict some bytes and learn none, and a copy takes as long as some fifty bytes.
#include "memory_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reef_memory_session {
    reef_predictor predictor;
    const reef_memory *memory;
    reef_memory_reading reading;
    bool copies_net; // the memory has met a net
    // Owned: copies of what the memory learned beside its tables. NULL: it has never learned
    reef_mix_state *state;
    reef_net_state *net_state;
    reef_input_counts inputs;
    reef_net_tree net; // of the byte in hand, while the predictor has its tokens
};

static reef_status make_views(reef_memory_session *session, reef_error *err) {
    reef_predictor *p = &session->predictor;
    const reef_predictor *from = &session->memory->predictor;
    p->cell_lines_log2 = from->cell_lines_log2;
    p->slot_lines_log2 = from->slot_lines_log2;
    reef_status status = reef_lines_init_view(&p->cells, &from->cells, err);
    if (status == REEF_OK) status = reef_lines_init_view(&p->slots, &from->slots, err);
    for (size_t k = 0; status == REEF_OK && k < REEF_MATCHES; k++)
        status = reef_lines_init_view(&p->index[k], &from->index[k], err);
    reef_text_init_view(&p->text, &from->text);
    session->copies_net = from->net != NULL;
    return status;
}

static void *copy_of(void *copy, const void *from, size_t bytes) {
    if (copy == NULL) copy = malloc(bytes);
    if (copy != NULL) memcpy(copy, from, bytes);
    return copy;
}

// From now on the session writes to its mixer.
static reef_status copy_mixer(reef_memory_session *session, reef_error *err) {
    reef_predictor *p = &session->predictor;
    const reef_predictor *from = &session->memory->predictor;
    session->state = copy_of(session->state, from->state, sizeof(*from->state));
    bool has_room = session->state != NULL;
    if (has_room && session->copies_net) {
        session->net_state = copy_of(session->net_state, from->net, sizeof(*from->net));
        has_room = session->net_state != NULL;
    }
    if (!has_room) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a session's mixer");
    p->state = session->state;
    if (session->copies_net) p->net = session->net_state;
    return REEF_OK;
}

// Before a byte that may be learned.
static reef_status own_mixer(reef_memory_session *session, reef_error *err) {
    const reef_predictor *p = &session->predictor;
    return p->frozen || p->state == session->state ? REEF_OK : copy_mixer(session, err);
}

static reef_status prepare_byte(reef_memory_session *session, reef_error *err) {
    reef_status status = own_mixer(session, err);
    return status == REEF_OK ? reef_predictor_reserve(&session->predictor, err) : status;
}

// Does it take from the bytes to come what its reading allows?
static void set_learning(reef_memory_session *session, bool learns) {
    session->predictor.frozen = !learns || session->reading != REEF_READ_ADAPTING;
    session->predictor.alone = !learns || session->reading == REEF_READ_ALONE;
}

static void begin(reef_memory_session *session) {
    reef_predictor *p = &session->predictor;
    const reef_predictor *from = &session->memory->predictor;
    // The memory's own, which a session that learns nothing only reads.
    p->state = from->state;
    if (!session->copies_net) free(p->net); // the session's: its next text has met no net either
    p->net = from->net;
    p->learned_bytes = from->learned_bytes;
    set_learning(session, true);
    reef_predictor_begin(p);
    session->inputs = (reef_input_counts){0};
}

reef_status reef_memory_session_open(reef_memory_session **out,
                                     const reef_memory *memory,
                                     reef_memory_reading reading,
                                     reef_error *err) {
    *out = NULL;
    reef_memory_session *session = calloc(1, sizeof(*session));
    if (session == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a session");
    session->memory = memory;
    session->reading = reading;
    reef_status status = make_views(session, err);
    if (status != REEF_OK) {
        reef_memory_session_close(session);
        return status;
    }
    begin(session);
    *out = session;
    return REEF_OK;
}

void reef_memory_session_close(reef_memory_session *session) {
    if (session == NULL) return;
    reef_predictor *p = &session->predictor;
    reef_lines_release(&p->cells);
    reef_lines_release(&p->slots);
    for (size_t k = 0; k < REEF_MATCHES; k++) reef_lines_release(&p->index[k]);
    reef_text_release(&p->text);
    if (!session->copies_net) free(p->net);
    free(session->state);
    free(session->net_state);
    free(session);
}

void reef_memory_session_reset(reef_memory_session *session) {
    reef_predictor *p = &session->predictor;
    reef_lines_reset(&p->cells);
    reef_lines_reset(&p->slots);
    for (size_t k = 0; k < REEF_MATCHES; k++) reef_lines_reset(&p->index[k]);
    reef_text_reset(&p->text);
    begin(session);
}

void reef_memory_session_set_learning(reef_memory_session *session, bool learns) {
    assert(!session->predictor.begun);
    set_learning(session, learns);
}

// ---- bit by bit ---------------------------------------------------------------------------------

static reef_status fail_within_byte(const char *what, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID, "%s within a byte", what);
}

reef_status reef_memory_session_net(reef_memory_session *session,
                                    const float *probabilities,
                                    uint16_t tokens,
                                    reef_error *err) {
    if (session->predictor.begun) return fail_within_byte("a net's prediction", err);
    session->predictor.net_tokens = tokens;
    if (tokens > 0) reef_net_tree_init(&session->net, probabilities);
    return REEF_OK;
}

// Predicts the next bit, with the net's log odds of it.
static reef_status predict(reef_memory_session *session, uint32_t *one, reef_error *err) {
    reef_predictor *p = &session->predictor;
    if (!p->begun) {
        reef_status status = prepare_byte(session, err);
        if (status != REEF_OK) return status;
    }
    *one = reef_predictor_predict(p);
    if (reef_inputs_sampled(p)) reef_inputs_count(&session->inputs, p, 1);
    return REEF_OK;
}

reef_status reef_memory_session_predict(reef_memory_session *session,
                                        uint32_t *one,
                                        reef_error *err) {
    reef_predictor *p = &session->predictor;
    if (p->net_tokens > 0) p->net_odds = reef_net_tree_odds(&session->net, p->begun ? p->bits : 1);
    return predict(session, one, err);
}

void reef_memory_session_update(reef_memory_session *session, int bit) {
    reef_predictor_update(&session->predictor, bit);
}

// ---- texts --------------------------------------------------------------------------------------

reef_status reef_memory_session_read(reef_memory_session *session,
                                     const uint8_t *bytes,
                                     size_t count,
                                     const reef_net_prediction *net,
                                     float *bits,
                                     reef_error *err) {
    reef_predictor *p = &session->predictor;
    for (size_t i = 0; i < count; i++) {
        double chance = 1.0;
        p->net_tokens = net != NULL ? net[i].tokens : 0;
        reef_status status = p->begun ? REEF_OK : prepare_byte(session, err);
        if (status != REEF_OK) return status;
        reef_input_counts *inputs = reef_inputs_sampled(p) ? &session->inputs : NULL;
        bool read = reef_predictor_read_expected(p, bytes[i], inputs, &chance);
        for (int b = 7; b >= 0 && !read; b--) {
            uint32_t one = 0;
            int bit = bytes[i] >> b & 1;
            if (net != NULL) p->net_odds = reef_odds_clip(net[i].odds[7 - b]);
            status = predict(session, &one, err);
            if (status != REEF_OK) return status;
            chance *= (bit ? one : 65536 - one) / 65536.0;
            reef_memory_session_update(session, bit);
        }
        if (bits != NULL) bits[i] = (float)-log2(chance);
    }
    return REEF_OK;
}

reef_status reef_memory_session_skip(reef_memory_session *session,
                                     const uint8_t *bytes,
                                     size_t count,
                                     reef_error *err) {
    reef_predictor *p = &session->predictor;
    if (p->begun && p->bit > 0) return fail_within_byte("a skip", err);
    reef_status status = REEF_OK;
    for (size_t done = 0, size; status == REEF_OK && done < count; done += size) {
        size = count - done < REEF_TEXT_BLOCK_BYTES ? count - done : REEF_TEXT_BLOCK_BYTES;
        status = reef_text_reserve(&p->text, size, err);
        if (status == REEF_OK) reef_predictor_skip(p, bytes + done, size);
    }
    return status;
}

reef_status reef_memory_session_distribution(reef_memory_session *session,
                                             const float *net_probabilities,
                                             uint16_t tokens,
                                             double *out,
                                             reef_error *err) {
    if (session->predictor.begun) return fail_within_byte("a distribution", err);
    reef_status status = own_mixer(session, err); // a trial learns, and takes that back
    if (status != REEF_OK) return status;
    reef_net_tree net;
    bool speaks = net_probabilities != NULL && tokens > 0;
    if (speaks) reef_net_tree_init(&net, net_probabilities);
    return reef_predictor_distribution(&session->predictor, speaks ? &net : NULL, tokens, out, err);
}

void reef_memory_session_inputs(const reef_memory_session *session, double *shares, double *hits) {
    reef_inputs_read(&session->inputs, shares, hits);
}
