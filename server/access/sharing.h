/* What others than its owner may do with a shared thing. */
#ifndef SERVER_ACCESS_SHARING_H
#define SERVER_ACCESS_SHARING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct arena;
struct principal;

enum access_right {
    ACCESS_READ,  /* look, take, list */
    ACCESS_WRITE, /* also change */
    ACCESS_OWN,   /* also delete: nobody but the owner */
};

enum { ACCESS_MAX_SHARED = 64 }; /* names of each kind */

/* Names of principals, which need not be there yet. */
struct access_sharing {
    const char *const *readers; /* [n_readers] */
    const char *const *writers; /* [n_writers]: they also read */
    size_t n_readers, n_writers;
};

/* Copies the names. INVALID names the list that is too long or has what is no principal's name. */
enum status access_sharing_copy(struct access_sharing *out, const struct access_sharing *from,
                                struct arena *arena, struct error *err) MUST_CHECK;

bool access_sharing_allows(const struct access_sharing *s, const struct principal *who,
                           enum access_right right);

#endif
