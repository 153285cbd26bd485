/* Happy path: the request, or each message of the client's stream, goes to the other daemon as it
 * is, and each message of the answer comes back; a message is asked for when the one before is out.
 *
 * Failure: the other daemon's status is the call's, unless the call may begin here after all. */
#include "server/api/parley/passed_call.h"

#include <stdlib.h>
#include <string.h>

#include "parley/v1/conversations.pb-c.h"

#include "base/alloc.h"
#include "proto/codec.h"
#include "server/call/transport.h"
#include "server/cluster/cluster.h"
#include "server/server.h"

/* In the call's arena. */
struct passed_call {
    struct call *call;
    struct cluster_call *out; /* NULL: it is over */
    struct call_bytes *held;  /* a message that the call cannot take yet; NULL: none */
    bool has_answer;          /* a message has come */
    bool is_reading;
    bool is_over; /* the other daemon has ended its stream well */
    void (*here)(struct call *call, void *arg);
    void *arg;
};

/* Whether the same request, sent again, does what it did before and nothing else. */
static bool passed_call_is_repeatable(const struct call *call)
{
    const ProtobufCMessageDescriptor *type = call->request->descriptor;
    const Parley__V1__TurnRequest *turn = call_request(call);
    const Parley__V1__ConversationsForkRequest *fork = call_request(call);
    const Parley__V1__ConversationsRewindRequest *rewind = call_request(call);

    if (type == &parley__v1__turn_request__descriptor)
        return turn->turn != 0 || turn->resume_from != NULL;
    if (type == &parley__v1__conversations_fork_request__descriptor)
        return fork->request_id[0] != '\0';
    if (type == &parley__v1__conversations_rewind_request__descriptor)
        return rewind->generation != 0;
    return type == &parley__v1__conversations_get_request__descriptor ||
           type == &parley__v1__conversations_open_request__descriptor ||
           type == &parley__v1__conversations_update_request__descriptor ||
           type == &parley__v1__conversations_cancel_request__descriptor;
}

/* A message of many pieces is joined. */
static void passed_call_write(struct passed_call *p)
{
    struct call_bytes *bytes = p->held;
    struct call_piece piece = {.size_bytes = bytes->size_bytes};
    struct error err;
    char *joined = NULL;
    size_t at = 0;

    p->held = NULL;
    if (bytes->n_pieces == 1) {
        piece.data = bytes->pieces[0].iov_base;
    } else {
        joined = try_alloc(1, bytes->size_bytes + 1);
        for (size_t i = 0; joined != NULL && i < bytes->n_pieces; i++) {
            memcpy(joined + at, bytes->pieces[i].iov_base, bytes->pieces[i].iov_len);
            at += bytes->pieces[i].iov_len;
        }
        piece.data = joined;
    }
    if (piece.data != NULL) {
        call_write_pieces(p->call, &piece, 1, false);
    } else {
        (void)error_no_memory(&err, bytes->size_bytes, "a message of another parleyd");
        call_finish(p->call, &err);
    }
    free(joined);
    call_bytes_free(bytes);
}

/* A unary call's message goes with the status, which may be a failure. */
static void passed_call_go_on(struct passed_call *p)
{
    const enum call_kind kind = p->call->method->kind;
    const bool is_unary = kind == CALL_UNARY || kind == CALL_CLIENT_STREAM;

    if (p->held != NULL && (!is_unary || p->is_over)) {
        if (!call_is_write_ready(p->call))
            return;
        passed_call_write(p);
        if (is_unary)
            call_finish(p->call, NULL);
    } else if (p->is_over) {
        call_finish(p->call, NULL);
    } else if (!p->is_reading && p->out != NULL) {
        p->is_reading = true;
        cluster_call_read(p->out);
    }
}

static void passed_call_write_ready(struct call *call, void *state)
{
    passed_call_go_on(state);
}

static void on_passed_message(void *arg, struct call_bytes *bytes)
{
    struct passed_call *p = arg;

    p->has_answer = true;
    p->is_reading = false;
    p->held = bytes;
    passed_call_go_on(p);
}

/* --- what a client streams --- */

static void passed_call_fail(struct passed_call *p, const struct error *err)
{
    if (p->out != NULL)
        cluster_call_cancel(p->out);
    call_bytes_free(p->held);
    p->out = NULL;
    p->held = NULL;
    call_finish(p->call, err);
}

static struct call_piece *passed_call_pieces(const struct call_bytes *bytes)
{
    struct call_piece *pieces = try_alloc(bytes->n_pieces + 1, sizeof(*pieces));

    for (size_t i = 0; pieces != NULL && i < bytes->n_pieces; i++)
        pieces[i] = (struct call_piece){.data = bytes->pieces[i].iov_base,
                                        .size_bytes = bytes->pieces[i].iov_len};
    return pieces;
}

static void passed_call_bytes(struct call *call, void *state, struct call_bytes *bytes)
{
    struct passed_call *p = state;
    struct call_piece *pieces;
    struct error err;

    if (bytes == NULL || p->out == NULL) {
        if (p->out != NULL)
            cluster_call_half_close(p->out);
        call_bytes_free(bytes);
        return;
    }
    pieces = passed_call_pieces(bytes);
    if (pieces != NULL) {
        cluster_call_send(p->out, pieces, bytes->n_pieces);
    } else {
        (void)error_no_memory(&err, bytes->n_pieces * sizeof(*pieces), "a message");
        passed_call_fail(p, &err);
    }
    call_bytes_free(bytes);
    free(pieces);
}

static void passed_call_drain(struct call *call, void *state)
{
    struct error err;

    (void)error_draining(&err);
    passed_call_fail(state, &err);
}

static void on_passed_sent(void *arg)
{
    call_read_behind(((struct passed_call *)arg)->call);
}

/* --- the end --- */

/* What the client has streamed is gone, so that it has to begin again itself. */
static bool passed_call_may_begin_here(const struct passed_call *p, const struct error *err,
                                       bool is_unsent)
{
    if (p->has_answer || call_method_is_client_stream(p->call->method))
        return false;
    return cluster_has_refused(err, is_unsent) ||
           (cluster_has_lost(err) && passed_call_is_repeatable(p->call));
}

static void on_passed_end(void *arg, const struct error *err, bool is_unsent)
{
    struct passed_call *p = arg;
    struct call *call = p->call;
    struct error why = *err;
    const bool may_begin_here = passed_call_may_begin_here(p, err, is_unsent);

    p->out = NULL;
    if (cluster_has_refused(err, false))
        why.status = STATUS_UNAVAILABLE; /* its client is to ask again */
    if (err->status == STATUS_OK) {
        p->is_over = true;
        passed_call_go_on(p);
    } else if (may_begin_here) {
        call_clear_handler(call);
        p->here(call, p->arg);
    } else {
        call_finish(call, &why);
    }
}

static void passed_call_on_close(struct call *call, void *state, enum status why)
{
    struct passed_call *p = state;

    call_bytes_free(p->held);
    if (p->out != NULL)
        cluster_call_cancel(p->out);
}

bool passed_call_begin(struct call *call, const struct journal_peer *to, bool ends_on_drain,
                       void (*here)(struct call *call, void *arg), void *arg)
{
    static const struct call_handler handler = {.on_write_ready = passed_call_write_ready,
                                                .on_close = passed_call_on_close};
    static const struct call_handler streaming = {.on_write_ready = passed_call_write_ready,
                                                  .bytes = passed_call_bytes,
                                                  .drain = passed_call_drain,
                                                  .on_close = passed_call_on_close};
    static const struct outgoing_handler outgoing = {
        .message = on_passed_message, .sent = on_passed_sent, .end = on_passed_end};
    const bool is_streaming = call_method_is_client_stream(call->method);
    const size_t size_bytes = is_streaming ? 0 : codec_size(call->request);
    struct passed_call *p = arena_alloc(call_arena(call), 1, sizeof(*p));
    uint8_t *bytes = try_alloc(1, size_bytes + 1);
    const struct call_piece piece = {.data = bytes, .size_bytes = size_bytes};
    const struct cluster_call_start start = {.to = to,
                                             .principal = call_principal(call)->name,
                                             .method = call->method->path,
                                             .deadline_us = call_deadline_us(call),
                                             .pieces = is_streaming ? NULL : &piece,
                                             .n_pieces = !is_streaming};

    if (p != NULL && bytes != NULL) {
        if (!is_streaming)
            (void)codec_encode(call->request, bytes);
        *p = (struct passed_call){.call = call, .here = here, .arg = arg};
        p->out = cluster_pass_on(call_server(call)->cluster, &start, &outgoing, p);
    }
    free(bytes);
    if (p == NULL || p->out == NULL)
        return false;
    call_set_handler(call, is_streaming || ends_on_drain ? &streaming : &handler, p);
    if (is_streaming)
        call_read(call);
    passed_call_go_on(p);
    return true;
}
