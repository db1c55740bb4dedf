// See chance.h.
#include "chance.h"

#include <threads.h>

static int32_t rates[REEF_CHANCE_LIMIT + 1];
static once_flag made = ONCE_FLAG_INIT;

static void make_rates(void) {
    for (int32_t n = 0; n <= REEF_CHANCE_LIMIT; n++) rates[n] = 327680 / (10 * n + 16);
}

const int32_t *reef_chance_rates(void) {
    call_once(&made, make_rates);
    return rates;
}
