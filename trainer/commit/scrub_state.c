// What a check beside training found, kept with the trainer's own commits: a pool has one writer.
//
// It says when somebody looked, so it is of the wall clock, and no part of the root hash; training never reads
// it.
#include "trainer_internal.h"

#include <stdio.h>
#include <string.h>

void reef_trainer_set_scrub(reef_trainer *trainer, const reef_scrub *scrub) {
    trainer->scrub = *scrub;
    trainer->scrub_known = true;
}

// As it may stand between the quotes of JSON: names of records come from outside.
static void plain(const char *text, char *out, size_t room) {
    size_t i = 0;
    for (; text[i] && i + 1 < room; i++) {
        unsigned char c = (unsigned char)text[i];
        out[i] = c < 0x20 || c > 0x7e || c == '"' || c == '\\' ? '?' : text[i];
    }
    out[i] = '\0';
}

reef_status reef_trainer_note_damage(reef_trainer *trainer, const char *what, reef_error *err) {
    char text[256];
    plain(what, text, sizeof text);
    return reef_state_event(trainer, err, "damage", "\"what\": \"%s\"", text);
}
