#include "tests/unit/server/call/memory_call.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "proto/codec.h"

enum { ARENA_BYTES = 1 << 20 };

static struct memory_call *memory_of(struct call *base)
{
    return container_of(base, struct memory_call, base);
}

static const char *memory_header(struct call *base, const char *key)
{
    const struct memory_call *m = memory_of(base);

    return m->header_key != NULL && strcmp(key, m->header_key) == 0 ? m->header_value : NULL;
}

static bool memory_is_write_ready(const struct call *base)
{
    const struct memory_call *m = container_of(base, const struct memory_call, base);

    return !m->is_full && !m->is_finished;
}

static void memory_keep(struct memory_call *m, const void *bytes, size_t size_bytes)
{
    ck_assert_uint_lt(m->n_messages, MEMORY_MAX_MESSAGES);
    m->messages[m->n_messages] =
        protobuf_c_message_unpack(m->base.method->response, NULL, size_bytes, bytes);
    ck_assert_ptr_nonnull(m->messages[m->n_messages++]);
}

static void memory_write(struct call *base, const ProtobufCMessage *message, bool more)
{
    uint8_t *bytes = xalloc(codec_size(message) + 1);

    ck_assert_ptr_eq(message->descriptor, base->method->response);
    memory_keep(memory_of(base), bytes, codec_encode(message, bytes));
    memory_of(base)->is_notified = true;
    free(bytes);
}

static void memory_write_pieces(struct call *base, const struct call_piece *pieces, size_t n_pieces,
                                bool more)
{
    uint8_t *bytes = NULL;
    size_t size = 0;

    for (size_t i = 0; i < n_pieces; i++) {
        bytes = xrealloc(bytes, size + pieces[i].size_bytes + 1);
        memcpy(bytes + size, pieces[i].data, pieces[i].size_bytes);
        size += pieces[i].size_bytes;
        if (pieces[i].release != NULL)
            pieces[i].release(pieces[i].arg);
    }
    memory_keep(memory_of(base), bytes, size);
    memory_of(base)->is_notified = true;
    free(bytes);
}

static void memory_notify(struct call *base)
{
    memory_of(base)->is_notified = true;
}

static void memory_read(struct call *base, bool is_behind)
{
    struct memory_call *m = memory_of(base);

    ck_assert(!m->is_reading);
    m->is_reading = true;
    m->is_read_behind = is_behind;
}

static void memory_finish(struct call *base, const struct error *err, const ProtobufCMessage *last)
{
    struct memory_call *m = memory_of(base);

    ck_assert(!m->is_finished);
    if (last != NULL)
        memory_write(base, last, false);
    m->is_finished = true;
    if (err != NULL)
        m->err = *err;
}

static const struct call_transport memory_transport = {
    .header = memory_header,
    .is_write_ready = memory_is_write_ready,
    .write = memory_write,
    .write_pieces = memory_write_pieces,
    .notify = memory_notify,
    .read = memory_read,
    .finish = memory_finish,
};

void memory_call_start(struct memory_call *m, const struct call_table *table, const char *path,
                       const void *request)
{
    size_t i = 0;

    while (i < table->n && strcmp(table->rows[i].path, path) != 0)
        i++;
    ck_assert_uint_lt(i, table->n);
    owner_thread_init(&m->owner);
    m->base.transport = &memory_transport;
    m->base.method = &table->rows[i];
    m->base.owner = &m->owner;
    m->base.n_unawaited = &m->n_unawaited;
    m->base.request = request;
    arena_init(&m->base.arena, ARENA_BYTES);
    m->base.method->start(&m->base);
}

void memory_call_pull(struct memory_call *m)
{
    if (!m->is_notified || !memory_is_write_ready(&m->base))
        return;
    m->is_notified = false;
    call_tell_write_ready(&m->base);
}

void memory_call_send(struct memory_call *m, const ProtobufCMessage *message)
{
    struct arena arena;

    ck_assert(m->is_reading);
    m->is_reading = false;
    arena_init(&arena, ARENA_BYTES);
    m->base.handler->message(&m->base, m->base.handler_state, message, &arena);
    arena_deinit(&arena);
}

void memory_call_close(struct memory_call *m, enum status why)
{
    call_tell_close(&m->base, why);
    ck_assert_uint_eq(m->n_unawaited, 0);
    for (size_t i = 0; i < m->n_messages; i++)
        protobuf_c_message_free_unpacked(m->messages[i], NULL);
    arena_deinit(&m->base.arena);
    *m = (struct memory_call){0};
}
