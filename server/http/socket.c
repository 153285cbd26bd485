#include "server/http/socket.h"

#include <libwebsockets.h>
#include <sys/socket.h>

_Static_assert((int)SOCKET_ROOM_BYTES >= (int)LWS_PRE, "libwebsockets wants more room");

bool socket_write(struct lws *s, char *data, size_t len)
{
    return lws_write(s, (unsigned char *)data, len, LWS_WRITE_RAW) >= 0;
}

bool socket_is_choked(const struct lws *s)
{
    return lws_partial_buffered((struct lws *)s) != 0;
}

bool socket_has_unread(const struct lws *s)
{
    char byte;

    return recv(lws_get_socket_fd((struct lws *)s), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void socket_shut(struct lws *s)
{
    (void)shutdown(lws_get_socket_fd(s), SHUT_WR); /* fails when the peer has closed already */
}

void socket_close(struct lws *s)
{
    lws_set_timeout(s, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_SYNC);
}

void socket_pause(struct lws *s, bool on)
{
    (void)lws_rx_flow_control(s, on ? 0 : 1); /* fails with the socket, which is then closed */
}
