// See history.h.
#include "no_fork.h"

#include "history.h"

#include "draw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECTOR_BYTES 512 // what a disk writes whole or not at all

static void *must(void *memory) {
    if (memory != NULL) return memory;
    fprintf(stderr, "power loss: out of memory\n");
    exit(71);
}

// ---- events -------------------------------------------------------------------------------------

static bool parse(history *h, size_t bytes) {
    size_t room = 0;
    for (size_t at = 0; at < bytes;) {
        event_header header;
        if (bytes - at < sizeof(header)) return false;
        memcpy(&header, h->memory + at, sizeof(header));
        at += sizeof(header);
        if (header.kind < EVENT_NAME || header.kind >= EVENT_UNKNOWN ||
            header.payload_bytes > bytes - at)
            return false;
        if (h->count == room) {
            room = room == 0 ? 1024 : 2 * room;
            h->events = must(realloc(h->events, room * sizeof(*h->events)));
        }
        h->events[h->count++] = (event){.kind = (event_kind)header.kind,
                                        .file = header.file,
                                        .offset = header.offset,
                                        .payload = h->memory + at,
                                        .bytes = header.payload_bytes};
        at += header.payload_bytes;
    }
    return true;
}

bool history_load(history *h, const char *path) {
    *h = (history){0};
    FILE *file = fopen(path, "rb");
    long bytes = -1;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) bytes = ftell(file);
    if (bytes < 0) {
        fprintf(stderr, "power loss: cannot read %s\n", path);
        return false;
    }
    rewind(file);
    h->memory = must(malloc((size_t)bytes + 1));
    no_fork(h->memory, (size_t)bytes);
    bool good =
        fread(h->memory, 1, (size_t)bytes, file) == (size_t)bytes && parse(h, (size_t)bytes);
    fclose(file);
    if (!good) fprintf(stderr, "power loss: %s is no list of events\n", path);
    return good;
}

void history_release(history *h) {
    free(h->events);
    free(h->memory);
    *h = (history){0};
}

// ---- bytes --------------------------------------------------------------------------------------

static void resize(content *c, size_t bytes) {
    if (bytes > c->room) {
        c->room = 2 * bytes;
        c->data = must(realloc(c->data, c->room));
        no_fork(c->data, c->room);
    }
    if (bytes > c->bytes) memset(c->data + c->bytes, 0, bytes - c->bytes); // a hole
    c->bytes = bytes;
}

void content_copy(content *to, const content *from) {
    resize(to, from->bytes);
    if (from->bytes > 0) memcpy(to->data, from->data, from->bytes);
}

void content_release(content *c) {
    free(c->data);
    *c = (content){0};
}

static void put(content *c, uint64_t at, const uint8_t *data, size_t bytes) {
    if (at + bytes > c->bytes) resize(c, (size_t)at + bytes);
    memcpy(c->data + at, data, bytes);
}

static void apply(content *c, const event *e) {
    if (e->kind == EVENT_TRUNCATE)
        resize(c, (size_t)e->offset);
    else
        put(c, e->offset, e->payload, e->bytes);
}

// ---- the disk -----------------------------------------------------------------------------------

static void add_pending(disk_file *disk, const event *e) {
    if (disk->pending_count == disk->pending_room) {
        disk->pending_room = disk->pending_room == 0 ? 64 : 2 * disk->pending_room;
        disk->pending =
            must(realloc((void *)disk->pending, disk->pending_room * sizeof(*disk->pending)));
    }
    disk->pending[disk->pending_count++] = e;
}

void disk_file_advance(disk_file *disk, const event *e) {
    if (e->file != disk->file) return;
    if (e->kind == EVENT_SYNC) {
        for (size_t i = 0; i < disk->pending_count; i++) apply(&disk->durable, disk->pending[i]);
        disk->pending_count = 0;
    } else if (e->kind == EVENT_WRITE_NOW && disk->pending_count == 0) {
        apply(&disk->durable, e);
    } else if (e->kind == EVENT_WRITE || e->kind == EVENT_TRUNCATE || e->kind == EVENT_WRITE_NOW) {
        add_pending(disk,
                    e); // one that is durable by itself, but comes after others, stays in order
    }
}

void disk_file_release(disk_file *disk) {
    content_release(&disk->durable);
    free((void *)disk->pending);
    *disk = (disk_file){0};
}

static bool chance(uint64_t *random, unsigned percent) {
    return draw_bits(random) % 100 < percent;
}

// Those of its sectors that a draw keeps.
static void apply_torn(content *c, const event *e, unsigned percent, uint64_t *random) {
    for (size_t done = 0; done < e->bytes;) {
        size_t room = SECTOR_BYTES - (size_t)((e->offset + done) % SECTOR_BYTES);
        size_t bytes = e->bytes - done < room ? e->bytes - done : room;
        if (chance(random, percent)) put(c, e->offset + done, e->payload + done, bytes);
        done += bytes;
    }
}

typedef enum loss {
    TAIL,    // the disk wrote in order, and the last write is torn
    WRITES,  // any of the writes, whole
    SECTORS, // any of the sectors
    LOSSES
} loss;

static void apply_maybe(content *c,
                        const event *e,
                        loss how,
                        size_t i,
                        size_t tail,
                        unsigned percent,
                        uint64_t *random) {
    switch (how) {
    case TAIL:
        if (i < tail)
            apply(c, e);
        else if (i == tail && e->kind != EVENT_TRUNCATE)
            apply_torn(c, e, 50, random);
        break;
    case WRITES:
        if (chance(random, percent)) apply(c, e);
        break;
    default:
        if (e->kind != EVENT_TRUNCATE)
            apply_torn(c, e, percent, random);
        else if (chance(random, percent))
            apply(c, e);
        break;
    }
}

void disk_file_cut(const disk_file *disk, const event *in_flight, uint64_t *random, content *out) {
    static const unsigned percents[] = {10, 50, 90, 99};
    loss how = (loss)(draw_bits(random) % LOSSES);
    unsigned percent = percents[draw_bits(random) % 4];
    size_t count = disk->pending_count + (in_flight != NULL ? 1 : 0);
    size_t tail = count == 0 ? 0 : (size_t)(draw_bits(random) % (count + 1));
    content_copy(out, &disk->durable);
    for (size_t i = 0; i < count; i++) {
        const event *e = i < disk->pending_count ? disk->pending[i] : in_flight;
        if (e->kind == EVENT_WRITE_NOW && e != in_flight)
            apply(out, e);
        else
            apply_maybe(out, e, how, i, tail, percent, random);
    }
}
