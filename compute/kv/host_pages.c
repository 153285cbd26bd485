#include "compute/kv/host_pages.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/list.h"

struct kv_host_pages {
    struct link *links; /* [n] each in one of the lists, or held */
    size_t n, n_full;
    struct list empty, full; /* the one filled longest ago first */
};

enum status kv_host_pages_open(struct kv_host_pages **out, size_t n_slots, struct error *err)
{
    struct kv_host_pages *s = xalloc(sizeof(*s));

    s->links = try_alloc(n_slots, sizeof(*s->links));
    if (s->links == NULL) {
        free(s);
        return error_no_memory(err, n_slots * sizeof(*s->links), "the list of KV slots");
    }
    s->n = n_slots;
    list_init(&s->empty);
    list_init(&s->full);
    for (size_t i = 0; i < n_slots; i++) {
        link_init(&s->links[i]);
        list_push(&s->empty, &s->links[i]);
    }
    *out = s;
    return STATUS_OK;
}

void kv_host_pages_close(struct kv_host_pages *s)
{
    if (s == NULL)
        return;
    free(s->links);
    free(s);
}

int32_t kv_host_pages_take(struct kv_host_pages *s, bool *ret_was_full)
{
    struct link *l = list_pop(&s->empty);

    *ret_was_full = l == NULL;
    if (l == NULL)
        l = list_pop(&s->full);
    else
        s->n_full++;
    if (l == NULL)
        return -1;
    list_push(&s->full, l);
    return (int32_t)(l - s->links);
}

void kv_host_pages_hold(struct kv_host_pages *s, int32_t slot)
{
    list_remove(&s->links[slot]);
}

void kv_host_pages_release(struct kv_host_pages *s, int32_t slot, bool is_full)
{
    list_push(is_full ? &s->full : &s->empty, &s->links[slot]);
    if (!is_full)
        s->n_full--;
}

int32_t kv_host_pages_empty_one(struct kv_host_pages *s)
{
    struct link *l = list_pop(&s->full);

    if (l == NULL)
        return -1;
    list_push(&s->empty, l);
    s->n_full--;
    return (int32_t)(l - s->links);
}

size_t kv_host_pages_n(const struct kv_host_pages *s)
{
    return s->n;
}

size_t kv_host_pages_n_full(const struct kv_host_pages *s)
{
    return s->n_full;
}
