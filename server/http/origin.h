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

/* A name for all origins that Ollama allows as it is installed. */
#define ORIGIN_OLLAMA "ollama"

struct origin_rules {
    bool is_loopback;           /* the listener's address */
    const char *const *allowed; /* [n_allowed] as origin_parse takes them */
    size_t n_allowed;
};

/* Checks a request by its headers Host and Origin, which are "" where the request has none. DENIED,
 * which is 403, where the rules do not allow the request. */
enum status origin_check(const struct origin_rules *rules, const char *host, const char *origin,
                         struct error *err) MUST_CHECK;

/* Checks the text of an origin that the configuration allows: SCHEME://HOST[:PORT] without a path,
 * where * stands for any host or any port; "null"; "*" for any origin; or ORIGIN_OLLAMA. INVALID.
 */
enum status origin_parse(const char *text, struct error *err) MUST_CHECK;

/* Returns whether the address is one of the machine's loopback addresses. */
bool origin_is_loopback(const struct sockaddr *address);

#endif
