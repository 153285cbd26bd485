#include "batching/requests.h"

#include <assert.h>

#include "batching/yield.h"

void flow_init(struct flow *f)
{
    list_init(&f->queued);
    f->head = NULL;
}

void batch_request_count_cost(struct batcher *b, const struct batch_request *request, size_t cost)
{
    b->waiting_cost += cost;
    waiting_tenant(&b->waiting, request)->waiting_cost += cost;
}

void batch_request_wait(struct batcher *b, struct batch_request *request, bool is_preempted)
{
    request->state = REQUEST_WAITING;
    request->cost = b->agent.cost(b->agent.self, request->row);
    batch_request_count_cost(b, request, request->cost);
    deadlines_add(&b->deadlines, request);
    if (is_preempted)
        waiting_add_preempted(&b->waiting, request);
    else
        waiting_add(&b->waiting, request);
}

void batch_request_take_out(struct batcher *b, struct batch_request *request)
{
    assert(!link_is_on(&request->in_step));
    assert(request->state >= REQUEST_FLOW_QUEUED && request->state <= REQUEST_RUNNING);
    switch (request->state) {
    case REQUEST_FLOW_QUEUED:
        list_remove(&request->link);
        b->n_flow_queued--;
        waiting_tenant(&b->waiting, request)->n_flow_queued--;
        break;
    case REQUEST_WAITING:
        if (request->is_chosen)
            b->n_admitted--; /* no other request takes its place in the batch */
        waiting_remove(&b->waiting, request);
        if (b->n_admitted > b->waiting.n_queued)
            b->n_admitted = b->waiting.n_queued;
        break;
    case REQUEST_RUNNING:
        list_remove(&request->link);
        b->n_running--;
        yield_forget(b, request);
        return;
    case REQUEST_NEW:
    case REQUEST_ENDING:
    case REQUEST_SETTLED:
        break;
    }
    batch_request_count_cost(b, request, (size_t)0 - request->cost);
    deadlines_remove(&b->deadlines, request);
}

/* The weight of a new request in the smoothed time of its tenant's. */
static const double run_weight = 0.125;

static void batch_request_leave(struct batcher *b, struct batch_request *request)
{
    struct tenant *t = waiting_tenant(&b->waiting, request);
    const uint64_t now_us = now_of(b);
    const double us = (double)(now_us - request->arrival_us);

    if (request->n_steps > 0)
        t->run_us += t->run_us > 0 ? run_weight * (us - t->run_us) : us;
    waiting_leave(&b->waiting, t, now_us);
}

void batch_request_end(struct batcher *b, struct batch_request *request)
{
    if (request->n_steps > 0)
        retry_learn(&b->retry, request->first_step_us, now_of(b));
    if (link_is_on(&request->to_notify))
        list_remove(&request->to_notify);
    if (request->state != REQUEST_FLOW_QUEUED)
        batch_request_leave(b, request);
    request->state = REQUEST_ENDING;
    list_push(&b->ending, &request->link);
    b->n_ending++;
}

void batch_request_end_closing(struct batcher *b, struct batch_request *request)
{
    batch_request_take_out(b, request);
    (void)error_because(&request->row->err, STATUS_UNAVAILABLE, REASON_MODEL_NOT_READY, NULL,
                        "the agent is being closed");
    batch_request_end(b, request);
}

void batch_request_end_cancelled(struct batcher *b, struct batch_request *request)
{
    batch_request_take_out(b, request);
    (void)error_set(&request->row->err, STATUS_CANCELLED, "cancelled");
    batch_request_end(b, request);
}

void batch_request_end_overdue(struct batcher *b, struct batch_request *request)
{
    batch_request_take_out(b, request);
    if (request->n_steps == 0)
        (void)error_set(&request->row->err, STATUS_DEADLINE,
                        "the deadline passed while the request was waiting");
    else
        (void)error_set(&request->row->err, STATUS_DEADLINE, "the deadline passed after %u steps",
                        request->n_steps);
    batch_request_end(b, request);
}

void batch_request_end_missed(struct batcher *b, struct batch_request *request, size_t n)
{
    batch_request_take_out(b, request);
    (void)error_because(&request->row->err, STATUS_ABORTED, REASON_BATCH_INCOMPLETE, NULL,
                        "%zu of %zu requests of the fixed batch arrived within %llu us", n,
                        b->config.max_rows, (unsigned long long)b->config.max_delay_us);
    batch_request_end(b, request);
}

void batch_request_end_row(struct batcher *b, struct batch_request *request)
{
    struct row *row = request->row;

    batch_request_take_out(b, request);
    if (row->outcome == ROW_DONE)
        row->err = (struct error){0};
    else if (row->err.status == STATUS_OK)
        (void)error_set(&row->err, STATUS_INTERNAL, "the agent failed without a reason");
    batch_request_end(b, request);
}
