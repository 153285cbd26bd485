#include "server/conversation/idle.h"

static struct idle_entry *idle_entry_of(struct link *link)
{
    return link == NULL ? NULL : container_of(link, struct idle_entry, link);
}

void idle_list_init(struct idle_list *l, uint64_t max_bytes)
{
    *l = (struct idle_list){.max_bytes = max_bytes};
    list_init(&l->least_recent);
}

void idle_list_put(struct idle_list *l, struct idle_entry *e, size_t size_bytes, uint64_t now_us)
{
    idle_list_remove(l, e);
    e->size_bytes = size_bytes;
    e->since_us = now_us;
    l->bytes += size_bytes;
    list_push(&l->least_recent, &e->link);
}

void idle_list_remove(struct idle_list *l, struct idle_entry *e)
{
    if (!link_is_on(&e->link))
        return;
    list_remove(&e->link);
    l->bytes -= e->size_bytes;
}

struct idle_entry *idle_list_first(const struct idle_list *l)
{
    return idle_entry_of(list_first(&l->least_recent));
}

struct idle_entry *idle_list_next(const struct idle_list *l, const struct idle_entry *e)
{
    return idle_entry_of(list_next(&l->least_recent, &e->link));
}

uint64_t idle_list_due_us(const struct idle_list *l)
{
    const struct idle_entry *first = idle_list_first(l);

    if (l->max_bytes == 0 || l->bytes <= l->max_bytes || first == NULL)
        return 0;
    return first->since_us + IDLE_LEAST_US;
}

struct idle_entry *idle_list_due(const struct idle_list *l, uint64_t now_us)
{
    const uint64_t due_us = idle_list_due_us(l);

    return due_us == 0 || due_us > now_us ? NULL : idle_list_first(l);
}
