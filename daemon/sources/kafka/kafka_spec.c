// What `kafka:` names: BROKER[,BROKER...]/TOPIC[?config=FILE]; see kafka_internal.h.
#include "kafka_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG "config="
#define TOPIC_BYTES_MAX 249 // of Kafka
#define LINE_BYTES_MAX 8192

static bool is_topic(const char *text, size_t bytes) {
    static const char SIGNS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return bytes > 0 && bytes <= TOPIC_BYTES_MAX && strspn(text, SIGNS) >= bytes;
}

static bool are_brokers(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)text[i]) && strchr("._-:,[]", text[i]) == NULL) return false;
    return bytes > 0;
}

reef_status reef_kafka_spec_parse(reef_kafka_spec *out, const char *rest, reef_error *err) {
    const size_t place = strcspn(rest, "?"), brokers = strcspn(rest, "/?");
    const char *option = rest[place] ? rest + place + 1 : NULL;
    *out = (reef_kafka_spec){.place_bytes = place};
    if (!are_brokers(rest, brokers) || rest[brokers] != '/' ||
        !is_topic(rest + brokers + 1, place - brokers - 1))
        return reef_fail(err, REEF_ERR_INVALID,
                         "'kafka:%.80s' is not kafka:HOST:PORT[,HOST:PORT...]/TOPIC", rest);
    // The pool knows a source by its text, wherever the daemon is started.
    if (option != NULL &&
        (strncmp(option, CONFIG, strlen(CONFIG)) != 0 || option[strlen(CONFIG)] != '/'))
        return reef_fail(err, REEF_ERR_INVALID,
                         "kafka: does not know '%.80s': there is ?config=FILE, an absolute path of "
                         "librdkafka's properties",
                         option);
    out->brokers = strndup(rest, brokers);
    out->topic = strndup(rest + brokers + 1, place - brokers - 1);
    if (option != NULL) out->config = strdup(option + strlen(CONFIG));
    if (out->brokers != NULL && out->topic != NULL && (option == NULL || out->config != NULL))
        return REEF_OK;
    reef_kafka_spec_release(out);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
}

void reef_kafka_spec_release(reef_kafka_spec *spec) {
    free(spec->brokers);
    free(spec->topic);
    free(spec->config);
    *spec = (reef_kafka_spec){0};
}

static char *trim(char *text) {
    while (isspace((unsigned char)*text)) text++;
    for (size_t bytes = strlen(text); bytes > 0 && isspace((unsigned char)text[bytes - 1]); bytes--)
        text[bytes - 1] = '\0';
    return text;
}

// NAME=VALUE a line, as Kafka's own tools have it.
static reef_status read_file(const char *path, rd_kafka_conf_t *settings, reef_error *err) {
    char line[LINE_BYTES_MAX], why[200];
    reef_status status = REEF_OK;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot read '%.160s': %s", path,
                         strerror(errno));
    for (unsigned number = 1; status == REEF_OK && fgets(line, sizeof(line), file) != NULL;
         number++) {
        char *name = trim(line), *value = strchr(name, '=');
        if (!*name || *name == '#') continue;
        snprintf(why, sizeof(why), "no NAME=VALUE");
        if (value != NULL) *value++ = '\0';
        // What librdkafka says of a value is not repeated: it may be a password.
        if (value == NULL || rd_kafka_conf_set(settings, trim(name), trim(value), why,
                                               sizeof(why)) != RD_KAFKA_CONF_OK)
            status = reef_fail(err, REEF_ERR_INVALID,
                               "'%.160s', line %u: no setting of librdkafka, or not its value",
                               path, number);
    }
    (void)fclose(file);
    return status;
}

reef_status reef_kafka_spec_settings(const reef_kafka_spec *spec,
                                     rd_kafka_conf_t **out,
                                     reef_error *err) {
    static const char *const OURS[][2] = {
        {"client.id", "reefd"},
        {"enable.partition.eof", "true"},
        {"enable.auto.commit", "false"},
        {"auto.commit.enable", "false"},
        {"auto.offset.reset", "error"},         // so that lost messages are counted
        {"queued.max.messages.kbytes", "2048"}, // of a partition
        {"queued.min.messages", "20000"},
        {"fetch.wait.max.ms", "200"},
    };
    char why[200] = "";
    reef_status status = REEF_OK;
    rd_kafka_conf_t *settings = *out = rd_kafka_conf_new();
    if (spec->config != NULL) status = read_file(spec->config, settings, err);
    bool good = rd_kafka_conf_set(settings, "bootstrap.servers", spec->brokers, why, sizeof(why)) ==
                RD_KAFKA_CONF_OK;
    for (size_t i = 0; i < sizeof(OURS) / sizeof(*OURS); i++)
        good = good && rd_kafka_conf_set(settings, OURS[i][0], OURS[i][1], why, sizeof(why)) ==
                           RD_KAFKA_CONF_OK;
    if (status == REEF_OK && !good) status = reef_fail(err, REEF_ERR_INVALID, "kafka: %.160s", why);
    if (status == REEF_OK) return REEF_OK;
    rd_kafka_conf_destroy(settings);
    *out = NULL;
    return status;
}
