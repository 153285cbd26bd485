/* parley.v1.Work: Submit, Wait, Cancel and Report. A Submit that fails cancels the tasks that it
 * has made, but for those with a request id: they are there when it comes again. */
#include <stdlib.h>

#include "base/alloc.h"
#include "parley/v1/work.pb-c.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/placed_call.h"
#include "server/api/parley/work_submission.h"
#include "server/api/parley/work_wire.h"
#include "server/server.h"
#include "server/work/work.h"
#include "server/work/worker.h"

enum { WORK_MAX_SUBMITTED = 65536, WORK_MAX_WAITED = 65536 };

/* --- Submit --- */

struct work_submit_call {
    struct call *call;
    struct work_submission_stream in;
    uint64_t *ids;  /* [n] */
    bool *are_kept; /* [n] they have a request id */
    size_t n, size;
    bool is_finished;
};

static enum status on_work_submitted(struct work_submission_stream *in, struct work_task *t,
                                     uint64_t tag, struct error *err)
{
    struct work_submit_call *s = container_of(in, struct work_submit_call, in);

    if (s->n == WORK_MAX_SUBMITTED)
        return error_field(err, "tasks", "has more than %d, the rest belongs to another call",
                           WORK_MAX_SUBMITTED);
    if (s->n == s->size) {
        size_t size = s->size == 0 ? 64 : 2 * s->size;
        uint64_t *ids = try_realloc(s->ids, size, sizeof(ids[0]));
        bool *are_kept = ids == NULL ? NULL : try_realloc(s->are_kept, size, sizeof(are_kept[0]));

        s->ids = ids != NULL ? ids : s->ids;
        if (are_kept == NULL)
            return error_no_memory(err, size * sizeof(ids[0]), "tasks");
        s->are_kept = are_kept;
        s->size = size;
    }
    s->are_kept[s->n] = t->request_id[0] != '\0';
    s->ids[s->n++] = t->by_id.hash;
    return STATUS_OK;
}

/* Its tasks end and are forgotten. */
static void work_submit_undo(struct work_submit_call *s)
{
    struct work_table *w = call_server(s->call)->work;
    uint32_t principal = call_principal(s->call)->id;
    struct work_task *t;
    struct error err;

    for (size_t i = 0; i < s->n; i++)
        for (unsigned k = 0; k < 2 && !s->are_kept[i]; k++) /* ends it, then forgets it */
            if (work_find(&t, w, principal, s->ids[i], &err) == STATUS_OK)
                work_cancel(t);
    s->n = 0;
}

static void on_work_submit_message(struct call *call, void *state, const ProtobufCMessage *message,
                                   struct arena *arena)
{
    struct work_submit_call *s = state;
    Parley__V1__WorkSubmitResponse response = PARLEY__V1__WORK_SUBMIT_RESPONSE__INIT;
    struct error err;
    enum status rc;

    if (s->is_finished)
        return;
    if (message != NULL) {
        rc = work_submission_take(&s->in, (const Parley__V1__WorkSubmitRequest *)message, &err);
        if (rc == STATUS_OK) {
            call_read(call);
            return;
        }
    } else {
        rc = work_submission_end(&s->in, &err);
    }
    s->is_finished = true;
    if (rc != STATUS_OK) {
        work_submit_undo(s);
        call_finish(call, &err);
        return;
    }
    response.tasks = s->ids;
    response.n_tasks = s->n;
    call_reply(call, &response.base);
}

static void on_work_submit_close(struct call *call, void *state, enum status why)
{
    struct work_submit_call *s = state;

    if (why != STATUS_OK)
        work_submit_undo(s);
    work_submission_close(&s->in);
    free(s->ids);
    free(s->are_kept);
    free(s);
}

static void work_submit_start(struct call *call)
{
    static const struct call_handler handler = {.message = on_work_submit_message,
                                                .on_close = on_work_submit_close};
    struct server *server = call_server(call);
    struct work_submit_call *s;
    struct error err;

    if (server->state >= SERVER_DRAINING) {
        (void)error_draining(&err);
        call_finish(call, &err);
        return;
    }
    s = call_state(call, sizeof(*s));
    if (s == NULL)
        return;
    s->call = call;
    work_submission_open(&s->in, call, server, on_work_submitted);
    call_set_handler(call, &handler, s);
    call_read(call);
}

/* --- Wait --- */

struct work_wait_call {
    struct call *call;
    struct work_results results;
    Parley__V1__WorkUntil until;
    bool is_finished;
};

static void on_work_wait_ready(struct work_wait *wait)
{
    struct work_wait_call *w =
        container_of(container_of(wait, struct work_results, wait), struct work_wait_call, results);

    if (!w->is_finished)
        call_notify(w->call);
}

static bool work_wait_is_over(const struct work_wait_call *w)
{
    const struct work_results *r = &w->results;

    if (r->rest.left_bytes > 0)
        return false;
    return (r->wait.n_pending == 0 && work_wait_next(&r->wait) == NULL) ||
           (w->until == PARLEY__V1__WORK_UNTIL__WORK_UNTIL_ANY && r->n_sent > 0) ||
           (w->until == PARLEY__V1__WORK_UNTIL__WORK_UNTIL_FIRST_ERROR && r->has_failed);
}

static void on_work_wait_write_ready(struct call *call, void *state)
{
    struct work_wait_call *w = state;
    bool is_all = w->until == PARLEY__V1__WORK_UNTIL__WORK_UNTIL_ALL ||
                  w->until == PARLEY__V1__WORK_UNTIL__WORK_UNTIL_UNSPECIFIED;

    if (w->is_finished)
        return;
    if (work_wait_is_over(w)) {
        w->is_finished = true;
        call_finish(call, NULL);
    } else {
        (void)work_results_write(&w->results, call, is_all ? WORK_WIRE_MAX_TASKS : 1);
    }
}

static void on_work_wait_close(struct call *call, void *state, enum status why)
{
    struct work_wait_call *w = state;

    w->is_finished = true;
    work_wait_close(&w->results.wait, false);
    free(w);
}

static enum status work_wait_fill(struct work_wait_call *w, const Parley__V1__WorkWaitRequest *m,
                                  struct error *err)
{
    struct work_task *t;

    if (m->n_tasks == 0 || m->n_tasks > WORK_MAX_WAITED)
        return error_field(err, "tasks", "has %zu, it has 1 to %d", m->n_tasks, WORK_MAX_WAITED);
    if (m->until > PARLEY__V1__WORK_UNTIL__WORK_UNTIL_FIRST_ERROR)
        return error_field(err, "until", "is %d, which is none", (int)m->until);
    w->until = m->until;
    for (size_t i = 0; i < m->n_tasks; i++)
        if (work_find(&t, call_server(w->call)->work, call_principal(w->call)->id, m->tasks[i],
                      err) != STATUS_OK ||
            work_wait_add(&w->results.wait, t, 0, err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

static void work_wait_start(struct call *call, const Parley__V1__WorkWaitRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = on_work_wait_write_ready,
                                                .on_close = on_work_wait_close};
    struct work_wait_call *w = call_state(call, sizeof(*w));
    struct error err;

    if (w == NULL)
        return;
    w->call = call;
    w->is_finished = true; /* nothing is to be told yet */
    work_wait_init(&w->results.wait, on_work_wait_ready);
    if (work_wait_fill(w, request, &err) != STATUS_OK) {
        work_wait_close(&w->results.wait, false);
        free(w);
        call_finish(call, &err);
        return;
    }
    w->is_finished = false;
    call_set_handler(call, &handler, w);
    call_notify(call);
}

/* --- Cancel, Report --- */

static enum status work_cancel_start(struct call *call, const Parley__V1__WorkCancelRequest *m,
                                     Parley__V1__WorkCancelResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    struct work_task *t;

    for (size_t i = 0; i < m->n_tasks; i++) /* one that is not there is forgotten already */
        if (work_find(&t, server->work, call_principal(call)->id, m->tasks[i], err) == STATUS_OK)
            work_cancel(t);
    return STATUS_OK;
}

static enum status work_report_start(struct call *call, const Parley__V1__WorkReportRequest *m,
                                     Parley__V1__WorkReportResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    const struct work_report report = {.name = m->worker,
                                       .principal = call_principal(call)->id,
                                       .signal = (int)(m->signal & 0xff),
                                       .exit_code = (int)(m->exit_code & 0xff),
                                       .tail = m->stderr_tail,
                                       .tells_begun = m->tells_begun != 0,
                                       .begun = m->begun,
                                       .n_begun = m->n_begun};

    return work_report(server->work, &report, err);
}

#define WORK_SERVICE_METHODS(METHOD)                                                          \
    METHOD(CLIENT_STREAM, KEY, "Work/Submit", work_submit_request, work_submit_response,      \
           work_submit_start)                                                                 \
    METHOD(SERVER_STREAM, KEY, "Work/Wait", work_wait_request, work_results, work_wait_start) \
    METHOD(ANSWER, KEY, "Work/Cancel", work_cancel_request, work_cancel_response,             \
           work_cancel_start)                                                                 \
    METHOD(ANSWER, KEY, "Work/Report", work_report_request, work_report_response, work_report_start)

#define PARLEY_PLACE JOURNAL_PLACE_WORK
PLACED_TABLE(work_service_methods, WORK_SERVICE_METHODS)
