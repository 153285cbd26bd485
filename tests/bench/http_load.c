/* POSTs one body again and again on many connections, each with one request in flight, and prints
 * how many answers came in a second. Light, so that the server is what is measured. It never
 * sleeps: the server would have to wake it, which on a virtual machine is most of the server's
 * work. So it needs a core of its own. usage: http_load PORT CONNECTIONS SECONDS PATH BODY */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 1024, ANSWER_BYTES = 8192 };

struct connection {
    int fd;
    size_t len;
    char answer[ANSWER_BYTES];
};

static struct connection connections[MAX_CONNECTIONS];
static char request[4096];
static size_t request_len;

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail with this clock */
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool begin(struct connection *c, int port)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int on = 1;

    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    return c->fd >= 0 && connect(c->fd, (const struct sockaddr *)&to, sizeof(to)) == 0 &&
           setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0;
}

static bool ask(const struct connection *c)
{
    return send(c->fd, request, request_len, MSG_NOSIGNAL) == (ssize_t)request_len;
}

/* Whether the answer is complete; *ret_bad: it is an error. */
static bool is_whole(struct connection *c, bool *ret_bad)
{
    const char *body, *length;

    c->answer[c->len] = '\0';
    *ret_bad = c->len >= 12 && strncmp(c->answer + 9, "200", 3) != 0;
    body = strstr(c->answer, "\r\n\r\n");
    if (body == NULL)
        return false;
    length = strcasestr(c->answer, "content-length:");
    *ret_bad = *ret_bad || length == NULL || length > body;
    return !*ret_bad && c->answer + c->len >= body + 4 + strtoul(length + 15, NULL, 10);
}

static bool take(struct connection *c, bool *ret_whole)
{
    ssize_t n = recv(c->fd, c->answer + c->len, ANSWER_BYTES - 1 - c->len, MSG_DONTWAIT);
    bool is_bad;

    *ret_whole = false;
    if (n <= 0)
        return n < 0 && errno == EAGAIN;
    c->len += (size_t)n;
    *ret_whole = is_whole(c, &is_bad);
    return !is_bad;
}

/* Answers a second; negative: failure. */
static double run(int epoll, double seconds)
{
    double start = now_s(), end = start + seconds, now = start;
    size_t n_done = 0;

    while (now < end) {
        struct epoll_event events[256];
        int n = epoll_wait(epoll, events, 256, 0);

        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            bool whole;

            if (!take(c, &whole))
                return -1;
            if (!whole)
                continue;
            n_done++;
            c->len = 0;
            if (!ask(c))
                return -1;
        }
        now = now_s();
    }
    return (double)n_done / (now - start);
}

int main(int argc, char **argv)
{
    int epoll = epoll_create1(0), n;
    double rate;

    if (argc != 6)
        return 2;
    request_len =
        (size_t)snprintf(request, sizeof(request),
                         "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
                         "\r\nContent-Length: %zu\r\n\r\n%s",
                         argv[4], strlen(argv[5]), argv[5]);
    n = (int)strtol(argv[2], NULL, 10);
    if (request_len >= sizeof(request) || n < 1 || n > MAX_CONNECTIONS)
        return 2;
    for (int i = 0; i < n; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};

        if (!begin(&connections[i], (int)strtol(argv[1], NULL, 10)) ||
            epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event) != 0 ||
            !ask(&connections[i]))
            return 1;
    }
    rate = run(epoll, strtod(argv[3], NULL));
    (void)printf("%.1f\n", rate);
    return rate < 0;
}
