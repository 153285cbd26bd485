/* System prompts, each computed once. A prefix is found by its text and the tenant's salt, so two
 * tenants never share pages, not even by the time that a hit saves. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "base/alloc.h"

enum { MAX_PREFIXES = 1024 }; /* kept though no clone uses them, for the next that does */

static void prefix_free(struct lm *m, struct lm_prefix *p)
{
    kv_seq_free(m->pages, &p->kv);
    list_remove(&p->link);
    m->n_prefixes--;
    free(p->text);
    free(p->ids);
    free(p);
}

static struct lm_prefix *prefix_find(const struct lm *m, const char *text, size_t len,
                                     uint64_t salt)
{
    for (struct link *l = list_last(&m->prefixes); l != NULL;
         l = l->prev == &m->prefixes.head ? NULL : l->prev) {
        struct lm_prefix *p = container_of(l, struct lm_prefix, link);

        if (p->salt == salt && p->len == len && memcmp(p->text, text, len) == 0)
            return p;
    }
    return NULL;
}

static enum status prefix_make(struct lm_prefix **out, struct lm *m, const char *text, size_t len,
                               uint64_t salt, struct error *err)
{
    struct lm_prefix *p;
    struct buf ids;
    enum status rc;

    buf_init(&ids, SIZE_MAX);
    rc = lm_check_size(m, 0, len, err);
    if (rc == STATUS_OK)
        rc = chat_template_begin(m->template, text, len, &ids, NULL, err);
    if (rc == STATUS_OK && ids.len / sizeof(int32_t) > m->context)
        rc = error_set(err, STATUS_RANGE, "the system prompt has %zu tokens, the context holds %zu",
                       ids.len / sizeof(int32_t), m->context);
    if (rc != STATUS_OK)
        goto out;
    p = try_alloc(1, sizeof *p);
    if (p == NULL || (p->text = try_strndup(text, len)) == NULL) {
        free(p);
        rc = error_no_memory(err, len, "the system prompt");
        goto out;
    }
    p->salt = salt;
    p->len = len;
    p->ids = (int32_t *)(void *)ids.data;
    p->n_ids = ids.len / sizeof(int32_t);
    buf_init(&ids, 0); /* given away */
    list_push(&m->prefixes, &p->link);
    m->n_prefixes++;
    *out = p;
out:
    buf_deinit(&ids);
    return rc;
}

enum status lm_prefix_ref(struct lm_prefix **out, struct lm *m, const char *text, size_t len,
                          uint64_t salt, struct error *err)
{
    struct lm_prefix *p;
    enum status rc;

    if (text == NULL) {
        text = chat_template_default_system(m->template);
        len = strlen(text);
        salt = 0; /* the model's own is everybody's */
    }
    if (m->default_prefix != NULL && m->default_prefix->salt == salt &&
        m->default_prefix->len == len && memcmp(m->default_prefix->text, text, len) == 0)
        p = m->default_prefix;
    else
        p = prefix_find(m, text, len, salt);
    if (p == NULL) {
        rc = prefix_make(&p, m, text, len, salt, err);
        if (rc != STATUS_OK)
            return rc;
    } else {
        list_remove(&p->link);
        list_push(&m->prefixes, &p->link);
    }
    p->n_refs++;
    *out = p;
    return STATUS_OK;
}

void lm_prefix_unref(struct lm *m, struct lm_prefix *p)
{
    if (p == NULL)
        return;
    assert(p->n_refs > 0);
    if (--p->n_refs == 0 && m->n_prefixes > MAX_PREFIXES)
        prefix_free(m, p);
}

bool lm_prefix_shrink(struct lm *m)
{
    struct kv_usage before, after;

    for (struct link *l = list_first(&m->prefixes); l != NULL; l = list_next(&m->prefixes, l)) {
        struct lm_prefix *p = container_of(l, struct lm_prefix, link);

        if (p->kv.n_pages == 0)
            continue;
        kv_pages_usage(m->pages, &before);
        kv_seq_free(m->pages, &p->kv);
        kv_pages_usage(m->pages, &after);
        if (after.n_free > before.n_free)
            return true; /* others share the rest: freeing more of those would gain nothing */
    }
    return false;
}

void lm_prefix_close_all(struct lm *m)
{
    struct link *l;

    lm_prefix_unref(m, m->default_prefix);
    m->default_prefix = NULL;
    while ((l = list_first(&m->prefixes)) != NULL) {
        struct lm_prefix *p = container_of(l, struct lm_prefix, link);

        assert(p->n_refs == 0);
        prefix_free(m, p);
    }
}
