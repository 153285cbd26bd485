#include "server/access/shared_names.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/access/access.h"

enum { SHARING_MAX_BYTES = 64 << 10 };

void shared_names_init(struct shared_names *all, const char *noun, const struct limit_kind *limit,
                       size_t max, const struct env *env)
{
    *all = (struct shared_names){.noun = noun};
    shared_limit_init(&all->limit, limit, max);
    hash_init(&all->by_name, env);
    list_init(&all->all);
}

void shared_names_deinit(struct shared_names *all)
{
    assert(list_is_empty(&all->all));
    hash_deinit(&all->by_name);
    shared_limit_deinit(&all->limit);
}

static uint64_t names_hash(const struct shared_names *all, uint32_t principal, const char *name)
{
    const uint64_t before = hash_bytes(&all->by_name, 0, &principal, sizeof(principal));

    return hash_text(&all->by_name, before, name);
}

struct shared_name *shared_names_own(const struct shared_names *all, uint32_t principal,
                                     const char *name)
{
    struct hash_node *node = hash_first(&all->by_name, names_hash(all, principal, name));

    for (; node != NULL; node = hash_next(node)) {
        struct shared_name *n = container_of(node, struct shared_name, node);

        if (n->owner->id == principal && strcmp(n->text, name) == 0)
            return n;
    }
    return NULL;
}

/* Principals' names have no '/'. */
static struct shared_name *names_shared(const struct shared_names *all, const struct principal *who,
                                        const char *path)
{
    size_t len = strcspn(path, "/");

    if (path[len] == '\0')
        return NULL;
    for (struct link *l = list_first(&all->all); l != NULL; l = list_next(&all->all, l)) {
        struct shared_name *n = container_of(l, struct shared_name, link);

        if (strlen(n->owner->name) == len && memcmp(n->owner->name, path, len) == 0 &&
            strcmp(n->text, path + len + 1) == 0 &&
            access_sharing_allows(&n->sharing, who, ACCESS_READ))
            return n;
    }
    return NULL;
}

struct shared_name *shared_names_look(const struct shared_names *all, const struct principal *who,
                                      const char *name)
{
    struct shared_name *n = shared_names_own(all, who->id, name);

    return n != NULL ? n : names_shared(all, who, name);
}

bool shared_name_allows(const struct shared_name *n, const struct principal *who,
                        enum access_right right)
{
    return n->owner->id == who->id || access_sharing_allows(&n->sharing, who, right);
}

enum status shared_names_find(struct shared_name **out, const struct shared_names *all,
                              const struct principal *who, enum access_right right,
                              const char *name, struct error *err)
{
    struct shared_name *n = shared_names_look(all, who, name);

    if (n == NULL)
        return error_because(err, STATUS_NOT_FOUND, REASON_NONE, all->noun,
                             "there is no %s '%.64s'", all->noun, name);
    if (!shared_name_allows(n, who, right))
        return error_because(err, STATUS_DENIED, REASON_NONE, all->noun,
                             "the %s '%.64s' is shared with you, but not for this", all->noun,
                             name);
    *out = n;
    return STATUS_OK;
}

enum status shared_names_add(struct shared_names *all, struct shared_name *n,
                             const struct principal *owner, const char *name, bool is_new,
                             struct error *err)
{
    const size_t len = strlen(name);

    if (len == 0 || len > SHARED_NAME_MAX_BYTES)
        return error_field(err, all->noun, "has %zu bytes, it must have 1 to %d", len,
                           SHARED_NAME_MAX_BYTES);
    if (shared_names_own(all, owner->id, name) != NULL)
        return error_because(err, STATUS_EXISTS, REASON_NONE, all->noun, "there is a %s '%.64s'",
                             all->noun, name);
    if (shared_limit_check(&all->limit, is_new ? owner->id : 0, 1, err) != STATUS_OK)
        return err->status;
    *n = (struct shared_name){.owner = owner};
    arena_init(&n->arena, SHARING_MAX_BYTES);
    memcpy(n->text, name, len + 1);
    shared_limit_hold(&all->limit, owner->id, 1);
    hash_add(&all->by_name, &n->node, names_hash(all, owner->id, name));
    list_push(&all->all, &n->link);
    return STATUS_OK;
}

void shared_names_remove(struct shared_names *all, struct shared_name *n)
{
    shared_limit_give(&all->limit, n->owner->id, 1);
    hash_remove(&all->by_name, &n->node);
    list_remove(&n->link);
    arena_deinit(&n->arena);
}

enum status shared_name_share(struct shared_name *n, const struct access_sharing *sharing,
                              struct error *err)
{
    struct access_sharing copy;
    struct arena arena;

    arena_init(&arena, SHARING_MAX_BYTES);
    if (access_sharing_copy(&copy, sharing, &arena, err) != STATUS_OK) {
        arena_deinit(&arena);
        return err->status;
    }
    arena_deinit(&n->arena);
    n->arena = arena;
    n->sharing = copy;
    return STATUS_OK;
}

void shared_name_path(char out[SHARED_NAME_PATH_SIZE], const struct shared_name *n,
                      const struct principal *who)
{
    bool is_own = n->owner->id == who->id;

    (void)snprintf(out, SHARED_NAME_PATH_SIZE, "%s%s%s", is_own ? "" : n->owner->name,
                   is_own ? "" : "/", n->text);
}

bool shared_name_is_listed(const struct shared_name *n, const struct principal *who)
{
    return shared_name_allows(n, who, ACCESS_READ);
}
