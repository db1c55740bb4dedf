// Redis URLs; see redis_url.h.
#include "redis_url.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PORT "6379" // where a URL names none
#define DB_MAX 65535
#define HIDDEN "***"
#define SHAPE "redis://[[USER]:PASSWORD@]HOST[:PORT]/STREAM or redis:///PATH/OF/SOCKET/STREAM"

static reef_status no_memory(reef_error *err) {
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
}

static int hex(char digit) {
    if (isdigit((unsigned char)digit)) return digit - '0';
    return isxdigit((unsigned char)digit) ? tolower((unsigned char)digit) - 'a' + 10 : -1;
}

// In place. False for a "%" without two digits, or one that stands for the end of a string.
static bool decode_percent(char *text) {
    char *to = text;
    for (const char *at = text; *at; at++) {
        *to = *at;
        if (*at == '%') {
            int high = hex(at[1]), low = high < 0 ? -1 : hex(at[2]);
            // %00 would end the string early and cut a password.
            if (low < 0 || high + low == 0) return false;
            *to = (char)(16 * high + low);
            at += 2;
        }
        to++;
    }
    *to = 0;
    return true;
}

static reef_status take_part(char **out, const char *from, size_t bytes, reef_error *err) {
    *out = strndup(from, bytes);
    if (*out == NULL) return no_memory(err);
    if (!decode_percent(*out))
        return reef_fail(err, REEF_ERR_INVALID,
                         "a '%%' in a redis: source is not followed by two hex digits");
    return REEF_OK;
}

static reef_status take_user(reef_redis_url *url, const char *at, size_t bytes, reef_error *err) {
    const char *colon = memchr(at, ':', bytes);
    size_t user = colon != NULL ? (size_t)(colon - at) : bytes;
    reef_status status = user ? take_part(&url->user, at, user, err) : REEF_OK;
    if (status == REEF_OK && colon != NULL)
        status = take_part(&url->password, colon + 1, bytes - user - 1, err);
    return status;
}

// HOST, HOST:PORT, [::1]:PORT
static reef_status take_host(reef_redis_url *url, const char *at, size_t bytes, reef_error *err) {
    const char *end = at + bytes, *host = at, *close = at;
    // An IPv6 host stands in brackets, as in every URL.
    if (*at == '[') {
        host = at + 1;
        close = memchr(at, ']', bytes);
    } else {
        close = memchr(at, ':', bytes);
        if (close == NULL) close = end;
    }
    if (close == NULL || close == host)
        return reef_fail(err, REEF_ERR_INVALID, "a redis: source names no host: give %s", SHAPE);
    const char *port = close + (*at == '[');
    if (port < end && *port != ':')
        return reef_fail(err, REEF_ERR_INVALID, "a redis: source has no ':' before its port");
    url->host = strndup(host, (size_t)(close - host));
    url->port = port < end ? strndup(port + 1, (size_t)(end - port - 1)) : strdup(PORT);
    if (url->host == NULL || url->port == NULL) return no_memory(err);
    // "6379x" is not a port.
    char *rest = NULL;
    long number = strtol(url->port, &rest, 10);
    if (*rest || rest == url->port || number < 1 || number > 65535)
        return reef_fail(err, REEF_ERR_INVALID, "the port of a redis: source is none: give %s",
                         SHAPE);
    return REEF_OK;
}

// Where the value of option `name` begins, or NULL when it is another one, or has none.
static const char *value_of(const char *at, size_t bytes, const char *name) {
    size_t length = strlen(name);
    return bytes > length + 1 && strncmp(at, name, length) == 0 && at[length] == '='
               ? at + length + 1
               : NULL;
}

static bool take_db(reef_redis_url *url, const char *at, const char *end) {
    char *rest = NULL;
    unsigned long number = strtoul(at, &rest, 10);
    url->db = (unsigned)number;
    return rest == end && isdigit((unsigned char)*at) && number <= DB_MAX;
}

static reef_status take_option(reef_redis_url *url, const char *at, size_t bytes, reef_error *err) {
    const struct {
        const char *name;
        char **to;
    } NAMES[] = {{"field", &url->field}, {"group", &url->group}, {"consumer", &url->consumer}};
    const char *end = at + bytes, *value;
    // Each option may come again; the last one counts, as on a command line.
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(*NAMES); i++) {
        value = value_of(at, bytes, NAMES[i].name);
        if (value == NULL) continue;
        free(*NAMES[i].to);
        return take_part(NAMES[i].to, value, (size_t)(end - value), err);
    }
    // A db that is not a number ends in the error below.
    value = value_of(at, bytes, "db");
    if (value != NULL && take_db(url, value, end)) return REEF_OK;
    // The message shows the name of an unknown option, never its value: it may be a secret in the
    // wrong position.
    const char *sign = value != NULL ? NULL : memchr(at, '=', bytes);
    if (sign != NULL) bytes = (size_t)(sign - at); // what follows may be a password
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.*s' is not an option of a redis: source: known are field=NAME, "
                     "db=N, group=NAME, consumer=NAME, and at the end weight=N",
                     (int)(bytes > 60 ? 60 : bytes), at);
}

static reef_status take_options(reef_redis_url *url, const char *at, reef_error *err) {
    reef_status status = REEF_OK;
    while (status == REEF_OK && *at) {
        size_t bytes = strcspn(at, "&");
        status = take_option(url, at, bytes, err);
        at += bytes + (at[bytes] == '&');
    }
    return status;
}

// The consumer group does not change what is read, and so not the name under which it is stored.
static bool is_about_group(const char *at, size_t bytes) {
    return value_of(at, bytes, "group") != NULL || value_of(at, bytes, "consumer") != NULL;
}

static reef_status clean(reef_redis_url *url, const char *after_user, reef_error *err) {
    size_t room = strlen(after_user) + sizeof("redis://"), host_bytes = strcspn(after_user, "?");
    url->clean = malloc(room);
    if (url->clean == NULL) return no_memory(err);
    // The clean form is the source's name in the pool: no user, no password, no group, so that
    // changing them keeps the position.
    int length = snprintf(url->clean, room, "redis://%.*s", (int)host_bytes, after_user);
    char before = '?';
    for (const char *at = after_user + host_bytes; *at;) {
        size_t bytes = strcspn(++at, "&");
        if (!is_about_group(at, bytes)) {
            length += snprintf(url->clean + length, room - (size_t)length, "%c%.*s", before,
                               (int)bytes, at);
            before = '&';
        }
        at += bytes;
    }
    return REEF_OK;
}

static reef_status take_address(reef_redis_url *url,
                                const char *at,
                                size_t bytes,
                                reef_error *err) {
    const char *slash = at + bytes;
    // The stream's key is the last part of the path.
    while (slash > at && slash[-1] != '/') slash--;
    if (slash == at || slash == at + bytes)
        return reef_fail(err, REEF_ERR_INVALID, "a redis: source names no stream: give %s", SHAPE);
    reef_status status = take_part(&url->stream, slash, (size_t)(at + bytes - slash), err);
    if (status != REEF_OK) return status;
    size_t host_bytes = (size_t)(slash - 1 - at);
    // A path before the key means a Unix socket.
    if (*at != '/') {
        if (memchr(at, '/', host_bytes) != NULL)
            return reef_fail(err, REEF_ERR_INVALID,
                             "a redis: source has a '/' too many: in a stream's name it is %%2F");
        return take_host(url, at, host_bytes, err);
    }
    if (!host_bytes)
        return reef_fail(err, REEF_ERR_INVALID, "a redis: source names no host or socket: give %s",
                         SHAPE);
    return take_part(&url->socket, at, host_bytes, err);
}

static reef_status complete_group(reef_redis_url *url, reef_error *err) {
    if (url->consumer != NULL && url->group == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a redis: source names a consumer of no group: give group=NAME as well");
    if (url->group == NULL || url->consumer != NULL) return REEF_OK;
    url->consumer = strdup("reefd");
    return url->consumer != NULL ? REEF_OK : no_memory(err);
}

// Behind the user and the password, or `at`. A password may hold an "@"; what ends it is the last
// one.
static const char *behind_user(const char *at) {
    const char *sign = at + strcspn(at, "/?");
    while (sign > at && sign[-1] != '@') sign--;
    return sign;
}

static reef_status parse_url(reef_redis_url *url, const char *rest, reef_error *err) {
    if (strncmp(rest, "//", 2) != 0)
        return reef_fail(err, REEF_ERR_INVALID, "a redis: source is not %s", SHAPE);
    const char *at = rest + 2, *sign = behind_user(at);
    // Options begin at the first '?'; a password may contain anything that is percent-encoded.
    size_t bytes = strcspn(at, "?");
    reef_status status = REEF_OK;
    if (sign > at) {
        status = take_user(url, at, (size_t)(sign - 1 - at), err);
        bytes -= (size_t)(sign - at);
        at = sign;
    }
    if (status == REEF_OK) status = take_address(url, at, bytes, err);
    if (status == REEF_OK && at[bytes] == '?') status = take_options(url, at + bytes + 1, err);
    if (status == REEF_OK) status = clean(url, at, err);
    // The environment outranks nothing: a password in the URL wins.
    const char *password = getenv("REEF_REDIS_PASSWORD");
    if (status == REEF_OK && url->password == NULL && password != NULL && *password) {
        url->password = strdup(password);
        if (url->password == NULL) return no_memory(err);
    }
    return status == REEF_OK ? complete_group(url, err) : status;
}

reef_status reef_redis_url_parse(reef_redis_url *url, const char *rest, reef_error *err) {
    *url = (reef_redis_url){.db = 0};
    reef_status status = parse_url(url, rest, err);
    if (status != REEF_OK) reef_redis_url_release(url);
    return status;
}

void reef_redis_url_release(reef_redis_url *url) {
    free(url->host);
    free(url->port);
    free(url->socket);
    free(url->user);
    free(url->password);
    free(url->stream);
    free(url->field);
    free(url->group);
    free(url->consumer);
    free(url->clean);
    *url = (reef_redis_url){.db = 0};
}

// ---- without the password -----------------------------------------------------------------------

// As reefd takes it, with a weight (registry.c).
static bool is_good(const char *rest) {
    reef_redis_url url = {.db = 0};
    size_t host_bytes = strcspn(rest, "?");
    // The weight belongs to the schedule and is taken off by the registry; here it only has to be a
    // weight.
    char *text = strndup(rest, host_bytes);
    bool good = text != NULL && parse_url(&url, text, NULL) == REEF_OK;
    for (const char *at = rest + host_bytes; good && *at;) {
        size_t bytes = strcspn(++at, "&");
        good =
            value_of(at, bytes, "weight") != NULL || take_option(&url, at, bytes, NULL) == REEF_OK;
        at += bytes;
    }
    reef_redis_url_release(&url);
    free(text);
    return good;
}

static char *join_url(const char *before, size_t bytes, const char *after) {
    size_t room = bytes + strlen(HIDDEN) + strlen(after) + 1;
    char *text = malloc(room);
    if (text != NULL) snprintf(text, room, "%.*s%s%s", (int)bytes, before, HIDDEN, after);
    return text;
}

char *reef_redis_url_mask(const char *spec) {
    size_t scheme = strcspn(spec, ":/") + 1;
    if (strncasecmp(spec, "redis", 5) != 0 || spec[scheme - 1] != ':') return strdup(spec);
    if (strncmp(spec, "redis:", 6) != 0 || !is_good(spec + scheme))
        return join_url(spec, scheme, "");
    const char *at = spec + scheme + 2, *host = behind_user(at);
    const char *colon = host > at ? memchr(at, ':', (size_t)(host - at)) : NULL;
    return colon != NULL ? join_url(spec, (size_t)(colon + 1 - spec), host - 1) : strdup(spec);
}
