/* Compressed bodies, in the form of gzip or zlib (Content-Encoding gzip, deflate). */
#ifndef SERVER_HTTP_GZIP_H
#define SERVER_HTTP_GZIP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct buf;
struct gunzip;

enum status gunzip_open(struct gunzip **out, struct error *err) MUST_CHECK;
void gunzip_close(struct gunzip *z); /* NULL is fine */

/* Appends what the next bytes of the body decompress to. EXHAUSTED if out has no room: out->is_full
 * says whether out has reached its limit. INVALID if the bytes are damaged. */
enum status gunzip_more(struct gunzip *z, struct buf *out, const char *data, size_t len,
                        struct error *err) MUST_CHECK;
/* Returns whether the body has come to its end. */
bool gunzip_is_done(const struct gunzip *z);

/* Appends data in the form of gzip. EXHAUSTED if memory is short; out is then as before. */
enum status gzip_append(struct buf *out, const char *data, size_t len) MUST_CHECK;

/* Returns whether this value of Accept-Encoding allows gzip. */
bool gzip_is_accepted(const char *list);

#endif
