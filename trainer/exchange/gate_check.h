// The gate of an imported generation against what the pool that takes it in remembers.
#ifndef REEF_GATE_CHECK_H
#define REEF_GATE_CHECK_H

#include "generation.h"
#include "reservoir.h"

/**
 * On what share of the reservoir's bytes does the gate fire, read as one text a generation? Fitted
 * in another pool, it has never met what was learned here since the pools parted. With a `leak_max`
 * above 0 its threshold is raised until it fires on no more than that.
 *
 * gen     its gate's threshold and gate_leak are changed where it is raised
 * before  written; NaN while the reservoir is empty
 * after   written: the same with the threshold as it is now
 */
REEF_MUST_CHECK reef_status reef_import_gate(const reef_reservoir *reservoir,
                                             reef_generation *generation,
                                             double leak_max,
                                             double *before,
                                             double *after,
                                             reef_error *err);

#endif
