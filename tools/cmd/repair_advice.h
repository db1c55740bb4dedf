// What to do about damage, in words and commands; reef verify --repair-plan.
#ifndef REEF_VERIFY_PLAN_H
#define REEF_VERIFY_PLAN_H

#include "cli.h"

typedef struct verify_plan {
    const char *pool;
    reef_repair *repairs; // (count)
    size_t count, capacity;
    uint32_t *whole; // (whole_count) sealed generations that are sound
    size_t whole_count, whole_capacity;
} verify_plan;

void verify_plan_add(verify_plan *plan, const reef_repair *repair);
void verify_plan_add_whole(verify_plan *plan, uint32_t generation);
void verify_plan_release(verify_plan *plan); // accepts the zeroed plan

void verify_plan_print(const verify_plan *plan);
/** An array of objects; the caller's. */
json_t *verify_plan_json(const verify_plan *plan);
/** An array of commands that save what is still whole; the caller's. */
json_t *verify_plan_whole_json(const verify_plan *plan);

#endif
