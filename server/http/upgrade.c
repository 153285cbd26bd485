#include "server/http/upgrade.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/http/exchange.h"
#include "server/http/exchange_parts.h"
#include "server/http/websocket.h"

enum {
    KEY_CHARS = 24, /* 16 bytes in base64 */
    SHA1_BYTES = 20,
    ACCEPT_CHARS = 28,
    UPGRADE_REQUIRED = 426,
};

/* 16 bytes, in base64. */
static bool is_websocket_key(const char *key)
{
    unsigned char bytes[18];

    return strlen(key) == KEY_CHARS && strcmp(key + KEY_CHARS - 2, "==") == 0 &&
           strcspn(key, "=") == KEY_CHARS - 2 &&
           EVP_DecodeBlock(bytes, (const unsigned char *)key, KEY_CHARS) == sizeof(bytes);
}

/* RFC 6455, 4.2.2. */
static bool accept_of(char *out, const char *key)
{
    unsigned char hash[SHA1_BYTES];
    char joined[KEY_CHARS + 36 + 1];

    (void)snprintf(joined, sizeof(joined), "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    if (EVP_Digest(joined, sizeof(joined) - 1, hash, NULL, EVP_sha1(), NULL) != 1)
        return false;
    (void)EVP_EncodeBlock((unsigned char *)out, hash, SHA1_BYTES);
    return true;
}

static bool has_word(const char *list, const char *word)
{
    size_t n;

    for (const char *at = list; *at != '\0'; at += n) {
        at += strspn(at, ", \t");
        n = strcspn(at, ", \t");
        if (n == strlen(word) && strncmp(at, word, n) == 0)
            return true;
    }
    return false;
}

bool upgrade_offers(const struct exchange *x, const char *protocol)
{
    return x->upgrade.protocols != NULL && has_word(x->upgrade.protocols, protocol);
}

/* Returns 0, or the HTTP status of err. */
static int check(const struct exchange *x, const struct websocket_handler *handler,
                 struct error *err)
{
    const struct upgrade_head *u = &x->upgrade;

    if (x->sink->is_http_2 || x->is_http_1_0) {
        (void)error_set(err, STATUS_INVALID, "a WebSocket is opened over HTTP/1.1");
        return 400;
    }
    if (!u->names_websocket || !u->is_asked) {
        (void)error_set(err, STATUS_INVALID,
                        "here is a WebSocket: send 'Upgrade: websocket' and 'Connection: "
                        "Upgrade'; a proxy in front must pass them on");
        return UPGRADE_REQUIRED;
    }
    if (u->version == NULL || strcmp(u->version, "13") != 0) {
        (void)error_field(err, "Sec-WebSocket-Version", "must be 13");
        return UPGRADE_REQUIRED;
    }
    if (u->key == NULL || !is_websocket_key(u->key)) {
        (void)error_field(err, "Sec-WebSocket-Key", "must be 16 bytes in base64");
        return 400;
    }
    if (handler->protocol != NULL && u->protocols != NULL &&
        !upgrade_offers(x, handler->protocol)) {
        (void)error_field(err, "Sec-WebSocket-Protocol", "has no '%s', which is spoken here",
                          handler->protocol);
        return 400;
    }
    return 0;
}

struct websocket *upgrade_to_websocket(struct exchange *x, const struct websocket_handler *handler,
                                       void *state)
{
    const bool names_protocol = handler->protocol != NULL && x->upgrade.protocols != NULL;
    char accept[ACCEPT_CHARS + 1], more[320];
    struct websocket *w;
    struct error err;
    int http_status = check(x, handler, &err);

    if (http_status != 0) {
        exchange_fail_as(x, http_status, &err);
        return NULL;
    }
    if (!accept_of(accept, x->upgrade.key) ||
        (w = websocket_open(x->front, handler, state)) == NULL) {
        (void)error_set(&err, STATUS_EXHAUSTED, "there is no memory for a WebSocket");
        exchange_fail(x, &err);
        return NULL;
    }
    (void)snprintf(more, sizeof(more),
                   "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n"
                   "%s%.128s%s",
                   accept, names_protocol ? "Sec-WebSocket-Protocol: " : "",
                   names_protocol ? handler->protocol : "", names_protocol ? "\r\n" : "");
    exchange_upgrade(x, w, more);
    return w;
}
