/* TLS of the ports, ended on the loop: a connection's bytes are decrypted here and passed to the
 * transport through a socket pair, so that neither transport knows of it. gRPC core (1.51) takes
 * descriptors only for plain connections, and its own listener stops for good when accept fails
 * once. Loop. */
#ifndef SERVER_NET_TLS_H
#define SERVER_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/status.h"
#include "server/net/tls_config.h"

struct tls;
struct tls_port;

/* STATUS_INVALID names the file that is wrong and the reason, or says which one (NULL) is not
 * given. Logs a warning for a certificate that is not valid now. */
enum status tls_open(struct tls **out, uv_loop_t *loop, const struct tls_config *config,
                     struct error *err) MUST_CHECK;
/* Closes all connections, and frees t in the loop's next iterations. NULL is fine. */
void tls_close(struct tls *t);

/* Read the files again, for connections that come from now on; those there are go on. prepare reads
 * the files, and commit or discard follows; on failure all stays as it was. */
enum status tls_prepare(struct tls *t, struct error *err) MUST_CHECK;
void tls_commit(struct tls *t);
void tls_discard(struct tls *t);
/* What the last commit changed: bits 1 certificate, 2 private key, 4 client CA. */
enum { TLS_CHANGED_CERTIFICATE = 1, TLS_CHANGED_KEY = 2, TLS_CHANGED_CLIENT_CA = 4 };
unsigned tls_changes(const struct tls *t);
/* When the certificate expires, as 2027-01-31T12:00:00Z. */
const char *tls_valid_until(const struct tls *t);

/* What a port speaks: the names of ALPN, the preferred one first, each behind its length. A client
 * that names others only is refused. */
#define TLS_H2 "\2h2"
#define TLS_HTTP1 "\10http/1.1"
struct tls_port_config {
    const char *protocols; /* static */
    /* A connection takes two more once its handshake is done; it is closed where one of them has
     * this number or a higher one. */
    size_t max_descriptors;
    /* The plain side of a connection whose handshake is done; takes fd. */
    void (*accepted)(void *arg, int fd);
    void *arg;
};

/* Takes fd, a new connection: does the handshake, and calls accepted. config is kept by its
 * caller, as long as connections of it may be in their handshake. */
void tls_accept(struct tls *t, const struct tls_port_config *config, int fd);

/* Closes the connection of config that has been in its handshake the longest; its descriptor is
 * free at once. False: there is none. */
bool tls_drop_oldest(struct tls *t, const struct tls_port_config *config);

/* Closes the connections that are in their handshake, and every one that comes from now on: the
 * ports may stop. */
void tls_refuse(struct tls *t);

#endif
