/* What others than its owner may do with a parameter set. */
#ifndef SERVER_PARAMS_SHARING_H
#define SERVER_PARAMS_SHARING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct arena;
struct principal;

enum params_right {
    PARAMS_READ,  /* pull, watch, list */
    PARAMS_WRITE, /* also update */
    PARAMS_OWN,   /* also delete: nobody but the owner */
};

enum { PARAMS_MAX_SHARED = 64 }; /* names of each kind */

/* Names of principals, which need not be there yet. */
struct params_sharing {
    const char *const *readers; /* [n_readers] */
    const char *const *writers; /* [n_writers]: they also read */
    size_t n_readers, n_writers;
};

/* Copies the names. INVALID names the list that is too long or has what is no principal's name. */
enum status params_sharing_copy(struct params_sharing *out, const struct params_sharing *from,
                                struct arena *arena, struct error *err) MUST_CHECK;

bool params_sharing_allows(const struct params_sharing *s, const struct principal *who,
                           enum params_right right);

#endif
