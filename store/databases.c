// The databases of a pool, by name, and what holds for the records of each.
#include "record.h"

#include <assert.h>

static const struct {
    const char *name;
    bool hashed;
} databases[REEF_DB_COUNT] = {
#define DB_ROW(upper, lower, hashed) [REEF_DB_##upper] = {#lower, hashed},
    REEF_DB_LIST(DB_ROW)
#undef DB_ROW
};

const char *reef_db_name(reef_db db) {
    assert(db < REEF_DB_COUNT);
    return databases[db].name;
}

bool reef_db_hashed(reef_db db) {
    assert(db < REEF_DB_COUNT);
    return databases[db].hashed;
}

bool reef_db_summed(reef_db db) {
    return db != REEF_DB_JOURNAL && db != REEF_DB_SERIES && db != REEF_DB_SUMS;
}

bool reef_db_has_records(reef_db db) {
    return (unsigned)db < REEF_DB_COUNT && db != REEF_DB_SUMS;
}

bool reef_db_by_generation(reef_db db) {
    return db == REEF_DB_TENSORS || db == REEF_DB_EXPERTS || db == REEF_DB_MOMENTS ||
           db == REEF_DB_FLAGS || db == REEF_DB_GENERATIONS || db == REEF_DB_MEMORY ||
           db == REEF_DB_VISITS;
}
