// What `syslog:` names; see syslog_internal.h.
//
//   udp://ADDRESS:PORT   tcp://ADDRESS:PORT   unix:PATH     [?from=ADDRESS[/BITS],...]
#include "syslog_internal.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#define ADDRESS_TEXT_BYTES 64
#define IPV4_AT 12 // of an IPv4 address in one of IPv6
#define FROM "from="

static bool copy_text(char *out, size_t room, const char *text, size_t bytes) {
    if (bytes == 0 || bytes >= room) return false;
    memcpy(out, text, bytes);
    out[bytes] = '\0';
    return true;
}

static bool read_address(uint8_t out[REEF_SYSLOG_ADDRESS_BYTES], const char *text, bool *is_ipv4) {
    static const uint8_t MAPPED[IPV4_AT] = {[10] = 0xff, [11] = 0xff};
    memcpy(out, MAPPED, sizeof(MAPPED));
    *is_ipv4 = inet_pton(AF_INET, text, out + IPV4_AT) == 1;
    return *is_ipv4 || inet_pton(AF_INET6, text, out) == 1;
}

static reef_status add_sender(reef_syslog_spec *spec,
                              const char *text,
                              size_t bytes,
                              reef_error *err) {
    char address[ADDRESS_TEXT_BYTES], *end = NULL;
    bool is_ipv4 = false;
    if (spec->sender_count == REEF_SYSLOG_SENDERS_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "syslog: takes at most %d senders",
                         REEF_SYSLOG_SENDERS_MAX);
    reef_syslog_sender *sender = &spec->senders[spec->sender_count++];
    bool good = copy_text(address, sizeof(address), text, bytes);
    char *slash = good ? strchr(address, '/') : NULL;
    if (slash != NULL) *slash++ = '\0';
    good = good && read_address(sender->address, address, &is_ipv4);
    const unsigned most = is_ipv4 ? 32 : 128;
    const unsigned long bits = slash != NULL ? strtoul(slash, &end, 10) : most;
    if (!good || bits > most || (slash != NULL && (!*slash || *end || strchr("+- ", *slash))))
        return reef_fail(err, REEF_ERR_INVALID,
                         "syslog: takes messages from addresses such as 10.0.0.0/8 or ::1, and not "
                         "'%.*s'",
                         (int)(bytes < 80 ? bytes : 80), text);
    sender->bits = (unsigned)bits + (is_ipv4 ? 128 - 32 : 0);
    return REEF_OK;
}

static reef_status read_senders(reef_syslog_spec *spec, const char *text, reef_error *err) {
    reef_status status = REEF_OK;
    for (bool more = true; more && status == REEF_OK;) {
        const size_t bytes = strcspn(text, ",");
        status = add_sender(spec, text, bytes, err);
        more = text[bytes] == ',';
        text += bytes + more;
    }
    return status;
}

static reef_status read_options(reef_syslog_spec *spec, const char *text, reef_error *err) {
    if (!*text) {
        reef_status status = add_sender(spec, "127.0.0.0/8", strlen("127.0.0.0/8"), err);
        return status == REEF_OK ? add_sender(spec, "::1", strlen("::1"), err) : status;
    }
    if (spec->transport == REEF_SYSLOG_UNIX || strncmp(text + 1, FROM, strlen(FROM)) != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "syslog: does not know '%.80s': there is ?from=ADDRESS[/BITS],... for udp "
                         "and tcp",
                         text + 1);
    return read_senders(spec, text + 1 + strlen(FROM), err);
}

static reef_status bad_place(const char *rest, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID,
                     "syslog: listens on udp://ADDRESS:PORT, tcp://ADDRESS:PORT or unix:PATH, an "
                     "absolute path of at most 107 bytes, and not '%.80s'",
                     rest);
}

// ADDRESS:PORT, or [ADDRESS]:PORT of IPv6.
static bool read_place(struct sockaddr_storage *out, const char *text, size_t bytes) {
    char host[ADDRESS_TEXT_BYTES], port[8], *end = NULL;
    size_t colon = bytes;
    while (colon > 0 && text[colon - 1] != ':') colon--;
    if (colon < 2 || !copy_text(port, sizeof(port), text + colon, bytes - colon)) return false;
    const bool is_ipv6 = text[0] == '[' && text[colon - 2] == ']';
    const unsigned long number = strtoul(port, &end, 10);
    if (strspn(port, "0123456789") != strlen(port) || number < 1 || number > 65535 ||
        !copy_text(host, sizeof(host), text + is_ipv6, colon - 1 - 2 * (size_t)is_ipv6))
        return false;
    if (is_ipv6) {
        struct sockaddr_in6 *to = (struct sockaddr_in6 *)(void *)out;
        *to = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)number)};
        return inet_pton(AF_INET6, host, &to->sin6_addr) == 1;
    }
    struct sockaddr_in *to = (struct sockaddr_in *)(void *)out;
    *to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)number)};
    return inet_pton(AF_INET, host, &to->sin_addr) == 1;
}

reef_status reef_syslog_spec_parse(reef_syslog_spec *out, const char *rest, reef_error *err) {
    const size_t bytes = strcspn(rest, "?");
    bool good = false;
    *out = (reef_syslog_spec){.place_bytes = bytes};
    if (strncmp(rest, "udp://", 6) == 0 || strncmp(rest, "tcp://", 6) == 0) {
        out->transport = rest[0] == 'u' ? REEF_SYSLOG_UDP : REEF_SYSLOG_TCP;
        good = read_place(&out->address, rest + 6, bytes - 6);
    } else if (strncmp(rest, "unix:/", 6) == 0) {
        struct sockaddr_un *to = (struct sockaddr_un *)(void *)&out->address;
        out->transport = REEF_SYSLOG_UNIX;
        to->sun_family = AF_UNIX;
        good = copy_text(to->sun_path, sizeof(to->sun_path), rest + 5, bytes - 5);
    }
    return good ? read_options(out, rest + bytes, err) : bad_place(rest, err);
}

static bool is_alike(const uint8_t *a, const uint8_t *b, unsigned bits) {
    const unsigned left = bits % 8;
    const uint8_t mask = (uint8_t)(0xff << (8 - left));
    return memcmp(a, b, bits / 8) == 0 && (left == 0 || ((a[bits / 8] ^ b[bits / 8]) & mask) == 0);
}

bool reef_syslog_may_send(const reef_syslog_spec *spec, const struct sockaddr_storage *from) {
    uint8_t address[REEF_SYSLOG_ADDRESS_BYTES] = {[10] = 0xff, [11] = 0xff};
    if (spec->transport == REEF_SYSLOG_UNIX) return true;
    if (from->ss_family == AF_INET)
        memcpy(address + IPV4_AT, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    else if (from->ss_family == AF_INET6)
        memcpy(address, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr,
               sizeof(address));
    else
        return false;
    for (size_t i = 0; i < spec->sender_count; i++)
        if (is_alike(address, spec->senders[i].address, spec->senders[i].bits)) return true;
    return false;
}
