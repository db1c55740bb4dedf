// Configurations of new and of older pools: the defaults of the table in config_table.c.
//
// What always holds: a value that came through reef_config_set or reef_config_parse lies within its
// field's bounds, and what parse returns has passed reef_config_check as a whole. What the fields
// do is the business of the files that read them.
#include "config_internal.h"

#include <assert.h>
#include <string.h>

void reef_config_default(reef_config *config) {
    memset(config, 0, sizeof(*config)); // padding too: equal configurations are equal bytes
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    for (size_t i = 0; i < count; i++) {
        reef_status status = reef_config_field_set(config, &fields[i], fields[i].standard, NULL);
        assert(status == REEF_OK);
        (void)status;
    }
}

// What pools did before a LATER field existed, where that is not the default of new ones.
static const struct earlier {
    const char *name, *value;
} EARLIER[] = {
    {"adapt_ffw", "false"}, {"adapt_position", "false"}, {"adapt_whole", "false"},
    {"average", "0"},       {"drift_share", "0"},        {"weigh_older", "false"},
};

void reef_config_default_of_older_pools(reef_config *config) {
    reef_config_default(config);
    for (size_t i = 0; i < sizeof(EARLIER) / sizeof(EARLIER[0]); i++) {
        reef_status status = reef_config_set(config, EARLIER[i].name, EARLIER[i].value, NULL);
        assert(status == REEF_OK);
        (void)status;
    }
}
