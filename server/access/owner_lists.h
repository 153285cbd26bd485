/* A list for each principal, so that the oldest of a principal's things is found at once. All
 * functions are called on the loop. */
#ifndef SERVER_ACCESS_OWNER_LISTS_H
#define SERVER_ACCESS_OWNER_LISTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

/* A zeroed struct has an empty list for each principal. */
struct owner_lists {
    struct list **of; /* [n] by the principal's id; NULL: nobody has asked for this list yet */
    size_t n;
};

/* Frees the lists, which must be empty. */
void owner_lists_deinit(struct owner_lists *o);
/* Returns the list of a principal's id. The list keeps its address. Never NULL. */
struct list *owner_lists_get(struct owner_lists *o, uint32_t principal);

#endif
