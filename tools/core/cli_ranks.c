// See cli_ranks.h.
#include "cli_ranks.h"

#include "cli_format.h"

#include <stdint.h>
#include <stdlib.h>

static double figure(const json_t *rank, const char *name) {
    return json_number_value(json_object_get(rank, name));
}

// The one that others waited for longest.
static char *behind_words(const json_t *list) {
    double longest = 0;
    size_t slowest = 0, r;
    char words[CLI_WORD_BYTES];
    const json_t *rank;
    json_array_foreach(list, r, rank) {
        if (figure(rank, "lag_s") <= longest) continue;
        longest = figure(rank, "lag_s");
        slowest = r;
    }
    if (longest == 0) return reef_cli_format("%s", "");
    return reef_cli_format("; rank %zu is the slowest, by %s", slowest,
                           reef_cli_duration(longest, words));
}

char *reef_cli_ranks_words(const json_t *status) {
    const json_t *ranks = json_object_get(status, "ranks"), *list = json_object_get(ranks, "ranks"),
                 *first = json_array_get(list, 0);
    char sends[CLI_WORD_BYTES];
    if (!json_is_object(first)) return NULL;
    double waits = figure(first, "packing_s") + figure(first, "waiting_s");
    double all = waits + figure(first, "computing_s") + figure(first, "telling_s") +
                 figure(first, "committing_s");
    char *behind = behind_words(list);
    char *line = reef_cli_format(
        "%zu, epoch %" JSON_INTEGER_FORMAT "; rank 0 sends %s/s, exchanges %.0f %% of the time%s",
        json_array_size(list), json_integer_value(json_object_get(ranks, "epoch")),
        reef_cli_bytes((uint64_t)figure(first, "sent_bytes_per_s"), sends),
        all > 0 ? 100 * waits / all : 0.0, behind);
    free(behind);
    return line;
}

// "; waits for 1, 2"
static char *missing_words(const json_t *joins) {
    const json_t *rank;
    size_t i;
    char *words = reef_cli_format("%s", "");
    json_array_foreach(json_object_get(joins, "waits_for"), i, rank) {
        char *longer =
            reef_cli_format("%s%s%" JSON_INTEGER_FORMAT, words, i == 0 ? "; waits for rank " : ", ",
                            json_integer_value(rank));
        free(words);
        words = longer;
    }
    return words;
}

char *reef_cli_joins_words(const json_t *status) {
    const json_t *joins = json_object_get(status, "joins");
    char since[CLI_WORD_BYTES], every[CLI_WORD_BYTES], sent[CLI_WORD_BYTES],
        received[CLI_WORD_BYTES];
    if (!json_is_object(joins)) return NULL;
    char *missing = missing_words(joins);
    char *line = reef_cli_format(
        "rank %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT ", %" JSON_INTEGER_FORMAT
        " done; %s of %s to the next; %s sent, %s received%s",
        json_integer_value(json_object_get(joins, "rank")),
        json_integer_value(json_object_get(joins, "ranks")),
        json_integer_value(json_object_get(joins, "count")),
        reef_cli_bytes((uint64_t)figure(joins, "since_bytes"), since),
        reef_cli_bytes((uint64_t)figure(joins, "every_bytes"), every),
        reef_cli_bytes((uint64_t)figure(joins, "sent_bytes"), sent),
        reef_cli_bytes((uint64_t)figure(joins, "received_bytes"), received), missing);
    free(missing);
    return line;
}
