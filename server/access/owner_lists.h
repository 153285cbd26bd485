/* A list for each principal, so that the oldest of a principal's things is found at once. Loop. */
#ifndef SERVER_ACCESS_OWNER_LISTS_H
#define SERVER_ACCESS_OWNER_LISTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

/* Zeroed: all are empty. */
struct owner_lists {
    struct list **of; /* [n] by the principal's id; NULL where it was not asked for */
    size_t n;
};

void owner_lists_deinit(struct owner_lists *o); /* all are empty */
/* Of a principal's id; it stays where it is. Never NULL. */
struct list *owner_lists_get(struct owner_lists *o, uint32_t principal);

#endif
