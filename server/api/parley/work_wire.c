#include "server/api/parley/work_wire.h"

#include <string.h>

#include "server/call/call.h"
#include "server/call/error_details.h"

void work_wire_payload(ProtobufCBinaryData *payload, uint64_t *size_bytes,
                       struct work_wire_rest *rest, const struct work_bytes *from,
                       size_t *room_bytes)
{
    size_t n = from->size_bytes < WORK_WIRE_PART_BYTES ? from->size_bytes : WORK_WIRE_PART_BYTES;

    payload->data = from->data;
    payload->len = n;
    *size_bytes = n < from->size_bytes ? from->size_bytes : 0;
    *rest = (struct work_wire_rest){0};
    if (n < from->size_bytes)
        *rest = (struct work_wire_rest){from->data + n, from->size_bytes - n};
    *room_bytes -= n < *room_bytes ? n : *room_bytes;
}

void work_wire_rest(ProtobufCBinaryData *out, struct work_wire_rest *rest)
{
    size_t n = rest->left_bytes < WORK_WIRE_PART_BYTES ? rest->left_bytes : WORK_WIRE_PART_BYTES;

    out->data = (uint8_t *)(uintptr_t)rest->at;
    out->len = n;
    rest->at += n;
    rest->left_bytes -= n;
}

enum status work_wire_begin(struct work_bytes *out, struct work_table *w, uint32_t principal,
                            const ProtobufCBinaryData *payload, uint64_t size_bytes,
                            struct error *err)
{
    if (size_bytes != 0 && size_bytes <= payload->len)
        return error_field(err, "size_bytes",
                           "is %llu, it is set where more than this message's %zu bytes come",
                           (unsigned long long)size_bytes, payload->len);
    if (work_bytes_begin(out, w, principal, size_bytes != 0 ? size_bytes : payload->len, err) !=
        STATUS_OK)
        return err->status;
    return work_bytes_append(out, payload->data, payload->len, err); /* it has room */
}

/* --- results --- */

struct work_result_parts {
    Parley__V1__WorkResult result;
    Parley__V1__ErrorDetail error;
    Parley__V1__WorkException exception;
    Parley__V1__WorkLoss loss;
};

static char *work_text(const char *text)
{
    return (char *)(uintptr_t)text; /* encoded, not changed */
}

static void work_wire_failure(struct work_result_parts *p, const struct work_failure *f)
{
    error_details_fill(&p->error, &f->err);
    p->result.error = &p->error;
    if (f->is_exception) {
        parley__v1__work_exception__init(&p->exception);
        p->exception.type = work_text(f->type);
        p->exception.message = work_text(f->message);
        p->exception.trace = work_text(f->trace);
        p->result.exception = &p->exception;
    }
    if (f->is_loss) {
        parley__v1__work_loss__init(&p->loss);
        p->loss.signal = (uint32_t)f->signal;
        p->loss.exit_code = (uint32_t)f->exit_code;
        p->loss.stderr_tail = work_text(f->tail);
        p->result.loss = &p->loss;
    }
}

static size_t work_failure_size(const struct work_failure *f)
{
    return f == NULL
               ? 0
               : strlen(f->type) + strlen(f->message) + strlen(f->trace) + strlen(f->tail) + 300;
}

static void work_results_taken(struct work_results *r)
{
    struct work_wait_entry *e = work_wait_next(&r->wait);

    r->n_sent++;
    r->has_failed = r->has_failed || e->task->failure != NULL;
    work_wait_taken(e, r->forgets);
}

/* Fills the messages with what is ready. Returns how many. */
static size_t work_results_fill(struct work_results *r, struct work_result_parts *parts,
                                Parley__V1__WorkResult **list, size_t max)
{
    size_t room_bytes = WORK_WIRE_PART_BYTES, n = 0;
    struct link *l = list_first(&r->wait.ready);

    for (; l != NULL && n < max && room_bytes > 0 && r->rest.left_bytes == 0;
         l = list_next(&r->wait.ready, l)) {
        const struct work_wait_entry *e = container_of(l, struct work_wait_entry, of_wait);
        struct work_result_parts *p = &parts[n];
        size_t size = work_failure_size(e->task->failure);

        parley__v1__work_result__init(&p->result);
        p->result.task = e->task->by_id.hash;
        p->result.tag = e->tag;
        work_wire_payload(&p->result.payload, &p->result.size_bytes, &r->rest, &e->task->result,
                          &room_bytes);
        if (e->task->failure != NULL)
            work_wire_failure(p, e->task->failure);
        room_bytes -= size < room_bytes ? size : room_bytes;
        list[n++] = &p->result;
    }
    return n;
}

bool work_results_write(struct work_results *r, struct call *call, size_t max)
{
    Parley__V1__WorkResults message = PARLEY__V1__WORK_RESULTS__INIT;
    struct work_result_parts *parts;
    struct arena arena;
    size_t n = 0;

    if (r->rest.left_bytes > 0) {
        work_wire_rest(&message.rest, &r->rest);
        call_write(call, &message.base, false);
        if (r->rest.left_bytes == 0)
            work_results_taken(r);
        return true;
    }
    if (max > WORK_WIRE_MAX_TASKS)
        max = WORK_WIRE_MAX_TASKS;
    if (work_wait_next(&r->wait) == NULL || max == 0)
        return false;
    arena_init(&arena, WORK_WIRE_ARENA_BYTES);
    parts = arena_alloc(&arena, max, sizeof(parts[0]));
    message.results = arena_alloc(&arena, max, sizeof(message.results[0]));
    if (parts == NULL || message.results == NULL) {
        struct error err;

        (void)error_no_memory(&err, max * sizeof(parts[0]), "results");
        call_finish(call, &err);
    } else {
        message.n_results = n = work_results_fill(r, parts, message.results, max);
        call_write(call, &message.base, false); /* encoded at once */
    }
    for (size_t i = 0; i + (r->rest.left_bytes > 0) < n; i++)
        work_results_taken(r);
    arena_deinit(&arena);
    return true;
}
