/* A request of HTTP without a connection of its own: another daemon got it, has admitted its
 * client, and passes it on. Its answer is the text of HTTP/1.1 up to the empty line, then the
 * body's bytes without chunks. All functions are called on the loop. */
#ifndef SERVER_HTTP_INNER_H
#define SERVER_HTTP_INNER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct access_key;
struct http;
struct inner;

struct inner_handler {
    /* Takes the next part of the answer, which is copied. Returns false without memory: then the
     * answer ends. */
    bool (*write)(void *arg, const char *data, size_t len);
    /* Whether what was written is not gone yet. */
    bool (*is_choked)(void *arg);
    /* The answer is whole, or was cut. May be called inside inner_close. */
    void (*end)(void *arg, bool is_cut);
};

/* Begins a request. head [len] is the method, a space and the target, and a header "Name: value" on
 * each further line. key is that of the principal. UNAVAILABLE without memory. A malformed head is
 * answered. */
enum status inner_open(struct inner **out, struct http *h, const char *head, size_t len,
                       const struct access_key *key, const struct inner_handler *handler, void *arg,
                       struct error *err) MUST_CHECK;
/* Takes the next part of the body; and says that it was the last. */
void inner_take(struct inner *i, const char *data, size_t len);
void inner_whole(struct inner *i);
/* is_choked is false again. */
void inner_notify(struct inner *i);
/* The client has hung up, or the answer is over. Frees i. NULL is fine. */
void inner_close(struct inner *i);

#endif
