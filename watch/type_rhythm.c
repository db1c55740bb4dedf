// See type_rhythm.h. What is far more than ever is not entered as such, so that it is seen again
// the next day: a window or a gap counts for at most what would not have been seen. Before a rate
// is judged, windows count as they are.
#include "type_rhythm.h"
#include "rare_bits.h"

#include <string.h>

#define DAY_MS INT64_C(86400000)
#define RATE_AGE_MS (2 * DAY_MS) // of a type whose rate is judged
#define DAYS_MIN 2u              // that it came on, before the present one
#define RATE_TIMES 1.6           // the most in a window of the last days,
#define RATE_MORE 6.0            // and so many more
#define GAP_TIMES 2.0            // the longest gap of the last days,
#define GAP_MORE_S 60.0          // and so much more
#define SILENCE_BITS 12.0
#define STEADY_WINDOWS 100u // of ten minutes, in each of the two days before: only that is missed
#define BITS_MAX 24.0
#define LOG2_E 1.4426950408889634

static const int64_t WINDOW_MS[REEF_RHYTHM_WINDOWS] = {600000, 3600000};

static uint32_t most_of(const uint32_t *days) {
    uint32_t most = 0;
    for (int d = 0; d < REEF_RHYTHM_DAYS; d++) most = days[d] > most ? days[d] : most;
    return most;
}

static double too_many(const reef_rhythm *r, int w) {
    return RATE_TIMES * most_of(r->most[w]) + RATE_MORE;
}

// A longer gap is a silence.
static double gap_most(const reef_rhythm *r) {
    return GAP_TIMES * most_of(r->gap_s) + GAP_MORE_S;
}

static int at_day(const reef_rhythm *r) {
    return (int)(r->days % REEF_RHYTHM_DAYS);
}

// Days on which it does not come leave no trace: a weekly job is compared with those before.
static void begin_day(reef_rhythm *r, int64_t day) {
    if (day <= r->day) return;
    r->day = day;
    r->days++;
    for (int w = 0; w < REEF_RHYTHM_WINDOWS; w++) r->most[w][at_day(r)] = 0;
    r->windows[at_day(r)] = r->gap_s[at_day(r)] = 0;
}

static bool is_too_many(const reef_rhythm *r, int w) {
    return (double)r->count[w] > too_many(r, w);
}

// A window is over: it counts for its day.
static void end_window(reef_rhythm *r, int w, bool judged) {
    // It is no more than the count, so that it has room.
    uint32_t count = judged && is_too_many(r, w) ? (uint32_t)too_many(r, w) : r->count[w];
    uint32_t *most = &r->most[w][at_day(r)];
    if (count > *most) *most = count;
    r->count[w] = 0;
}

// Bits of so many where so many are usual: of a Poisson distribution, about.
static double bits_of(double count, double usual) {
    double bits = count * reef_log2_down(count / usual) - (count - usual) * LOG2_E;
    return bits < BITS_MAX ? bits : BITS_MAX;
}

static bool is_judged(const reef_rhythm *r, int64_t time_ms) {
    return r->first_ms > 0 && time_ms - r->first_ms >= RATE_AGE_MS && r->days >= DAYS_MIN;
}

bool reef_rhythm_count(reef_rhythm *r, uint32_t lines, int64_t time_ms, double *bits) {
    bool judged = is_judged(r, time_ms), rises = false, is_high = false;
    if (r->first_ms == 0) {
        r->first_ms = r->last_ms = time_ms;
        r->day = time_ms / DAY_MS;
    }
    if (time_ms < r->last_ms) time_ms = r->last_ms;
    bool new_window = time_ms / WINDOW_MS[0] != r->window[0];
    // It rises once, until an hour of it is as usual.
    int64_t hours = time_ms / WINDOW_MS[1] - r->window[1];
    if (hours > 1 || (hours == 1 && !is_too_many(r, 0) && !is_too_many(r, 1))) r->is_rising = false;
    for (int w = 0; w < REEF_RHYTHM_WINDOWS; w++) {
        if (time_ms / WINDOW_MS[w] != r->window[w]) {
            end_window(r, w, judged);
            r->window[w] = time_ms / WINDOW_MS[w];
        }
        r->count[w] = lines > UINT32_MAX - r->count[w] ? UINT32_MAX : r->count[w] + lines;
        double usual = fmax(most_of(r->most[w]), 1.0);
        if (!judged || !is_too_many(r, w)) continue;
        is_high = true;
        if (!r->is_rising) *bits = fmax(rises ? *bits : 0.0, bits_of(r->count[w], usual));
        rises = !r->is_rising;
    }
    if (is_high) r->is_rising = true;
    begin_day(r, time_ms / DAY_MS);
    int day = at_day(r);
    double gap = fmin((double)(time_ms - r->last_ms) / 1000.0, r->is_silent ? gap_most(r) : 1e9);
    if ((uint32_t)gap > r->gap_s[day]) r->gap_s[day] = (uint32_t)gap;
    r->windows[day] += new_window;
    r->last_ms = time_ms;
    r->is_silent = false;
    return rises;
}

static bool is_steady(const reef_rhythm *r) {
    for (uint32_t back = 1; back <= DAYS_MIN; back++)
        if (r->windows[(r->days - back) % REEF_RHYTHM_DAYS] < STEADY_WINDOWS) return false;
    return true;
}

bool reef_rhythm_is_silent(reef_rhythm *r, int64_t time_ms, double *bits) {
    if (r->is_silent || !is_judged(r, time_ms) || !is_steady(r)) return false;
    double most = gap_most(r);
    double now = (double)(time_ms - r->last_ms) / 1000.0;
    if (now <= most) return false;
    r->is_silent = true;
    *bits = SILENCE_BITS * now / most;
    return true;
}

void reef_rhythm_skip(reef_rhythm *r, int64_t ms) {
    r->last_ms += ms;
}
