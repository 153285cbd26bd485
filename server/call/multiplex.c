/* Keeps a stream's items in the order in which they have something to write, and lets one write at
 * a time. The stream reads on while fewer than the most items are in flight. */
#include "server/call/multiplex.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"

struct multiplex {
    struct call *call;
    const struct multiplex_type *type;
    struct list items;  /* in order of arrival */
    struct list ready;  /* the notified ones */
    struct hash by_tag; /* those with a tag */
    size_t n_items;
    bool has_read;       /* a read is in flight */
    bool is_half_closed; /* by the client */
    bool is_draining;
    bool is_finished;
};

static void multiplex_finish(struct multiplex *m, const struct error *err)
{
    m->is_finished = true;
    call_finish(m->call, err);
}

/* Reads the next message or ends the stream, depending on the state. */
static void multiplex_advance(struct multiplex *m)
{
    struct error err;

    if (m->is_finished)
        return;
    if (m->is_half_closed && m->n_items == 0) {
        multiplex_finish(m, NULL);
    } else if (m->is_draining && m->n_items == 0) {
        (void)error_draining(&err);
        multiplex_finish(m, &err);
    } else if (!m->is_half_closed && !m->has_read && m->n_items < m->type->max_items) {
        m->has_read = true;
        if (m->n_items == 1) /* all earlier items were answered before it came */
            call_read_behind(m->call);
        else
            call_read(m->call);
    }
}

static void on_drain(struct call *call, void *state)
{
    struct multiplex *m = state;

    m->is_draining = true;
    multiplex_advance(m);
}

static void end_item(struct multiplex_item *item, enum status why)
{
    struct multiplex *m = item->stream;

    m->type->end(item, why);
    if (link_is_on(&item->in_ready))
        list_remove(&item->in_ready);
    if (item->is_tagged)
        hash_remove(&m->by_tag, &item->by_tag);
    list_remove(&item->link);
    m->n_items--;
    free(item);
}

static void on_message(struct call *call, void *state, const ProtobufCMessage *message,
                       struct arena *arena)
{
    struct multiplex *m = state;
    struct multiplex_item *item;
    struct error err;

    m->has_read = false;
    if (message == NULL) {
        m->is_half_closed = true;
        multiplex_advance(m);
        return;
    }
    item = try_alloc(1, m->type->item_size);
    if (item == NULL) {
        (void)error_no_memory(&err, m->type->item_size, m->type->item_name);
        multiplex_finish(m, &err);
        return;
    }
    item->stream = m;
    list_push(&m->items, &item->link);
    m->n_items++;
    m->type->begin(item, message, arena);
    if (item->has_left)
        end_item(item, STATUS_OK);
    multiplex_advance(m);
}

static void on_write_ready(struct call *call, void *state)
{
    struct multiplex *m = state;
    struct link *first;

    while (!m->is_finished && (first = list_first(&m->ready)) != NULL) {
        struct multiplex_item *item = container_of(first, struct multiplex_item, in_ready);
        enum multiplex_written written = m->type->write(item);

        if (written == WROTE_LAST) {
            end_item(item, STATUS_OK);
            multiplex_advance(m);
        }
        if (written != WROTE_NOTHING)
            return;
        list_remove(&item->in_ready);
    }
}

static void on_close(struct call *call, void *state, enum status why)
{
    struct multiplex *m = state;
    struct link *first;

    m->is_finished = true;
    while ((first = list_first(&m->items)) != NULL)
        end_item(container_of(first, struct multiplex_item, link), why);
    hash_deinit(&m->by_tag);
    free(m);
}

void multiplex_start(struct call *call, const struct multiplex_type *type)
{
    static const struct call_handler handler = {
        .on_write_ready = on_write_ready,
        .message = on_message,
        .drain = on_drain,
        .on_close = on_close,
    };
    struct multiplex *m = try_alloc(1, sizeof(*m));
    struct error err;

    if (m == NULL) {
        (void)error_no_memory(&err, sizeof(*m), "a stream");
        call_finish(call, &err);
        return;
    }
    m->call = call;
    m->type = type;
    list_init(&m->items);
    list_init(&m->ready);
    hash_init(&m->by_tag, NULL); /* no random key: a chain has max_items at most */
    call_set_handler(call, &handler, m);
    multiplex_advance(m);
}

void multiplex_notify(struct multiplex_item *item)
{
    struct multiplex *m = item->stream;

    if (!link_is_on(&item->in_ready))
        list_push(&m->ready, &item->in_ready);
    if (!m->is_finished)
        call_notify(m->call);
}

void multiplex_write(struct multiplex_item *item, const ProtobufCMessage *message, bool has_more)
{
    const struct multiplex *m = item->stream;

    call_write(m->call, message, has_more || list_first(&m->ready) != list_last(&m->ready));
}

struct call *multiplex_call(const struct multiplex_item *item)
{
    return item->stream->call;
}

void multiplex_leave(struct multiplex_item *item)
{
    item->has_left = true;
}

struct multiplex_item *multiplex_find(const struct multiplex_item *item, uint64_t tag)
{
    const struct hash *h = &item->stream->by_tag;
    struct hash_node *node = hash_first(h, hash_bytes(h, 0, &tag, sizeof(tag)));

    for (; node != NULL; node = hash_next(node)) {
        struct multiplex_item *other = container_of(node, struct multiplex_item, by_tag);

        if (other->tag == tag)
            return other;
    }
    return NULL;
}

void multiplex_tag(struct multiplex_item *item, uint64_t tag)
{
    struct hash *h = &item->stream->by_tag;

    assert(!item->is_tagged && multiplex_find(item, tag) == NULL);
    item->is_tagged = true;
    item->tag = tag;
    hash_add(h, &item->by_tag, hash_bytes(h, 0, &tag, sizeof(tag)));
}
