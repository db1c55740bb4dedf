// See stream_position.h.
#include "stream_position.h"

#include "reef_json_build.h"

reef_status reef_state_parse(json_t **out,
                             const reef_view *view,
                             uint32_t generation,
                             reef_error *err) {
    json_error_t fault;
    *out = json_loadb(view->data, view->bytes, 0, &fault);
    if (*out != NULL) return REEF_OK;
    if (reef_json_no_memory(&fault))
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the trainer's state");
    return reef_fail(err, REEF_ERR_CORRUPT, "the trainer's state of generation %u is not JSON",
                     generation);
}

reef_status reef_state_position(reef_txn *txn,
                                uint32_t records,
                                uint64_t *step,
                                uint64_t *generation_step,
                                uint64_t *stream_bytes,
                                reef_error *err) {
    reef_view view;
    json_t *state = NULL;
    reef_key key = reef_state_key(records, "state");
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_OK) status = reef_state_parse(&state, &view, records, err);
    if (status != REEF_OK) return status;
    // Read from the JSON instead of from the commit record: a snapshot's copy has its own state,
    // and no commit.
    *step = (uint64_t)json_integer_value(json_object_get(state, "step"));
    *generation_step = (uint64_t)json_integer_value(json_object_get(state, "generation_step"));
    *stream_bytes = (uint64_t)json_integer_value(json_object_get(state, "stream_bytes"));
    json_decref(state);
    return REEF_OK;
}
