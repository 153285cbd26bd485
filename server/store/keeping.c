/* Keys in the journal: a checkpoint has the versions that there are at its beginning, the oldest
 * first. They do not change, so references keep them until they are written. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "server/access/access.h"
#include "server/store/stores.h"

static struct store_key *kept_key(const struct kept_thing *k)
{
    return container_of(k, struct store_key, kept);
}

static void key_kept_name(const struct kept_thing *k, const char **ret_principal,
                          const char **ret_name)
{
    const struct store_key *key = kept_key(k);

    *ret_principal = key->name.owner->name;
    *ret_name = key->name.text;
}

static enum status key_kept_begin(struct kept_thing *kept, struct error *err)
{
    struct store_key *k = kept_key(kept);
    struct store_snapshot *s = try_alloc(1, sizeof(*s) + k->n_versions * sizeof(s->values[0]));
    size_t i = 0;

    if (s == NULL)
        return error_no_memory(err, k->n_versions * sizeof(s->values[0]), "versions");
    s->n = k->n_versions;
    for (struct link *l = list_first(&k->versions); l != NULL; l = list_next(&k->versions, l))
        s->values[s->n - 1 - i++] = store_value_ref(container_of(l, struct store_value, link));
    k->snapshot = s;
    return STATUS_OK;
}

static void key_kept_part(struct kept_thing *kept, struct body_writer *w, size_t about_bytes)
{
    struct store_snapshot *s = kept_key(kept)->snapshot;
    const size_t before = w->out->len;

    while (s->at < s->n && !w->has_failed && w->out->len - before < about_bytes) {
        const struct store_value *v = s->values[s->at];
        size_t len = v->size_bytes - s->offset;

        if (len > about_bytes)
            len = about_bytes;
        body_put_u64(w, (uint64_t)v->version);
        body_put_u32(w, v->crc);
        body_put_text(w, v->content_type);
        body_put_u64(w, v->size_bytes);
        body_put_u64(w, s->offset);
        body_put_bytes(w, v->bytes + s->offset, len);
        s->offset += len;
        if (s->offset < v->size_bytes)
            continue;
        s->at++;
        s->offset = 0;
    }
}

static void key_kept_body(struct kept_thing *kept, struct body_writer *w)
{
    const struct store_key *k = kept_key(kept);

    body_put_u64(w, k->history);
    body_put_u64(w, k->max_bytes);
    kept_put_sharing(w, &k->name.sharing);
}

static void key_kept_ended(struct kept_thing *kept)
{
    store_key_drop_snapshot(kept_key(kept));
}

/* --- reading --- */

static enum status key_kept_make(struct keeper *kp, struct kept_thing **out,
                                 const struct principal *owner, const char *name,
                                 struct body_reader *body, struct error *err)
{
    const uint64_t history = body_take_u64(body), max_bytes = body_take_u64(body);
    struct access_sharing sharing;
    struct store_key *k;

    kept_take_sharing(&sharing, body);
    if (history > STORE_MAX_HISTORY)
        body->is_bad = true;
    if (body_end(body, err) != STATUS_OK ||
        stores_add(&k, kp->self, owner, name, false, err) != STATUS_OK)
        return err->status;
    *out = &k->kept; /* dropped, where this fails */
    k->history = (size_t)history;
    k->max_bytes = (size_t)max_bytes;
    return shared_name_share(&k->name, &sharing, err);
}

static enum status key_take_finished(struct store_key *k, struct error *err)
{
    struct store_value *v = k->unfinished;

    if (crc32c(0, v->bytes, v->size_bytes) != v->crc)
        return error_because(err, STATUS_DATA_LOSS, REASON_CHECKSUM_DIFFERS, NULL,
                             "the stored value is not what was pushed");
    k->unfinished = NULL; /* given away */
    store_key_put(k, v);
    return STATUS_OK;
}

/* A part of a value. */
static enum status key_take_value(struct store_key *k, struct body_reader *r, struct error *err)
{
    const int64_t version = (int64_t)body_take_u64(r);
    const uint32_t crc = body_take_u32(r);
    const char *type = body_take_text(r);
    const uint64_t size_bytes = body_take_u64(r), offset = body_take_u64(r);
    size_t len;
    const void *bytes = body_take_bytes(r, &len);

    if (r->is_bad || strlen(type) > STORE_MAX_TYPE_BYTES ||
        (offset == 0) != (k->unfinished == NULL))
        return error_set(err, STATUS_DATA_LOSS, "a value of the stored key is not correct");
    if (offset == 0) {
        if (store_value_make(&k->unfinished, k->stores, k->name.owner->id, false, version,
                             (size_t)size_bytes, type, err) != STATUS_OK)
            return err->status;
        k->unfinished->crc = crc;
        k->n_filled = 0;
    }
    if (k->unfinished->version != version || k->unfinished->size_bytes != size_bytes ||
        offset != k->n_filled || len > size_bytes - offset || (len == 0 && size_bytes > 0))
        return error_set(err, STATUS_DATA_LOSS, "a value of the stored key is not correct");
    memcpy(k->unfinished->bytes + offset, bytes, len);
    k->n_filled += len;
    return k->n_filled == size_bytes ? key_take_finished(k, err) : STATUS_OK;
}

static enum status key_kept_take(struct kept_thing *kept, struct body_reader *part,
                                 struct error *err)
{
    enum status rc = STATUS_OK;

    while (rc == STATUS_OK && part->at < part->end)
        rc = key_take_value(kept_key(kept), part, err);
    return rc;
}

static enum status key_kept_made(struct kept_thing *kept, struct error *err)
{
    if (kept_key(kept)->unfinished != NULL)
        return error_set(err, STATUS_DATA_LOSS, "a value of the stored key is cut off");
    return STATUS_OK;
}

static void key_kept_drop(struct kept_thing *kept)
{
    const struct error why = {.status = STATUS_DATA_LOSS, .text = "the key cannot be read"};

    store_key_delete(kept_key(kept), &why);
}

const struct keeper_type stores_keeper = {
    .kind = KEEPER_KEY,
    .version = 1,
    .max_body_bytes = KEEPER_BODY_BYTES,
    .noun = "key",
    .name = key_kept_name,
    .begin = key_kept_begin,
    .part = key_kept_part,
    .body = key_kept_body,
    .ended = key_kept_ended,
    .make = key_kept_make,
    .take = key_kept_take,
    .made = key_kept_made,
    .drop = key_kept_drop,
};
