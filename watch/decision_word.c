// Decisions in words, as people and programs give them.
#include "reef_watch.h"

#include <inttypes.h>
#include <string.h>

reef_status reef_decision_read(reef_decision *out,
                               const char *word,
                               int64_t for_s,
                               reef_error *err) {
    for (*out = REEF_DECISION_NORMAL; *out < REEF_DECISION_COUNT; ++*out)
        if (strcmp(word, reef_decision_name(*out)) == 0) break;
    if (*out == REEF_DECISION_COUNT)
        return reef_fail(err, REEF_ERR_INVALID,
                         "decision '%.40s' is none: they are normal, mute and fault", word);
    const bool mutes = *out == REEF_DECISION_MUTE;
    if (mutes ? for_s >= 1 && for_s <= REEF_MUTE_S_MAX : for_s == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "for_s %" PRId64 ": mute lasts 1 to %d seconds, and nothing else has a time",
                     for_s, REEF_MUTE_S_MAX);
}
