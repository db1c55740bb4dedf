// See alarms_internal.h: {"next": 812, "told": {"7": "error"}}, replaced as a whole.
#include "alarms_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static reef_status fail_file(const char *doing, const char *path, reef_error *err) {
    return reef_fail(err, REEF_ERR_IO, "cannot %s %.160s: %s", doing, path, strerror(errno));
}

static char *path_of(const char *pool, const char *way) {
    const size_t room = strlen(pool) + strlen(way) + sizeof("/alarm-.json");
    char *path = malloc(room);
    if (path != NULL) snprintf(path, room, "%s/alarm-%s.json", pool, way);
    return path;
}

static reef_status read_place(alarm_place *place, bool *found, reef_error *err) {
    json_error_t reason;
    json_int_t next = 0;
    json_t *told = NULL;
    FILE *file = fopen(place->path, "re");
    *found = file != NULL;
    if (file == NULL) return errno == ENOENT ? REEF_OK : fail_file("open", place->path, err);
    json_t *json = json_loadf(file, JSON_REJECT_DUPLICATES, &reason);
    (void)fclose(file);
    bool good = json_unpack(json, "{s:I, s:O}", "next", &next, "told", &told) == 0 && next > 0 &&
                json_is_object(told);
    if (good) {
        json_decref(place->told);
        place->told = json_incref(told);
        place->next = (uint64_t)next;
    }
    json_decref(told);
    json_decref(json);
    return good ? REEF_OK
                : reef_fail(err, REEF_ERR_CORRUPT,
                            "%.160s does not say which alarms were delivered; without the file, "
                            "alarms begin with the next one",
                            place->path);
}

reef_status alarm_place_open(
    alarm_place *out, const char *pool, const char *way, uint64_t end, reef_error *err) {
    bool found = false;
    *out = (alarm_place){.path = path_of(pool, way), .next = end, .told = json_object()};
    if (out->path == NULL || out->told == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for alarms");
    reef_status status = read_place(out, &found, err);
    if (status != REEF_OK) return status;
    if (out->next > end) out->next = end;
    return found ? REEF_OK : alarm_place_save(out, err);
}

static reef_status sync_directory(const char *path, reef_error *err) {
    char *directory = strdup(path);
    if (directory == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for alarms");
    *strrchr(directory, '/') = '\0';
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    reef_status status = REEF_OK;
    if (fd < 0 || fsync(fd) != 0) status = fail_file("sync", directory, err);
    if (fd >= 0) (void)close(fd);
    free(directory);
    return status;
}

// As a whole on the disk before it has its name.
static reef_status write_part(const char *path, const json_t *json, reef_error *err) {
    FILE *file = fopen(path, "we");
    if (file == NULL) return fail_file("create", path, err);
    bool good = json_dumpf(json, file, JSON_COMPACT) == 0 && fputc('\n', file) != EOF &&
                fflush(file) == 0 && fsync(fileno(file)) == 0;
    reef_status status = good ? REEF_OK : fail_file("write", path, err);
    if (fclose(file) != 0 && status == REEF_OK) status = fail_file("write", path, err);
    return status;
}

reef_status alarm_place_save(const alarm_place *place, reef_error *err) {
    const size_t room = strlen(place->path) + sizeof(".part");
    char *part = malloc(room);
    json_t *json = json_pack("{s:I, s:O}", "next", (json_int_t)place->next, "told", place->told);
    reef_status status = REEF_OK;
    if (part == NULL || json == NULL) {
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for alarms");
    } else {
        snprintf(part, room, "%s.part", place->path);
        status = write_part(part, json, err);
        if (status == REEF_OK && rename(part, place->path) != 0)
            status = fail_file("replace", place->path, err);
        if (status == REEF_OK) status = sync_directory(place->path, err);
    }
    json_decref(json);
    free(part);
    return status;
}

void alarm_place_release(alarm_place *place) {
    json_decref(place->told);
    free(place->path);
    *place = (alarm_place){0};
}
