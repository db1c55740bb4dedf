// The SVG that the charts need, and no more. Nothing here knows what is drawn.
#include "svg.h"

#include "cli_format.h"
#include "cli_pool.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void reef_svg_begin(FILE *out, double width, double height) {
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
        "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
        width, height, width, height);
}

void reef_svg_end(FILE *out) {
    fputs("</svg>\n", out);
}

void reef_svg_line(FILE *out,
                   double x1,
                   double y1,
                   double x2,
                   double y2,
                   const char *colour,
                   double width,
                   const char *dashes) {
    fprintf(
        out,
        "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"%s\" stroke-width=\"%.2f\"",
        x1, y1, x2, y2, colour, width);
    // Dashes are an attribute of their own, which a solid line must not have.
    if (dashes != NULL) fprintf(out, " stroke-dasharray=\"%s\"", dashes);
    fputs("/>\n", out);
}

void reef_svg_rect(FILE *out,
                   double x,
                   double y,
                   double width,
                   double height,
                   const char *fill,
                   const char *stroke) {
    fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"", x, y,
            width, height, fill);
    if (stroke != NULL) fprintf(out, " stroke=\"%s\" stroke-width=\"2.5\"", stroke);
    fputs("/>\n", out);
}

// Made printable, as XML bears neither control characters nor what is not UTF-8; what it reserves
// as entities.
static void escape(FILE *out, const char *text) {
    char *printable = reef_cli_printable((const uint8_t *)text, strlen(text), false);
    for (const char *at = printable; *at; at++) {
        switch (*at) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*at, out);
            break;
        }
    }
    free(printable);
}

void reef_svg_text(FILE *out,
                   double x,
                   double y,
                   double size,
                   const char *anchor,
                   const char *colour,
                   const char *text) {
    fprintf(out, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%.0f\" text-anchor=\"%s\" fill=\"%s\">",
            x, y, size, anchor, colour);
    escape(out, text);
    fputs("</text>\n", out);
}

void reef_svg_text_upwards(FILE *out, double x, double y, double size, const char *text) {
    fprintf(out,
            "<text transform=\"translate(%.2f %.2f) rotate(-90)\" font-size=\"%.0f\" "
            "text-anchor=\"middle\" fill=\"" SVG_INK "\">",
            x, y, size);
    escape(out, text);
    fputs("</text>\n", out);
}

reef_status reef_svg_write(const char *path,
                           void (*draw)(FILE *out, const void *context),
                           const void *context,
                           reef_error *err) {
    reef_status status = reef_store_check_output(path, err);
    if (status != REEF_OK) return status;
    FILE *out = fopen(path, "w");
    if (out == NULL) return reef_cli_write_failed(path, errno, err);
    draw(out, context);
    bool failed = ferror(out) != 0;
    failed |= fclose(out) != 0;
    return failed ? reef_cli_write_failed(path, errno, err) : REEF_OK;
}
