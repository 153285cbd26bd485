/* The conversations in memory that may leave it: those that the journal has and that have no turn.
 * They are in a list, least recently used first, with about the memory that each takes. While they
 * take more together than the bound, the first one is to leave. All functions are called on the
 * loop. */
#ifndef SERVER_CONVERSATION_IDLE_H
#define SERVER_CONVERSATION_IDLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct idle_entry {
    struct link link; /* in the list, while the entry is in it */
    size_t size_bytes;
    uint64_t since_us; /* when the entry came into the list, or was touched */
};

struct idle_list {
    struct list least_recent; /* of struct idle_entry */
    uint64_t bytes;           /* of all entries */
    uint64_t max_bytes;       /* 0: there is no bound */
};

/* An entry stays for this time beyond the bound, so that whoever has had a conversation read finds
 * it, also after a further read. */
enum { IDLE_LEAST_US = 1000 * 1000 };

void idle_list_init(struct idle_list *l, uint64_t max_bytes);

/* Puts the entry at the end of the list, whether it is in the list or not. */
void idle_list_put(struct idle_list *l, struct idle_entry *e, size_t size_bytes, uint64_t now_us);
/* Does nothing if the entry is not in the list. */
void idle_list_remove(struct idle_list *l, struct idle_entry *e);

/* Returns when an entry is to leave because of the bound; 0: none is. */
uint64_t idle_list_due_us(const struct idle_list *l);
/* Returns the entry that is to leave now; NULL: none is. */
struct idle_entry *idle_list_due(const struct idle_list *l, uint64_t now_us);
/* Returns the least recently used entry, and the one after e; NULL: there is none. */
struct idle_entry *idle_list_first(const struct idle_list *l);
struct idle_entry *idle_list_next(const struct idle_list *l, const struct idle_entry *e);

#endif
