#include "server/conversation/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct conversation_name {
    struct hash_node by_name;
    struct link link; /* of oldest_first */
    struct conversation_id id;
    uint32_t principal; /* whose name it is */
    char name[];
};

void conversation_names_init(struct conversation_names *m, struct conversations *all,
                             const struct env *env)
{
    *m = (struct conversation_names){.all = all};
    hash_init(&m->by_name, env);
    list_init(&m->oldest_first);
}

static struct conversation_name *names_find(const struct conversation_names *m, uint64_t hash,
                                            uint32_t principal, const char *name)
{
    struct hash_node *node = hash_first(&m->by_name, hash);

    for (; node != NULL; node = hash_next(node)) {
        struct conversation_name *n = container_of(node, struct conversation_name, by_name);

        if (n->principal == principal && strcmp(n->name, name) == 0)
            return n;
    }
    return NULL;
}

static void names_forget(struct conversation_names *m, struct conversation_name *n)
{
    hash_remove(&m->by_name, &n->by_name);
    list_remove(&n->link);
    free(n);
}

void conversation_names_deinit(struct conversation_names *m)
{
    while (!list_is_empty(&m->oldest_first))
        names_forget(m, container_of(list_first(&m->oldest_first), struct conversation_name, link));
    hash_deinit(&m->by_name);
}

struct conversation *conversation_names_find(struct conversation_names *m, uint32_t principal,
                                             const char *name)
{
    uint64_t hash = hash_text(&m->by_name, principal, name);
    struct conversation_name *n = names_find(m, hash, principal, name);
    struct conversation_id id;

    if (n != NULL) {
        list_remove(&n->link);
        list_push(&m->oldest_first, &n->link);
        return conversations_get(m->all, &n->id);
    }
    return conversation_id_parse(&id, name) ? conversations_get_of(m->all, principal, &id) : NULL;
}

enum status conversation_names_bind(struct conversation_names *m, uint32_t principal,
                                    const char *name, const struct conversation_id *id,
                                    struct error *err)
{
    uint64_t hash = hash_text(&m->by_name, principal, name);
    struct conversation_name *n = names_find(m, hash, principal, name);

    if (n == NULL) {
        n = try_alloc(1, sizeof(*n) + strlen(name) + 1);
        if (n == NULL)
            return error_no_memory(err, sizeof(*n), "a conversation's name");
        n->principal = principal;
        memcpy(n->name, name, strlen(name) + 1);
        hash_add(&m->by_name, &n->by_name, hash);
        list_push(&m->oldest_first, &n->link);
    }
    n->id = *id;
    if (m->by_name.n > CONVERSATION_NAMES_MAX)
        names_forget(m, container_of(list_first(&m->oldest_first), struct conversation_name, link));
    return STATUS_OK;
}

void conversation_names_keep(struct conversation_names *m, const struct conversation_id *id)
{
    struct conversation *old = NULL;

    if (m->n_kept == CONVERSATION_NAMES_MAX_KEPT)
        old = conversations_get(m->all, &m->kept[m->at]);
    else
        m->n_kept++;
    if (old != NULL)
        conversation_close(old, WATCH_CLOSED, "too many responses are kept");
    m->kept[m->at] = *id;
    m->at = (m->at + 1) % CONVERSATION_NAMES_MAX_KEPT;
}
