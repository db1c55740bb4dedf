// The learned line that is most like another one.
//
// Two lines are alike where they share sequences of four bytes, line ends counted. A sequence
// weighs log(1 + N / n) if n of the N learned lines have it, so a common date weighs little. What
// is shared counts twice, against the weight of both lines (Dice 1945): 1 for equal lines, 0 for
// lines that share nothing.
#ifndef REEF_NEAREST_LINE_H
#define REEF_NEAREST_LINE_H

#include <stddef.h>
#include <stdint.h>

typedef struct reef_nearest reef_nearest;

typedef struct reef_nearest_found {
    const uint8_t *line; // (bytes) lies in the learned text; NULL: none has anything in common
    size_t bytes;
    double likeness; // 0 to 1
} reef_nearest_found;

/** Index the lines of `text` (count), which is kept by the index. */
reef_nearest *reef_nearest_new(const uint8_t *text, size_t count);
void reef_nearest_free(reef_nearest *nearest); // accepts NULL
/** Some milliseconds in 4 MB of text. Of equally near ones the first in the order of bytes. */
reef_nearest_found reef_nearest_find(reef_nearest *nearest, const uint8_t *line, size_t bytes);

#endif
