/* What one person has: the messages that its connection has not taken yet, and its answers. */
#include "server/service/user.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "server/service/keeping.h"

bool service_is_name(const char *text)
{
    return text[0] != '\0' && strchr(text, ':') == NULL && utf8_is_plain_line(text) &&
           utf8_count(text) <= SERVICE_NAME_MAX_CHARS;
}

void service_user_doom(struct service_user *u, enum service_end why)
{
    if (link_is_on(&u->doomed))
        return;
    u->doom = why;
    list_push(&u->service->doomed, &u->doomed);
}

/* --- messages --- */

size_t service_message_size_bytes(const char *text, const char *payload,
                                  const char *const *quick_replies, size_t n_quick_replies)
{
    size_t size = sizeof(struct service_message) + n_quick_replies * sizeof(char *) + strlen(text) +
                  1 + (payload == NULL ? 0 : strlen(payload) + 1);

    for (size_t i = 0; i < n_quick_replies; i++)
        size += strlen(quick_replies[i]) + 1;
    return size;
}

static struct service_message *service_message_make(const char *text, const char *payload,
                                                    const char *const *quick_replies, size_t n,
                                                    size_t size)
{
    struct service_message *m = try_alloc(1, size);
    const char **quick;
    char *at;

    if (m == NULL)
        return NULL;
    m->size_bytes = size;
    m->n_quick_replies = n;
    quick = (const char **)(void *)(m + 1);
    m->quick_replies = quick;
    at = (char *)(quick + n);
    for (size_t i = 0; i < n; i++) {
        const size_t len = strlen(quick_replies[i]) + 1;

        quick[i] = memcpy(at, quick_replies[i], len);
        at += len;
    }
    m->text = memcpy(at, text, strlen(text) + 1);
    if (payload != NULL)
        m->payload = memcpy(at + strlen(text) + 1, payload, strlen(payload) + 1);
    return m;
}

/* Makes a message of the person's bytes; else the person is removed. NULL: it is, or will be. */
static struct service_message *service_user_message(struct service_user *u, const char *text,
                                                    const char *payload,
                                                    const char *const *quick_replies,
                                                    size_t n_quick_replies)
{
    const size_t size = service_message_size_bytes(text, payload, quick_replies, n_quick_replies);
    struct service_message *m;
    struct error err;

    if (link_is_on(&u->doomed))
        return NULL;
    if (u->untaken_bytes + size > SERVICE_UNTAKEN_MAX_BYTES) {
        service_user_doom(u, SERVICE_END_SLOW);
        return NULL;
    }
    if (shared_limit_take(&u->service->bytes, 0, size, &err) != STATUS_OK) {
        service_user_doom(u, SERVICE_END_MEMORY);
        return NULL;
    }
    m = service_message_make(text, payload, quick_replies, n_quick_replies, size);
    if (m == NULL) {
        shared_limit_give(&u->service->bytes, 0, size);
        service_user_doom(u, SERVICE_END_MEMORY);
        return NULL;
    }
    u->untaken_bytes += size;
    return m;
}

void service_user_tell(struct service_user *u, const char *text, const char *payload,
                       const char *const *quick_replies, size_t n_quick_replies)
{
    struct service_message *m =
        service_user_message(u, text, payload, quick_replies, n_quick_replies);

    if (m == NULL)
        return;
    list_push(&u->untaken, &m->link);
    if (!service_message_waits(u, m) && u->peer != NULL)
        u->peer->notify(u->peer);
}

void service_user_tell_first(struct service_user *u, const char *text)
{
    struct service_message *m = service_user_message(u, text, NULL, NULL, 0);

    if (m == NULL)
        return;
    list_push_front(&u->untaken, &m->link);
    if (u->peer != NULL)
        u->peer->notify(u->peer);
}

void service_user_drop_message(struct service_user *u)
{
    struct link *l = list_pop(&u->untaken);
    struct service_message *m = container_of(l, struct service_message, link);

    service_message_unkeep(u, m);
    u->untaken_bytes -= m->size_bytes;
    shared_limit_give(&u->service->bytes, 0, m->size_bytes);
    free(m);
}

void service_user_drop_messages(struct service_user *u)
{
    while (!list_is_empty(&u->untaken))
        service_user_drop_message(u);
}

const struct service_message *service_user_first_message(const struct service_user *u)
{
    struct link *l = list_first(&u->untaken);
    const struct service_message *m;

    if (l == NULL)
        return NULL;
    m = container_of(l, struct service_message, link);
    return service_message_is_due(u, m) ? m : NULL;
}

/* --- answers --- */

static struct service_answer *service_answer_at(struct link *l)
{
    return l == NULL ? NULL : container_of(l, struct service_answer, link);
}

static struct service_answer *service_answer_find(const struct service_user *u, const char *key)
{
    for (struct link *l = list_first(&u->answers); l != NULL; l = list_next(&u->answers, l))
        if (strcmp(service_answer_at(l)->key, key) == 0)
            return service_answer_at(l);
    return NULL;
}

const char *service_user_answer(const struct service_user *u, const char *key)
{
    const struct service_answer *a = service_answer_find(u, key);

    return a == NULL ? NULL : a->value;
}

static void service_answer_free(struct service_user *u, struct service_answer *a)
{
    if (a == NULL)
        return;
    list_remove(&a->link);
    u->answers_bytes -= a->size_bytes;
    shared_limit_give(&u->service->bytes, 0, a->size_bytes);
    free(a);
}

void service_user_keep(struct service_user *u, const char *key, const char *value)
{
    const size_t key_size = strlen(key) + 1, value_size = strlen(value) + 1;
    const size_t size = sizeof(struct service_answer) + key_size + value_size;
    struct service_answer *a;
    struct error err;
    char *at;

    service_answer_free(u, service_answer_find(u, key));
    if (u->answers_bytes + size > SERVICE_DATA_MAX_BYTES ||
        shared_limit_take(&u->service->bytes, 0, size, &err) != STATUS_OK) {
        service_user_doom(u, SERVICE_END_MEMORY);
        return;
    }
    a = try_alloc(1, size);
    if (a == NULL) {
        shared_limit_give(&u->service->bytes, 0, size);
        service_user_doom(u, SERVICE_END_MEMORY);
        return;
    }
    at = (char *)(a + 1);
    a->size_bytes = size;
    a->key = memcpy(at, key, key_size);
    a->value = memcpy(at + key_size, value, value_size);
    u->answers_bytes += size;
    list_push(&u->answers, &a->link);
    service_user_changed(u);
}

void service_user_forget(struct service_user *u)
{
    struct link *l;

    while ((l = list_first(&u->answers)) != NULL)
        service_answer_free(u, service_answer_at(l));
}

bool service_user_is_eligible(const struct service_user *u, const struct service_pool_plan *plan)
{
    for (size_t i = 0; i < plan->n_eligible; i++) {
        const char *value = service_user_answer(u, plan->eligible[i].key);

        if (value == NULL || strcmp(value, plan->eligible[i].value) != 0)
            return false;
    }
    return true;
}
