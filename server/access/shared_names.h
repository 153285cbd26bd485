/* Things that have a name and an owner, and that the owner may share. Other principals call such a
 * thing OWNER/NAME, never by its name alone. All functions are called on the loop. */
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
    SHARED_NAME_PATH_SIZE = 200, /* bytes of "OWNER/NAME", with the NUL */
};

struct shared_names {
    const char *noun; /* what a thing is called, and the request's field that names it: "key" */
    struct shared_limit limit;
    struct hash by_name;
    struct list all; /* of struct shared_name, in order of creation */
};

/* The name of a thing. It lies in the thing's struct. */
struct shared_name {
    struct hash_node node;
    struct link link;
    const struct principal *owner; /* borrowed; the principal outlives the thing */
    struct access_sharing sharing; /* what it points to lies in arena */
    struct arena arena;
    char text[SHARED_NAME_MAX_BYTES + 1];
};

void shared_names_init(struct shared_names *all, const char *noun, const struct limit_kind *limit,
                       size_t max, const struct env *env);
/* All things must have been removed. */
void shared_names_deinit(struct shared_names *all);

/* Returns the thing that the principal owns under this name; NULL: there is none. */
struct shared_name *shared_names_own(const struct shared_names *all, uint32_t principal,
                                     const char *name);
/* Returns the thing of this name that who owns, or the thing "OWNER/NAME" that another principal
 * shares with who, with whatever right. NULL: there is none. */
struct shared_name *shared_names_look(const struct shared_names *all, const struct principal *who,
                                      const char *name);
/* The same. NOT_FOUND; DENIED if the thing is shared without the right. */
enum status shared_names_find(struct shared_name **out, const struct shared_names *all,
                              const struct principal *who, enum access_right right,
                              const char *name, struct error *err) MUST_CHECK;
/* Fills n and adds it; it is not shared yet. is_new is false for a thing that is read from the
 * journal. INVALID for a name that is not valid; EXISTS; EXHAUSTED. */
enum status shared_names_add(struct shared_names *all, struct shared_name *n,
                             const struct principal *owner, const char *name, bool is_new,
                             struct error *err) MUST_CHECK;
void shared_names_remove(struct shared_names *all, struct shared_name *n);

/* Replaces the sharing of n. On failure nothing has changed. */
enum status shared_name_share(struct shared_name *n, const struct access_sharing *sharing,
                              struct error *err) MUST_CHECK;
/* Writes how who calls n: "NAME", or "OWNER/NAME" if another principal owns it. */
void shared_name_path(char out[SHARED_NAME_PATH_SIZE], const struct shared_name *n,
                      const struct principal *who);
/* Returns whether who owns n, or n is shared with who for this right. */
bool shared_name_allows(const struct shared_name *n, const struct principal *who,
                        enum access_right right);
bool shared_name_is_listed(const struct shared_name *n, const struct principal *who);

#endif
