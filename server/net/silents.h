/* Connections whose peer has not said what it wants: they wait here, with nothing but a descriptor,
 * for their first bytes, then go to their transport, or are closed after a while. Where descriptors
 * are short, the one that has been silent the longest is closed for a new one. Loop. */
#ifndef SERVER_NET_SILENTS_H
#define SERVER_NET_SILENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct silents;

/* As long as a handshake of TLS may take. */
enum { SILENT_MS = 10 * 1000 };

struct silents_config {
    uint64_t timeout_ms;
    /* A peer has spoken once so many bytes are there, 1 to SILENTS_FIRST_MAX; earlier, where its
     * bytes are not the beginning of preface. */
    size_t n_first;
    const char *preface;              /* NULL: any byte does; at most n_first bytes; static */
    void (*spoke)(void *arg, int fd); /* takes fd, of which nothing was read */
    void *arg;
    uint64_t *n_dropped; /* counts those that were closed; kept. NULL: not counted */
};

enum { SILENTS_FIRST_MAX = 64 };

struct silents *silents_open(uv_loop_t *loop, const struct silents_config *config);
/* Closes all, and frees s in the loop's next iterations. NULL is fine. */
void silents_close(struct silents *s);

/* Takes fd, a socket that does not block. spoke comes inside, where its bytes are there already. */
void silents_add(struct silents *s, int fd);
/* Closes the oldest; its descriptor is free at once. False: there is none. */
bool silents_drop_oldest(struct silents *s);
size_t silents_n(const struct silents *s);
/* Whether one is not older than ms. */
bool silents_has_newer(const struct silents *s, uint64_t ms);

#endif
