// The inside of reef_options_parse, shared by the files that make it up:
//
//   settings.c        the layers one over the other: defaults, file, command line
//   settings_table.c  the settings: their names, kinds and bounds, and what each of them is now
//   settings_value.c  one value of a setting from its text; of sources what a pattern stands for
//   settings_flags.c  the command line, and --help
#ifndef REEF_SETTINGS_INTERNAL_H
#define REEF_SETTINGS_INTERNAL_H

#include "reef_settings.h"

#include <getopt.h>

#define OPTION_NAME_BYTES_MAX 32

typedef enum setting_kind {
    SETTING_TEXT,    // const char *
    SETTING_ADDRESS, // const char *, where to listen
    SETTING_HOOK,    // const char *, a URL that alarms go to
    SETTING_SOURCE,  // one more of `sources`
    SETTING_COUNT,   // uint64_t between low and high
    SETTING_SECONDS, // double
    SETTING_MEMORY,  // uint64_t, bytes
    SETTING_RATE,    // uint64_t, bytes a second, or 0
    SETTING_PERIOD,  // uint64_t, ms, or 0
    SETTING_KEEP,    // const char *, as reef_keep_parse reads it
    SETTING_SWITCH   // bool
} setting_kind;

typedef struct setting {
    const char *name;
    setting_kind kind;
    size_t at;          // offset in reef_options
    bool live;          // may change while the daemon runs
    uint64_t low, high; // of a count
} setting;

// ---- settings_table.c ---------------------------------------------------------------------------

extern const setting reef_settings[]; // reef_setting_count() of them

/** Where a setting's value is. */
void *reef_setting_field(reef_options *options, const setting *one);

// ---- settings_value.c ---------------------------------------------------------------------------

/** Set setting number `index` from a layer; `label` is how the layer calls it, for messages. */
REEF_MUST_CHECK reef_status reef_option_take(reef_options *options,
                                             size_t index,
                                             reef_option_origin origin,
                                             const char *label,
                                             const char *text,
                                             reef_error *err);

/** A copy of `text` that lives as long as the options; NULL when memory runs out. */
const char *reef_option_keep(reef_options *options, const char *text);

// ---- settings_flags.c ---------------------------------------------------------------------------

typedef struct reef_option_flags {
    struct option flags[2 * REEF_SETTING_COUNT_MAX + 5];
    char opposites[REEF_SETTING_COUNT_MAX][OPTION_NAME_BYTES_MAX]; // --no-...
} reef_option_flags;

void reef_option_flags_init(reef_option_flags *table);
/**
 * First pass: the action, the path of the file, and whether all options exist. Continues after a
 * mistake, because the file may set the form in which it is reported.
 */
REEF_MUST_CHECK reef_status reef_option_flags_scan(
    reef_options *options, const reef_option_flags *table, int argc, char **argv, reef_error *err);
/** Take the settings. */
REEF_MUST_CHECK reef_status reef_option_flags_take(
    reef_options *options, const reef_option_flags *table, int argc, char **argv, reef_error *err);

#endif
