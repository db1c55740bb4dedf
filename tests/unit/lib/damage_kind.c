// See damage_kind.h. Apart from its test, since the library and the store both declare reef_error.
#include "damage_kind.h"

#include "damaged_record.h"
#include "test.h"

void damage_kind(const char *pool, uint32_t kind) {
    record_damage(pool, &(reef_key){.db = REEF_DB_MEMORY, .generation = kind, .name = "mixer"});
}
