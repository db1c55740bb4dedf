// See damage_kind.h. Apart from its test, since the library and the store both declare reef_error.
#include "damage_kind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "damaged_record.h"

void damage_kind(const char *pool, uint32_t kind) {
    record_damage(pool, &(reef_key){.db = REEF_DB_MEMORY, .generation = kind, .name = "index"});
}
