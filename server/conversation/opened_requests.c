#include "server/conversation/opened_requests.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"

void opened_requests_init(struct opened_requests *all, const struct env *env)
{
    hash_init(&all->by_id, env);
    digest_key_init(&all->key, env);
}

void opened_requests_deinit(struct opened_requests *all)
{
    hash_deinit(&all->by_id);
}

static const struct opened_request *requests_get(const struct opened_requests *all,
                                                 uint32_t principal, const char *id)
{
    struct hash_node *node = hash_first(&all->by_id, hash_text(&all->by_id, principal, id));

    for (; node != NULL; node = hash_next(node)) {
        const struct opened_request *r = container_of(node, struct opened_request, by_id);

        if (r->principal == principal && strcmp(r->id, id) == 0)
            return r;
    }
    return NULL;
}

enum status opened_requests_find(const struct opened_request **out,
                                 const struct opened_requests *all, uint32_t principal,
                                 const char *id, const struct digest *digest, struct error *err)
{
    const struct opened_request *r;

    if (id[0] == '\0')
        return error_field(err, "request_id", "is empty");
    if (strnlen(id, REQUEST_ID_MAX_BYTES + 1) > REQUEST_ID_MAX_BYTES)
        return error_field(err, "request_id", "is longer than %d bytes", REQUEST_ID_MAX_BYTES);
    r = requests_get(all, principal, id);
    if (r != NULL && !digest_is_equal(&r->digest, digest)) {
        (void)error_field(err, "request_id", "was used before with another request");
        return err->status = STATUS_EXISTS;
    }
    *out = r;
    return STATUS_OK;
}

enum status opened_request_make(struct opened_request **out, uint32_t principal, const char *id,
                                const struct digest *digest, struct error *err)
{
    size_t id_size = strlen(id) + 1;
    struct opened_request *r = try_alloc(1, sizeof(*r) + id_size);

    if (r == NULL)
        return error_no_memory(err, sizeof(*r) + id_size, "a request's id");
    r->digest = *digest;
    r->principal = principal;
    memcpy(r->id, id, id_size);
    *out = r;
    return STATUS_OK;
}

void opened_requests_add(struct opened_requests *all, struct opened_request *r)
{
    hash_add(&all->by_id, &r->by_id, hash_text(&all->by_id, r->principal, r->id));
}

void opened_requests_forget(struct opened_requests *all, struct opened_request *r)
{
    if (r == NULL)
        return;
    hash_remove(&all->by_id, &r->by_id);
    free(r);
}
