// Records of a pool as JSON; see reef_pool_json.h.
#include "reef_pool_json.h"

#include "reef_log.h"
#include "reef_snapshot.h"

#include <inttypes.h>
#include <string.h>

uint64_t reef_generation_experts(const reef_generation_record *generation, uint32_t peer_layers) {
    return (uint64_t)generation->side * generation->side * peer_layers;
}

json_t *reef_generation_json(const reef_generation_record *generation, uint32_t peer_layers) {
    // The same object for the daemon, for reef and for HTTP: the members are part of the protocol
    // and keep their names.
    json_t *object = json_object();
    json_object_set_new(object, "generation", reef_json_count(generation->generation));
    json_object_set_new(object, "parent", reef_json_count(generation->parent));
    // The kind whose net it is a later part of.
    bool continues = generation->continues > 0;
    json_object_set_new(object, "continues", reef_json_known(continues, generation->continues - 1));
    json_object_set_new(object, "side", reef_json_count(generation->side));
    // "experts" counts those of all PEER layers; each has its own side * side.
    json_object_set_new(object, "experts",
                        reef_json_count(reef_generation_experts(generation, peer_layers)));
    json_object_set_new(object, "first_id", reef_json_count(generation->first_id));
    json_object_set_new(object, "dtype", json_string(reef_rows_dtype_text(generation->dtype)));
    json_object_set_new(object, "sealed", json_boolean(generation->sealed));
    json_object_set_new(object, "opened_step", reef_json_count(generation->opened_step));
    json_object_set_new(object, "opened_at", reef_json_count(generation->opened_at));
    // An open generation has no end and no root yet.
    bool sealed = generation->sealed;
    json_object_set_new(object, "sealed_step", reef_json_known(sealed, generation->sealed_step));
    json_object_set_new(object, "sealed_at", reef_json_known(sealed, generation->sealed_at));
    if (sealed)
        reef_json_set_root(object, generation->root);
    else
        json_object_set_new(object, "root", json_null());
    return object;
}

json_t *reef_memory_stats_json(const reef_memory_stats *stats) {
    uint64_t slots = stats->cells + stats->trees, used = stats->cells_used + stats->trees_used;
    json_t *object = json_object();
// Member and field have the same name, so one macro writes both.
#define SET_COUNT(field) json_object_set_new(object, #field, reef_json_count(stats->field))
    SET_COUNT(learned_bytes);
    SET_COUNT(bytes);
    SET_COUNT(bytes_max);
    SET_COUNT(cells);
    SET_COUNT(cells_used);
    SET_COUNT(trees);
    SET_COUNT(trees_used);
    SET_COUNT(text_bytes);
#undef SET_COUNT
    json_object_set_new(object, "used_share",
                        slots > 0 ? reef_json_number((double)used / (double)slots) : json_null());
    return object;
}

json_t *reef_memory_inputs_json(const double *shares, const double *hits) {
    json_t *array = json_array();
    for (size_t i = 0; i < reef_memory_input_count(); i++)
        json_array_append_new(array, json_pack("{s:s, s:o, s:o}", "name", reef_memory_input_name(i),
                                               "share", reef_json_number(shares[i]), "hits",
                                               reef_json_number(hits[i])));
    return array;
}

json_t *reef_kind_json(const reef_kind_facts *kind) {
    json_t *object = json_object();
    json_object_set_new(object, "kind", reef_json_count(kind->kind));
    json_object_set_new(object, "name",
                        kind->name[0] == '\0' ? json_null() : json_string(kind->name));
    json_object_set_new(object, "open", json_boolean(kind->is_open));
    json_object_set_new(object, "learning", json_boolean(kind->is_current));
    if (kind->is_damaged) json_object_set_new(object, "damaged", json_true());
    json_object_set_new(object, "merged_into",
                        kind->merged_into == REEF_KIND_NONE ? json_null()
                                                            : reef_json_count(kind->merged_into));
    json_object_set_new(object, "began_at", reef_json_count(kind->began_at));
    json_object_set_new(object, "learned_bytes", reef_json_count(kind->learned_bytes));
    json_object_set_new(object, "learned_at", reef_json_count(kind->learned_at));
    json_object_set_new(object, "visits", reef_json_count(kind->visit_count));
    json_object_set_new(object, "visited_bytes", reef_json_count(kind->visited_bytes));
    json_object_set_new(object, "first_bits_per_byte", reef_json_number(kind->first_loss));
    json_object_set_new(object, "last_bits_per_byte", reef_json_number(kind->last_loss));
    return object;
}

json_t *reef_kind_list_json(const reef_kind_list *list) {
    json_t *array = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(array, reef_kind_json(&list->kinds[i]));
    return array;
}

json_t *reef_kind_visit_json(const reef_kind_visit *visit) {
    json_t *object = json_object();
    json_object_set_new(object, "kind", reef_json_count(visit->kind));
    json_object_set_new(object, "from", reef_json_count(visit->from));
    json_object_set_new(object, "to", reef_json_count(visit->to));
    json_object_set_new(object, "learned_bytes", reef_json_count(visit->learned));
    json_object_set_new(object, "visits", reef_json_count(visit->count));
    json_object_set_new(object, "bits_per_byte", reef_json_number(reef_kind_visit_loss(visit)));
    return object;
}

json_t *reef_kind_visits_json(const reef_kind_list *list, uint32_t kind) {
    json_t *array = json_array();
    for (size_t i = 0; i < list->visit_count; i++)
        if (list->visits[i].kind == kind)
            json_array_append_new(array, reef_kind_visit_json(&list->visits[i]));
    return array;
}

json_t *reef_snapshot_json(const reef_snapshot *snapshot) {
    json_t *object = json_object();
    json_object_set_new(object, "name", json_string(snapshot->name));
    json_object_set_new(object, "commit", reef_json_count(snapshot->commit));
    json_object_set_new(object, "step", reef_json_count(snapshot->step));
    json_object_set_new(object, "stream_bytes", reef_json_count(snapshot->stream_bytes));
    json_object_set_new(object, "unix_ms", reef_json_count(snapshot->unix_ms));
    reef_json_set_root(object, snapshot->root);
    json_object_set_new(object, "sealed_generations", reef_json_count(snapshot->sealed_count));
    json_object_set_new(object, "open_generation", reef_json_count(snapshot->open_generation));
    json_object_set_new(object, "shared_generations", reef_json_count(snapshot->shared_count));
    return object;
}

json_t *reef_commit_json(const reef_commit *commit) {
    json_t *object = json_object();
    json_object_set_new(object, "number", reef_json_count(commit->number));
    json_object_set_new(object, "step", reef_json_count(commit->step));
    json_object_set_new(object, "stream_bytes", reef_json_count(commit->stream_bytes));
    json_object_set_new(object, "unix_ms", reef_json_count(commit->unix_ms));
    reef_json_set_root(object, commit->root);
    return object;
}

json_t *reef_scrub_json(const reef_scrub *scrub) {
    json_t *object = json_object();
#define SET_COUNT(field) json_object_set_new(object, #field, reef_json_count(scrub->field))
    SET_COUNT(passes);
    // Null before the first pass: a time of zero would be a date in 1970.
    json_object_set_new(object, "last_scrub", reef_json_known(scrub->passes, scrub->last_ms));
    SET_COUNT(last_records);
    SET_COUNT(last_bytes);
    SET_COUNT(last_damaged);
    SET_COUNT(records);
    SET_COUNT(bytes);
    SET_COUNT(damaged);
#undef SET_COUNT
    return object;
}

// ---- parts of replies ---------------------------------------------------------------------------

json_t *reef_reply_error(const reef_error *err) {
    json_t *error = json_object();
    json_object_set_new(error, "status", json_string(reef_status_text(err->status)));
    json_object_set_new(error, "message", reef_json_text(err->message));
    return json_pack("{s:o}", "error", error);
}

void reef_json_set_root(json_t *object, const uint8_t root[REEF_HASH_BYTES]) {
    char text[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(root, text);
    json_object_set_new(object, "root", json_string(text));
}
