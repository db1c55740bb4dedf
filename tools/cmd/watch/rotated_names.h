// Names that logrotate gives to the older files of a log.
//
//   NAME.1  NAME.2.gz  NAME-20261130  NAME-20261130.gz  NAME-2026-11-30  NAME-1796040000
#ifndef REEF_ROTATED_NAMES_H
#define REEF_ROTATED_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum reef_rotation_sort {
    REEF_ROTATION_NONE,   // a log as it is written, or what is called like one
    REEF_ROTATION_NUMBER, // the larger, the older
    REEF_ROTATION_DATE    // the larger, the younger
} reef_rotation_sort;

/** What the end of a file's name says, apart from ".gz". */
typedef struct reef_rotation {
    reef_rotation_sort sort;
    size_t name_bytes; // of the path, without it
    uint64_t number;   // of those of one log the order: 3, 20261130
} reef_rotation;

/** Bytes of a path without ".gz" at its end. */
size_t reef_path_without_gz(const char *path);

/** Reads the end of a path. What is no number of up to three digits and no date is part of NAME. */
reef_rotation reef_rotation_read(const char *path);

/**
 * Can numbers behind this name be those of a rotation, where no file has the name itself? Not if it
 * ends in a digit: 10.0.0.1 is a host and app-1.2 a version.
 */
bool reef_rotation_can_be_of(const char *path, size_t name_bytes);

#endif
