/* parley.v1.Replay.Insert. A message is checked whole; then its chunks are copied, and its items
 * inserted one by one as the limiter allows it. When all are in, their keys are due, and the next
 * message is read: so a caller that is faster than the limiter waits in gRPC's flow control. Keys
 * that fall due while an answer is being sent are the next answer, together. The newest chunks stay
 * for the messages behind, as many as the caller says. What ends the call leaves the items that are
 * in the table there, and gives the call's chunks back. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/placed_call.h"
#include "server/api/parley/replay_wire.h"
#include "server/replay/replays.h"
#include "server/server.h"

enum { REPLAY_MAX_KEPT = 4096, REPLAY_MAX_DUE = 1 << 16 /* of keys, to read on */ };

struct kept_chunk {
    uint64_t id;
    size_t n_steps;
    struct table_chunk *chunk; /* NULL: of the message that is being checked */
};

struct replay_insert {
    struct call *call;
    struct table *table; /* NULL before the first message, and after it was deleted */
    struct table_user user;
    struct table_wait wait;
    struct kept_chunk *kept; /* [n_kept], by id */
    size_t n_kept;
    /* The message whose items are being inserted; NULL: none. */
    const Parley__V1__ReplayInsertRequest *message;
    struct arena arena; /* of it */
    size_t next_item;
    /* Not answered yet. */
    uint64_t *keys; /* [n_keys], with room for the items of message */
    size_t n_keys;
    uint32_t n_messages;
    bool has_read;  /* the next message is asked for */
    bool has_ended; /* the caller sends no more */
    bool is_over;
};

/* The n oldest go. */
static void replay_insert_drop(struct replay_insert *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p->kept[i].chunk != NULL)
            table_chunk_unref(p->kept[i].chunk);
    p->n_kept -= n;
    if (n > 0 && p->n_kept > 0)
        memmove(p->kept, p->kept + n, p->n_kept * sizeof(p->kept[0]));
}

static void replay_insert_fail(struct replay_insert *p, const struct error *err)
{
    if (!p->is_over)
        call_finish(p->call, err);
    p->is_over = true;
}

static struct kept_chunk *replay_insert_chunk(const struct replay_insert *p, uint64_t id)
{
    size_t low = 0, high = p->n_kept;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (p->kept[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->n_kept && p->kept[low].id == id ? &p->kept[low] : NULL;
}

/* --- checking --- */

static enum status replay_insert_check_item(const struct replay_insert *p,
                                            const Parley__V1__ReplayItem *item, struct error *err)
{
    if (item->n_slices < 1 || item->n_slices > TABLE_MAX_SLICES)
        return error_field(err, "items.slices", "has %zu, it must have 1 to %d", item->n_slices,
                           TABLE_MAX_SLICES);
    if (item->has_priority && !(fabs(item->priority) <= TABLE_MAX_PRIORITY))
        return error_field(err, "items.priority", "is %g, at most %g is taken", item->priority,
                           TABLE_MAX_PRIORITY);
    for (size_t i = 0; i < item->n_slices; i++) {
        const Parley__V1__ReplaySlice *slice = item->slices[i];
        const struct kept_chunk *c = replay_insert_chunk(p, slice->chunk);

        if (c == NULL)
            return error_field(err, "items.slices.chunk",
                               "is %" PRIu64 ", such a chunk did not come, or was not kept",
                               slice->chunk);
        if (slice->first >= c->n_steps || slice->steps > c->n_steps - slice->first)
            return error_field(err, "items.slices.steps",
                               "is %u from %u on, chunk %" PRIu64 " has %zu steps", slice->steps,
                               slice->first, slice->chunk, c->n_steps);
    }
    return STATUS_OK;
}

/* Notes the chunks and their columns, without their steps. */
static enum status replay_insert_note(struct replay_insert *p, const struct tensor_view **views,
                                      struct error *err)
{
    const Parley__V1__ReplayInsertRequest *m = p->message;
    struct kept_chunk *kept = try_realloc(p->kept, p->n_kept + m->n_chunks + 1, sizeof(kept[0]));

    if (kept == NULL)
        return error_no_memory(err, m->n_chunks * sizeof(kept[0]), "chunks");
    p->kept = kept;
    for (size_t i = 0; i < m->n_chunks; i++) {
        const Parley__V1__ReplayChunk *c = m->chunks[i];
        size_t n_steps;

        if (p->n_kept > 0 && c->id <= kept[p->n_kept - 1].id)
            return error_field(err, "chunks.id",
                               "is %" PRIu64 " behind %" PRIu64 ", it must be above", c->id,
                               kept[p->n_kept - 1].id);
        if (replay_wire_chunk(&views[i], &n_steps, c, p->table, &p->arena, err) != STATUS_OK)
            return err->status;
        kept[p->n_kept++] = (struct kept_chunk){c->id, n_steps, NULL};
    }
    return STATUS_OK;
}

static enum status replay_insert_fill(struct replay_insert *p, size_t first,
                                      const struct tensor_view *const *views, struct error *err)
{
    for (size_t i = first; i < p->n_kept; i++) {
        struct kept_chunk *k = &p->kept[i];

        if (table_chunk_make(&k->chunk, p->table, k->n_steps, err) != STATUS_OK)
            return err->status;
        for (size_t column = 0; column < p->table->config.n_columns; column++) {
            const struct tensor_view *v = &views[i - first][column];

            memcpy(table_chunk_column(k->chunk, column), v->data, v->size_bytes);
        }
    }
    return STATUS_OK;
}

static enum status replay_insert_find(struct replay_insert *p, struct error *err)
{
    struct server *server = call_server(p->call);

    if (p->table != NULL && p->message->table[0] != '\0')
        return error_field(err, "table", "is set again, a stream inserts into one table");
    if (p->table != NULL)
        return STATUS_OK;
    if (replays_find(&p->table, server->replays, call_principal(p->call), ACCESS_WRITE,
                     p->message->table, err) != STATUS_OK)
        return err->status;
    table_use(p->table, &p->user);
    return STATUS_OK;
}

static enum status replay_insert_take(struct replay_insert *p, struct error *err)
{
    const Parley__V1__ReplayInsertRequest *m = p->message;
    const struct tensor_view **views = arena_alloc(&p->arena, m->n_chunks + 1, sizeof(views[0]));
    const size_t n_before = p->n_kept;
    uint64_t *keys = try_realloc(p->keys, p->n_keys + m->n_items + 1, sizeof(keys[0]));

    if (keys != NULL)
        p->keys = keys;
    if (views == NULL || keys == NULL)
        return error_no_memory(err, m->n_items * sizeof(keys[0]), "items");
    if (m->keep_chunks > REPLAY_MAX_KEPT)
        return error_field(err, "keep_chunks", "is %u, at most %d are kept", m->keep_chunks,
                           REPLAY_MAX_KEPT);
    if (replay_insert_find(p, err) != STATUS_OK || replay_insert_note(p, views, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < m->n_items; i++)
        if (replay_insert_check_item(p, m->items[i], err) != STATUS_OK)
            return err->status;
    return replay_insert_fill(p, n_before, views, err);
}

/* --- inserting --- */

static enum status replay_insert_item(struct replay_insert *p, struct error *err)
{
    const Parley__V1__ReplayItem *item = p->message->items[p->next_item];
    struct table_slice *slices = arena_alloc(&p->arena, item->n_slices, sizeof(slices[0]));

    if (slices == NULL)
        return error_no_memory(err, item->n_slices * sizeof(slices[0]), "an item");
    for (size_t i = 0; i < item->n_slices; i++) {
        const Parley__V1__ReplaySlice *from = item->slices[i];
        const struct kept_chunk *k = replay_insert_chunk(p, from->chunk);

        slices[i] = (struct table_slice){
            .chunk = k->chunk,
            .first = from->first,
            .n_steps = from->steps > 0 ? from->steps : (uint32_t)(k->n_steps - from->first),
        };
    }
    if (table_insert(p->table, slices, item->n_slices, item->has_priority ? &item->priority : NULL,
                     &p->keys[p->n_keys], err) != STATUS_OK)
        return err->status;
    p->next_item++;
    p->n_keys++;
    return STATUS_OK;
}

static void replay_insert_read(struct replay_insert *p)
{
    if (p->message != NULL || p->has_read || p->n_keys >= REPLAY_MAX_DUE)
        return;
    p->has_read = true;
    call_read(p->call);
}

static void replay_insert_answer(struct replay_insert *p)
{
    Parley__V1__ReplayInsertResponse response = PARLEY__V1__REPLAY_INSERT_RESPONSE__INIT;

    response.keys = p->keys;
    response.n_keys = p->n_keys;
    response.messages = p->n_messages;
    p->n_keys = 0;
    p->n_messages = 0;
    call_write(p->call, &response.base, false);
}

/* All items of the message are in. */
static void replay_insert_complete(struct replay_insert *p)
{
    if (p->n_kept > p->message->keep_chunks)
        replay_insert_drop(p, p->n_kept - p->message->keep_chunks);
    p->message = NULL;
    arena_deinit(&p->arena);
    p->n_messages++;
    if (call_is_write_ready(p->call))
        replay_insert_answer(p);
    replay_insert_read(p);
}

static void on_replay_insert_allowed(struct future *f, const struct error *err, void *arg);

/* The next item may come without a look at the limiter: it has let this call go on. */
static void replay_insert_go_on(struct replay_insert *p, bool is_allowed)
{
    const Parley__V1__ReplayInsertRequest *m = p->message;
    struct error err;

    while (p->next_item < m->n_items && !p->is_over) {
        if (!is_allowed && !table_allows_insert(p->table)) {
            replays_wait(call_server(p->call)->replays, p->table, &p->wait, m->timeout_ms,
                         on_replay_insert_allowed, p);
            return;
        }
        is_allowed = false;
        if (replay_insert_item(p, &err) != STATUS_OK)
            replay_insert_fail(p, &err);
    }
    if (!p->is_over)
        replay_insert_complete(p);
}

static void on_replay_insert_allowed(struct future *f, const struct error *err, void *arg)
{
    struct replay_insert *p = arg;

    if (p->is_over)
        return;
    if (err->status == STATUS_OK)
        replay_insert_go_on(p, true);
    else
        replay_insert_fail(p, err);
}

/* --- the call --- */

static void replay_insert_write_ready(struct call *call, void *state)
{
    struct replay_insert *p = state;

    if (p->is_over)
        return;
    if (p->n_messages > 0) {
        replay_insert_answer(p);
        replay_insert_read(p);
    } else if (p->has_ended) {
        p->is_over = true;
        call_finish(call, NULL);
    }
}

static void replay_insert_message(struct call *call, void *state, const ProtobufCMessage *message,
                                  struct arena *arena)
{
    struct replay_insert *p = state;
    struct error err;

    if (p->is_over)
        return;
    p->has_read = false;
    if (message == NULL) {
        p->has_ended = p->has_read = true; /* there is no more to read */
        call_notify(call);
        return;
    }
    p->message = (const Parley__V1__ReplayInsertRequest *)message;
    p->arena = *arena;
    arena_init(arena, p->arena.limit_bytes); /* taken */
    p->next_item = 0;
    if (replay_insert_take(p, &err) != STATUS_OK)
        replay_insert_fail(p, &err);
    else
        replay_insert_go_on(p, false);
}

static void replay_insert_closing(struct table_user *u, const struct error *why)
{
    struct replay_insert *p = container_of(u, struct replay_insert, user);

    replay_insert_fail(p, why);
    table_leave(&p->wait);
    replay_insert_drop(p, p->n_kept);
    p->table = NULL;
}

static void replay_insert_drain(struct call *call, void *state)
{
    struct error err;

    (void)error_draining(&err);
    replay_insert_fail(state, &err);
}

static void replay_insert_on_close(struct call *call, void *state, enum status why)
{
    struct replay_insert *p = state;

    p->is_over = true;
    table_leave(&p->wait);
    table_stop_using(&p->user);
    replay_insert_drop(p, p->n_kept);
    if (p->message != NULL)
        arena_deinit(&p->arena);
    free(p->kept);
    free(p->keys);
    free(p);
}

static void replay_start_insert(struct call *call)
{
    static const struct call_handler handler = {.on_write_ready = replay_insert_write_ready,
                                                .message = replay_insert_message,
                                                .drain = replay_insert_drain,
                                                .on_close = replay_insert_on_close};
    struct replay_insert *p = call_state(call, sizeof(*p));

    if (p == NULL)
        return;
    p->call = call;
    p->wait.is_insert = true;
    p->user.closing = replay_insert_closing;
    call_set_handler(call, &handler, p);
    replay_insert_read(p);
}

#define REPLAY_INSERT_METHODS(METHOD)                                                 \
    METHOD(BIDI, KEY, "Replay/Insert", replay_insert_request, replay_insert_response, \
           replay_start_insert)

#define PARLEY_PLACE JOURNAL_PLACE_TABLES
PLACED_TABLE(replay_insert_methods, REPLAY_INSERT_METHODS)
