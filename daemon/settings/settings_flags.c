// The command line of reefd; see settings_internal.h.
#include "settings_internal.h"

#include "reef_edit_distance.h"
#include "reef_gone.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What getopt_long returns: a setting's number, the same for its opposite, or one of these.
enum { OPT_SETTING = 256, OPT_OPPOSITE = 512, OPT_CONFIG = 768, OPT_CHECK, OPT_HELP, OPT_VERSION };

void reef_option_flags_init(reef_option_flags *table) {
    size_t count = 0;
    // Flags are made from the table of settings, so that every setting is a flag and a key.
    for (size_t i = 0; i < reef_setting_count(); i++) {
        bool is_switch = reef_settings[i].kind == SETTING_SWITCH;
        table->flags[count++] =
            (struct option){reef_settings[i].name, is_switch ? no_argument : required_argument,
                            NULL, OPT_SETTING + (int)i};
        // A switch can be turned off on the command line although the file turns it on.
        if (!is_switch) continue;
        snprintf(table->opposites[i], OPTION_NAME_BYTES_MAX, "no-%s", reef_settings[i].name);
        table->flags[count++] =
            (struct option){table->opposites[i], no_argument, NULL, OPT_OPPOSITE + (int)i};
    }
    table->flags[count++] = (struct option){"config", required_argument, NULL, OPT_CONFIG};
    table->flags[count++] = (struct option){"check", no_argument, NULL, OPT_CHECK};
    table->flags[count++] = (struct option){"help", no_argument, NULL, OPT_HELP};
    table->flags[count++] = (struct option){"version", no_argument, NULL, OPT_VERSION};
    table->flags[count] = (struct option){NULL, 0, NULL, 0};
}

static int next_flag(const reef_option_flags *table, int argc, char **argv, bool first) {
    opterr = 0; // the messages are ours
    if (first) optind = 1;
    return getopt_long(argc, argv, ":", table->flags, NULL);
}

// The option whose name is nearest to the one typed, or NULL if none is near.
static const char *guess_flag(const reef_option_flags *table, const char *name) {
    const char *guess = NULL;
    size_t nearest = strlen(name) / 2 + 1; // a name that shares less than half of the letters is
                                           // not suggested
    for (const struct option *flag = table->flags; flag->name != NULL; flag++) {
        size_t distance = reef_edit_distance(name, flag->name);
        if (distance >= nearest) continue;
        nearest = distance;
        guess = flag->name;
    }
    return guess;
}

// `given` is the argument just read, except in the middle of a cluster of letters.
static reef_status fail_unknown(const reef_option_flags *table,
                                const char *given,
                                reef_error *err) {
    // getopt reports a single letter in optopt, and long options by their number.
    if (optopt > 0 && optopt < OPT_SETTING)
        return reef_fail(err, REEF_ERR_INVALID, "unknown option '-%c'; see reefd --help", optopt);
    if (optopt >= OPT_SETTING)
        return reef_fail(err, REEF_ERR_INVALID, "option '%s' takes no value; see reefd --help",
                         given);
    // Dashes and values are not part of the name.
    char name[OPTION_NAME_BYTES_MAX];
    snprintf(name, sizeof(name), "%s", given + strspn(given, "-"));
    name[strcspn(name, "=")] = '\0';
    if (reef_gone_report("reefd", name, err)) return REEF_ERR_INVALID;
    const char *guess = guess_flag(table, name);
    if (guess != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "unknown option '%.64s'; did you mean --%s?", given,
                         guess);
    return reef_fail(err, REEF_ERR_INVALID, "unknown option '%s'; see reefd --help", given);
}

reef_status reef_option_flags_scan(
    reef_options *options, const reef_option_flags *table, int argc, char **argv, reef_error *err) {
    reef_status status = REEF_OK;
    // All arguments are scanned, also after an error: --help must win over a typo.
    for (int which, first = 1; (which = next_flag(table, argc, argv, first)) != -1; first = 0) {
        reef_error *here = status == REEF_OK ? err : NULL;
        // Only these matter in the first pass; values are taken in the second.
        if (which == OPT_CONFIG) options->config = optarg;
        if (which == OPT_CHECK) options->action = REEF_ACTION_CHECK;
        if (which == ':')
            status = reef_fail(here, REEF_ERR_INVALID,
                               "option '%s' needs a value; see reefd --help", argv[optind - 1]);
        if (which == '?') status = fail_unknown(table, argv[optind - 1], here);
        if (status != REEF_OK || (which != OPT_HELP && which != OPT_VERSION)) continue;
        options->action = which == OPT_HELP ? REEF_ACTION_HELP : REEF_ACTION_VERSION;
        return REEF_OK;
    }
    if (status == REEF_OK && optind < argc)
        status = reef_fail(err, REEF_ERR_INVALID, "unexpected argument '%s'; see reefd --help",
                           argv[optind]);
    return status;
}

reef_status reef_option_flags_take(
    reef_options *options, const reef_option_flags *table, int argc, char **argv, reef_error *err) {
    reef_status status = REEF_OK;
    for (int which, first = 1;
         status == REEF_OK && (which = next_flag(table, argc, argv, first)) != -1; first = 0) {
        // Options without a setting were handled by the scan.
        if (which < OPT_SETTING || which >= OPT_CONFIG) continue;
        bool opposite = which >= OPT_OPPOSITE;
        size_t i = (size_t)(which - (opposite ? OPT_OPPOSITE : OPT_SETTING));
        char label[OPTION_NAME_BYTES_MAX];
        snprintf(label, sizeof(label), "--%s", reef_settings[i].name);
        status = reef_option_take(options, i, (reef_option_origin){REEF_ORIGIN_FLAG, 0}, label,
                                  optarg != NULL ? optarg
                                  : opposite     ? "no"
                                                 : "yes",
                                  err);
    }
    return status;
}
