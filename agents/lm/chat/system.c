#include "agents/lm/chat/system.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/list.h"

enum status prompt_check_size(const struct prompt_limits *limits, size_t n_ids, size_t n_bytes,
                              struct error *err)
{
    size_t least = n_ids + n_bytes / limits->longest_bytes;

    if (least < limits->context)
        return STATUS_OK;
    return error_because(
        err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
        "the prompt has at least %zu tokens with the conversation before it, but the context holds "
        "only %zu: rewind, open a new conversation, or send less",
        least, limits->context);
}

void lm_systems_init(struct lm_systems *systems, const struct chat_template *template,
                     const struct prompt_limits *limits)
{
    /* Uses env_real, so that the salt consumes no draws of a seeded env. */
    hash_init(&systems->by_text, &env_real);
    systems->template = template;
    systems->limits = limits;
}

void lm_systems_deinit(struct lm_systems *systems)
{
    hash_deinit(&systems->by_text);
}

static struct lm_system *system_find(const struct lm_systems *systems, uint64_t hash,
                                     const char *text, size_t len)
{
    struct hash_node *node = hash_first(&systems->by_text, hash);

    for (; node != NULL; node = hash_next(node)) {
        struct lm_system *s = container_of(node, struct lm_system, by_text);

        if (s->len == len && memcmp(s->text, text, len) == 0)
            return s;
    }
    return NULL;
}

static enum status system_make(struct lm_system **out, struct lm_systems *systems, const char *text,
                               size_t len, struct error *err)
{
    struct lm_system *s;
    struct buf ids;
    enum status rc;

    buf_init(&ids, SIZE_MAX);
    rc = prompt_check_size(systems->limits, 0, len, err);
    if (rc == STATUS_OK && systems->template != NULL)
        rc = chat_template_begin(systems->template, text, len, &ids, NULL, err);
    if (rc == STATUS_OK && ids.len / sizeof(int32_t) > systems->limits->context)
        rc = error_because(err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                           "the system prompt has %zu tokens, but the context holds only %zu",
                           ids.len / sizeof(int32_t), systems->limits->context);
    if (rc != STATUS_OK)
        goto out;
    s = try_alloc(1, sizeof(*s));
    if (s == NULL || (s->text = try_strndup(text, len)) == NULL) {
        free(s);
        rc = error_no_memory(err, len, "the system prompt");
        goto out;
    }
    s->len = len;
    s->ids = (int32_t *)(void *)ids.data;
    s->n_ids = ids.len / sizeof(int32_t);
    buf_init(&ids, 0); /* owned by the system prompt now */
    *out = s;
out:
    buf_deinit(&ids);
    return rc;
}

enum status lm_system_ref(struct lm_system **out, struct lm_systems *systems, const char *text,
                          size_t len, struct error *err)
{
    struct lm_system *s;
    uint64_t hash;
    enum status rc;

    if (text == NULL) {
        text = systems->template == NULL ? "" : chat_template_default_system(systems->template);
        len = strlen(text);
    }
    hash = hash_bytes(&systems->by_text, 0, text, len);
    s = system_find(systems, hash, text, len);
    if (s == NULL) {
        rc = system_make(&s, systems, text, len, err);
        if (rc != STATUS_OK)
            return rc;
        hash_add(&systems->by_text, &s->by_text, hash);
    }
    s->n_refs++;
    *out = s;
    return STATUS_OK;
}

void lm_system_unref(struct lm_systems *systems, struct lm_system *s)
{
    if (s == NULL)
        return;
    assert(s->n_refs > 0);
    if (--s->n_refs > 0)
        return;
    hash_remove(&systems->by_text, &s->by_text);
    free(s->text);
    free(s->ids);
    free(s);
}
