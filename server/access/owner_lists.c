#include "server/access/owner_lists.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void owner_lists_deinit(struct owner_lists *o)
{
    for (size_t i = 0; i < o->n; i++)
        free(o->of[i]);
    free(o->of);
    *o = (struct owner_lists){0};
}

struct list *owner_lists_get(struct owner_lists *o, uint32_t principal)
{
    const size_t n = (size_t)principal + 1;

    if (n > o->n) {
        o->of = xrealloc(o->of, n * sizeof(o->of[0]));
        memset(o->of + o->n, 0, (n - o->n) * sizeof(o->of[0]));
        o->n = n;
    }
    if (o->of[principal] == NULL) {
        o->of[principal] = xalloc(sizeof(struct list));
        list_init(o->of[principal]);
    }
    return o->of[principal];
}
