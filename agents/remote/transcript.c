#include "agents/remote/transcript.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum status remote_blob_make(struct remote_blob **out, const void *data, size_t size_bytes,
                             struct error *err)
{
    struct remote_blob *b = try_alloc(1, sizeof(*b) + size_bytes + 1);

    if (b == NULL)
        return error_no_memory(err, size_bytes, "a clone's state");
    b->n_refs = 1;
    b->size_bytes = size_bytes;
    if (size_bytes > 0)
        memcpy(b->data, data, size_bytes);
    *out = b;
    return STATUS_OK;
}

struct remote_blob *remote_blob_ref(struct remote_blob *b)
{
    if (b != NULL)
        b->n_refs++;
    return b;
}

void remote_blob_unref(struct remote_blob *b)
{
    if (b != NULL && --b->n_refs == 0)
        free(b);
}

static size_t texts_size(const struct message *messages, size_t n)
{
    size_t size_bytes = 0;

    for (size_t i = 0; i < n; i++)
        size_bytes += messages[i].len + 1;
    return size_bytes;
}

enum status remote_turn_make(struct remote_turn **out, struct remote_turn *before,
                             const struct message *messages, size_t n, size_t reply_limit_bytes,
                             struct error *err)
{
    size_t texts_bytes = texts_size(messages, n);
    struct remote_turn *t = try_alloc(1, sizeof(*t) + n * sizeof(t->messages[0]) + texts_bytes);
    char *at;

    if (t == NULL)
        return error_no_memory(err, texts_bytes, "a turn's messages");
    t->n_refs = 1;
    t->before = remote_turn_ref(before);
    t->number = before == NULL ? 1 : before->number + 1;
    t->n_messages = n;
    t->size_bytes = t->total_bytes = texts_bytes;
    if (before != NULL)
        t->total_bytes += before->total_bytes + before->reply.len;
    buf_init(&t->reply, reply_limit_bytes);
    at = (char *)(t->messages + n);
    for (size_t i = 0; i < n; i++) {
        /* Workers receive only texts. */
        t->messages[i] =
            (struct message){.role = messages[i].role, .text = at, .len = messages[i].len};
        memcpy(at, messages[i].text, messages[i].len);
        at += messages[i].len + 1;
    }
    *out = t;
    return STATUS_OK;
}

struct remote_turn *remote_turn_ref(struct remote_turn *t)
{
    if (t != NULL)
        t->n_refs++;
    return t;
}

void remote_turn_unref(struct remote_turn *t)
{
    while (t != NULL && --t->n_refs == 0) {
        struct remote_turn *before = t->before;

        buf_deinit(&t->reply);
        free(t);
        t = before; /* a loop, not a recursion: a conversation may have many turns */
    }
}
