// The logistic function and its inverse as tables.
//
// They are made with products, sums and quotients of doubles alone, which IEEE 754 rounds in one
// way, and never with exp() or log(), which each C library rounds in its own.
#include "logistic.h"

#include <threads.h>

static reef_logistic tables;
static int32_t rates[REEF_CHANCE_LIMIT + 1];
static once_flag made = ONCE_FLAG_INIT, rates_made = ONCE_FLAG_INIT;

static void make_squash(void) {
    // e to the power of 1/256; its powers follow by multiplication, with an error below 1e-12.
    const double step = 1.003913889338347573443609603903460;
    double power = 1.0;
    for (int32_t odds = 0; odds <= REEF_ODDS_MAX; odds++, power *= step) {
        uint32_t p = (uint32_t)(65536.0 * (power / (1.0 + power)) + 0.5);
        if (p > 65535) p = 65535;
        tables.squash[REEF_ODDS_MAX + 1 + odds] = (uint16_t)p;
        tables.squash[REEF_ODDS_MAX + 1 - odds] = (uint16_t)(65536 - p);
    }
    tables.squash[0] = tables.squash[1]; // is never asked for
}

// The inverse by search: for the middle of each cell of 16 probabilities, the first log odds that
// reach it. Odd in the same way as squash is, so that neither zeros nor ones are preferred.
static void make_stretch(void) {
    int32_t odds = 0;
    for (uint32_t cell = 2048; cell < 4096; cell++) {
        uint32_t middle = cell * 16 + 8;
        while (odds < REEF_ODDS_MAX && reef_squash(&tables, odds) < middle) odds++;
        tables.stretch[cell] = (int16_t)odds;
        tables.stretch[4095 - cell] = (int16_t)-odds;
    }
}

static void make_stretch_exact(void) {
    int32_t odds = 0;
    for (uint32_t p = 32768; p < 65536; p++) {
        while (odds < REEF_ODDS_MAX && reef_squash(&tables, odds) < p) odds++;
        tables.stretch_exact[p] = (int16_t)odds;
        tables.stretch_exact[65536 - p] = (int16_t)-odds;
    }
    tables.stretch_exact[0] = -REEF_ODDS_MAX; // is never asked for
}

static void make_tables(void) {
    make_squash();
    make_stretch();
    make_stretch_exact();
}

const reef_logistic *reef_logistic_tables(void) {
    call_once(&made, make_tables);
    return &tables;
}

static void make_rates(void) {
    for (int32_t n = 0; n <= REEF_CHANCE_LIMIT; n++) rates[n] = 327680 / (10 * n + 16);
}

const int32_t *reef_chance_rates(void) {
    call_once(&rates_made, make_rates);
    return rates;
}
