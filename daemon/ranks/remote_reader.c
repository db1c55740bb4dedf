// A rank above 0 reads its sources when rank 0 asks for bytes of them; see remote.h. It has no
// thread of its own for that: files are read at once, and for a source that waits for something the
// loop runs as far as it can without waiting.
#include "remote_internal.h"

#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES ((size_t)256 << 10)
#define TURNS_OF_LOOP 8 // of one answer: a source may take several until it has bytes

typedef struct remote_source {
    uint8_t *bytes;   // (BUFFER_BYTES) owned
    size_t count;     // that have come
    size_t given;     // of these, that were given
    char *checkpoint; // owned; of the first of them, until it was given
    bool ended;
} remote_source;

typedef struct reef_remote_reader {
    reef_crew *crew;
    uv_loop_t loop; // its `data` is this
    reef_input *inputs;
    remote_source *sources; // (count)
    size_t count;
} reef_remote_reader;

static remote_source *source_of(const reef_input *input) {
    reef_remote_reader *reader = input->loop->data;
    return &reader->sources[input - reader->inputs];
}

static void on_took(reef_input *input, size_t count, uint64_t begin, char *checkpoint) {
    remote_source *source = source_of(input);
    (void)begin; // rank 0 counts as well
    source->count = count;
    source->given = 0;
    source->checkpoint = checkpoint;
}

static void on_ended(reef_input *input) {
    source_of(input)->ended = true;
}

// Nobody can go on without its bytes.
static void on_failed(reef_input *input, const reef_error *err) {
    reef_remote_reader *reader = input->loop->data;
    reef_crew_fail(reader->crew, err);
}

reef_status reef_remote_check(const reef_input *source, reef_error *err) {
    const reef_input_kind *kind = source->kind;
    // Those that answer their senders, or hold their own past, need a daemon beside them.
    bool reads = kind->read_now != NULL ||
                 (kind->live && kind->again && kind->settled == NULL && kind->committed == NULL);
    if (reads) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "the source '%.120s' belongs on rank 0: other ranks read files, logs and "
                     "directories",
                     source->label);
}

// ---- what rank 0 asks for -----------------------------------------------------------------------

static bool is_mine(const reef_crew *crew, const reef_crew_order *order) {
    return order->number == reef_ranks_rank(crew->ranks) && crew->reader != NULL &&
           order->other < crew->reader->count;
}

static void seek_told(reef_crew *crew, const reef_crew_order *order, const void *payload) {
    static const reef_error no_memory = {REEF_ERR_NO_MEMORY, "no memory for a source's position"};
    if (!is_mine(crew, order)) return;
    reef_error err;
    reef_remote_place place;
    memcpy(&place, payload, sizeof(place));
    size_t text = (size_t)order->payload_bytes - sizeof(place);
    char *checkpoint = strndup((const char *)payload + sizeof(place), text);
    if (checkpoint == NULL) reef_crew_fail(crew, &no_memory);
    const reef_input_offset offset = {
        .cursor = place.cursor, .begin = place.begin, .checkpoint = text > 0 ? checkpoint : NULL};
    reef_status status = reef_input_seek(&crew->reader->inputs[order->other], &offset, &err);
    free(checkpoint);
    if (status != REEF_OK) reef_crew_fail(crew, &err);
}

static void read_file(reef_crew *crew, reef_input *input, remote_source *source) {
    reef_error err;
    reef_status status = input->kind->read_now(input, input->offset, source->bytes, BUFFER_BYTES,
                                               &source->count, &err);
    if (status != REEF_OK) reef_crew_fail(crew, &err);
    source->given = 0;
    source->ended = source->count == 0;
    input->offset += source->count;
    if (input->bytes != REEF_BYTES_UNKNOWN && input->bytes < input->offset)
        input->bytes = input->offset;
}

static void read_live(reef_crew *crew, reef_input *input, remote_source *source) {
    source->count = source->given = 0;
    if (!input->busy) {
        input->busy = true;
        input->kind->read(input, source->bytes, BUFFER_BYTES);
    }
    for (int i = 0; i < TURNS_OF_LOOP && source->count == 0 && !source->ended; i++)
        (void)uv_run(&crew->reader->loop, UV_RUN_NOWAIT);
}

static void give_mine(reef_crew *crew, const reef_crew_order *order) {
    static const reef_error no_memory = {REEF_ERR_NO_MEMORY, "no memory for bytes of a source"};
    reef_input *input = &crew->reader->inputs[order->other];
    remote_source *source = &crew->reader->sources[order->other];
    size_t from = reef_ranks_rank(crew->ranks);
    if (source->given == source->count && !source->ended) {
        if (input->kind->read_now != NULL)
            read_file(crew, input, source);
        else
            read_live(crew, input, source);
    }
    size_t count = source->count - source->given;
    if (count > order->payload_max) count = (size_t)order->payload_max;
    size_t text = count > 0 && source->checkpoint != NULL ? strlen(source->checkpoint) : 0;
    reef_remote_answer answer = {.count = count,
                                 .checkpoint_bytes = text,
                                 .bytes = input->bytes,
                                 .ended = source->ended && count == 0};
    char *bytes = malloc(count + text + 1);
    if (bytes == NULL) reef_crew_fail(crew, &no_memory);
    memcpy(bytes, source->bytes + source->given, count);
    if (text > 0) memcpy(bytes + count, source->checkpoint, text);
    source->given += count;
    if (text > 0) {
        free(source->checkpoint);
        source->checkpoint = NULL;
    }
    reef_remote_message(crew, from, &answer, sizeof(answer));
    reef_remote_message(crew, from, bytes, count + text);
    free(bytes);
}

// Every rank takes part in an exchange, whoever has something to say.
static void carry_out(reef_crew *crew, const reef_crew_order *order, const void *payload) {
    if (order->kind == REEF_CREW_SEEK) {
        seek_told(crew, order, payload);
    } else if (is_mine(crew, order)) {
        give_mine(crew, order);
    } else {
        reef_remote_message(crew, order->number, NULL, 0);
        reef_remote_message(crew, order->number, NULL, 0);
    }
}

// ---- life ---------------------------------------------------------------------------------------

reef_status reef_remote_reader_begin(reef_crew *crew,
                                     reef_input *sources,
                                     size_t count,
                                     reef_store *store,
                                     reef_report *report,
                                     reef_error *err) {
    static const reef_input_sink SINK = {on_took, on_ended, on_failed};
    reef_remote_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to read sources");
    crew->reader = reader;
    crew->give = carry_out;
    reader->crew = crew;
    reader->inputs = sources;
    reader->count = count;
    reader->sources = calloc(count + 1, sizeof(*reader->sources));
    bool whole = reader->sources != NULL && uv_loop_init(&reader->loop) == 0;
    for (size_t i = 0; whole && i < count; i++) {
        reader->sources[i].bytes = malloc(BUFFER_BYTES);
        whole = reader->sources[i].bytes != NULL;
        sources[i].store = store;
        sources[i].report = report;
        sources[i].loop = &reader->loop;
        sources[i].sink = &SINK;
    }
    reader->loop.data = reader;
    return whole ? REEF_OK
                 : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to read %zu sources", count);
}

void reef_remote_reader_end(reef_crew *crew) {
    reef_remote_reader *reader = crew->reader;
    if (reader == NULL) return;
    for (size_t i = 0; i < reader->count; i++) {
        reef_input *input = &reader->inputs[i];
        input->stopped = true;
        if (input->kind->stop != NULL) input->kind->stop(input);
    }
    // Until all handles of sources are closed.
    (void)uv_run(&reader->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&reader->loop);
    for (size_t i = 0; i < reader->count; i++) {
        free(reader->sources[i].bytes);
        free(reader->sources[i].checkpoint);
    }
    free(reader->sources);
    free(reader);
    crew->reader = NULL;
}
