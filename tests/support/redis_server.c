// See redis_server.h.
#include "redis_server.h"

#include "reefd_run.h"
#include "temp_dir.h"
#include "test.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

void redis_server_init(redis_server *redis, const char *directory) {
    *redis = (redis_server){0};
    snprintf(redis->folder, sizeof(redis->folder), "%s/redis", directory);
    snprintf(redis->socket, sizeof(redis->socket), "%s/redis.sock", redis->folder);
    assert_int_equal(mkdir(redis->folder, 0755), 0);
}

static void end_process(pid_t *pid) {
    if (*pid <= 0) return;
    kill(*pid, SIGKILL);
    waitpid(*pid, NULL, 0);
    *pid = 0;
}

void redis_server_kill(redis_server *redis) {
    end_process(&redis->server);
}

void redis_server_empty(redis_server *redis) {
    redis_server_kill(redis);
    temp_dir_remove(redis->folder);
    assert_int_equal(mkdir(redis->folder, 0755), 0);
}

void redis_server_release(redis_server *redis) {
    end_process(&redis->relay);
    end_process(&redis->server);
    if (redis->orders != NULL) munmap(redis->orders, sizeof(*redis->orders));
    redis->orders = NULL;
}

void redis_command(const redis_server *redis, const char *words) {
    char line[2048];
    snprintf(line, sizeof(line), "redis-cli -e -s '%s' %s >/dev/null", redis->socket, words);
    if (system(line) != 0) fail_msg("failed: %s", line);
}

void redis_answer(const redis_server *redis, const char *words, char *out, size_t room) {
    char line[2048];
    snprintf(line, sizeof(line), "redis-cli -e -s '%s' %s", redis->socket, words);
    FILE *cli = popen(line, "r");
    assert_non_null(cli);
    size_t bytes = fread(out, 1, room - 1, cli);
    out[bytes] = 0;
    while (fgetc(cli) != EOF) continue; // or it is ended by SIGPIPE
    if (pclose(cli) != 0) fail_msg("failed: %s: %s", line, out);
}

void redis_server_start(redis_server *redis, const char *password) {
    redis->server = fork();
    assert_true(redis->server >= 0);
    if (redis->server == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", redis->socket,
               "--dir", redis->folder, "--appendonly", "yes", "--appendfsync", "always", "--save",
               "", "--requirepass", password, (char *)NULL);
        _exit(127);
    }
    char ping[400];
    snprintf(ping, sizeof(ping), "redis-cli -s '%s' ping 2>&1 | grep -q 'PONG\\|NOAUTH'",
             redis->socket);
    for (int i = 0; i < 200 && system(ping) != 0; i++) sleep_ms(50);
    assert_int_equal(system(ping), 0);
}

static int connection_to(const redis_server *redis) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof(to.sun_path), "%.100s", redis->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

// Both ways until one side ends, or the order to cut comes due: then the last bytes pass, and no
// more.
static void pass_on(struct relay_orders *orders, int client, int server) {
    struct pollfd ends[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    char bytes[4096];
    for (;;) {
        if (poll(ends, 2, -1) < 0) return;
        for (int i = 0; i < 2; i++) {
            if (!ends[i].revents) continue;
            ssize_t count = read(ends[i].fd, bytes, sizeof(bytes));
            if (count <= 0) return;
            bool cut = i == 1 && orders->cut_after >= 0 && orders->cut_after < count;
            if (cut) count = orders->cut_after;
            if (i == 1 && orders->cut_after >= 0) orders->cut_after -= count;
            if (write(ends[1 - i].fd, bytes, (size_t)count) != count) return;
            if (cut) {
                orders->cut_after = -1;
                orders->cuts++;
                return;
            }
        }
    }
}

// Between reefd and the server, on a port of its own.
void redis_relay_start(redis_server *redis, const char *directory) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(listener, 5), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    redis->port = ntohs(at.sin_port);
    char shared[260];
    snprintf(shared, sizeof(shared), "%s/orders", directory);
    int fd = open(shared, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof(*redis->orders)), 0);
    redis->orders = mmap(NULL, sizeof(*redis->orders), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(redis->orders != MAP_FAILED);
    redis->orders->cut_after = -1;
    redis->relay = fork();
    assert_true(redis->relay >= 0);
    if (redis->relay == 0) {
        (void)signal(SIGPIPE, SIG_IGN);
        for (;;) {
            int client = accept(listener, NULL, NULL), server = connection_to(redis);
            if (client >= 0 && server >= 0) pass_on(redis->orders, client, server);
            if (client >= 0) close(client);
            if (server >= 0) close(server);
        }
    }
    close(listener);
}
