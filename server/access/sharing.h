/* What principals other than a thing's owner may do with the thing. */
#ifndef SERVER_ACCESS_SHARING_H
#define SERVER_ACCESS_SHARING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct arena;
struct principal;

enum access_right {
    ACCESS_READ,  /* to look at the thing, take from it and list it */
    ACCESS_WRITE, /* also to change it */
    ACCESS_OWN,   /* also to delete it, which only the owner may */
};

enum { ACCESS_MAX_SHARED = 64 }; /* the most names in each of the lists below */

/* Names of principals. A name need not be that of a principal yet. */
struct access_sharing {
    const char *const *readers; /* [n_readers] */
    const char *const *writers; /* [n_writers]: they also read */
    size_t n_readers, n_writers;
};

/* Copies the names into the arena. INVALID names the list that is too long, or that has a text
 * which can be no principal's name. */
enum status access_sharing_copy(struct access_sharing *out, const struct access_sharing *from,
                                struct arena *arena, struct error *err) MUST_CHECK;

/* Returns whether who, who is not the owner, has the right. */
bool access_sharing_allows(const struct access_sharing *s, const struct principal *who,
                           enum access_right right);

#endif
