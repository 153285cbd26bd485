/* The keys of the store and their versions: how they are made, found, pushed, bounded and deleted.
 * keeping.c writes them to the journal and reads them again. */
#include "server/store/stores.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/access/access.h"

static const struct limit_kind kind_of_store_bytes = {"bytes of values in Store", "--store-bytes",
                                                      "size_bytes"};
static const struct limit_kind kind_of_store_keys = {"keys of Store", NULL, "key"};

void stores_init(struct stores *s, const struct keeper_type *keeping, const struct env *env,
                 size_t max_bytes)
{
    *s = (struct stores){0};
    shared_limit_init(&s->bytes, &kind_of_store_bytes, max_bytes);
    shared_names_init(&s->keys, "key", &kind_of_store_keys, STORE_MAX_KEYS, env);
    keeper_init(&s->keeper, keeping, s, env);
}

void stores_leave(void *stores, const struct error *why)
{
    struct stores *s = stores;
    struct link *l;

    while ((l = list_first(&s->keys.all)) != NULL)
        store_key_delete(store_key_at(l), why);
}

void stores_deinit(void *stores)
{
    struct stores *s = stores;
    struct error why;

    (void)error_draining(&why);
    stores_leave(s, &why);
    assert(s->bytes.held == 0);
    shared_names_deinit(&s->keys);
    shared_limit_deinit(&s->bytes);
}

void stores_tick(void *stores)
{
    struct stores *s = stores;

    keeper_tick(&s->keeper);
}

/* --- values --- */

static size_t store_value_cost(const struct store_value *v)
{
    return sizeof(*v) + v->size_bytes;
}

/* Waiting cannot help a value that is larger. */
static enum status stores_check_size(const struct stores *s, uint32_t owner, size_t size_bytes,
                                     struct error *err)
{
    const uint64_t most = shared_limit_part(&s->bytes, owner);

    if (size_bytes <= most && sizeof(struct store_value) <= most - size_bytes)
        return STATUS_OK;
    (void)error_field(
        err, "size_bytes", "is %zu, all values %s may have %" PRIu64, size_bytes,
        most < s->bytes.max ? "of a principal, with half of --store-bytes," : "together", most);
    return err->status = STATUS_RANGE;
}

enum status store_value_make(struct store_value **out, struct stores *s, uint32_t owner,
                             bool is_new, int64_t version, size_t size_bytes,
                             const char *content_type, struct error *err)
{
    const uint32_t who = is_new ? owner : 0;
    struct store_value *v;

    assert(strlen(content_type) <= STORE_MAX_TYPE_BYTES);
    if (stores_check_size(s, who, size_bytes, err) != STATUS_OK ||
        shared_limit_check(&s->bytes, who, size_bytes + sizeof(*v), err) != STATUS_OK)
        return err->status;
    v = try_alloc(1, sizeof(*v) + size_bytes);
    if (v == NULL)
        return error_no_memory(err, size_bytes, "a value");
    v->stores = s;
    v->owner = owner;
    v->n_refs = 1;
    v->version = version;
    v->size_bytes = size_bytes;
    memcpy(v->content_type, content_type, strlen(content_type) + 1);
    shared_limit_hold(&s->bytes, owner, store_value_cost(v));
    *out = v;
    return STATUS_OK;
}

struct store_value *store_value_ref(struct store_value *v)
{
    v->n_refs++;
    return v;
}

void store_value_unref(struct store_value *v)
{
    if (v == NULL || --v->n_refs > 0)
        return;
    shared_limit_give(&v->stores->bytes, v->owner, store_value_cost(v));
    free(v);
}

static struct store_value *store_value_of(struct link *l)
{
    return container_of(l, struct store_value, link);
}

/* --- keys --- */

static struct store_key *name_key(struct shared_name *n)
{
    return container_of(n, struct store_key, name);
}

struct store_key *store_key_at(const struct link *l)
{
    return name_key(container_of(l, struct shared_name, link));
}

enum status stores_find(struct store_key **out, const struct stores *s, const struct principal *who,
                        enum access_right right, const char *name, struct error *err)
{
    struct shared_name *n;

    if (stores_ready(s, err) != STATUS_OK ||
        shared_names_find(&n, &s->keys, who, right, name, err) != STATUS_OK)
        return err->status;
    *out = name_key(n);
    return STATUS_OK;
}

enum status stores_ready(const struct stores *s, struct error *err)
{
    return keeper_ready(&s->keeper, err);
}

enum status stores_add(struct store_key **out, struct stores *s, const struct principal *who,
                       const char *name, bool is_new, struct error *err)
{
    struct store_key *k = try_alloc(1, sizeof(*k));

    if (k == NULL)
        return error_no_memory(err, sizeof(*k), "a key");
    if (shared_names_add(&s->keys, &k->name, who, name, is_new, err) != STATUS_OK) {
        free(k);
        return err->status;
    }
    k->stores = s;
    k->history = STORE_USUAL_HISTORY;
    list_init(&k->versions);
    list_init(&k->subscribers);
    kept_init(&k->kept);
    *out = k;
    return STATUS_OK;
}

enum status stores_get(struct store_key **out, struct stores *s, const struct principal *who,
                       const char *name, struct error *err)
{
    enum status rc = stores_ready(s, err);

    if (rc == STATUS_OK)
        rc = stores_add(out, s, who, name, true, err);
    if (rc == STATUS_EXISTS)
        return stores_find(out, s, who, ACCESS_OWN, name, err);
    if (rc == STATUS_OK)
        kept_changed(&s->keeper, &(*out)->kept);
    return rc;
}

/* --- versions --- */

static void store_key_drop(struct store_key *k, struct store_value *v)
{
    list_remove(&v->link);
    k->n_versions--;
    k->held_bytes -= store_value_cost(v);
    store_value_unref(v);
}

/* The newest version always stays. */
static void store_key_trim(struct store_key *k)
{
    while (k->n_versions > k->history + 1 ||
           (k->max_bytes != 0 && k->held_bytes > k->max_bytes && k->n_versions > 1))
        store_key_drop(k, store_value_of(list_last(&k->versions)));
}

struct store_value *store_key_newest(const struct store_key *k)
{
    struct link *l = list_first(&k->versions);

    return l == NULL ? NULL : store_value_of(l);
}

struct store_value *store_key_version(const struct store_key *k, int64_t version)
{
    for (struct link *l = list_first(&k->versions); l != NULL; l = list_next(&k->versions, l))
        if (store_value_of(l)->version == version)
            return store_value_of(l);
    return NULL;
}

bool store_key_takes(const struct store_key *k, int64_t version, const int64_t *prev)
{
    const struct store_value *newest = store_key_newest(k);

    if (newest == NULL)
        return true;
    return prev != NULL && newest->version == *prev && store_key_version(k, version) == NULL;
}

void store_key_put(struct store_key *k, struct store_value *v)
{
    list_push_front(&k->versions, &v->link);
    k->n_versions++;
    k->held_bytes += store_value_cost(v);
    store_key_trim(k);
}

enum status store_key_push(struct store_key *k, struct store_value *v, const int64_t *prev,
                           bool *ret_accepted, struct error *err)
{
    struct link *l, *next;

    if (k->max_bytes != 0 && store_value_cost(v) > k->max_bytes) {
        (void)error_field(err, "size_bytes",
                          "is %zu, with %zu for each version the key '%.40s' may have %zu",
                          v->size_bytes, sizeof(*v), k->name.text, k->max_bytes);
        return err->status = STATUS_RANGE;
    }
    *ret_accepted = store_key_takes(k, v->version, prev);
    if (!*ret_accepted)
        return STATUS_OK;
    store_key_put(k, v);
    kept_changed(&k->stores->keeper, &k->kept);
    for (l = list_first(&k->subscribers); l != NULL; l = next) {
        next = list_next(&k->subscribers, l);
        container_of(l, struct store_subscriber, link)
            ->pushed(container_of(l, struct store_subscriber, link));
    }
    return STATUS_OK;
}

enum status store_key_configure(struct store_key *k, const struct store_settings *settings,
                                struct error *err)
{
    if (settings->history != NULL && *settings->history > STORE_MAX_HISTORY)
        return error_field(err, "history", "is %" PRIu64 ", at most %d may be", *settings->history,
                           STORE_MAX_HISTORY);
    if (settings->max_bytes != NULL && *settings->max_bytes > k->stores->bytes.max)
        return error_field(err, "max_bytes",
                           "is %" PRIu64 ", all values together may have %" PRIu64,
                           *settings->max_bytes, k->stores->bytes.max);
    if (settings->sharing != NULL &&
        shared_name_share(&k->name, settings->sharing, err) != STATUS_OK)
        return err->status;
    if (settings->history != NULL)
        k->history = (size_t)*settings->history;
    if (settings->max_bytes != NULL)
        k->max_bytes = (size_t)*settings->max_bytes;
    store_key_trim(k);
    kept_changed(&k->stores->keeper, &k->kept);
    return STATUS_OK;
}

void store_key_subscribe(struct store_key *k, struct store_subscriber *u)
{
    list_push(&k->subscribers, &u->link);
}

void store_key_unsubscribe(struct store_subscriber *u)
{
    if (link_is_on(&u->link))
        list_remove(&u->link);
}

enum status store_key_forget(struct store_key *k, struct error *err)
{
    return kept_forget(&k->stores->keeper, &k->kept, err);
}

void store_key_drop_snapshot(struct store_key *k)
{
    struct store_snapshot *s = k->snapshot;

    for (size_t i = 0; s != NULL && i < s->n; i++)
        store_value_unref(s->values[i]);
    free(s);
    k->snapshot = NULL;
}

void store_key_delete(struct store_key *k, const struct error *why)
{
    struct link *l;

    while ((l = list_pop(&k->subscribers)) != NULL)
        container_of(l, struct store_subscriber, link)
            ->closing(container_of(l, struct store_subscriber, link), why);
    kept_deinit(&k->stores->keeper, &k->kept, why);
    store_key_drop_snapshot(k);
    store_value_unref(k->unfinished);
    while ((l = list_first(&k->versions)) != NULL)
        store_key_drop(k, store_value_of(l));
    shared_names_remove(&k->stores->keys, &k->name);
    free(k);
}
