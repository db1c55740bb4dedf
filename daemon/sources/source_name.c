// Names of sources; see source_name.h.
#include "source_name.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define HASH_DIGITS 16

// FNV-1a, only to tell long names apart.
static uint64_t name_hash(const char *text, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

void reef_source_name(char *out, size_t max, const char *text, size_t bytes) {
    // Jansson decides what is UTF-8: the name becomes part of JSON and of a record key.
    json_t *json = json_stringn(text, bytes);
    bool plain = json != NULL && bytes <= max;
    json_decref(json);
    if (plain) {
        memcpy(out, text, bytes);
        out[bytes] = 0;
        return;
    }
    // Too long, or not UTF-8: a hash keeps it unique and the end of the path keeps it readable.
    size_t room = max - HASH_DIGITS - 2;
    size_t kept = bytes > room ? room : bytes;
    snprintf(out, max + 1, "#%016" PRIx64 "-%.*s", name_hash(text, bytes), (int)kept,
             text + bytes - kept);
    // A cut may fall inside a character.
    for (char *at = out; *at; at++)
        if ((unsigned char)*at >= 0x80) *at = '?';
}
