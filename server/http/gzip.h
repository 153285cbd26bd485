/* Bodies in gzip's or zlib's form (Content-Encoding gzip, deflate). */
#ifndef SERVER_HTTP_GZIP_H
#define SERVER_HTTP_GZIP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct buf;
struct gunzip;

enum status gunzip_open(struct gunzip **out, struct error *err) MUST_CHECK;
void gunzip_close(struct gunzip *z); /* NULL is fine */

/* Appends what these bytes of the body hold. EXHAUSTED: out has no room for it, whose is_full says
 * whether that is its limit; INVALID: they are damaged. */
enum status gunzip_more(struct gunzip *z, struct buf *out, const char *data, size_t len,
                        struct error *err) MUST_CHECK;
/* The body has come to its end. */
bool gunzip_is_done(const struct gunzip *z);

/* Appends data as gzip. EXHAUSTED: no memory; out is then as before. */
enum status gzip_append(struct buf *out, const char *data, size_t len) MUST_CHECK;

/* Whether Accept-Encoding, of this value, has gzip. */
bool gzip_is_accepted(const char *list);

#endif
