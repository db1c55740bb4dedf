// What to do about damage, in words and commands; reef verify --repair-plan.
#ifndef REEF_REPAIR_ADVICE_H
#define REEF_REPAIR_ADVICE_H

#include "cli.h"
#include "reef_kinds.h"
#include "reef_pool_check.h"

typedef struct reef_verify_plan {
    const char *pool;
    reef_repair *repairs; // (count)
    size_t count, capacity;
    uint32_t *whole; // (whole_count) sealed generations that are sound
    size_t whole_count, whole_capacity;
    // (kind_count) that are damaged in the present state, and what `reef kind recover` leaves
    reef_kind_recovery *kinds;
    size_t kind_count;
    bool kinds_are_known; // else nothing is said of recovering
} reef_verify_plan;

void reef_verify_plan_add(reef_verify_plan *plan, const reef_repair *repair);
void reef_verify_plan_add_whole(reef_verify_plan *plan, uint32_t generation);
/** Where records of kinds are damaged: which of them does the present state need? */
void reef_verify_plan_add_kinds(reef_verify_plan *plan, const reef_cli_call *cli);
void reef_verify_plan_release(reef_verify_plan *plan); // accepts the zeroed plan

void reef_verify_plan_print(const reef_verify_plan *plan);
/** An array of objects; the caller's. */
json_t *reef_verify_plan_json(const reef_verify_plan *plan);
/** An array of commands that save what is still whole; the caller's. */
json_t *reef_verify_plan_whole_json(const reef_verify_plan *plan);

#endif
