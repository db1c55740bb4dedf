// The sources that reefd was given; see settings_internal.h. A misspelt kind is reported here;
// whether the source can be read, when it is opened.
#include "settings_internal.h"

#include "reef_source.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct reef_options_text {
    struct reef_options_text *next;
    char text[];
};

void reef_options_release(reef_options *options) {
    while (options->texts != NULL) {
        struct reef_options_text *next = options->texts->next;
        free(options->texts);
        options->texts = next;
    }
}

// A layer's first source replaces all sources of the layers below.
static reef_status add_source(reef_options *options,
                              const char *text,
                              bool first,
                              reef_error *err) {
    if (first) options->source_count = 0;
    if (options->source_count == REEF_INPUT_COUNT_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "more than %d sources", REEF_INPUT_COUNT_MAX);
    options->sources[options->source_count++] = text;
    return REEF_OK;
}

const char *reef_option_keep(reef_options *options, const char *text) {
    size_t bytes = strlen(text) + 1;
    struct reef_options_text *kept = malloc(sizeof(*kept) + bytes);
    if (kept == NULL) return NULL;
    memcpy(kept->text, text, bytes);
    kept->next = options->texts;
    options->texts = kept;
    return kept->text;
}

static bool is_file(const char *path) {
    struct stat state;
    return stat(path, &state) == 0 && S_ISREG(state.st_mode);
}

// The files that a pattern fits now, each a source of its own.
static reef_status add_files(reef_options *options,
                             const char *pattern,
                             const glob_t *found,
                             reef_error *err) {
    reef_status status = REEF_OK;
    size_t files = 0;
    for (size_t i = 0; i < found->gl_pathc; i++) files += is_file(found->gl_pathv[i]);
    // The bound is checked before any is added, so that a pattern adds all of its files or none.
    if (files > REEF_INPUT_COUNT_MAX - options->source_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'glob:%.100s' fits %zu files, and reefd takes at most %d sources in all: "
                         "dir:PATH/PATTERN takes more files, as one source that does not end",
                         pattern, files, REEF_INPUT_COUNT_MAX);
    for (size_t i = 0; status == REEF_OK && i < found->gl_pathc; i++) {
        char source[sizeof("file:") + PATH_MAX];
        // Directories and sockets that match a pattern are not text.
        if (!is_file(found->gl_pathv[i])) continue;
        snprintf(source, sizeof(source), "file:%s", found->gl_pathv[i]);
        const char *kept = reef_option_keep(options, source);
        status = kept != NULL ? add_source(options, kept, false, err)
                              : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for sources");
    }
    return status;
}

static reef_status add_pattern(reef_options *options,
                               const char *pattern,
                               bool first,
                               reef_error *err) {
    glob_t found = {0};
    // Sources of a stronger layer replace those of a weaker one, they do not add to them.
    if (first) options->source_count = 0;
    size_t before = options->source_count;
    // glob sorts, so the order of files is the same on every start.
    int code = glob(pattern, 0, NULL, &found); // sorted
    reef_status status = code == GLOB_NOSPACE
                             ? reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for sources")
                             : add_files(options, pattern, &found, err);
    globfree(&found);
    if (status != REEF_OK || options->source_count > before) return status;
    // A pattern without a file is refused: a daemon that reads nothing looks as if it worked.
    return reef_fail(err, REEF_ERR_NOT_FOUND,
                     "no file fits '%.150s': check the pattern, "
                     "and quote it, or the shell expands it",
                     pattern);
}

reef_status reef_option_add_source(reef_options *options,
                                   const char *text,
                                   bool first,
                                   reef_error *err) {
    if (strncmp(text, "glob:", 5) == 0) return add_pattern(options, text + 5, first, err);
    reef_status status = reef_input_check_spec(text, err);
    return status == REEF_OK ? add_source(options, text, first, err) : status;
}
