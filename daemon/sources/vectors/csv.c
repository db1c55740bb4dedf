// Vectors from a table as text: a line per example, a value per column, one of them the label.
//
// Fields may stand in quotation marks, doubled inside them, but do not go over a line's end. The
// label may be empty (none), a number, or one of the words that `names` lists; a word that is not
// listed is refused, because numbering words as they come would give another file other numbers.
#include "reef_vectors.h"
#include "vector_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *path_of(const reef_vector_table *table) {
    return table->lines.file.path;
}

// ---- fields -------------------------------------------------------------------------------------

// Tabs and semicolons are rarer in other files than commas are in theirs.
static char find_separator(const char *line) {
    if (strchr(line, '\t') != NULL) return '\t';
    return strchr(line, ';') != NULL ? ';' : ',';
}

// Remove the quotation marks of a field in place; NULL without a second one, else what follows it.
static char *unquote(char *field) {
    // RFC 4180: a doubled quotation mark inside quotes is one.
    char *to = field;
    for (char *at = field + 1; *at; at++) {
        if (*at != '"') {
            *to++ = *at;
        } else if (at[1] == '"') {
            *to++ = *at++;
        } else {
            *to = '\0';
            return at + 1;
        }
    }
    return NULL;
}

static void trim(char *field) {
    size_t blanks = strspn(field, " \t"), length = strlen(field);
    while (length > blanks && strchr(" \t", field[length - 1]) != NULL) length--;
    memmove(field, field + blanks, length - blanks);
    field[length - blanks] = '\0';
}

// Cut a line into fields; `fields` has room for `most`. False when a quotation mark is left open.
static bool cut_fields(char *line, char separator, size_t most, char **fields, size_t *count) {
    for (*count = 0;; (*count)++) {
        char *field = line, *end = line;
        // Separators inside quotation marks belong to the field.
        if (*line == '"') {
            end = unquote(line);
            if (end == NULL) return false;
        }
        end += strcspn(end, (char[]){separator, '\0'});
        bool last = !*end;
        *end = '\0';
        trim(field);
        // Fields beyond `most` are counted, so that the message can say how many there are.
        if (*count < most) fields[*count] = field;
        line = end + 1;
        if (last) break;
    }
    ++*count;
    return true;
}

static size_t count_fields(const char *line, char separator) {
    size_t count = 1; // at most: some may lie between quotation marks
    for (; *line; line++) count += *line == separator;
    return count;
}

static bool is_number(const char *text) {
    char *end = NULL;
    (void)strtod(text, &end);
    return end != text && *end == '\0';
}

// ---- rows ---------------------------------------------------------------------------------------

static reef_status take_label(const reef_vector_table *table,
                              const char *field,
                              uint64_t number,
                              int32_t *label,
                              reef_error *err) {
    *label = -1;
    // An empty label means no label.
    if (!*field) return REEF_OK;
    for (size_t i = 0; i < table->name_count; i++)
        if (strcmp(table->names[i], field) == 0) {
            *label = (int32_t)i;
            return REEF_OK;
        }
    // With names= every label must be one of them; a number would silently become another class.
    if (table->names != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.90s' line %" PRIu64 ": the label is none of 'names=%.60s'",
                         path_of(table), number, table->spec->names);
    if (is_number(field) && reef_vector_label(strtod(field, NULL), label)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.80s' line %" PRIu64
                     ": the label is not a whole number from 0 on; choose its "
                     "column with ?label=, or list words with ?names=A,B",
                     path_of(table), number);
}

static reef_status take_value(const reef_vector_table *table,
                              const char *field,
                              size_t column,
                              uint64_t number,
                              float *out,
                              reef_error *err) {
    if (is_number(field) && reef_vector_store(table, strtod(field, NULL), out)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.80s' line %" PRIu64 ", column %zu (from 0) is not a finite number%s",
                     path_of(table), number, column,
                     number == 1 ? "; ?header=yes when the line names columns" : "");
}

static reef_status parse_row(reef_vector_table *table,
                             char *line,
                             uint64_t number,
                             float *vector,
                             int32_t *label,
                             reef_error *err) {
    // The line is cut in place: the buffer is ours.
    size_t count = 0;
    if (!cut_fields(line, table->separator, table->field_count, table->fields, &count))
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.120s' line %" PRIu64 ": a quotation mark is not closed on the line",
                         path_of(table), number);
    // A row of another width is a damaged file or a wrong separator.
    if (count != table->field_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.120s' line %" PRIu64 " has %zu values, but the lines before it have "
                         "%zu",
                         path_of(table), number, count, table->field_count);
    *label = -1;
    for (size_t i = 0, at = 0; i < count; i++) {
        float value = 0;
        reef_status status = i == table->label_column
                                 ? take_label(table, table->fields[i], number, label, err)
                                 : take_value(table, table->fields[i], i, number, &value, err);
        if (status != REEF_OK) return status;
        // The label's column is left out of the vector, wherever it stands.
        if (i != table->label_column && vector != NULL) vector[at] = value;
        at += i != table->label_column;
    }
    return REEF_OK;
}

// ---- columns ------------------------------------------------------------------------------------

// A header when no value beside the label is a number.
static bool looks_like_header(const reef_vector_table *table) {
    for (size_t i = 0; i < table->field_count; i++)
        if (i != table->label_column && is_number(table->fields[i])) return false;
    return true;
}

static reef_status no_column(const reef_vector_table *table, bool header, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.100s' has no column '%.40s'%s: name one of its header, or give a number "
                     "from 0 to %zu, first, last or none",
                     path_of(table), table->spec->label, header ? "" : " (and no header line)",
                     table->field_count - 1);
}

// By name, when there are names; otherwise a number or a word. Without an option the last.
static bool find_label_column(reef_vector_table *table, bool header) {
    const char *label = table->spec->label;
    // The last column by default, as in most published data sets.
    table->label_column = table->field_count - 1;
    if (label == NULL) return true;
    for (size_t i = 0; header && i < table->field_count; i++)
        if (strcmp(table->fields[i], label) == 0) {
            table->label_column = i;
            return true;
        }
    if (strcmp(label, "last") == 0) return true;
    table->label_column = strcmp(label, "none") == 0 ? SIZE_MAX : 0;
    if (strcmp(label, "none") == 0 || strcmp(label, "first") == 0) return true;
    // A column may be named by its number, from 0.
    char *end = NULL;
    unsigned long long number = strtoull(label, &end, 10);
    table->label_column = (size_t)number;
    return label[0] >= '0' && label[0] <= '9' && !*end && number < table->field_count;
}

// What the first line says: the columns, which of them is the label, and whether it is a header.
static reef_status read_columns(reef_vector_table *table, bool *header, reef_error *err) {
    char *line = table->lines.line;
    // The separator is guessed from the first line: comma, semicolon or tab.
    table->separator = find_separator(line);
    size_t most = count_fields(line, table->separator);
    table->fields = calloc(most, sizeof(*table->fields));
    // Pointers into the line; made once and used for every row.
    if (table->fields == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu columns", most);
    if (!cut_fields(line, table->separator, most, table->fields, &table->field_count))
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.120s': a quotation mark is not closed on line 1", path_of(table));
    // Whether a name of a column is meant depends on the header, which depends on the label's
    // column.
    bool found = find_label_column(table, true);
    reef_vector_header wanted = table->spec->header;
    // Without an option the first line is a header if its values are not numbers.
    *header = wanted == REEF_HEADER_YES || (wanted == REEF_HEADER_FIND && looks_like_header(table));
    if (!*header) found = find_label_column(table, false);
    if (!found) return no_column(table, *header, err);
    table->width = table->field_count - (table->label_column != SIZE_MAX);
    if (table->width && table->width <= REEF_VECTOR_WIDTH_MAX) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.100s' has %zu columns beside the label, but a vector has 1 to %u values",
                     path_of(table), table->width, REEF_VECTOR_WIDTH_MAX);
}

static reef_status take_names(reef_vector_table *table, reef_error *err) {
    // names= gives classes their numbers in the order in which they are listed.
    const char *names = table->spec->names;
    if (names == NULL) return REEF_OK;
    size_t most = count_fields(names, ',');
    table->names = calloc(most, sizeof(*table->names));
    for (size_t i = 0; table->names != NULL && i < most; i++) {
        size_t length = strcspn(names, ",");
        table->names[i] = strndup(names, length);
        if (table->names[i] == NULL) break;
        table->name_count++;
        names += length + (names[length] == ',');
    }
    if (table->name_count == most) return REEF_OK;
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu names of labels", most);
}

reef_status reef_vector_csv_open(reef_vector_table *table, reef_error *err) {
    uint64_t first = 0;
    bool header = false;
    reef_status status = reef_vector_file_open(&table->lines.file, table->spec->path, err);
    if (status == REEF_OK) status = reef_vector_lines_first(table, &first, err);
    if (status == REEF_OK) status = read_columns(table, &header, err);
    if (status == REEF_OK) status = take_names(table, err);
    if (status != REEF_OK) return status;
    table->parse = parse_row;
    return reef_vector_lines_scan(table, header ? first : 0, err);
}
