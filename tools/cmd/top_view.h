// What `reef top` shows: lines of text made of what is known of a pool and its daemon.
#ifndef REEF_TOP_VIEW_H
#define REEF_TOP_VIEW_H

#include "cli.h"

#define TOP_HISTORY 512 // last values of the throughput

/** Everything that is shown. */
typedef struct reef_top_data {
    const char *pool;
    json_t *status;      // of the daemon, or of the last commit; NULL: not yet known
    bool daemon;         // whether the daemon gave it
    double age;          // seconds since it was given
    double still;        // seconds since training advanced last, while there is something to train
    const char *trouble; // why no new data arrives, or NULL
    double speed[TOP_HISTORY];
    size_t speed_count;
    // of the pool itself
    reef_config config;
    reef_generation_record *generations; // (generation_count)
    reef_usage_summary *usage;           // (generation_count)
    uint32_t generation_count;
    reef_point *points; // the loss over the stream
    size_t point_count;
} reef_top_data;

/** How a line stands out. */
typedef enum top_style { TOP_PLAIN, TOP_BOLD, TOP_FAINT, TOP_ALARM } top_style;

typedef void (*reef_top_on_line)(void *context, top_style style, const char *text);

/**
 * Show `line` each line, at most `rows` of them (0: all), none wider than `columns`.
 *
 * hint  the last line, or NULL
 */
void reef_top_view(const reef_top_data *data,
                   size_t columns,
                   size_t rows,
                   const char *hint,
                   reef_top_on_line line,
                   void *context);

/**
 * Values as blocks of eight heights between the least and the greatest, the last `columns` of them;
 * on the heap.
 */
char *reef_top_sparkline(const double *values, size_t count, size_t columns);

#endif
