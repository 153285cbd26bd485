#include "server/http/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct memory_name {
    struct memory_name *next; /* of its head */
    struct link link;         /* of oldest_first */
    struct conversation_id id;
    char name[];
};

void memory_init(struct memory *m, struct conversations *all)
{
    *m = (struct memory){.all = all};
    list_init(&m->oldest_first);
}

/* FNV-1a. */
static struct memory_name **head_of(struct memory *m, const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return &m->heads[hash % MEMORY_HEADS];
}

static struct memory_name **place_of(struct memory *m, const char *name)
{
    struct memory_name **at = head_of(m, name);

    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

static void forget(struct memory *m, struct memory_name *n)
{
    struct memory_name **at = place_of(m, n->name);

    *at = n->next;
    list_remove(&n->link);
    m->n_names--;
    free(n);
}

void memory_deinit(struct memory *m)
{
    while (!list_is_empty(&m->oldest_first))
        forget(m, container_of(list_first(&m->oldest_first), struct memory_name, link));
}

struct conversation *memory_find(struct memory *m, const char *name)
{
    struct memory_name *n = *place_of(m, name);
    struct conversation_id id;

    if (n != NULL) {
        list_remove(&n->link);
        list_push(&m->oldest_first, &n->link);
        return conversations_get(m->all, &n->id);
    }
    return conversation_id_parse(&id, name) ? conversations_get(m->all, &id) : NULL;
}

enum status memory_bind(struct memory *m, const char *name, const struct conversation_id *id,
                        struct error *err)
{
    struct memory_name **at = place_of(m, name);
    struct memory_name *n = *at;

    if (n == NULL) {
        n = try_alloc(1, sizeof(*n) + strlen(name) + 1);
        if (n == NULL)
            return error_no_memory(err, sizeof(*n), "a conversation's name");
        memcpy(n->name, name, strlen(name) + 1);
        *at = n;
        list_push(&m->oldest_first, &n->link);
        m->n_names++;
    }
    n->id = *id;
    if (m->n_names > MEMORY_MAX_NAMES)
        forget(m, container_of(list_first(&m->oldest_first), struct memory_name, link));
    return STATUS_OK;
}

void memory_keep(struct memory *m, const struct conversation_id *id)
{
    struct conversation *old = NULL;

    if (m->n_kept == MEMORY_MAX_KEPT)
        old = conversations_get(m->all, &m->kept[m->at]);
    else
        m->n_kept++;
    if (old != NULL)
        conversation_close(old, WATCH_CLOSED, "too many responses are kept");
    m->kept[m->at] = *id;
    m->at = (m->at + 1) % MEMORY_MAX_KEPT;
}
