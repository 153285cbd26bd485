#include "server/api/parley/work_submission.h"

#include <string.h>

#include "server/api/parley/work_wire.h"
#include "server/call/call.h"
#include "server/server.h"

void work_submission_open(struct work_submission_stream *in, struct call *call,
                          struct server *server,
                          enum status (*submitted)(struct work_submission_stream *in,
                                                   struct work_task *t, uint64_t tag,
                                                   struct error *err))
{
    in->work = server->work;
    in->call = call;
    in->principal = call_principal(call)->id;
    in->submitted = submitted;
}

void work_submission_close(struct work_submission_stream *in)
{
    work_bytes_free(&in->bytes, in->work);
}

/* The payload is whole. */
static enum status work_submission_submit(struct work_submission_stream *in, struct error *err)
{
    struct work_task *t;

    in->is_open = false;
    if (work_submit(&t, in->work, &in->submission, &in->bytes, err) != STATUS_OK)
        return err->status;
    return in->submitted(in, t, in->tag, err);
}

static enum status work_submission_begin(struct work_submission_stream *in,
                                         const Parley__V1__WorkTask *m, struct error *err)
{
    uint64_t now_us = env_now_us(call_server(in->call)->env);

    if (strlen(m->function) >= sizeof(in->function) ||
        strlen(m->request_id) >= sizeof(in->request_id))
        return error_field(err, "function",
                           "or request_id is too long (at most 127 and 128 bytes)");
    if (work_check_function(in->work, in->principal, m->function, err) != STATUS_OK)
        return err->status; /* before its payload comes */
    memcpy(in->function, m->function, strlen(m->function) + 1);
    memcpy(in->request_id, m->request_id, strlen(m->request_id) + 1);
    in->tag = m->tag;
    in->submission = (struct work_submission){
        .principal = in->principal,
        .function = in->function,
        .request_id = in->request_id,
        .n_retries = m->retries,
        .deadline_us = m->timeout_ms == 0 ? 0 : now_us + (uint64_t)m->timeout_ms * 1000,
    };
    if (work_wire_begin(&in->bytes, in->work, in->principal, &m->payload, m->size_bytes, err) !=
        STATUS_OK)
        return err->status;
    in->is_open = true;
    return work_bytes_is_whole(&in->bytes) ? work_submission_submit(in, err) : STATUS_OK;
}

enum status work_submission_take(struct work_submission_stream *in,
                                 const Parley__V1__WorkSubmitRequest *m, struct error *err)
{
    if (in->is_open && (m->n_tasks > 0 || m->rest.len == 0))
        return error_field(err, "rest", "is missing, the payload of the task before is not whole");
    if (!in->is_open && m->rest.len > 0)
        return error_field(err, "rest", "belongs to no task");
    if (in->is_open) {
        if (work_bytes_append(&in->bytes, m->rest.data, m->rest.len, err) != STATUS_OK)
            return err->status;
        return work_bytes_is_whole(&in->bytes) ? work_submission_submit(in, err) : STATUS_OK;
    }
    for (size_t i = 0; i < m->n_tasks; i++) {
        if (in->is_open)
            return error_field(err, "tasks",
                               "has one behind a task whose payload is not whole, which is last");
        if (work_submission_begin(in, m->tasks[i], err) != STATUS_OK)
            return err->status;
    }
    return STATUS_OK;
}

enum status work_submission_end(const struct work_submission_stream *in, struct error *err)
{
    if (in->is_open)
        return error_field(err, "rest", "is missing, the payload of the task before is not whole");
    return STATUS_OK;
}
