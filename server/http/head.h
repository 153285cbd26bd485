/* The head of a request while the head is read, for all versions of HTTP: which headers are read,
 * which headers may come twice, and what RFC 9110 does not allow. A proxy in front may read a
 * malformed head differently. So a malformed head is refused, and its connection is not used again.
 */
#ifndef SERVER_HTTP_HEAD_H
#define SERVER_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>

struct exchange;

/* Each of these functions takes a part of the head. It returns false if the request is refused:
 * then the request's error and status are set, and the rest of the head is not read. */
bool head_method(struct exchange *x, const char *at, size_t len);
/* Takes the target's path and query, or "*". */
bool head_path(struct exchange *x, const char *at, size_t len);
/* Takes HOST[:PORT] of the target, which comes before the headers. */
bool head_authority(struct exchange *x, const char *at, size_t len);
/* Takes a header whose name is a token and whose value has no blanks at its ends. */
bool head_field(struct exchange *x, const char *name, size_t name_len, const char *value,
                size_t len);
/* Says that all headers have come. */
bool head_end(struct exchange *x);

/* Refuses the request, whose err is set. May come after the head, too. Returns false. */
bool head_refuse(struct exchange *x, int http_status);

/* Returns the value of a hexadecimal digit; -1 if c is none. */
int head_hex_value(char c);
/* Returns the byte of the %XX at the beginning of [len]; -1 if there is no %XX. */
int head_decode(const char *at, size_t len);
/* Returns whether [len] may be the name of a method or of a header. */
bool head_is_token(const char *at, size_t len);

#endif
