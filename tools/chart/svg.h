// Writing SVG: a few shapes and text, escaped, in one style.
#ifndef REEF_SVG_H
#define REEF_SVG_H

#include "reef_error.h"

#include <stdio.h>

#define SVG_INK "#222222"
#define SVG_PALE "#6b6b6b"
#define SVG_GRID "#e4e4e4"

#define SVG_CHARACTER 8.2 // width of one in text of size 15, rather more than less

void reef_svg_begin(FILE *out, double width, double height);
void reef_svg_end(FILE *out);
void reef_svg_line(FILE *out,
                   double x1,
                   double y1,
                   double x2,
                   double y2,
                   const char *colour,
                   double width,
                   const char *dashes);
void reef_svg_rect(FILE *out,
                   double x,
                   double y,
                   double width,
                   double height,
                   const char *fill,
                   const char *stroke);
/** `anchor` is start, middle or end; `size` in pixels. */
void reef_svg_text(FILE *out,
                   double x,
                   double y,
                   double size,
                   const char *anchor,
                   const char *colour,
                   const char *text);
/** The same, turned to read upwards. */
void reef_svg_text_upwards(FILE *out, double x, double y, double size, const char *text);

/** Write a picture to a file: `draw` puts it there, from reef_svg_begin to reef_svg_end. IO. */
REEF_MUST_CHECK reef_status reef_svg_write(const char *path,
                                           void (*draw)(FILE *out, const void *context),
                                           const void *context,
                                           reef_error *err);

#endif
