// See line_tokens.h.
#include "line_tokens.h"

#include <string.h>
#include <xxhash.h>

#define WORD_BYTES_MAX 40
#define STATUS_DIGITS_MAX 3
#define HEX_DIGITS_MIN 8
#define QUOTED_SPACES_MIN 3

typedef struct shape {
    bool letter, digit, other, hex;
} shape;

static bool is_digit(uint8_t byte) {
    return (uint8_t)(byte - '0') < 10;
}

static bool is_space(uint8_t byte) {
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static bool is_separator(uint8_t byte) {
    return is_space(byte) || (byte != '\0' && strchr("=,;:()[]{}\"'<>|", byte) != NULL);
}

static bool equals(const uint8_t *word, size_t count, const char *lower) {
    size_t i = 0;
    for (; i < count && lower[i] != '\0'; i++)
        if ((word[i] | 0x20) != (uint8_t)lower[i]) return false;
    return i == count && lower[i] == '\0';
}

// ---- severity -----------------------------------------------------------------------------------

static const struct {
    const char *word;
    reef_severity severity;
    bool is_level;
} SEVERITIES[] = {
    {"trace", REEF_SEVERITY_NONE, true},         {"debug", REEF_SEVERITY_NONE, true},
    {"info", REEF_SEVERITY_NONE, true},          {"notice", REEF_SEVERITY_NONE, true},
    {"warn", REEF_SEVERITY_WARNING, true},       {"warning", REEF_SEVERITY_WARNING, true},
    {"error", REEF_SEVERITY_ERROR, true},        {"err", REEF_SEVERITY_ERROR, true},
    {"severe", REEF_SEVERITY_ERROR, true},       {"crit", REEF_SEVERITY_CRITICAL, true},
    {"critical", REEF_SEVERITY_CRITICAL, true},  {"fatal", REEF_SEVERITY_CRITICAL, true},
    {"alert", REEF_SEVERITY_CRITICAL, true},     {"emerg", REEF_SEVERITY_CRITICAL, true},
    {"panic", REEF_SEVERITY_CRITICAL, true},     {"failed", REEF_SEVERITY_ERROR, false},
    {"failure", REEF_SEVERITY_ERROR, false},     {"exception", REEF_SEVERITY_ERROR, false},
    {"denied", REEF_SEVERITY_WARNING, false},    {"refused", REEF_SEVERITY_WARNING, false},
    {"timeout", REEF_SEVERITY_WARNING, false},   {"invalid", REEF_SEVERITY_WARNING, false},
    {"corrupt", REEF_SEVERITY_CRITICAL, false},  {"corrupted", REEF_SEVERITY_CRITICAL, false},
    {"segfault", REEF_SEVERITY_CRITICAL, false}, {"oom", REEF_SEVERITY_CRITICAL, false},
    {"killed", REEF_SEVERITY_ERROR, false},      {"unreachable", REEF_SEVERITY_ERROR, false},
};
#define SEVERITY_COUNT (sizeof(SEVERITIES) / sizeof(*SEVERITIES))

bool reef_is_level(const uint8_t *word, size_t count) {
    for (size_t i = 0; i < SEVERITY_COUNT; i++)
        if (SEVERITIES[i].is_level && equals(word, count, SEVERITIES[i].word)) return true;
    return false;
}

static reef_severity severity_of(const uint8_t *word, size_t count) {
    for (size_t i = 0; i < SEVERITY_COUNT; i++)
        if (equals(word, count, SEVERITIES[i].word)) return SEVERITIES[i].severity;
    return REEF_SEVERITY_NONE;
}

// ---- tokens -------------------------------------------------------------------------------------

static shape shape_of(const uint8_t *word, size_t count) {
    shape s = {.hex = true};
    for (size_t i = 0; i < count; i++) {
        bool digit = is_digit(word[i]);
        bool letter = (uint8_t)((word[i] | 0x20) - 'a') < 26 || word[i] >= 0x80;
        s.digit |= digit;
        s.letter |= letter;
        s.other |= !digit && !letter;
        s.hex &= digit || (uint8_t)((word[i] | 0x20) - 'a') < 6 || word[i] == '-';
    }
    return s;
}

// A number in brackets is one of a process or a place.
static uint32_t hash_of(const uint8_t *line, size_t at, size_t count, bool *is_number) {
    const uint8_t *word = line + at;
    shape s = shape_of(word, count);
    bool in_brackets = at > 0 && (line[at - 1] == '[' || line[at - 1] == '(');
    bool status = s.digit && !s.letter && !s.other && count <= STATUS_DIGITS_MAX && !in_brackets;
    *is_number = status;
    bool id = s.hex && count >= HEX_DIGITS_MIN;
    bool path = memchr(word, '?', count) != NULL && memchr(word, '/', count) != NULL;
    if ((s.digit && !status) || id || path || count > WORD_BYTES_MAX) return REEF_TOKEN_VARIABLE;
    uint32_t hash = (uint32_t)XXH3_64bits(word, count);
    return hash > REEF_TOKEN_VARIABLE ? hash : 2 + hash;
}

// 12:00:01, 10.0.0.1:80
static bool is_clock_colon(const uint8_t *line, size_t count, size_t at) {
    return line[at] == ':' && at > 0 && at + 1 < count && is_digit(line[at - 1]) &&
           is_digit(line[at + 1]);
}

// A path goes on to the next space or quote, a word to the next separator.
static size_t token_end(const uint8_t *line, size_t count, size_t at) {
    if (line[at] == '/') {
        while (at < count && !is_space(line[at]) && line[at] != '"' && line[at] != '\'') at++;
        return at;
    }
    while (at < count && (!is_separator(line[at]) || is_clock_colon(line, count, at))) at++;
    return at;
}

// A quoted text of four words and more that stands alone is a value: the name of a browser.
static size_t quoted_end(const uint8_t *line, size_t count, size_t at) {
    size_t spaces = 0, end = at + 1;
    if (line[at] != '"' || at == 0 || line[at - 1] != ' ') return 0;
    for (; end < count && line[end] != '"'; end++) spaces += line[end] == ' ';
    bool alone = end < count && (end + 1 == count || line[end + 1] == ' ');
    return alone && spaces >= QUOTED_SPACES_MIN ? end + 1 : 0;
}

static bool is_in(size_t at, size_t from, size_t count) {
    return at >= from && at < from + count;
}

// Is it a month or a day, with a number on one side of it?
static bool is_date_word(const reef_line_tokens *t, const uint8_t *line, size_t i) {
    const reef_token *token = &t->tokens[i];
    if (!reef_is_calendar_word(line + token->at, token->bytes)) return false;
    bool before = i > 0 && is_digit(line[t->tokens[i - 1].at]);
    bool behind = i + 1 < t->count && is_digit(line[t->tokens[i + 1].at]);
    return before || behind;
}

void reef_line_tokens_read(const uint8_t *line,
                           size_t count,
                           const reef_line_head *head,
                           reef_line_tokens *out) {
    out->count = out->words = 0;
    out->severity = REEF_SEVERITY_NONE;
    for (size_t at = 0; at < count && out->count < REEF_TOKENS_MAX;) {
        if (is_in(at, head->time_at, head->time_bytes)) {
            at = head->time_at + head->time_bytes;
        } else if (is_in(at, head->host_at, head->host_bytes)) {
            at = head->host_at + head->host_bytes;
        } else if (quoted_end(line, count, at) > 0) {
            size_t end = quoted_end(line, count, at);
            out->tokens[out->count++] =
                (reef_token){REEF_TOKEN_VARIABLE, (uint16_t)at, (uint16_t)(end - at), false};
            at = end;
        } else if (is_separator(line[at])) {
            at++;
        } else {
            size_t end = token_end(line, count, at), bytes = end - at;
            while (bytes > 1 && strchr(".!?", line[at + bytes - 1]) != NULL &&
                   line[at + bytes - 1] != '\0')
                bytes--;
            reef_token *token = &out->tokens[out->count++];
            *token = (reef_token){.at = (uint16_t)at, .bytes = (uint16_t)bytes};
            token->hash = hash_of(line, at, bytes, &token->is_number);
            reef_severity severity = severity_of(line + at, bytes);
            if (severity > out->severity) out->severity = severity;
            at = end;
        }
    }
    for (size_t i = 0; i < out->count; i++) {
        if (is_date_word(out, line, i)) out->tokens[i].hash = REEF_TOKEN_VARIABLE;
        out->words += out->tokens[i].hash != REEF_TOKEN_VARIABLE;
    }
}
