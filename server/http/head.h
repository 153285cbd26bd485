/* The head of a request while it is read, for all versions of HTTP. */
#ifndef SERVER_HTTP_HEAD_H
#define SERVER_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>

struct exchange;

/* Each may come in pieces: a name's first one follows a value. */
void head_url(struct exchange *x, const char *at, size_t len);
void head_name(struct exchange *x, const char *at, size_t len);
/* False: the head is refused, since a part of it would mean something else. */
bool head_value(struct exchange *x, const char *at, size_t len);

#endif
