/* Connections whose peers have sent nothing yet. A connection waits here, with nothing but a
 * descriptor, for its first bytes; then it goes to its transport. A connection that stays silent
 * for too long is closed. When descriptors are short, the connection that has been silent the
 * longest is closed in favour of a new one. All functions are called on the loop. */
#ifndef SERVER_NET_SILENTS_H
#define SERVER_NET_SILENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct silents;

/* A connection may be silent for as long as a TLS handshake may take. */
enum { SILENT_MS = 10 * 1000 };

struct silents_config {
    uint64_t timeout_ms;
    /* A peer has spoken when so many bytes have come, 1 to SILENTS_FIRST_MAX, or when its bytes are
     * not the beginning of preface. */
    size_t n_first;
    const char *preface;              /* at most n_first bytes, static; NULL: any byte is enough */
    void (*spoke)(void *arg, int fd); /* takes fd, of which nothing was read */
    void *arg;
    uint64_t *n_dropped; /* counts the connections that were closed; borrowed; NULL: not counted */
};

enum { SILENTS_FIRST_MAX = 64 };

struct silents *silents_open(uv_loop_t *loop, const struct silents_config *config);
/* Closes all connections, and frees s in the loop's next iterations. NULL is fine. */
void silents_close(struct silents *s);

/* Takes fd, a socket that does not block. Calls spoke inside if the bytes have come already. */
void silents_add(struct silents *s, int fd);
/* Closes the oldest connection, whose descriptor is free at once. Returns false if there is none.
 */
bool silents_drop_oldest(struct silents *s);
/* Returns how many connections wait. */
size_t silents_n(const struct silents *s);
/* Returns whether a connection waits that is not older than ms milliseconds. */
bool silents_has_newer(const struct silents *s, uint64_t ms);

#endif
