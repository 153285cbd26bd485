/* Intrusive doubly linked list: the link is a member of the item, so pushing never allocates. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

struct link {
    struct link *next, *prev; /* NULL while on no list (after link_init or list_remove) */
};

struct list {
    struct link head; /* circular: head.next is the first item */
};

static inline void link_init(struct link *l)
{
    l->next = l->prev = NULL;
}

static inline bool link_is_on(const struct link *l)
{
    return l->next != NULL;
}

static inline void list_init(struct list *list)
{
    list->head.next = list->head.prev = &list->head;
}

static inline bool list_is_empty(const struct list *list)
{
    return list->head.next == &list->head;
}

/* Puts item before at, which is an item or the list's own head. */
static inline void list_insert_before(struct link *at, struct link *item)
{
    item->prev = at->prev;
    item->next = at;
    at->prev->next = item;
    at->prev = item;
}

static inline void list_push(struct list *list, struct link *item)
{
    list_insert_before(&list->head, item);
}

static inline void list_push_front(struct list *list, struct link *item)
{
    list_insert_before(list->head.next, item);
}

static inline void list_remove(struct link *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    link_init(item);
}

static inline struct link *list_first(const struct list *list)
{
    return list_is_empty(list) ? NULL : list->head.next;
}

static inline struct link *list_last(const struct list *list)
{
    return list_is_empty(list) ? NULL : list->head.prev;
}

/* The item after this one, NULL after the last. */
static inline struct link *list_next(const struct list *list, const struct link *item)
{
    return item->next == &list->head ? NULL : item->next;
}

static inline struct link *list_pop(struct list *list)
{
    struct link *item = list_first(list);

    if (item != NULL)
        list_remove(item);
    return item;
}

/* Moves all items of from to the end of to, in order; from is empty after. */
static inline void list_move(struct list *from, struct list *to)
{
    if (list_is_empty(from))
        return;
    from->head.next->prev = to->head.prev;
    to->head.prev->next = from->head.next;
    from->head.prev->next = &to->head;
    to->head.prev = from->head.prev;
    list_init(from);
}

#endif
