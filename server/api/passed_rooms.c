#include "server/api/passed_rooms.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "proto/codec.h"

enum { WAITING_MAX_BYTES = 256 << 10, WAITING_EXTRA_BYTES = 64 };

struct waiting_frame {
    struct link link;
    size_t size_bytes;
    uint8_t bytes[];
};

void passed_rooms_init(struct passed_rooms *p, void (*notify)(void *arg), void *arg)
{
    *p = (struct passed_rooms){.notify = notify, .arg = arg};
    list_init(&p->waiting);
}

static struct waiting_frame *passed_rooms_pop(struct passed_rooms *p)
{
    struct link *l = list_pop(&p->waiting);
    struct waiting_frame *frame;

    if (l == NULL)
        return NULL;
    frame = container_of(l, struct waiting_frame, link);
    p->waiting_bytes -= frame->size_bytes + WAITING_EXTRA_BYTES;
    return frame;
}

void passed_rooms_deinit(struct passed_rooms *p)
{
    struct waiting_frame *frame;

    while ((frame = passed_rooms_pop(p)) != NULL)
        free(frame);
    call_bytes_free(p->held);
    if (p->out != NULL)
        cluster_call_cancel(p->out);
}

/* One message at a time. */
static void passed_rooms_flush(struct passed_rooms *p)
{
    struct waiting_frame *frame;
    struct call_piece piece;

    if (p->out == NULL || p->is_sending || (frame = passed_rooms_pop(p)) == NULL)
        return;
    piece = (struct call_piece){.data = frame->bytes, .size_bytes = frame->size_bytes};
    p->is_sending = true;
    cluster_call_send(p->out, &piece, 1);
    free(frame);
}

static void on_rooms_sent(void *arg)
{
    struct passed_rooms *p = arg;

    p->is_sending = false;
    passed_rooms_flush(p);
}

static void on_rooms_message(void *arg, struct call_bytes *bytes)
{
    struct passed_rooms *p = arg;

    p->held = bytes;
    p->notify(p->arg);
}

static void on_rooms_end(void *arg, const struct error *err, bool is_unsent)
{
    struct passed_rooms *p = arg;

    p->out = NULL;
    p->is_over = true;
    p->err = *err;
    if (err->status == STATUS_OK || cluster_has_refused(err, is_unsent))
        (void)error_because(&p->err, STATUS_UNAVAILABLE, REASON_SERVER_DRAINING, NULL,
                            "the parleyd that has the rooms has ended: come again");
    p->notify(p->arg);
}

bool passed_rooms_begin(struct passed_rooms *p, struct cluster *cluster,
                        const struct journal_peer *to, const char *principal)
{
    static const struct outgoing_handler handler = {
        .message = on_rooms_message, .sent = on_rooms_sent, .end = on_rooms_end};
    const struct cluster_call_start start = {
        .to = to, .principal = principal, .method = "/parley.v1.Rooms/Attach"};

    p->out = cluster_pass_on(cluster, &start, &handler, p);
    if (p->out == NULL)
        return false;
    cluster_call_read(p->out);
    passed_rooms_flush(p);
    return true;
}

enum status passed_rooms_send(struct passed_rooms *p, const Parley__V1__RoomsAttachRequest *m,
                              struct error *err)
{
    const size_t size_bytes = codec_size(&m->base);
    struct waiting_frame *frame;

    if (p->waiting_bytes + size_bytes + WAITING_EXTRA_BYTES > WAITING_MAX_BYTES)
        return error_set(err, STATUS_EXHAUSTED, "too many frames wait for another parleyd");
    frame = try_alloc(1, sizeof(*frame) + size_bytes);
    if (frame == NULL)
        return error_no_memory(err, size_bytes, "a frame");
    frame->size_bytes = size_bytes;
    (void)codec_encode(&m->base, frame->bytes);
    p->waiting_bytes += size_bytes + WAITING_EXTRA_BYTES;
    list_push(&p->waiting, &frame->link);
    passed_rooms_flush(p);
    return STATUS_OK;
}

const Parley__V1__RoomsAttachRequest *passed_rooms_take_back(struct passed_rooms *p,
                                                             struct arena *arena)
{
    struct waiting_frame *frame = passed_rooms_pop(p);
    ProtobufCMessage *message = NULL;
    struct error err;

    if (frame == NULL)
        return NULL;
    if (codec_decode(&message, &parley__v1__rooms_attach_request__descriptor, frame->bytes,
                     frame->size_bytes, CODEC_ANY_FIELDS, arena, &err) != STATUS_OK) {
        p->is_over = true;
        p->err = err;
        message = NULL;
    }
    free(frame);
    return (const Parley__V1__RoomsAttachRequest *)message;
}

const Parley__V1__RoomsAttachResponse *passed_rooms_next(struct passed_rooms *p,
                                                         struct arena *arena)
{
    ProtobufCMessage *message = NULL;
    enum status rc;

    if (p->held == NULL)
        return NULL;
    rc = call_bytes_decode(&message, p->held, &parley__v1__rooms_attach_response__descriptor,
                           CODEC_ANY_FIELDS, arena, &p->err);
    call_bytes_free(p->held);
    p->held = NULL;
    if (rc != STATUS_OK) {
        p->is_over = true;
        return NULL;
    }
    if (p->out != NULL)
        cluster_call_read(p->out);
    return (const Parley__V1__RoomsAttachResponse *)message;
}
