#include "server/conversation/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/name.h"

static const struct limit_kind kind_of_names = {"names of conversations", NULL, NULL};
static const struct limit_kind kind_of_responses = {"stored responses", NULL, NULL};

struct conversation_name {
    struct hash_node by_name;
    struct link link, of_owner;
    struct conversation_id id;
    uint32_t principal; /* whose name it is */
    char name[];
};

/* A conversation that a stored response may continue. */
struct conversation_kept {
    struct link link, of_owner;
    struct conversation_id id;
    uint32_t principal;
};

bool conversation_name_is_valid(const char *text)
{
    return name_is_valid(text, strlen(text), CONVERSATION_NAME_MAX_BYTES, NAME_MARKS);
}

void conversation_names_init(struct conversation_names *m, struct conversations *all,
                             const struct env *env)
{
    *m = (struct conversation_names){.all = all};
    hash_init(&m->by_name, env);
    list_init(&m->oldest_first);
    list_init(&m->kept);
    shared_limit_init(&m->names_limit, &kind_of_names, CONVERSATION_NAMES_MAX);
    shared_limit_init(&m->kept_limit, &kind_of_responses, CONVERSATION_NAMES_MAX_KEPT);
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
    list_remove(&n->of_owner);
    shared_limit_give(&m->names_limit, n->principal, 1);
    free(n);
}

static void conversation_kept_free(struct conversation_names *m, struct conversation_kept *k)
{
    list_remove(&k->link);
    list_remove(&k->of_owner);
    shared_limit_give(&m->kept_limit, k->principal, 1);
    free(k);
}

void conversation_names_deinit(void *names)
{
    struct conversation_names *m = names;

    while (!list_is_empty(&m->oldest_first))
        names_forget(m, container_of(list_first(&m->oldest_first), struct conversation_name, link));
    while (!list_is_empty(&m->kept))
        conversation_kept_free(m,
                               container_of(list_first(&m->kept), struct conversation_kept, link));
    owner_lists_deinit(&m->names_of);
    owner_lists_deinit(&m->kept_of);
    shared_limit_deinit(&m->names_limit);
    shared_limit_deinit(&m->kept_limit);
    hash_deinit(&m->by_name);
}

static void names_push(struct conversation_names *m, struct conversation_name *n)
{
    list_push(&m->oldest_first, &n->link);
    list_push(owner_lists_get(&m->names_of, n->principal), &n->of_owner);
}

static void names_make_room(struct conversation_names *m, uint32_t principal)
{
    while (shared_limit_is_full_for(&m->names_limit, principal)) {
        struct link *own = list_first(owner_lists_get(&m->names_of, principal));

        names_forget(m, container_of(own, struct conversation_name, of_owner));
    }
    if (shared_limit_room(&m->names_limit, principal) == 0)
        names_forget(m, container_of(list_first(&m->oldest_first), struct conversation_name, link));
}

struct conversation *conversation_names_find(struct conversation_names *m, uint32_t principal,
                                             const char *name)
{
    uint64_t hash = hash_text(&m->by_name, principal, name);
    struct conversation_name *n = names_find(m, hash, principal, name);
    struct conversation_id id;

    if (n != NULL) {
        list_remove(&n->link);
        list_remove(&n->of_owner);
        names_push(m, n);
        return conversations_get(m->all, &n->id);
    }
    return conversation_id_parse(&id, name) ? conversations_get_of(m->all, principal, &id) : NULL;
}

enum status conversation_names_get(struct conversation **out, struct conversation_names *m,
                                   uint32_t principal, const char *name, struct error *err)
{
    struct conversation *c = conversation_names_find(m, principal, name);

    if (c == NULL)
        return conversations_find(out, m->all, principal, name, err); /* says so */
    *out = c;
    return STATUS_OK;
}

bool conversation_names_resolve(struct conversation_id *out, const struct conversation_names *m,
                                uint32_t principal, const char *name)
{
    const struct conversation_name *n =
        names_find(m, hash_text(&m->by_name, principal, name), principal, name);

    if (n != NULL)
        *out = n->id;
    return n != NULL || conversation_id_parse(out, name);
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
        names_make_room(m, principal);
        shared_limit_hold(&m->names_limit, principal, 1);
        hash_add(&m->by_name, &n->by_name, hash);
        names_push(m, n);
    }
    n->id = *id;
    return STATUS_OK;
}

static void conversation_kept_end(struct conversation_names *m, struct conversation_kept *k)
{
    struct conversation *c = conversations_get(m->all, &k->id);

    conversation_kept_free(m, k);
    if (c != NULL && !c->host.is_kept) /* one that is leaves memory when it is idle */
        conversation_close(c, WATCH_CLOSED, "too many responses are kept");
}

void conversation_names_keep(struct conversation_names *m, uint32_t principal,
                             const struct conversation_id *id)
{
    struct list *own = owner_lists_get(&m->kept_of, principal);
    struct conversation_kept *k;

    while (shared_limit_is_full_for(&m->kept_limit, principal))
        conversation_kept_end(m, container_of(list_first(own), struct conversation_kept, of_owner));
    if (shared_limit_room(&m->kept_limit, principal) == 0)
        conversation_kept_end(m,
                              container_of(list_first(&m->kept), struct conversation_kept, link));
    k = xalloc(sizeof(*k));
    k->id = *id;
    k->principal = principal;
    list_push(&m->kept, &k->link);
    list_push(own, &k->of_owner);
    shared_limit_hold(&m->kept_limit, principal, 1);
}
