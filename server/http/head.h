/* The head of a request while it is read, for all versions of HTTP: which headers are read, which
 * of them may come again, and what is no request by RFC 9110. A proxy in front may have read what
 * is malformed otherwise than we would, so it is refused and its connection is not used again. */
#ifndef SERVER_HTTP_HEAD_H
#define SERVER_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>

struct exchange;

/* False, from all of these: the request is refused, with its error and status set; the rest of its
 * head is not read. */
bool head_method(struct exchange *x, const char *at, size_t len);
/* The target's path and query, or "*". */
bool head_path(struct exchange *x, const char *at, size_t len);
/* HOST[:PORT] of the target, before its headers. */
bool head_authority(struct exchange *x, const char *at, size_t len);
/* A whole line, without blanks around its value; name is a token. */
bool head_field(struct exchange *x, const char *name, size_t name_len, const char *value,
                size_t len);
/* All headers have come. */
bool head_end(struct exchange *x);

/* Refuses the request, whose err is set, also behind its head. Returns false. */
bool head_refuse(struct exchange *x, int http_status);

/* -1: not a digit. */
int head_hex_value(char c);
/* The byte of %XX, which [len] begins with; -1: it does not. */
int head_decode(const char *at, size_t len);
/* Whether it is a method's or a header's name. */
bool head_is_token(const char *at, size_t len);

#endif
