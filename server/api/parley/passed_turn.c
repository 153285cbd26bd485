#include "server/api/parley/passed_turn.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "proto/codec.h"
#include "server/cluster/cluster.h"

/* --- the cancellation --- */

static void on_cancel_message(void *arg, struct call_bytes *bytes)
{
    call_bytes_free(bytes); /* how many turns it cancelled does not matter */
}

static void on_cancel_end(void *arg, const struct error *err, bool is_unsent)
{
    ((struct passed_turn *)arg)->cancel = NULL; /* a failure ends the turn, too */
}

static struct cluster_call *passed_turn_send(struct passed_turn *t, const char *method,
                                             const ProtobufCMessage *request,
                                             const struct outgoing_handler *handler)
{
    const size_t size_bytes = codec_size(request);
    uint8_t *bytes = try_alloc(1, size_bytes + 1);
    const struct call_piece piece = {.data = bytes, .size_bytes = size_bytes};
    const struct cluster_call_start start = {
        .to = &t->to, .principal = t->principal, .method = method, .pieces = &piece, .n_pieces = 1};
    struct cluster_call *call = NULL;

    if (bytes != NULL) {
        (void)codec_encode(request, bytes);
        call = cluster_pass_on(t->cluster, &start, handler, t);
    }
    free(bytes);
    return call;
}

static void passed_turn_send_cancel(struct passed_turn *t)
{
    static const struct outgoing_handler handler = {.message = on_cancel_message,
                                                    .end = on_cancel_end};
    Parley__V1__ConversationsCancelRequest request = PARLEY__V1__CONVERSATIONS_CANCEL_REQUEST__INIT;

    if (t->number == 0 || t->cancel != NULL || t->out == NULL)
        return; /* it is sent once the turn is accepted */
    request.conversation = (char *)(uintptr_t)t->conversation; /* it is only read */
    request.turn = t->number;
    t->cancel = passed_turn_send(t, "/parley.v1.Conversations/Cancel", &request.base, &handler);
    if (t->cancel != NULL)
        cluster_call_read(t->cancel);
}

void passed_turn_cancel(struct passed_turn *t)
{
    t->is_cancelled = true;
    passed_turn_send_cancel(t);
}

/* --- the turn --- */

static void passed_turn_read(struct passed_turn *t)
{
    if (t->is_reading || t->out == NULL || t->held != NULL)
        return;
    t->is_reading = true;
    cluster_call_read(t->out);
}

static void on_turn_message(void *arg, struct call_bytes *bytes)
{
    struct passed_turn *t = arg;

    t->is_reading = false;
    t->has_answer = true;
    t->held = bytes;
    t->notify(t->arg);
}

static void on_turn_end(void *arg, const struct error *err, bool is_unsent)
{
    struct passed_turn *t = arg;

    t->out = NULL;
    t->is_over = true;
    t->err = *err;
    t->is_refused = !t->has_answer && (cluster_has_refused(err, is_unsent) ||
                                       (t->is_repeatable && cluster_has_lost(err)));
    t->notify(t->arg);
}

bool passed_turn_begin(struct passed_turn *t, struct cluster *cluster,
                       const struct journal_peer *to, const char *principal,
                       const Parley__V1__TurnRequest *request, void (*notify)(void *arg), void *arg)
{
    static const struct outgoing_handler handler = {.message = on_turn_message, .end = on_turn_end};

    *t = (struct passed_turn){.cluster = cluster,
                              .to = *to,
                              .conversation = request->conversation,
                              .principal = principal,
                              .is_repeatable = request->turn != 0 || request->resume_from != NULL,
                              .notify = notify,
                              .arg = arg};
    t->out = passed_turn_send(t, "/parley.v1.Conversations/Turn", &request->base, &handler);
    if (t->out == NULL)
        return false;
    passed_turn_read(t);
    return true;
}

bool passed_turn_next(struct passed_turn *t, Parley__V1__TurnEvent **out, struct arena *arena)
{
    ProtobufCMessage *message = NULL;
    enum status rc;

    if (t->held == NULL) {
        passed_turn_read(t);
        return false;
    }
    rc = call_bytes_decode(&message, t->held, &parley__v1__turn_event__descriptor, CODEC_ANY_FIELDS,
                           arena, &t->err);
    call_bytes_free(t->held);
    t->held = NULL;
    if (rc != STATUS_OK) {
        passed_turn_leave(t);
        t->is_over = true;
        return false;
    }
    *out = (Parley__V1__TurnEvent *)message;
    if ((*out)->event_case == PARLEY__V1__TURN_EVENT__EVENT_ACCEPTED)
        t->number = (*out)->accepted->turn;
    if (t->is_cancelled)
        passed_turn_send_cancel(t);
    passed_turn_read(t);
    return true;
}

void passed_turn_leave(struct passed_turn *t)
{
    call_bytes_free(t->held);
    t->held = NULL;
    if (t->out != NULL)
        cluster_call_cancel(t->out);
    if (t->cancel != NULL)
        cluster_call_cancel(t->cancel);
    t->out = t->cancel = NULL;
}
