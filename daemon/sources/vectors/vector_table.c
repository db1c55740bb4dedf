// Tables of all kinds: opened by what their spec says, and closed.
#include "vector_table.h"

#include <stdlib.h>

reef_status reef_vector_table_open(reef_vector_table *table,
                                   const reef_vector_spec *spec,
                                   reef_error *err) {
    // A scale of the spec may be replaced by that of the data's type.
    *table = (reef_vector_table){.spec = spec, .scale = spec->scale, .divisor = spec->divisor};
    switch (spec->kind) {
    case REEF_VECTOR_IDX:
    case REEF_VECTOR_NPY:
        return reef_vector_arrays_open(table, err);
    case REEF_VECTOR_CSV:
        return reef_vector_csv_open(table, err);
    case REEF_VECTOR_JSONL:
        return reef_vector_jsonl_open(table, err);
    case REEF_VECTOR_KIND_COUNT:
        break;
    }
    return reef_fail(err, REEF_ERR_INVALID, "'%.160s' is of no known kind", spec->text);
}

void reef_vector_table_rest(reef_vector_table *table) {
    reef_vector_file_rest(&table->array.file);
    reef_vector_file_rest(&table->lines.file);
}

void reef_vector_table_close(reef_vector_table *table) {
    reef_vector_file_close(&table->array.file);
    reef_vector_file_close(&table->lines.file);
    free(table->labels);
    free(table->numbers);
    free(table->lines.starts);
    free(table->lines.line);
    free(table->fields);
    for (size_t i = 0; i < table->name_count; i++) free(table->names[i]);
    free(table->names);
    *table = (reef_vector_table){0};
}
