// reef config show and reef config check: the settings of reefd, and where each comes from.
#include "cli_table.h"
#include "commands.h"
#include "reef_settings.h"

#include <stdlib.h>
#include <string.h>

static const reef_cli_option SHOW_OPTIONS[] = {
    {"config", "FILE", "the configuration file (default: REEF_CONFIG, or none)"},
    {0},
};

const reef_cli_manual reef_config_show_manual = {
    .about = "Every setting of reefd with its value and where that comes from: "
             "default, FILE:LINE, a variable of the\n"
             "environment such as REEF_COMMIT_SECONDS, or an option. "
             "What stands further down this list wins. Options of\n"
             "reefd follow after --, as they would be given to it. "
             "Settings marked with a star may change while it runs\n"
             "(`reef reload`).",
    .options = SHOW_OPTIONS,
    .example = "reef config show --config reef.ini\n"
               "REEF_STAY=yes reef config show -- --pool reef.pool --commit-seconds 5",
};

const reef_cli_manual reef_config_check_manual = {
    .about = "Reads a configuration file of reefd and names every "
             "mistake in it with its line, and what a misspelt key\n"
             "was meant to be. Nothing is opened but the file; `reefd "
             "--config FILE --check` looks at the socket's path and\n"
             "at the token, and whether the address needs one, "
             "as well. Ends with 64 where there are mistakes.",
    .options = NULL,
    .example = "reef config check reef.ini",
};

// ---- show ---------------------------------------------------------------------------------------

static void print_settings(const json_t *settings) {
    static const char *const HEADING[] = {"setting", "value", "from"};
    reef_cli_table *table = reef_cli_table_new("<<<", HEADING);
    size_t i;
    json_t *one;
    // In the order of the reference page, which is the order in which they are declared.
    json_array_foreach(settings, i, one) {
        const json_t *value = json_object_get(one, "value");
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
        // A star marks what `reef reload` changes without a restart.
        reef_cli_table_cell(table, "%s%s", json_string_value(json_object_get(one, "name")),
                            json_is_true(json_object_get(one, "live")) ? "*" : "");
        // A setting without a value shows an empty cell and not "null".
        reef_cli_table_cell(table, "%s", json_is_null(value) ? "" : text);
        reef_cli_table_cell(table, "%s", json_string_value(json_object_get(one, "origin")));
        free(text);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

// Settings are read by the daemon's own code from the command line that it would have.
static reef_status read_settings(const reef_cli_call *cli, reef_options *options, reef_error *err) {
    char **argv = reef_cli_alloc(cli->operand_count + 4, sizeof(*argv));
    char name[] = "reefd", flag[] = "--config";
    int argc = 0;
    // reefd's own parser is called, so a setting cannot mean one thing here and another there.
    argv[argc++] = name;
    if (reef_cli_text(cli, "config") != NULL) {
        argv[argc++] = flag;
        argv[argc++] = (char *)reef_cli_text(cli, "config"); // getopt moves it about, and no more
    }
    // Operands are written as reefd takes them, after the file, so that they win over it.
    for (size_t i = 0; i < cli->operand_count; i++) argv[argc++] = cli->operands[i];
    reef_status status = reef_options_read(options, argc, argv, err);
    free(argv);
    return status;
}

static void warn_of_variable(void *context, const char *name, const char *meant) {
    (void)context;
    fprintf(stderr, "reef config show: %s in the environment is not a setting; did you mean %s?\n",
            name, meant);
}

reef_status reef_cmd_config_show(reef_cli_call *cli, reef_error *err) {
    reef_options options;
    reef_status status = read_settings(cli, &options, err);
    if (status != REEF_OK) {
        // A partial result may hold strings already.
        reef_options_release(&options);
        return status;
    }
    // A misspelt REEF_ variable is not an error for reefd, so it is a warning here too.
    reef_options_misspelt(warn_of_variable, NULL);
    json_t *settings = reef_settings_json(&options);
    json_t *file = options.config != NULL ? reef_cli_path(options.config) : json_null();
    if (cli->json) {
        // reef_cli_reply() takes over both objects; the table only borrows them.
        status =
            reef_cli_reply(cli, json_pack("{s:o, s:o}", "config", file, "settings", settings), err);
    } else {
        print_settings(settings);
        json_decref(settings);
        json_decref(file);
    }
    reef_options_release(&options);
    return status;
}

// ---- check --------------------------------------------------------------------------------------

typedef struct mistakes {
    json_t *list;
    size_t path_bytes; // of the file's name, which stands before every message
} mistakes;

static void on_mistake(void *context, unsigned line, const char *message) {
    const mistakes *found = context;
    // "FILE:4: unknown key": only the text after it is needed.
    const char *rest = strlen(message) > found->path_bytes ? message + found->path_bytes : message;
    const char *text = strstr(rest, ": ");
    // Sorted by line on insertion: the checks run by subject, not from top to bottom.
    size_t at =
        json_array_size(found->list); // by lines, which is not the order in which they are found
    while (at > 0 &&
           json_integer_value(json_object_get(json_array_get(found->list, at - 1), "line")) > line)
        at--;
    json_array_insert_new(found->list, at,
                          json_pack("{s:I, s:o}", "line", (json_int_t)line, "message",
                                    reef_cli_path(text != NULL ? text + 2 : message)));
}

static void print_mistakes(const char *path, const json_t *list) {
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) printf("%s:%" JSON_INTEGER_FORMAT ": %s\n", path,
                                            json_integer_value(json_object_get(one, "line")),
                                            json_string_value(json_object_get(one, "message")));
}

reef_status reef_cmd_config_check(reef_cli_call *cli, reef_error *err) {
    const char *path = cli->operands[0];
    // The path is cut in messages, so its length here is bounded by the same limit.
    mistakes found = {.list = json_array(), .path_bytes = strnlen(path, 120)};
    size_t settings = 0;
    // The callback collects all mistakes: one run of the check shows all of them.
    reef_status status = reef_options_check_file(path, on_mistake, &found, &settings, err);
    size_t count = json_array_size(found.list);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli,
                                json_pack("{s:o, s:I, s:O}", "file", reef_cli_path(path),
                                          "settings", (json_int_t)settings, "mistakes", found.list),
                                err);
    else if (status == REEF_OK && count > 0)
        print_mistakes(path, found.list);
    else if (status == REEF_OK)
        printf("%s: %zu settings, no mistake\n", path, settings);
    json_decref(found.list);
    // Mistakes found are a failure of the command, for use in scripts and hooks.
    if (status != REEF_OK || count == 0) return status;
    return reef_fail(err, REEF_ERR_INVALID, "%.160s has %zu mistake%s", path, count,
                     count == 1 ? "" : "s");
}
