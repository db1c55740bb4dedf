// See incident_view.h.
//
//   2026-11-16 18:49  shop.log, for 2 min  #7
//     word      1  INFO  [replica-monitor] ReplicaMonitor - replica db-2 in doubt, lag 7 ms
//                                                                           ^^^^^
#include "incident_view.h"

#include "cli.h"
#include "reef_watch.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS 80
#define MARGIN 15
#define DIGITS "0123456789"
#define BEFORE_WORD 20 // columns of the text before what is new in it, where all has no room

static const char *word_of(const char *sort) {
    static const char *const WORDS[][2] = {{"type", "new"},    {"word", "word"},
                                           {"rate", "many"},   {"silence", "gone"},
                                           {"again", "again"}, {"noise", "noise"}};
    for (size_t i = 0; i < sizeof(WORDS) / sizeof(*WORDS); i++)
        if (strcmp(sort, WORDS[i][0]) == 0) return WORDS[i][1];
    return "";
}

// Where the message begins in a line of JSON that has no room; else `at`.
static size_t message_at(const char *line, size_t count, size_t at) {
    static const char *const KEYS[] = {"\"msg\":", "\"message\":", "\"MESSAGE\":", "\"log\":"};
    if (line[0] != '{' || count <= COLUMNS - MARGIN) return at;
    for (size_t i = 0; i < sizeof(KEYS) / sizeof(*KEYS); i++) {
        const char *found = strstr(line, KEYS[i]);
        if (found == NULL) continue;
        found += strlen(KEYS[i]);
        found += strspn(found, " \"");
        return (size_t)(found - line);
    }
    return at;
}

// Where a line that has no room differs from the one that is nearest to it, other than in numbers:
// from the word before; `at` where that is not far.
static size_t unlike_at(const char *line, size_t count, size_t at, const char *nearest) {
    const size_t begin = at;
    if (count - at <= COLUMNS - MARGIN) return at;
    const char *other = nearest + reef_line_text_at((const uint8_t *)nearest, strlen(nearest));
    size_t word = at, before = at;
    for (;;) {
        const size_t digits = strspn(line + at, DIGITS), others = strspn(other, DIGITS);
        if ((digits == 0 || others == 0) && (line[at] == '\0' || line[at] != *other)) break;
        if (line[at] == ' ') {
            before = word;
            word = at + 1;
        }
        at += digits > 0 ? digits : 1;
        other += others > 0 ? others : 1;
    }
    return before > begin + BEFORE_WORD ? before : begin;
}

// "app.log, byte 123456": of one of the files of its source.
static void print_line_place(const json_t *event) {
    const char *file = reef_cli_text_of(event, "file");
    if (file[0] == '\0') file = reef_cli_text_of(event, "source");
    char *shown = reef_cli_printable((const uint8_t *)file, strlen(file), false);
    printf("%*s%s, byte %" JSON_INTEGER_FORMAT "\n", MARGIN, "", shown,
           json_integer_value(json_object_get(event, "offset")));
    free(shown);
}

// Its text from behind the time, or from where what is new in it can be seen.
static void print_event(const json_t *event) {
    const char *sort = reef_cli_text_of(event, "sort"),
               *line = reef_cli_text_of(event, "first_line");
    const json_t *new = json_object_get(event, "new");
    const size_t count = json_string_length(json_object_get(event, "first_line")),
                 new_at = (size_t)json_integer_value(json_array_get(new, 0)),
                 new_bytes = (size_t)json_integer_value(json_array_get(new, 1));
    const size_t begin = reef_line_text_at((const uint8_t *)line, count);
    const bool has_new = new_bytes > 0 && new_at >= begin && new_at + new_bytes <= count;
    size_t at = begin;
    if (!has_new) at = message_at(line, count, begin);
    if (at == begin && strcmp(sort, "type") == 0)
        at = unlike_at(line, count, begin, reef_cli_text_of(event, "nearest"));
    if (has_new && new_at + new_bytes > begin + COLUMNS - MARGIN && new_at > begin + BEFORE_WORD)
        at = new_at - BEFORE_WORD;
    const bool moved = at > begin;
    char *clean = reef_cli_printable((const uint8_t *)line + at, count - at, false);
    char *cut = reef_cli_cut(clean, COLUMNS - MARGIN - (moved ? 1 : 0));
    printf("  %-5s %5s  %s%s\n", word_of(sort),
           strcmp(sort, "silence") == 0 ? "" : CLI_COUNT(reef_cli_count_of(event, "count")),
           moved ? "\u2026" : "", cut);
    if (has_new) {
        char *before = reef_cli_printable((const uint8_t *)line + at, new_at - at, false);
        printf("%*s", (int)(MARGIN + (moved ? 1 : 0) + reef_cli_width(before)), "");
        free(before);
        char *word = reef_cli_printable((const uint8_t *)line + new_at, new_bytes, false);
        for (size_t i = 0; i < reef_cli_width(word) && i < COLUMNS - MARGIN; i++) putchar('^');
        free(word);
        putchar('\n');
    }
    free(cut);
    free(clean);
}

// The source, and of a rotated one the file that has the first line of its rarest event.
static void print_place(const json_t *event) {
    const char *source = reef_cli_text_of(event, "source"), *file = reef_cli_text_of(event, "file");
    const char *name = strrchr(file, '/') != NULL ? strrchr(file, '/') + 1 : file;
    if (strncmp(source, "follow:", 7) == 0) source += 7; // its path says enough
    char *shown = reef_cli_printable((const uint8_t *)source, strlen(source), false);
    printf("%s", shown);
    free(shown);
    if (file[0] == '\0' || strcmp(file, source) == 0) return;
    shown = reef_cli_printable((const uint8_t *)name, strlen(name), false);
    printf(" (%s)", shown);
    free(shown);
}

void reef_incident_print(const json_t *incident, size_t events, bool colours) {
    const json_t *list = json_object_get(incident, "events");
    const double first = reef_cli_real_of(incident, "first_time");
    const double seconds = reef_cli_real_of(incident, "last_time") - first;
    const char *decision = reef_cli_text_of(incident, "decision");
    printf("%s%.16s%s  ", colours ? "\033[1m" : "", CLI_TIME((uint64_t)(first * 1000.0)),
           colours ? "\033[0m" : "");
    print_place(json_array_get(list, 0));
    if (seconds >= 1.0) printf(", for %s", CLI_DURATION(seconds));
    printf("  #%s", CLI_COUNT(reef_cli_count_of(incident, "incident")));
    if (!json_is_true(json_object_get(incident, "rings"))) printf(" (does not ring)");
    if (strcmp(reef_cli_text_of(incident, "state"), "open") == 0) printf(" open");
    if (json_object_get(incident, "muted_until") != NULL)
        printf(" muted until %.16s",
               CLI_TIME((uint64_t)(reef_cli_real_of(incident, "muted_until") * 1000.0)));
    else if (decision[0] != '\0')
        printf(" %s", decision);
    printf("\n");
    size_t shown = 0;
    for (; shown < json_array_size(list) && shown < events; shown++) {
        print_event(json_array_get(list, shown));
        if (events == SIZE_MAX) print_line_place(json_array_get(list, shown));
    }
    uint64_t more = json_array_size(list) - shown + reef_cli_count_of(incident, "more_events");
    if (more > 0) printf("  and %s more\n", CLI_COUNT(more));
    printf("\n");
}
