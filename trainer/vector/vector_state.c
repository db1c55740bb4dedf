// Where the learning of a vector model stands, in a commit: a JSON record of the open generation,
// and the memory. Every number of the JSON is exact.
//
// {"examples", "class_examples": [...], "solved_examples", "solved_class_examples": [...],
//  "classes", "gates", "sharpness",      of the last solution on schedule
// "moment_classes", "shares", "errors", "tested": [oldest first], "excess", "held", "held_batches",
// "untested", "seen", "labels": [...]}
#include "vector_state.h"

#include "reef_json_build.h"
#include "ridge_sums.h"

#include <jansson.h>

#include <stdlib.h>
#include <string.h>

#define SLOT_HEADER_BYTES 16

// ---- writing ------------------------------------------------------------------------------------

reef_key reef_vector_state_key(uint32_t generation) {
    return (reef_key){.db = REEF_DB_TENSORS, .generation = generation, .name = "vector"};
}

static json_t *list_u64(size_t count, const uint64_t *values) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) reef_json_append(&list, json_integer((json_int_t)values[i]));
    return list;
}

static json_t *list_ring(const reef_vector *vector, const uint32_t *ring) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < vector->history; i++) {
        uint32_t at = (vector->next + REEF_VECTOR_DRIFT_WINDOW - vector->history + i) %
                      REEF_VECTOR_DRIFT_WINDOW;
        reef_json_append(&list, json_integer(ring[at]));
    }
    return list;
}

static json_t *list_labels(const reef_vector_network *network) {
    json_t *list = json_array();
    for (size_t c = 0; c < network->class_count; c++)
        reef_json_append(&list, json_integer(network->labels[c]));
    return list;
}

static char *state_text(const reef_vector *vector) {
    const reef_vector_head *head = &reef_vector_open(vector)->head;
    size_t C = vector->network.class_count;
    json_t *state = json_pack(
        "{s:I, s:o, s:I, s:o, s:I, s:I, s:I, s:f, s:f, s:o, s:o, s:f, s:I, s:I, s:I, s:I, s:o}",
        "examples", (json_int_t)vector->examples, "class_examples",
        list_u64(C, vector->class_examples), "solved_examples", (json_int_t)vector->solved_examples,
        "solved_class_examples", list_u64(C, vector->solved_class_examples), "classes",
        (json_int_t)head->class_count, "gates", (json_int_t)head->gate_count, "moment_classes",
        (json_int_t)vector->moment_classes, "sharpness", (double)head->sharpness, "shares",
        vector->gate.shares, "errors", list_ring(vector, vector->errors), "tested",
        list_ring(vector, vector->tested), "excess", vector->excess, "held",
        (json_int_t)vector->deferred, "held_batches", (json_int_t)vector->deferred_batches,
        "untested", (json_int_t)vector->untested, "seen", (json_int_t)vector->memory.seen, "labels",
        list_labels(&vector->network));
    char *text = state == NULL ? NULL : json_dumps(state, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(state);
    return text;
}

reef_status reef_vector_state_put(reef_txn *txn, const reef_vector *vector, reef_error *err) {
    reef_key key = reef_vector_state_key((uint32_t)(vector->network.generation_count - 1));
    char *text = state_text(vector);
    if (text == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the trainer's state");
    reef_status status = reef_record_put(txn, &key, REEF_JSON, text, strlen(text), err);
    free(text);
    return status;
}

// ---- reading ------------------------------------------------------------------------------------

static size_t read_u64(const json_t *list, uint64_t *values) {
    size_t count = json_array_size(list);
    for (size_t i = 0; i < count && i < REEF_CLASS_COUNT_MAX; i++)
        values[i] = (uint64_t)json_integer_value(json_array_get(list, i));
    return count;
}

static void read_ring(const json_t *list, uint32_t *ring) {
    for (size_t i = 0; i < json_array_size(list) && i < REEF_VECTOR_DRIFT_WINDOW; i++)
        ring[i] = (uint32_t)json_integer_value(json_array_get(list, i));
}

// Members of `state` into the vector; false when one is missing or does not fit.
static bool parse_state(reef_vector *vector, const json_t *state, reef_vector_head *head) {
    json_int_t examples, solved, classes, gates, moment_classes, held, deferred_batches, untested,
        seen;
    json_t *class_examples, *solved_class, *errors, *tested, *labels;
    double sharpness;
    // One format for all members: a state of another version fails as a whole.
    if (json_unpack((json_t *)state,
                    "{s:I, s:o, s:I, s:o, s:I, s:I, s:I, s:F, s:F, s:o, s:o, s:F, s:I, s:I, s:I, "
                    "s:I, s:o}",
                    "examples", &examples, "class_examples", &class_examples, "solved_examples",
                    &solved, "solved_class_examples", &solved_class, "classes", &classes, "gates",
                    &gates, "moment_classes", &moment_classes, "sharpness", &sharpness, "shares",
                    &vector->gate.shares, "errors", &errors, "tested", &tested, "excess",
                    &vector->excess, "held", &held, "held_batches", &deferred_batches, "untested",
                    &untested, "seen", &seen, "labels", &labels) != 0)
        return false;
    // The sizes of all lists must agree, since they index the same arrays.
    size_t C = json_array_size(labels), history = json_array_size(errors);
    // A record from disk is not trusted: each count is checked against its array.
    if (C > REEF_CLASS_COUNT_MAX || read_u64(class_examples, vector->class_examples) != C ||
        read_u64(solved_class, vector->solved_class_examples) != C ||
        history > REEF_VECTOR_DRIFT_WINDOW || json_array_size(tested) != history || classes < 0 ||
        (size_t)classes > C || moment_classes < 0 || (size_t)moment_classes > C || gates < 0 ||
        (size_t)gates > vector->network.generation_count)
        return false;
    for (size_t c = 0; c < C; c++)
        vector->network.labels[c] = (int32_t)json_integer_value(json_array_get(labels, c));
    vector->network.class_count = C;
    read_ring(errors, vector->errors);
    read_ring(tested, vector->tested);
    vector->history = (uint32_t)history;
    // The ring continues behind its last entry.
    vector->next = (uint32_t)(history % REEF_VECTOR_DRIFT_WINDOW);
    vector->examples = (uint64_t)examples;
    vector->solved_examples = (uint64_t)solved;
    vector->deferred = (size_t)held;
    vector->deferred_batches = (uint32_t)deferred_batches;
    vector->untested = (size_t)untested;
    vector->memory.seen = (uint64_t)seen;
    // Shapes of tensors are read later, by these counts.
    *head = (reef_vector_head){
        .class_count = (size_t)classes, .gate_count = (size_t)gates, .sharpness = (float)sharpness};
    vector->moment_classes = (size_t)moment_classes;
    return true;
}

reef_status reef_vector_state_get(reef_txn *txn,
                                  reef_vector *vector,
                                  reef_vector_head *head,
                                  reef_error *err) {
    uint32_t g = (uint32_t)(vector->network.generation_count - 1);
    reef_key key = reef_vector_state_key(g);
    reef_view view;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status != REEF_OK) return status;
    json_error_t fault;
    json_t *state = json_loadb(view.data, view.bytes, 0, &fault);
    if (state == NULL && reef_json_no_memory(&fault))
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the state of learning");
    bool parsed = state != NULL && parse_state(vector, state, head);
    json_decref(state);
    if (parsed) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT, "the state of learning of generation %u lacks a member",
                     g);
}

// ---- memory -------------------------------------------------------------------------------------

reef_status reef_vector_memory_put(reef_txn *txn, const reef_vector *vector, reef_error *err) {
    const reef_vector_memory *memory = &vector->memory;
    uint32_t size = (uint32_t)reef_vector_record_bytes(&vector->network.config);
    reef_status status = REEF_OK;
    uint8_t *payload = calloc(1, SLOT_HEADER_BYTES + size);
    if (payload == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for an example");
    for (size_t slot = 0; status == REEF_OK && slot < memory->slots; slot++) {
        if (!memory->dirty[slot]) continue;
        reef_key key = {.db = REEF_DB_RESERVOIR, .block = (uint32_t)slot};
        memcpy(payload, &memory->generations[slot], 4);
        memcpy(payload + 4, &size, 4);
        memcpy(payload + SLOT_HEADER_BYTES, memory->records + slot * size, size);
        status = reef_record_put(txn, &key, REEF_BYTES, payload, SLOT_HEADER_BYTES + size, err);
    }
    free(payload);
    return status;
}

static reef_status get_slot(void *context,
                            const reef_key *key,
                            const reef_view *view,
                            reef_error *err) {
    reef_vector *vector = context;
    reef_vector_memory *memory = &vector->memory;
    size_t size = reef_vector_record_bytes(&vector->network.config);
    if (key->block >= memory->slots || view->bytes != SLOT_HEADER_BYTES + size)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "reservoir slot %u holds %zu bytes, which is not an example of this pool",
                         key->block, view->bytes);
    memcpy(&memory->generations[key->block], view->data, 4);
    memcpy(memory->records + key->block * size, (const uint8_t *)view->data + SLOT_HEADER_BYTES,
           size);
    return REEF_OK;
}

reef_status reef_vector_memory_get(reef_txn *txn, reef_vector *vector, reef_error *err) {
    return reef_record_scan(txn, REEF_DB_RESERVOIR, UINT32_MAX, get_slot, vector, err);
}
