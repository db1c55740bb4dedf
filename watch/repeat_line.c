// See repeat_line.h.
#include "repeat_line.h"

#include <string.h>

#define BEFORE_MAX 4 // tokens before "last": a host, a program and its number, dashes

static bool is_word(const uint8_t *line, const reef_token *token, const char *word) {
    return token->bytes == strlen(word) && memcmp(line + token->at, word, token->bytes) == 0;
}

static uint32_t number_of(const uint8_t *line, const reef_token *token) {
    uint64_t value = 0;
    for (uint16_t i = 0; i < token->bytes; i++) {
        const uint8_t digit = (uint8_t)(line[token->at + i] - '0');
        if (digit > 9) return 0;
        value = value * 10 + digit;
        if (value > REEF_REPEATS_MAX) value = REEF_REPEATS_MAX;
    }
    return (uint32_t)value;
}

// Nothing but dashes.
static bool is_end(const uint8_t *line, const reef_line_tokens *tokens, size_t from) {
    for (size_t i = from; i < tokens->count; i++)
        for (uint16_t k = 0; k < tokens->tokens[i].bytes; k++)
            if (line[tokens->tokens[i].at + k] != '-') return false;
    return true;
}

uint32_t reef_line_repeats(const uint8_t *line, size_t count, const reef_line_tokens *tokens) {
    const reef_token *t = tokens->tokens;
    for (size_t i = 1; i + 2 < tokens->count && i <= BEFORE_MAX + 2; i++) {
        if (!is_word(line, &t[i], "repeated") || !is_word(line, &t[i - 1], "message") ||
            !is_word(line, &t[i + 2], "times"))
            continue;
        const size_t message = t[i - 1].at, end = (size_t)t[i + 2].at + t[i + 2].bytes;
        const bool is_last =
            i >= 2 && is_word(line, &t[i - 2], "last") && is_end(line, tokens, i + 3);
        const bool has_line = message >= 2 && memcmp(line + message - 2, ": ", 2) == 0 &&
                              count - end >= 3 && memcmp(line + end, ": [", 3) == 0;
        return is_last || has_line ? number_of(line, &t[i + 1]) : 0;
    }
    return 0;
}
