/* TLS of the ports. A connection's bytes are decrypted on the loop and passed to the transport
 * through a socket pair, so that no transport knows of TLS. The reason is gRPC core (1.51): it
 * takes descriptors of plain connections only, and its own listener stops for good when accept has
 * failed once. All functions are called on the loop. */
#ifndef SERVER_NET_TLS_H
#define SERVER_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/status.h"
#include "server/net/tls_config.h"

struct tls;
struct tls_port;

/* Reads the files of the config. Logs a warning for a certificate that is not valid now. INVALID
 * names the file that is wrong and says why, or says which file is not given. */
enum status tls_open(struct tls **out, uv_loop_t *loop, const struct tls_config *config,
                     struct error *err) MUST_CHECK;
/* Closes all connections, and frees t in the loop's next iterations. NULL is fine. */
void tls_close(struct tls *t);

/* Read the files again, for connections that come from now on; the present connections go on.
 * tls_prepare reads the files; tls_commit or tls_discard follows. If tls_prepare fails, nothing has
 * changed. */
enum status tls_prepare(struct tls *t, struct error *err) MUST_CHECK;
void tls_commit(struct tls *t);
void tls_discard(struct tls *t);
/* tls_changes returns what the last commit changed, as a sum of these. */
enum { TLS_CHANGED_CERTIFICATE = 1, TLS_CHANGED_KEY = 2, TLS_CHANGED_CLIENT_CA = 4 };
unsigned tls_changes(const struct tls *t);
/* Returns when the certificate expires, in the form 2027-01-31T12:00:00Z. */
const char *tls_valid_until(const struct tls *t);

/* The names of ALPN for what a port speaks, the preferred one first, each behind its length. A
 * client that names only others is refused. */
#define TLS_H2 "\2h2"
#define TLS_HTTP1 "\10http/1.1"
struct tls_port_config {
    const char *protocols; /* static */
    /* A connection takes two more descriptors once its handshake is done. It is closed if one of
     * them has this number or a higher one. */
    size_t max_descriptors;
    /* Takes fd, the plain side of a connection whose handshake is done. */
    void (*accepted)(void *arg, int fd);
    void *arg;
};

/* Takes fd, a new connection: does the handshake, and calls accepted. The caller keeps config as
 * long as connections of it may be in their handshake. */
void tls_accept(struct tls *t, const struct tls_port_config *config, int fd);

/* Closes the connection of config that has been in its handshake the longest. Its descriptor is
 * free at once. Returns false if there is none. */
bool tls_drop_oldest(struct tls *t, const struct tls_port_config *config);

/* Closes the connections that are in their handshake, and every connection that comes from now on.
 * Afterwards the ports may stop. */
void tls_refuse(struct tls *t);

#endif
