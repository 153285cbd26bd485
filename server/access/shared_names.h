/* Things that have a name and an owner, and that the owner may share: others call one OWNER/NAME,
 * never by its name alone. Loop. */
#ifndef SERVER_ACCESS_SHARED_NAMES_H
#define SERVER_ACCESS_SHARED_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/shared_limit.h"
#include "base/status.h"
#include "server/access/sharing.h"

struct env;
struct principal;

enum {
    SHARED_NAME_MAX_BYTES = 128,
    SHARED_NAME_PATH_SIZE = 200, /* of "OWNER/NAME" */
};

struct shared_names {
    const char *noun; /* what there is, and the request's field that names it: "key" */
    struct shared_limit limit;
    struct hash by_name;
    struct list all; /* of struct shared_name, in order of creation */
};

/* A member of the thing. */
struct shared_name {
    struct hash_node node;
    struct link link;
    const struct principal *owner; /* kept */
    struct access_sharing sharing; /* in arena */
    struct arena arena;
    char text[SHARED_NAME_MAX_BYTES + 1];
};

void shared_names_init(struct shared_names *all, const char *noun, const struct limit_kind *limit,
                       size_t max, const struct env *env);
void shared_names_deinit(struct shared_names *all); /* all were removed */

/* The one that the principal owns under this name; NULL: none. */
struct shared_name *shared_names_own(const struct shared_names *all, uint32_t principal,
                                     const char *name);
/* The one of this name that is who's own, or "OWNER/NAME" of another that shares it, with whatever
 * right; NULL: none. */
struct shared_name *shared_names_look(const struct shared_names *all, const struct principal *who,
                                      const char *name);
/* The same. NOT_FOUND; DENIED for one that is shared without the right. */
enum status shared_names_find(struct shared_name **out, const struct shared_names *all,
                              const struct principal *who, enum access_right right,
                              const char *name, struct error *err) MUST_CHECK;
/* Fills n, which nobody shares yet. INVALID for a name that cannot be one; EXISTS; EXHAUSTED.
 * is_new: it was not there before a restart. */
enum status shared_names_add(struct shared_names *all, struct shared_name *n,
                             const struct principal *owner, const char *name, bool is_new,
                             struct error *err) MUST_CHECK;
void shared_names_remove(struct shared_names *all, struct shared_name *n);

/* Replaces whom it is shared with. On failure all stays. */
enum status shared_name_share(struct shared_name *n, const struct access_sharing *sharing,
                              struct error *err) MUST_CHECK;
/* "NAME", or "OWNER/NAME" of another's. */
void shared_name_path(char out[SHARED_NAME_PATH_SIZE], const struct shared_name *n,
                      const struct principal *who);
/* Whether n is who's own, or shared with who for this. */
bool shared_name_allows(const struct shared_name *n, const struct principal *who,
                        enum access_right right);
bool shared_name_is_listed(const struct shared_name *n, const struct principal *who);

#endif
