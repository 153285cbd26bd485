/* Which web pages may send requests. A browser names a page's origin (Origin) and the host it
 * connected to (Host), and a page can make it send requests unknown to its user. Other programs
 * send no Origin, and our address as Host.
 *
 * If the listener has a loopback address only, Host must be loopback, or a page could come by a
 * name of its own that it had pointed here (DNS rebinding), and so must Origin. Elsewhere Host may
 * be any name of ours, and Origin must be the same. Origins that the configuration allows are
 * accepted in either case, also with their own host as Host. */
#ifndef SERVER_HTTP_ORIGIN_H
#define SERVER_HTTP_ORIGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/status.h"

enum { ORIGIN_MAX_BYTES = 255 };

/* Allowed by this name: the origins that Ollama allows as installed. */
#define ORIGIN_OLLAMA "ollama"

struct origin_rules {
    bool is_loopback;           /* the listener's address */
    const char *const *allowed; /* [n_allowed] as origin_parse takes them */
    size_t n_allowed;
};

/* host and origin are the header values, "" where there is none. STATUS_DENIED: 403. */
enum status origin_check(const struct origin_rules *rules, const char *host, const char *origin,
                         struct error *err) MUST_CHECK;

/* Checks an origin to be allowed: SCHEME://HOST[:PORT] without a path, a * as its port for any
 * port, or as its host for any host, "null", "*" for any, or ORIGIN_OLLAMA. */
enum status origin_parse(const char *text, struct error *err) MUST_CHECK;

bool origin_is_loopback(const struct sockaddr *address);

#endif
