/* System prompts: the text and its tokens, once for all clones that begin with it. Their pages are
 * found by their ids, as everybody's (prefix.h). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "base/alloc.h"

static struct lm_system **head_of(struct lm *m, const char *text, size_t len)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return &m->systems[(hash ^ hash >> 32) % LM_SYSTEM_HEADS];
}

static enum status system_make(struct lm_system **out, struct lm *m, const char *text, size_t len,
                               struct error *err)
{
    struct lm_system *s;
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
    s = try_alloc(1, sizeof *s);
    if (s == NULL || (s->text = try_strndup(text, len)) == NULL) {
        free(s);
        rc = error_no_memory(err, len, "the system prompt");
        goto out;
    }
    s->len = len;
    s->ids = (int32_t *)(void *)ids.data;
    s->n_ids = ids.len / sizeof(int32_t);
    buf_init(&ids, 0); /* given away */
    *out = s;
out:
    buf_deinit(&ids);
    return rc;
}

enum status lm_system_ref(struct lm_system **out, struct lm *m, const char *text, size_t len,
                          struct error *err)
{
    struct lm_system **head, *s;
    enum status rc;

    if (text == NULL) {
        text = chat_template_default_system(m->template);
        len = strlen(text);
    }
    head = head_of(m, text, len);
    for (s = *head; s != NULL && (s->len != len || memcmp(s->text, text, len) != 0); s = s->next)
        continue;
    if (s == NULL) {
        rc = system_make(&s, m, text, len, err);
        if (rc != STATUS_OK)
            return rc;
        s->next = *head;
        *head = s;
    }
    s->n_refs++;
    *out = s;
    return STATUS_OK;
}

void lm_system_unref(struct lm *m, struct lm_system *s)
{
    struct lm_system **at;

    if (s == NULL)
        return;
    assert(s->n_refs > 0);
    if (--s->n_refs > 0)
        return;
    at = head_of(m, s->text, s->len);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free(s->text);
    free(s->ids);
    free(s);
}
