// Numbers, text and tables as people read them.
#define _XOPEN_SOURCE 700 // wcwidth

#include "cli_format.h"

#include "reef_log.h"
#include "reef_store.h"

#include <assert.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

const char *reef_cli_count(uint64_t value, char out[CLI_WORD_BYTES]) {
    char digits[24];
    int count = snprintf(digits, sizeof(digits), "%" PRIu64, value);
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

const char *reef_cli_bytes(uint64_t bytes, char out[CLI_WORD_BYTES]) {
    static const char *const UNITS[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    size_t unit = 0;
    // Powers of ten, as in the documents and on disks.
    while (value >= 1000 && unit + 1 < sizeof(UNITS) / sizeof(UNITS[0])) {
        value /= 1000;
        unit++;
    }
    if (unit == 0)
        snprintf(out, CLI_WORD_BYTES, "%" PRIu64 " B", bytes);
    else
        snprintf(out, CLI_WORD_BYTES, "%.1f %s", value, UNITS[unit]);
    return out;
}

const char *reef_cli_duration(double seconds, char out[CLI_WORD_BYTES]) {
    // Also turns not a number into zero.
    if (!(seconds >= 0)) seconds = 0;
    if (seconds < 10) {
        // The bound is where "%.0f ms" would round to 1000.
        bool short_time = seconds < 0.9995;
        snprintf(out, CLI_WORD_BYTES, short_time ? "%.0f ms" : "%.1f s",
                 short_time ? 1e3 * seconds : seconds);
        return out;
    }
    // Rounded once, so that minutes and seconds carry over together.
    uint64_t whole = (uint64_t)(seconds + 0.5);
    if (whole < 60)
        snprintf(out, CLI_WORD_BYTES, "%" PRIu64 " s", whole);
    else if (whole < 3600)
        snprintf(out, CLI_WORD_BYTES, "%" PRIu64 " min %" PRIu64 " s", whole / 60, whole % 60);
    else if (whole < 86400)
        snprintf(out, CLI_WORD_BYTES, "%" PRIu64 " h %" PRIu64 " min", whole / 3600,
                 whole % 3600 / 60);
    else
        snprintf(out, CLI_WORD_BYTES, "%" PRIu64 " d %" PRIu64 " h", whole / 86400,
                 whole % 86400 / 3600);
    return out;
}

const char *reef_cli_time(uint64_t unix_ms, char out[CLI_WORD_BYTES]) {
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm local;
    if (localtime_r(&seconds, &local) == NULL ||
        strftime(out, CLI_WORD_BYTES, "%Y-%m-%d %H:%M:%S", &local) == 0)
        snprintf(out, CLI_WORD_BYTES, "%" PRIu64 " ms", unix_ms);
    return out;
}

const char *reef_cli_hash(const uint8_t *hash, char out[CLI_WORD_BYTES]) {
    _Static_assert(2 * REEF_HASH_BYTES < CLI_WORD_BYTES, "a hash is a word");
    reef_hash_format(hash, out);
    return out;
}

// ---- text ---------------------------------------------------------------------------------------

// Control characters, also the C1 ones (U+0080 to U+009F), could act on a terminal.
static bool is_control(const uint8_t *character, size_t length) {
    if (length == 1) return character[0] < 0x20 || character[0] == 0x7f;
    return length == 2 && character[0] == 0xc2 && character[1] < 0xa0;
}

char *reef_cli_printable(const uint8_t *bytes, size_t count, bool lines) {
    // The longest form of a byte is \xNN.
    char *text = reef_cli_alloc(4 * count + 1, 1);
    char *to = text;
    for (size_t at = 0; at < count;) {
        size_t length = reef_character_bytes(bytes + at, count - at);
        if (length > 0 && !is_control(bytes + at, length)) {
            memcpy(to, bytes + at, length);
            to += length;
            at += length;
        } else if ((bytes[at] == '\n' || bytes[at] == '\t') && lines) {
            *to++ = (char)bytes[at++];
            // Escaped where lines would break the output.
        } else if (bytes[at] == '\n' || bytes[at] == '\t') {
            *to++ = '\\';
            *to++ = bytes[at++] == '\n' ? 'n' : 't';
        } else {
            to += snprintf(to, 5, "\\x%02x", bytes[at++]);
        }
    }
    return text;
}

// Counts how many bytes of a text fit in so many columns, and their width. The locale is UTF-8,
// whatever the environment says; without one a character has one column.
static size_t bytes_within(const char *text, size_t columns, size_t *width) {
    static locale_t utf8;
    if (utf8 == NULL) utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = uselocale(utf8);
    size_t at = 0;
    for (*width = 0; text[at];) {
        size_t length = reef_character_bytes((const uint8_t *)text + at, strnlen(text + at, 4));
        wchar_t wide = L'\0';
        // An invalid byte was made printable before, so it has one column.
        bool known = length > 1 && mbrtowc(&wide, text + at, length, &(mbstate_t){0}) == length;
        // 2 for a Chinese character, 0 for a combining accent.
        int own = known ? wcwidth(wide) : 1;
        size_t more = own < 0 ? 1 : (size_t)own;
        if (*width + more > columns) break;
        *width += more;
        at += length > 0 ? length : 1;
    }
    // The caller's locale must not change.
    uselocale(before);
    return at;
}

size_t reef_cli_width(const char *text) {
    size_t width;
    (void)bytes_within(text, SIZE_MAX, &width);
    return width;
}

char *reef_cli_cut(const char *text, size_t columns) {
    size_t width, bytes = bytes_within(text, columns, &width);
    if (!text[bytes]) return reef_cli_format("%s", text);
    bytes = columns > 0 ? bytes_within(text, columns - 1, &width) : 0;
    return reef_cli_format("%.*s…", (int)bytes, text);
}

char *reef_cli_shares(const double *shares, size_t count) {
    char *text = reef_cli_format("%s", "");
    const double least = 0.0005; // smaller shares are left out
    size_t last = count;         // shown before; equal shares follow by number
    for (size_t shown = 0; shown < 4; shown++) {
        size_t best = count;
        for (size_t i = 0; i < count; i++) {
            bool is_next = last == count || shares[i] < shares[last] ||
                           (shares[i] <= shares[last] && i > last);
            if (is_next && shares[i] >= least && (best == count || shares[i] > shares[best]))
                best = i;
        }
        if (best == count) break;
        last = best;
        reef_cli_append(&text, "%s%.4g (%zu)", shown > 0 ? ", " : "", 100 * shares[best], best);
    }
    return text;
}

// ---- memory -------------------------------------------------------------------------------------

#define EXIT_NO_MEMORY 71 // EX_OSERR

static void out_of_memory(void) {
    fputs("reef: out of memory\n", stderr);
    exit(EXIT_NO_MEMORY);
}

void *reef_cli_alloc(size_t count, size_t bytes) {
    void *memory = calloc(count ? count : 1, bytes ? bytes : 1);
    if (memory == NULL) out_of_memory();
    return memory;
}

void *reef_cli_grown(void *array, size_t count, size_t *capacity, size_t bytes) {
    if (count < *capacity) return array;
    *capacity = *capacity > 0 ? 2 * *capacity : 64;
    void *grown = reef_cli_alloc(*capacity, bytes);
    if (count > 0) memcpy(grown, array, count * bytes);
    free(array);
    return grown;
}

static char *format_list(const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    assert(length >= 0);
    char *text = reef_cli_alloc((size_t)length + 1, 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

char *reef_cli_format(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = format_list(format, arguments);
    va_end(arguments);
    return text;
}

void reef_cli_append(char **text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *more = format_list(format, arguments), *both = reef_cli_format("%s%s", *text, more);
    va_end(arguments);
    free(more);
    free(*text);
    *text = both;
}

// ---- people at a terminal -----------------------------------------------------------------------

bool reef_cli_colours(void) {
    const char *none = getenv("NO_COLOR"), *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && !(none != NULL && none[0]) && kind != NULL &&
           strcmp(kind, "dumb") != 0;
}

// Columns of the terminal that `out` is; 0: it is none, and lines may be of any length.
static size_t terminal_columns(FILE *out) {
    struct winsize size;
    if (isatty(fileno(out)) != 1 || ioctl(fileno(out), TIOCGWINSZ, &size) != 0) return 0;
    return size.ws_col;
}

// ---- tables -------------------------------------------------------------------------------------

#define LAST_COLUMNS_MIN 16 // less of a text says nothing: it is shown as a whole

struct reef_cli_table {
    char *alignment; // one letter per column
    size_t columns;
    char **cells; // row by row
    size_t count, capacity;
};

void reef_cli_table_free(reef_cli_table *table) {
    if (table == NULL) return;
    for (size_t i = 0; i < table->count; i++) free(table->cells[i]);
    free(table->cells);
    free(table->alignment);
    free(table);
}

void reef_cli_table_text(reef_cli_table *table, const uint8_t *bytes, size_t count) {
    table->cells =
        reef_cli_grown(table->cells, table->count, &table->capacity, sizeof(*table->cells));
    // Cells may hold names of files, and a terminal would obey control characters.
    table->cells[table->count++] = reef_cli_printable(bytes, count, false);
}

void reef_cli_table_cell(reef_cli_table *table, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = format_list(format, arguments);
    va_end(arguments);
    reef_cli_table_text(table, (const uint8_t *)text, strlen(text));
    free(text);
}

void reef_cli_table_cells(reef_cli_table *table, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = format_list(format, arguments);
    va_end(arguments);
    for (const char *at = text; at != NULL;) {
        size_t bytes = strcspn(at, "\t");
        reef_cli_table_text(table, (const uint8_t *)at, bytes);
        at = at[bytes] != '\0' ? at + bytes + 1 : NULL;
    }
    free(text);
}

reef_cli_table *reef_cli_table_new(const char *columns, const char *const *headings) {
    assert(columns[0] != '\0');
    reef_cli_table *table = reef_cli_alloc(1, sizeof(*table));
    table->alignment = reef_cli_format("%s", columns);
    table->columns = strlen(columns);
    for (size_t c = 0; c < table->columns; c++) reef_cli_table_cell(table, "%s", headings[c]);
    return table;
}

void reef_cli_table_real(reef_cli_table *table, int decimals, double value, const char *otherwise) {
    if (isnan(value))
        reef_cli_table_cell(table, "%s", otherwise);
    else
        reef_cli_table_cell(table, "%.*f", decimals, value);
}

static size_t column_width(const reef_cli_table *table, size_t column) {
    size_t widest = 0;
    for (size_t i = column; i < table->count; i += table->columns) {
        size_t width = reef_cli_width(table->cells[i]);
        if (width > widest) widest = width;
    }
    return widest;
}

void reef_cli_table_print(const reef_cli_table *table, FILE *out) {
    assert(table->columns > 0);
    size_t *widths = reef_cli_alloc(table->columns, sizeof(*widths));
    for (size_t c = 0; c < table->columns; c++) widths[c] = column_width(table, c);
    size_t before = 2 * (table->columns - 1), terminal = terminal_columns(out);
    for (size_t c = 0; c + 1 < table->columns; c++) before += widths[c];
    // Text in the last column takes what the terminal has left, and in a file as much as it needs.
    bool cuts = table->alignment[table->columns - 1] == '<' && terminal > before + LAST_COLUMNS_MIN;
    for (size_t i = 0; i < table->count; i++) {
        size_t column = i % table->columns;
        bool last = column + 1 == table->columns || i + 1 == table->count;
        bool is_cut = cuts && column + 1 == table->columns;
        char *cell = reef_cli_cut(table->cells[i], is_cut ? terminal - before : SIZE_MAX);
        bool right = table->alignment[column] == '>';
        size_t width = reef_cli_width(cell),
               pad = widths[column] > width ? widths[column] - width : 0;
        // No blanks at the end of a line.
        const char *gap = column && !(last && cell[0] == '\0') ? "  " : "";
        fprintf(out, "%s%*s%s", gap, right ? (int)pad : 0, "", cell);
        if (last)
            fputc('\n', out);
        else if (!right)
            fprintf(out, "%*s", (int)pad, "");
        free(cell);
    }
    free(widths);
}

void reef_cli_table_show(reef_cli_table *table) {
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}
