/* Headers that are for some routes alone: their values are kept as they came. */
#ifndef SERVER_HTTP_KEPT_HEADER_H
#define SERVER_HTTP_KEPT_HEADER_H

enum kept_header {
    KEPT_CONTENT_TYPE,
    KEPT_TIMEOUT_MS,     /* Connect-Timeout-Ms */
    KEPT_PROTOCOL,       /* Connect-Protocol-Version */
    KEPT_MESSAGE_CODING, /* Connect-Content-Encoding */
    N_KEPT_HEADERS
};

#endif
