// See recall.h.
#include "recall.h"
#include "activations.h"

#include <stdlib.h>
#include <string.h>

#define RECENT 16      // bytes before a surprise that vote on who is asked
#define VOTES_UNTIL 64 // bytes after one, and who runs has been found
// While the text is of one kind few others are asked, and those alone that have nearly as many
// votes as the first; where it changes, more.
#define NAMED_CALM 2 // kinds that a surprise adds
#define LATER_CALM 1 // and each later vote
#define NAMED_MAX 4  // the same where it changes
#define LATER_MAX 2
#define LEAST_CALM 0.8    // of the first one's votes
#define BEGIN_BYTES 32    // of a text, of which nothing is known yet
#define LEAST_BEGIN 0.5   // there
#define CHANGE_BEFORE 8   // bytes before a change that vote on what comes then
#define SESSIONS_MAX 256  // at a time; of two megabytes and what they learned
#define NET_FIRST 32      // bytes of a text behind which the net's generation is chosen first,
#define NET_EVERY 512     // and then behind each multiple of these
#define PASSED_MAX 65536u // of what passed a memory by, the last bytes are enough of a context

bool reef_recall_answers(const reef_network *network) {
    for (size_t g = 0; g < network->generation_count; g++)
        if (network->generations[g]->memory.memory != NULL) return true;
    return false;
}

void reef_recall_release(reef_recall *recall) {
    for (size_t g = 0; g < recall->generation_count; g++)
        reef_memory_session_close(recall->sessions[g]);
    free(recall->sessions);
    free(recall->begun);
    free(recall->read);
    free(recall->answered);
    free(recall->text);
    reef_kind_vote_free(recall->vote);
    *recall = (reef_recall){.reading = recall->reading};
}

reef_status reef_recall_begin(reef_recall *recall, const reef_network *network, reef_error *err) {
    // Arrays are kept from text to text. A network of another size has other memories: their
    // sessions end, and all arrays are made again.
    if (recall->generation_count != network->generation_count) {
        reef_recall_release(recall);
        size_t count = network->generation_count;
        recall->sessions = calloc(count, sizeof(*recall->sessions));
        recall->begun = calloc(count, sizeof(*recall->begun));
        recall->read = calloc(count, sizeof(*recall->read));
        recall->answered = calloc(count, sizeof(*recall->answered));
        recall->text = malloc(2 * (size_t)PASSED_MAX);
        if (recall->sessions == NULL || recall->begun == NULL || recall->read == NULL ||
            recall->answered == NULL || recall->text == NULL) {
            reef_recall_release(recall);
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to read a text");
        }
        recall->generation_count = count;
    }
    for (size_t g = 0; g < recall->generation_count; g++) {
        recall->begun[g] = false;
        recall->read[g] = 0;
        recall->answered[g] = 0.0;
    }
    recall->length = 0;
    recall->kept = 0;
    recall->chosen_for = 0;
    recall->net_is_chosen = false;
    recall->posterior = (reef_posterior){0};
    return REEF_OK;
}

void reef_recall_set_reading(reef_recall *recall, reef_memory_reading reading) {
    if (recall->reading == reading) return;
    reef_recall_release(recall); // a session has one for good
    recall->reading = reading;
}

bool reef_recall_inputs(const reef_recall *recall, double *shares, double *hits) {
    size_t count = reef_memory_input_count();
    double all = 0.0, some_shares[REEF_MEMORY_INPUTS_MAX], some_hits[REEF_MEMORY_INPUTS_MAX];
    memset(shares, 0, count * sizeof(*shares));
    memset(hits, 0, count * sizeof(*hits));
    for (size_t g = 0; g < recall->generation_count; g++) all += recall->answered[g];
    for (size_t g = 0; g < recall->generation_count; g++) {
        if (recall->answered[g] == 0.0 || recall->sessions[g] == NULL) continue;
        double part = recall->answered[g] / all;
        reef_memory_session_inputs(recall->sessions[g], some_shares, some_hits);
        for (size_t i = 0; i < count; i++) {
            shares[i] += part * some_shares[i];
            hits[i] += part * some_hits[i];
        }
    }
    return all > 0.0;
}

void reef_recall_shares(const reef_recall *recall, double *shares) {
    for (size_t g = 0; g < recall->generation_count; g++)
        shares[g] = recall->answered[g] / (recall->length > 0 ? (double)recall->length : 1.0);
}

// Some sessions are enough. Where one more is opened, that one ends which has answered least of the
// text, and so has least to forget; not one that reads.
static void make_room(reef_recall *recall) {
    size_t open = 0, least = recall->generation_count;
    for (size_t g = 0; g < recall->generation_count; g++) {
        if (recall->sessions[g] == NULL) continue;
        open++;
        if (recall->read[g] < recall->length &&
            (least == recall->generation_count || recall->answered[g] < recall->answered[least]))
            least = g;
    }
    if (open < SESSIONS_MAX || least == recall->generation_count) return;
    reef_memory_session_close(recall->sessions[least]);
    recall->sessions[least] = NULL;
    recall->read[least] = 0;
}

// The session of a generation, which has met all of the text but the last `again` bytes. NULL: it
// has no memory.
static reef_status session_before(reef_recall *recall,
                                  const reef_network *network,
                                  size_t g,
                                  size_t again,
                                  reef_memory_session **out,
                                  reef_error *err) {
    const reef_memory *memory = network->generations[g]->memory.memory;
    *out = NULL;
    if (memory == NULL) return REEF_OK;
    reef_status status = REEF_OK;
    if (recall->sessions[g] == NULL) {
        make_room(recall);
        status = reef_memory_session_open(&recall->sessions[g], memory, recall->reading, err);
    } else if (!recall->begun[g]) {
        // Not all of them when a text begins: most would not be asked.
        reef_memory_session_reset(recall->sessions[g]);
    }
    recall->begun[g] = true;
    uint64_t passed = recall->length - again - recall->read[g];
    if (passed > PASSED_MAX - again) passed = PASSED_MAX - again;
    if (status == REEF_OK && passed > 0)
        status = reef_memory_session_skip(
            recall->sessions[g], recall->text + recall->kept - again - passed, (size_t)passed, err);
    if (status != REEF_OK) return status;
    recall->read[g] = recall->length - again;
    *out = recall->sessions[g];
    return REEF_OK;
}

static reef_status session_of(reef_recall *recall,
                              const reef_network *network,
                              size_t g,
                              reef_memory_session **out,
                              reef_error *err) {
    return session_before(recall, network, g, 0, out, err);
}

// Keep what was read: memories that did not answer it skip it later.
static void keep_text(reef_recall *recall, const uint8_t *bytes, size_t count) {
    recall->length += count;
    if (recall->kept + count > 2 * (size_t)PASSED_MAX) {
        memmove(recall->text, recall->text + recall->kept - PASSED_MAX, PASSED_MAX);
        recall->kept = PASSED_MAX;
    }
    memcpy(recall->text + recall->kept, bytes, count);
    recall->kept += count;
}

void reef_answers_set(const reef_answers *out, size_t from, size_t to, uint32_t kind) {
    if (out->kinds == NULL) return;
    for (size_t i = from * out->width; i < to * out->width; i++) {
        bool first = i % out->width == 0;
        out->kinds[i] = first ? kind : UINT32_MAX;
        if (out->weights != NULL) out->weights[i] = first ? 1.0f : 0.0f;
    }
}

// ---- who answers --------------------------------------------------------------------------------

size_t reef_recall_net(const reef_recall *recall, const reef_network *network) {
    if (!reef_recall_answers(network)) return network->generation_count - 1;
    return recall->net_is_chosen ? reef_network_net_of(network, recall->net_kind) : 0;
}

// The net predicts none of the first byte.
static size_t net_bytes(const reef_recall *recall) {
    return recall->length == 0 ? 0 : recall->length - 1;
}

size_t reef_recall_net_left(const reef_recall *recall) {
    size_t bytes = net_bytes(recall);
    return bytes < NET_FIRST ? NET_FIRST - bytes : NET_EVERY - bytes % NET_EVERY;
}

static void choose_net(reef_recall *recall) {
    const reef_posterior *p = &recall->posterior;
    size_t bytes = net_bytes(recall);
    if (bytes == 0 || (bytes != NET_FIRST && bytes % NET_EVERY != 0)) return;
    recall->net_is_chosen = true;
    recall->net_kind = p->kinds[reef_posterior_likeliest(p)];
}

static bool has_memory(const reef_network *network, size_t g) {
    return network->generations[g]->memory.memory != NULL;
}

// Before the first vote.
static reef_status prepare_vote(reef_recall *recall, const reef_network *network, reef_error *err) {
    if (recall->vote != NULL) return REEF_OK;
    reef_status status = reef_kind_vote_new(&recall->vote, REEF_KIND_SAMPLE, err);
    for (size_t g = 0; status == REEF_OK && g < network->generation_count; g++)
        status = reef_kind_vote_set(recall->vote, (uint32_t)g,
                                    network->generations[g]->memory.memory, err);
    if (status != REEF_OK) { // half of the kinds would vote for ever
        reef_kind_vote_free(recall->vote);
        recall->vote = NULL;
    }
    return status;
}

// voters  bytes of the text, the last ones
// least   of the first one's votes
static reef_status vote(reef_recall *recall,
                        const reef_network *network,
                        uint64_t voters,
                        double least,
                        uint32_t *kinds,
                        size_t *count,
                        reef_error *err) {
    reef_status status = prepare_vote(recall, network, err);
    size_t bytes = voters < recall->kept ? (size_t)voters : recall->kept;
    if (status == REEF_OK)
        *count = reef_kind_vote_count(recall->vote, recall->text + recall->kept - bytes, bytes,
                                      least, kinds, *count);
    return status;
}

// Those that the text names.
static reef_status vote_named(reef_recall *recall,
                              const reef_network *network,
                              uint32_t *kinds,
                              size_t *count,
                              reef_error *err) {
    const reef_posterior *p = &recall->posterior;
    uint64_t awake = reef_posterior_awake(p), voters = awake + RECENT;
    if (p->woken == 0) return vote(recall, network, voters, LEAST_BEGIN, kinds, count, err);
    bool begins = recall->length <= BEGIN_BYTES;
    double least = begins ? LEAST_BEGIN : LEAST_CALM;
    *count = awake > 0 ? LATER_CALM : NAMED_CALM;
    if (p->changes || begins) *count = awake > 0 ? LATER_MAX : NAMED_MAX;
    if (p->changes) { // what comes now says more of it than what was before
        voters = recall->length - p->changed_from + CHANGE_BEFORE;
        least = 0.0;
    }
    return vote(recall, network, voters, least, kinds, count, err);
}

// Kinds that the text may be of from now on, the likeliest first, at most *count: where kinds are
// few, all of them; before a byte was read, the newest; else by vote, repeated after 1, 2, 4, ...
// bytes.
static reef_status choose_candidates(reef_recall *recall,
                                     const reef_network *network,
                                     uint32_t *kinds,
                                     size_t *count,
                                     reef_error *err) {
    uint64_t awake = reef_posterior_awake(&recall->posterior);
    size_t all = 0, newest = 0;
    for (size_t g = network->generation_count; g-- > 0;) {
        if (!has_memory(network, g)) continue;
        if (all++ < *count) kinds[newest++] = (uint32_t)g;
    }
    bool few = all <= *count, again = awake <= VOTES_UNTIL && (awake & (awake - 1)) == 0;
    *count = awake == 0 || (again && !few) ? newest : 0;
    if (few || *count == 0 || recall->length == 0) return REEF_OK;
    return vote_named(recall, network, kinds, count, err);
}

// A kind begins to run: it reads the last bytes again, as if it had run already.
static reef_status join(reef_recall *recall,
                        const reef_network *network,
                        uint32_t kind,
                        reef_error *err) {
    uint64_t unread = recall->length - recall->read[kind];
    size_t again = unread < REEF_REPLAY ? (size_t)unread : REEF_REPLAY;
    reef_memory_session *session;
    float bits[REEF_REPLAY];
    reef_net_prediction net[REEF_REPLAY];
    reef_status status = session_before(recall, network, kind, again, &session, err);
    for (size_t i = 0; i < again; i++)
        net[i] = recall->net[(recall->length - again + i) % REEF_REPLAY];
    if (status == REEF_OK) {
        reef_memory_session_set_learning(session, false);
        status = reef_memory_session_read(session, recall->text + recall->kept - again, again, net,
                                          bits, err);
    }
    if (status != REEF_OK) return status;
    recall->read[kind] = recall->length;
    reef_posterior_join(&recall->posterior, kind, bits, again);
    return REEF_OK;
}

// Once before each byte, which a distribution may have asked for already.
static reef_status choose_running(reef_recall *recall,
                                  const reef_network *network,
                                  reef_error *err) {
    reef_posterior *p = &recall->posterior;
    if (recall->chosen_for == recall->length + 1) return REEF_OK;
    recall->chosen_for = recall->length + 1;
    (void)reef_posterior_begin_byte(p); // candidates depend on how long it has been awake
    uint32_t kinds[REEF_RUNNING_MAX];
    size_t count = REEF_RUNNING_MAX;
    reef_status status = choose_candidates(recall, network, kinds, &count, err);
    for (size_t i = 0; status == REEF_OK && i < count; i++)
        if (!reef_posterior_runs(p, kinds[i])) status = join(recall, network, kinds[i], err);
    if (count > 0) reef_posterior_joined(p);
    return status;
}

// The session of one that runs. Likely kinds adapt to the text; the others would learn foreign
// text.
static reef_status running_session(reef_recall *recall,
                                   const reef_network *network,
                                   size_t k,
                                   reef_memory_session **out,
                                   reef_error *err) {
    const reef_posterior *p = &recall->posterior;
    reef_status status = session_of(recall, network, p->kinds[k], out, err);
    bool learns = k == reef_posterior_likeliest(p) || p->weights[k] >= REEF_RECALL_ADAPT_WEIGHT;
    if (status == REEF_OK) reef_memory_session_set_learning(*out, learns);
    return status;
}

static reef_status read_byte(reef_recall *recall,
                             const reef_network *network,
                             const uint8_t *byte,
                             const reef_net_prediction *net,
                             double *loss,
                             reef_error *err) {
    reef_posterior *p = &recall->posterior;
    float bits[REEF_RUNNING_MAX];
    for (size_t k = 0; k < p->running; k++) {
        reef_memory_session *session;
        reef_status status = running_session(recall, network, k, &session, err);
        if (status == REEF_OK)
            status = reef_memory_session_read(session, byte, 1, net, &bits[k], err);
        if (status != REEF_OK) return status;
        recall->read[p->kinds[k]] = recall->length + 1;
        recall->answered[p->kinds[k]] += p->weights[k];
    }
    recall->net[p->length % REEF_REPLAY] = net == NULL ? (reef_net_prediction){0} : *net;
    *loss = reef_posterior_read(p, bits) * REEF_LN2;
    keep_text(recall, byte, 1);
    choose_net(recall);
    return REEF_OK;
}

_Static_assert(REEF_ANSWERS_MAX == REEF_RUNNING_MAX, "all that run answer");

// Who answers byte i, the likeliest first; among equals as they run.
static void tell_posterior(const reef_answers *out, size_t i, const reef_posterior *p) {
    double left[REEF_RUNNING_MAX];
    if (out->kinds == NULL) return;
    memcpy(left, p->weights, sizeof(left));
    for (size_t c = i * out->width, end = c + out->width, rank = 0; c < end; c++, rank++) {
        size_t best = 0;
        for (size_t k = 1; k < p->running; k++)
            if (left[k] > left[best]) best = k;
        bool ran = rank < p->running;
        out->kinds[c] = ran ? p->kinds[best] : UINT32_MAX;
        if (out->weights != NULL) out->weights[c] = ran ? (float)left[best] : 0.0f;
        left[best] = -1.0;
    }
}

static reef_status read_piece(reef_recall *recall,
                              const reef_network *network,
                              const reef_recall_piece *piece,
                              double *losses,
                              reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < piece->count; i++) {
        const reef_posterior *p = &recall->posterior;
        status = choose_running(recall, network, err);
        if (status != REEF_OK) break;
        tell_posterior(&piece->answers, i, p);
        status = read_byte(recall, network, piece->bytes + i,
                           piece->net == NULL ? NULL : piece->net + i, &losses[i], err);
    }
    return status;
}

// -------------------------------------------------------------------------------------------------

reef_status reef_recall_read(reef_recall *recall,
                             const reef_network *network,
                             const reef_recall_piece *piece,
                             double *losses,
                             reef_error *err) {
    // A text that nobody began, since the reading was changed within it, begins here.
    if (recall->generation_count == 0) {
        reef_status status = reef_recall_begin(recall, network, err);
        if (status != REEF_OK) return status;
    }
    return read_piece(recall, network, piece, losses, err);
}

static reef_status add_distribution(reef_memory_session *session,
                                    double weight,
                                    const float *net,
                                    uint16_t tokens,
                                    double *sum,
                                    reef_error *err) {
    double p[REEF_VOCAB];
    reef_status status = reef_memory_session_distribution(session, net, tokens, p, err);
    for (size_t v = 0; status == REEF_OK && v < REEF_VOCAB; v++) sum[v] += weight * p[v];
    return status;
}

reef_status reef_recall_distribution(
    reef_recall *recall, const reef_network *network, uint16_t tokens, float *p, reef_error *err) {
    double sum[REEF_VOCAB] = {0};
    reef_memory_session *session = NULL;
    reef_status status = REEF_OK;
    const reef_posterior *posterior = &recall->posterior;
    status = choose_running(recall, network, err); // as when the byte is read
    for (size_t k = 0; status == REEF_OK && k < posterior->running; k++) {
        status = running_session(recall, network, k, &session, err);
        if (status == REEF_OK)
            status = add_distribution(session, posterior->weights[k], p, tokens, sum, err);
    }
    for (size_t v = 0; status == REEF_OK && v < REEF_VOCAB; v++) p[v] = (float)sum[v];
    return status;
}
