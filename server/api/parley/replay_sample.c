/* parley.v1.Replay.Sample: when the caller has room for a batch it is drawn, at once or when the
 * limiter allows it, copied and written; so what is sent is never older than the caller is slow. A
 * deadline that passes, a table that is deleted and a drain end the call. */
#include <stdlib.h>

#include "base/alloc.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/placed_call.h"
#include "server/api/parley/replay_wire.h"
#include "server/replay/replays.h"
#include "server/server.h"

/* Of a batch, with its description. */
#define REPLAY_SAMPLE_MAX_BYTES ((size_t)512 << 20)

struct replay_sample {
    struct call *call;
    struct table *table; /* NULL after it was deleted */
    struct table_user user;
    struct table_wait wait;
    size_t batch_size;
    uint64_t n_left; /* 0: any number */
    uint32_t timeout_ms;
    unsigned char *steps; /* [steps_bytes] of the last batch */
    size_t steps_bytes;
    bool is_over;
};

static void replay_sample_fail(struct replay_sample *s, const struct error *err)
{
    if (!s->is_over)
        call_finish(s->call, err);
    s->is_over = true;
}

/* Room for the steps of a batch, which the next batch uses again. */
static enum status replay_sample_take_room(struct replay_sample *s, const struct table_draw *draws,
                                           struct error *err)
{
    size_t size_bytes;

    if (replay_wire_batch_bytes(&size_bytes, s->table, draws, s->batch_size, err) != STATUS_OK)
        return err->status;
    if (size_bytes <= s->steps_bytes)
        return STATUS_OK;
    free(s->steps);
    s->steps_bytes = 0;
    s->steps = try_realloc(NULL, 1, size_bytes);
    if (s->steps == NULL)
        return error_no_memory(err, size_bytes, "a batch");
    s->steps_bytes = size_bytes;
    return STATUS_OK;
}

static enum status replay_sample_draw(struct replay_sample *s, struct arena *arena,
                                      struct error *err)
{
    struct table_draw *draws = arena_alloc(arena, s->batch_size, sizeof(draws[0]));
    const uint64_t n_items = s->table->order.n;
    Parley__V1__ReplayBatch *m;
    enum status rc;

    if (draws == NULL)
        return error_no_memory(err, s->batch_size * sizeof(draws[0]), "a batch");
    table_sample(s->table, draws, s->batch_size);
    rc = replay_sample_take_room(s, draws, err);
    if (rc == STATUS_OK)
        rc = replay_wire_batch(&m, s->table, draws, s->batch_size, s->steps, arena, err);
    if (rc == STATUS_OK) {
        m->epoch = s->table->epoch;
        m->table_items = n_items;
        s->is_over = s->n_left == 1;
        s->n_left -= s->n_left > 0;
        if (s->is_over)
            call_finish_with(s->call, &m->base);
        else
            call_write(s->call, &m->base, false);
    }
    table_release(s->table, draws, s->batch_size);
    return rc;
}

/* The limiter allows a batch, and the call is write-ready. */
static void replay_sample_write(struct replay_sample *s)
{
    struct arena arena;
    struct error err;

    arena_init(&arena, REPLAY_SAMPLE_MAX_BYTES);
    if (replay_sample_draw(s, &arena, &err) != STATUS_OK)
        replay_sample_fail(s, &err);
    arena_deinit(&arena);
}

static void on_replay_sample_allowed(struct future *f, const struct error *err, void *arg)
{
    struct replay_sample *s = arg;

    if (s->is_over)
        return;
    if (err->status == STATUS_OK)
        replay_sample_write(s);
    else
        replay_sample_fail(s, err);
}

static void replay_sample_write_ready(struct call *call, void *state)
{
    struct replay_sample *s = state;

    if (s->is_over || s->wait.table != NULL)
        return;
    if (table_allows_sample(s->table, s->batch_size))
        replay_sample_write(s);
    else
        replays_wait(call_server(call)->replays, s->table, &s->wait, s->timeout_ms,
                     on_replay_sample_allowed, s);
}

static void replay_sample_closing(struct table_user *u, const struct error *why)
{
    struct replay_sample *s = container_of(u, struct replay_sample, user);

    replay_sample_fail(s, why);
    table_leave(&s->wait);
    s->table = NULL;
}

static void replay_sample_drain(struct call *call, void *state)
{
    struct error err;

    (void)error_draining(&err);
    replay_sample_fail(state, &err);
}

static void replay_sample_on_close(struct call *call, void *state, enum status why)
{
    struct replay_sample *s = state;

    s->is_over = true;
    table_leave(&s->wait);
    table_stop_using(&s->user);
    free(s->steps);
    free(s);
}

static void replay_start_sample(struct call *call, const Parley__V1__ReplaySampleRequest *m)
{
    static const struct call_handler handler = {.on_write_ready = replay_sample_write_ready,
                                                .drain = replay_sample_drain,
                                                .on_close = replay_sample_on_close};
    struct server *server = call_server(call);
    struct replay_sample *s;
    struct table *t;
    struct error err;

    /* Sampling changes what the limiter counts, and may remove items. */
    if (replays_find(&t, server->replays, call_principal(call), ACCESS_WRITE, m->table, &err) !=
            STATUS_OK ||
        table_check_batch(t, m->batch_size, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    s = call_state(call, sizeof(*s));
    if (s == NULL)
        return;
    s->call = call;
    s->table = t;
    s->batch_size = m->batch_size;
    s->n_left = m->batches;
    s->timeout_ms = m->timeout_ms;
    s->wait.n_samples = m->batch_size;
    s->user.closing = replay_sample_closing;
    table_use(t, &s->user);
    call_set_handler(call, &handler, s);
    call_notify(call);
}

#define REPLAY_SAMPLE_METHODS(METHOD)                                                \
    METHOD(SERVER_STREAM, KEY, "Replay/Sample", replay_sample_request, replay_batch, \
           replay_start_sample)

#define PARLEY_PLACE JOURNAL_PLACE_TABLES
PLACED_TABLE(replay_sample_methods, REPLAY_SAMPLE_METHODS)
