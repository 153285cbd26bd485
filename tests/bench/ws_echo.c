/* The least that a WebSocket server on wslay can do: it sends each message back. It prints the port
 * that it listens on, and ends with its standard input. One thread, epoll. */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wslay/wslay.h>

enum { MAX_EVENTS = 256, HEAD_BYTES = 2048 };

struct peer {
    int fd;
    wslay_event_context_ptr wslay; /* NULL: its head is still read */
    char head[HEAD_BYTES];
    size_t n_head;
};

static ssize_t on_recv(wslay_event_context_ptr ctx, uint8_t *out, size_t len, int flags, void *arg)
{
    const struct peer *p = arg;
    ssize_t n = recv(p->fd, out, len, MSG_DONTWAIT);

    if (n > 0)
        return n;
    wslay_event_set_error(ctx, n < 0 && errno == EAGAIN ? WSLAY_ERR_WOULDBLOCK
                                                        : WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static ssize_t on_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags,
                       void *arg)
{
    const struct peer *p = arg;
    ssize_t n = send(p->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n >= 0)
        return n;
    wslay_event_set_error(ctx, errno == EAGAIN ? WSLAY_ERR_WOULDBLOCK : WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

static void on_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m,
                       void *arg)
{
    const struct wslay_event_msg back = {m->opcode, m->msg, m->msg_length};

    if (!wslay_is_ctrl_frame(m->opcode))
        (void)wslay_event_queue_msg(ctx, &back); /* fails only at the end */
}

/* The answer to an upgrade; false: it is not one. */
static bool peer_accept(struct peer *p)
{
    static const struct wslay_event_callbacks calls = {on_recv, on_send, NULL,      NULL,
                                                       NULL,    NULL,    on_message};
    static const char name[] = "Sec-WebSocket-Key: ";
    const char *at = strstr(p->head, name);
    unsigned char digest[SHA_DIGEST_LENGTH], accept[32];
    char text[256];
    int n;

    if (at == NULL)
        return false;
    n = snprintf(text, sizeof(text), "%.24s258EAFA5-E914-47DA-95CA-C5AB0DC85B11",
                 at + sizeof(name) - 1);
    (void)SHA1((const unsigned char *)text, (size_t)n, digest);
    (void)EVP_EncodeBlock(accept, digest, sizeof(digest));
    n = snprintf(text, sizeof(text),
                 "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: "
                 "Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
                 (const char *)accept);
    return send(p->fd, text, (size_t)n, MSG_NOSIGNAL) == n &&
           wslay_event_context_server_init(&p->wslay, &calls, p) == 0;
}

static bool peer_read_head(struct peer *p)
{
    ssize_t n = recv(p->fd, p->head + p->n_head, sizeof(p->head) - 1 - p->n_head, MSG_DONTWAIT);

    if (n <= 0)
        return n < 0 && errno == EAGAIN;
    p->n_head += (size_t)n;
    p->head[p->n_head] = '\0';
    return strstr(p->head, "\r\n\r\n") == NULL || peer_accept(p);
}

/* False: it is over. */
static bool peer_serve(struct peer *p)
{
    if (p->wslay == NULL)
        return peer_read_head(p);
    return wslay_event_recv(p->wslay) == 0 && wslay_event_send(p->wslay) == 0 &&
           (wslay_event_want_read(p->wslay) || wslay_event_want_write(p->wslay));
}

static void peer_close(struct peer *p)
{
    if (p->wslay != NULL)
        wslay_event_context_free(p->wslay);
    (void)close(p->fd);
    free(p);
}

static void accept_peers(int listener, int epoll)
{
    int fd, one = 1;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct peer *p = calloc(1, sizeof(*p));
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = p};

        assert(p != NULL);
        p->fd = fd;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        assert(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    }
}

int main(void)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), epoll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct epoll_event events[MAX_EVENTS], event = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event input = {.events = EPOLLIN | EPOLLHUP, .data.ptr = &input};
    socklen_t len = sizeof(address);

    if (listener < 0 || bind(listener, (struct sockaddr *)&address, len) != 0 ||
        listen(listener, SOMAXCONN) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &len) != 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) != 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &input) != 0) {
        perror("ws_echo");
        return 1;
    }
    (void)printf("%d\n", ntohs(address.sin_port));
    (void)fflush(stdout);
    for (;;) {
        int n = epoll_wait(epoll, events, MAX_EVENTS, -1);

        for (int i = 0; i < n; i++) {
            struct peer *p = events[i].data.ptr;

            if (events[i].data.ptr == &input)
                return 0;
            if (p == NULL)
                accept_peers(listener, epoll);
            else if (!peer_serve(p))
                peer_close(p);
        }
    }
}
