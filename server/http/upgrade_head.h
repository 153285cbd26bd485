/* What a request's head says of an upgrade to WebSocket. */
#ifndef SERVER_HTTP_UPGRADE_HEAD_H
#define SERVER_HTTP_UPGRADE_HEAD_H

#include <stdbool.h>

struct upgrade_head {
    bool names_websocket; /* Upgrade has websocket */
    bool is_asked;        /* Connection has upgrade */
    /* In the exchange's arena; NULL: the header has not come. */
    const char *key, *version; /* Sec-WebSocket-Key, -Version */
    const char *protocols;     /* Sec-WebSocket-Protocol: a list */
};

#endif
