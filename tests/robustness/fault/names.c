// The names of all fail points, one a line: the campaign kills at each of them.
#include "reef_fail_point.h"

#include <stdio.h>

int main(void) {
#define PRINT(upper, name) puts(name);
    REEF_FAIL_POINT_LIST(PRINT)
#undef PRINT
    return 0;
}
