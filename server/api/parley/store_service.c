/* parley.v1.Store, what changes it and what lists it: Push, Configure, List, Delete.
 *
 * A push takes the value's room when its header has come, and fills it part by part; when all of it
 * is there the key is looked for by its name again, since it may have been deleted or have got
 * another version meanwhile. A push that ends before that leaves nothing behind. */
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "parley/v1/store.pb-c.h"
#include "server/api/parley/checkpoint_call.h"
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/placed_call.h"
#include "server/api/parley/wire_sharing.h"
#include "server/server.h"
#include "server/store/stores.h"

struct store_push {
    struct call *call;
    struct store_value *value; /* NULL: no header yet, or it was pushed */
    bool is_over, has_crc, has_prev;
    int64_t prev;
    uint32_t wanted_crc;
    size_t n_received;
    char key[SHARED_NAME_PATH_SIZE];
};

static void store_push_fail(struct store_push *p, const struct error *err)
{
    p->is_over = true;
    call_finish(p->call, err);
}

static void store_push_answer(struct store_push *p, const struct store_key *k, bool is_accepted)
{
    Parley__V1__StorePushResponse response = PARLEY__V1__STORE_PUSH_RESPONSE__INIT;
    const struct store_value *newest = store_key_newest(k);

    response.accepted = is_accepted;
    response.has_newest_version = newest != NULL;
    response.newest_version = newest != NULL ? newest->version : 0;
    p->is_over = true;
    call_reply(p->call, &response.base);
}

static const int64_t *store_push_prev(const struct store_push *p)
{
    return p->has_prev ? &p->prev : NULL;
}

/* All of the value is there. */
static void store_push_complete(struct store_push *p)
{
    struct server *server = call_server(p->call);
    const struct principal *who = call_principal(p->call);
    struct store_key *k;
    struct error err;
    bool is_accepted = false;
    enum status rc = STATUS_OK;

    p->value->crc = crc32c(0, p->value->bytes, p->value->size_bytes);
    if (p->has_crc && p->value->crc != p->wanted_crc)
        rc = error_because(&err, STATUS_DATA_LOSS, REASON_CHECKSUM_DIFFERS, "crc32c",
                           "the value is not what was sent");
    if (rc == STATUS_OK)
        rc = stores_find(&k, server->stores, who, ACCESS_WRITE, p->key, &err);
    if (rc == STATUS_NOT_FOUND)
        rc = stores_get(&k, server->stores, who, p->key, &err);
    if (rc == STATUS_OK)
        rc = store_key_push(k, p->value, store_push_prev(p), &is_accepted, &err);
    if (rc != STATUS_OK) {
        store_push_fail(p, &err);
        return;
    }
    if (is_accepted)
        p->value = NULL; /* given away */
    store_push_answer(p, k, is_accepted);
}

static enum status store_push_begin(struct store_push *p, const Parley__V1__StorePushHeader *m,
                                    struct error *err)
{
    struct server *server = call_server(p->call);
    struct store_key *k;
    enum status rc;

    if (strlen(m->key) == 0 || strlen(m->key) >= sizeof(p->key))
        return error_field(err, "key", "has %zu bytes, it must have 1 to %d", strlen(m->key),
                           SHARED_NAME_MAX_BYTES);
    if (strlen(m->content_type) > STORE_MAX_TYPE_BYTES)
        return error_field(err, "content_type", "has %zu bytes, at most %d may be",
                           strlen(m->content_type), STORE_MAX_TYPE_BYTES);
    memcpy(p->key, m->key, strlen(m->key) + 1);
    p->has_prev = m->has_prev_version != 0;
    p->prev = m->prev_version;
    p->has_crc = m->has_crc32c != 0;
    p->wanted_crc = m->crc32c;
    rc = stores_find(&k, server->stores, call_principal(p->call), ACCESS_WRITE, p->key, err);
    if (rc == STATUS_OK && !store_key_takes(k, m->version, store_push_prev(p))) {
        store_push_answer(p, k, false);
        return STATUS_OK;
    }
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    return store_value_make(&p->value, server->stores,
                            rc == STATUS_OK ? k->name.owner->id : call_principal(p->call)->id, true,
                            m->version, m->size_bytes, m->content_type, err);
}

static enum status store_push_add(struct store_push *p, const ProtobufCBinaryData *data,
                                  struct error *err)
{
    if (p->value == NULL)
        return error_field(err, "header", "is missing: it must come before the data");
    if (data->len > p->value->size_bytes - p->n_received)
        return error_field(err, "data", "has more bytes than size_bytes, %zu",
                           p->value->size_bytes);
    if (data->len > 0)
        memcpy(p->value->bytes + p->n_received, data->data, data->len);
    p->n_received += data->len;
    return STATUS_OK;
}

static enum status store_push_take(struct store_push *p, const Parley__V1__StorePushRequest *m,
                                   struct error *err)
{
    if (m == NULL && p->value == NULL)
        return error_field(err, "header", "is missing");
    if (m == NULL)
        return error_field(err, "size_bytes", "is %zu, only %zu bytes were sent",
                           p->value->size_bytes, p->n_received);
    if (m->what_case == PARLEY__V1__STORE_PUSH_REQUEST__WHAT_DATA)
        return store_push_add(p, &m->data, err);
    if (m->what_case != PARLEY__V1__STORE_PUSH_REQUEST__WHAT_HEADER)
        return error_set(err, STATUS_INVALID, "a message is empty");
    if (p->value != NULL)
        return error_field(err, "header", "came twice");
    return store_push_begin(p, m->header, err);
}

static void store_push_message(struct call *call, void *state, const ProtobufCMessage *message,
                               struct arena *arena)
{
    struct store_push *p = state;
    struct error err;

    if (p->is_over)
        return;
    if (store_push_take(p, (const Parley__V1__StorePushRequest *)message, &err) != STATUS_OK)
        store_push_fail(p, &err);
    else if (!p->is_over && p->n_received == p->value->size_bytes)
        store_push_complete(p);
    else if (!p->is_over)
        call_read(call);
}

static void store_push_on_close(struct call *call, void *state, enum status why)
{
    struct store_push *p = state;

    store_value_unref(p->value);
    free(p);
}

static void store_start_push(struct call *call)
{
    static const struct call_handler handler = {.message = store_push_message,
                                                .on_close = store_push_on_close};
    struct store_push *p = call_state(call, sizeof(*p));

    if (p == NULL)
        return;
    p->call = call;
    call_set_handler(call, &handler, p);
    call_read(call);
}

/* --- Configure, List, Delete --- */

static enum status store_configure(struct call *call, const Parley__V1__StoreConfigureRequest *m,
                                   Parley__V1__StoreConfigureResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    const uint64_t history = m->history;
    struct access_sharing sharing;
    const struct store_settings settings = {
        .history = m->has_history ? &history : NULL,
        .max_bytes = m->has_max_bytes ? &m->max_bytes : NULL,
        .sharing = m->access != NULL ? &sharing : NULL,
    };
    struct store_key *k;
    enum status rc;
    size_t n_before = server->stores->keys.by_name.n;

    wire_sharing(&sharing, m->access);
    rc = stores_find(&k, server->stores, call_principal(call), ACCESS_OWN, m->key, err);
    if (rc == STATUS_NOT_FOUND)
        rc = stores_get(&k, server->stores, call_principal(call), m->key, err);
    if (rc == STATUS_OK) {
        rc = store_key_configure(k, &settings, err);
        if (rc != STATUS_OK && server->stores->keys.by_name.n > n_before)
            store_key_delete(k, err);
    }
    return rc;
}

static enum status store_fill_info(Parley__V1__StoreKeyInfo *out, const struct store_key *k,
                                   const struct principal *who, struct arena *arena,
                                   struct error *err)
{
    const size_t n = k->n_versions;
    int64_t *versions = arena_alloc(arena, n + 1, sizeof(versions[0]));
    char *name = arena_alloc(arena, SHARED_NAME_PATH_SIZE, 1);

    if (versions == NULL || name == NULL)
        return error_no_memory(err, n * sizeof(versions[0]), "a list of versions");
    parley__v1__store_key_info__init(out);
    shared_name_path(name, &k->name, who);
    out->key = name;
    for (struct link *l = list_first(&k->versions); l != NULL; l = list_next(&k->versions, l))
        versions[out->n_versions++] = container_of(l, struct store_value, link)->version;
    out->versions = versions;
    for (struct link *l = list_first(&k->versions); l != NULL; l = list_next(&k->versions, l))
        out->size_bytes += container_of(l, struct store_value, link)->size_bytes;
    out->history = (uint32_t)k->history;
    out->max_bytes = k->max_bytes;
    return STATUS_OK;
}

static enum status store_list(struct call *call, const Parley__V1__StoreListRequest *request,
                              Parley__V1__StoreListResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    const struct stores *s = server->stores;
    const struct principal *who = call_principal(call);
    struct arena *arena = call_arena(call);
    const size_t n = s->keys.by_name.n;
    Parley__V1__StoreKeyInfo *infos = arena_alloc(arena, n + 1, sizeof(infos[0]));
    Parley__V1__StoreKeyInfo **keys = arena_alloc(arena, n + 1, sizeof(keys[0]));
    enum status rc = stores_ready(s, err);

    if (rc == STATUS_OK && (infos == NULL || keys == NULL))
        rc = error_no_memory(err, n * sizeof(infos[0]), "a list of keys");
    for (struct link *l = list_first(&s->keys.all); l != NULL && rc == STATUS_OK;
         l = list_next(&s->keys.all, l)) {
        const struct store_key *k = store_key_at(l);

        if (!shared_name_is_listed(&k->name, who))
            continue;
        keys[response->n_keys] = &infos[response->n_keys];
        rc = store_fill_info(&infos[response->n_keys], k, who, arena, err);
        response->n_keys++;
    }
    if (rc != STATUS_OK)
        return rc;
    response->keys = keys;
    return STATUS_OK;
}

static enum status store_delete(struct call *call, const Parley__V1__StoreDeleteRequest *request,
                                Parley__V1__StoreDeleteResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    const char *name = request->key;
    struct store_key *k;

    if (stores_find(&k, server->stores, call_principal(call), ACCESS_OWN, name, err) != STATUS_OK)
        return err->status;
    if (store_key_forget(k, err) != STATUS_OK)
        return err->status;
    (void)error_because(err, STATUS_NOT_FOUND, REASON_NONE, "key", "the key '%.64s' was deleted",
                        name);
    store_key_delete(k, err);
    return STATUS_OK;
}

static void store_start_checkpoint(struct call *call,
                                   const Parley__V1__StoreCheckpointRequest *request)
{
    static const Parley__V1__StoreCheckpointResponse response =
        PARLEY__V1__STORE_CHECKPOINT_RESPONSE__INIT;
    struct stores *s = call_server(call)->stores;
    struct checkpoint_call *c;
    struct store_key *k;
    struct error err;

    if (stores_find(&k, s, call_principal(call), ACCESS_WRITE, request->key, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    c = checkpoint_call_make(call, &response.base);
    if (c != NULL && kept_settle(&s->keeper, &k->kept, &c->wait, &err) != STATUS_OK)
        checkpoint_call_end(c, &err);
}

#define STORE_SERVICE_METHODS(METHOD)                                                            \
    METHOD(CLIENT_STREAM, KEY, "Store/Push", store_push_request, store_push_response,            \
           store_start_push)                                                                     \
    METHOD(ANSWER, KEY, "Store/Configure", store_configure_request, store_configure_response,    \
           store_configure)                                                                      \
    METHOD(ANSWER, KEY, "Store/List", store_list_request, store_list_response, store_list)       \
    METHOD(KEPT, KEY, "Store/Delete", store_delete_request, store_delete_response, store_delete) \
    METHOD(UNARY, KEY, "Store/Checkpoint", store_checkpoint_request, store_checkpoint_response,  \
           store_start_checkpoint)

#define PARLEY_PLACE JOURNAL_PLACE_KEYS
PLACED_TABLE(store_service_methods, STORE_SERVICE_METHODS)
