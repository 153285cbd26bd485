/* parley.v1.Work, Map: tasks and their results on one stream. No more tasks are read while many are
 * under way; what is not done when the stream ends is cancelled. */
#include <stdlib.h>

#include "parley/v1/work.pb-c.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/placed_call.h"
#include "server/api/parley/work_submission.h"
#include "server/api/parley/work_wire.h"
#include "server/server.h"

enum { WORK_MAP_TASKS = 8192, WORK_MAP_BYTES = 64 << 20 };

struct work_map_call {
    struct call *call;
    struct work_submission_stream in;
    struct work_results results;
    bool is_read; /* a message was asked for */
    bool has_ended, is_draining, is_finished;
};

static struct work_map_call *work_map_of(struct work_submission_stream *in)
{
    return container_of(in, struct work_map_call, in);
}

static void on_work_map_ready(struct work_wait *wait)
{
    struct work_map_call *m =
        container_of(container_of(wait, struct work_results, wait), struct work_map_call, results);

    if (!m->is_finished)
        call_notify(m->call);
}

static enum status on_work_map_submitted(struct work_submission_stream *in, struct work_task *t,
                                         uint64_t tag, struct error *err)
{
    struct work_map_call *m = work_map_of(in);

    if (work_wait_add(&m->results.wait, t, tag, err) != STATUS_OK) {
        t->is_forgotten = true;
        work_cancel(t);
        return err->status;
    }
    return STATUS_OK;
}

static void work_map_finish(struct work_map_call *m, const struct error *err)
{
    m->is_finished = true;
    call_finish(m->call, err);
}

/* Asks for the next tasks if there is room for them. */
static void work_map_read(struct work_map_call *m)
{
    const struct work_wait *wait = &m->results.wait;
    size_t n_bytes = 0, n = 0;

    if (m->is_read || m->has_ended || m->is_finished || (m->is_draining && !m->in.is_open))
        return;
    for (struct link *l = list_first(&wait->ready); l != NULL && n < WORK_MAP_TASKS;
         l = list_next(&wait->ready, l), n++)
        n_bytes += container_of(l, struct work_wait_entry, of_wait)->task->result.size_bytes;
    if (!m->in.is_open && (n + wait->n_pending >= WORK_MAP_TASKS || n_bytes >= WORK_MAP_BYTES))
        return;
    m->is_read = true;
    call_read(m->call);
}

static void work_map_cancel(struct work_map_call *m, uint64_t tag)
{
    struct link *l, *next;

    for (l = list_first(&m->results.wait.pending); l != NULL; l = next) {
        struct work_wait_entry *e = container_of(l, struct work_wait_entry, of_wait);

        next = list_next(&m->results.wait.pending, l);
        if (e->tag == tag) {
            work_cancel(e->task);
            return;
        }
    }
}

static void on_work_map_message(struct call *call, void *state, const ProtobufCMessage *message,
                                struct arena *arena)
{
    struct work_map_call *m = state;
    const Parley__V1__WorkSubmitRequest *request = (const Parley__V1__WorkSubmitRequest *)message;
    struct error err;
    enum status rc;

    if (m->is_finished)
        return;
    m->is_read = false;
    if (request == NULL) {
        m->has_ended = true;
        rc = work_submission_end(&m->in, &err);
    } else {
        for (size_t i = 0; i < request->n_cancel; i++)
            work_map_cancel(m, request->cancel[i]);
        rc = request->n_cancel > 0 && request->n_tasks == 0 && request->rest.len == 0
                 ? STATUS_OK
                 : work_submission_take(&m->in, request, &err);
    }
    if (rc != STATUS_OK) {
        work_map_finish(m, &err);
        return;
    }
    work_map_read(m);
    call_notify(call);
}

static void work_map_stop(struct work_map_call *m)
{
    struct error err;

    (void)error_draining(&err);
    work_map_finish(m, &err);
}

static void on_work_map_write_ready(struct call *call, void *state)
{
    struct work_map_call *m = state;
    const struct work_results *r = &m->results;

    if (m->is_finished)
        return;
    if (work_results_write(&m->results, m->call, WORK_WIRE_MAX_TASKS))
        work_map_read(m);
    else if (m->has_ended && r->wait.n_pending == 0)
        work_map_finish(m, NULL);
    else if (m->is_draining && r->wait.n_pending == 0 && !m->in.is_open)
        work_map_stop(m);
}

/* What is under way is computed to its end. */
static void on_work_map_drain(struct call *call, void *state)
{
    struct work_map_call *m = state;

    m->is_draining = true;
    call_notify(call);
}

static void on_work_map_close(struct call *call, void *state, enum status why)
{
    struct work_map_call *m = state;

    m->is_finished = true;
    work_wait_close(&m->results.wait, true);
    work_submission_close(&m->in);
    free(m);
}

static void work_map_start(struct call *call)
{
    static const struct call_handler handler = {.on_write_ready = on_work_map_write_ready,
                                                .message = on_work_map_message,
                                                .drain = on_work_map_drain,
                                                .on_close = on_work_map_close};
    struct server *server = call_server(call);
    struct work_map_call *m = call_state(call, sizeof(*m));

    if (m == NULL)
        return;
    m->call = call;
    m->results.forgets = true;
    work_wait_init(&m->results.wait, on_work_map_ready);
    work_submission_open(&m->in, call, server, on_work_map_submitted);
    call_set_handler(call, &handler, m);
    work_map_read(m);
}

#define WORK_MAP_METHODS(METHOD) \
    METHOD(BIDI, KEY, "Work/Map", work_submit_request, work_results, work_map_start)

#define PARLEY_PLACE JOURNAL_PLACE_WORK
PLACED_TABLE(work_map_methods, WORK_MAP_METHODS)
