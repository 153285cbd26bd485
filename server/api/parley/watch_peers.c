/* Happy path: each peer tells what it alone has, then SYNCED, and then its events. One message of a
 * peer is read ahead; the next one waits there, and a watcher that is too slow is told LOST.
 *
 * Failure: if a peer ends, or another daemon joins, the watch is over, and the client begins it
 * anew: its snapshot then has what was missed. */
#include "server/api/parley/watch_peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "proto/codec.h"
#include "server/conversation/watch.h"

#define PEER_MAX_BYTES ((size_t)4 << 20)

struct watch_peer {
    struct watch_peers *of;
    struct cluster_call *out;             /* NULL: it has ended */
    struct arena arena;                   /* of event */
    Parley__V1__ConversationEvent *event; /* the message that has come; NULL: none */
    bool is_told;                         /* event was returned, and the next one may come */
    bool has_begun, is_resumed, is_synced;
    char id[JOURNAL_DAEMON_CHARS];
    char token[WATCH_TOKEN_CHARS]; /* of the last message that was returned */
};

static void watch_peers_end(struct watch_peers *p, const struct error *err)
{
    if (p->is_over)
        return;
    p->is_over = true;
    p->err = *err;
    p->notify(p->arg);
}

static void watch_peer_note(struct watch_peer *peer)
{
    (void)snprintf(peer->token, sizeof(peer->token), "%s", peer->event->resume_token);
}

/* Drops what was told, and asks for more. */
static void watch_peer_read(struct watch_peer *peer)
{
    arena_deinit(&peer->arena);
    peer->event = NULL;
    peer->is_told = false;
    if (peer->out != NULL)
        cluster_call_read(peer->out);
}

static void on_peer_message(void *arg, struct call_bytes *bytes)
{
    struct watch_peer *peer = arg;
    ProtobufCMessage *message = NULL;
    struct error err;
    const enum status rc =
        call_bytes_decode(&message, bytes, &parley__v1__conversation_event__descriptor,
                          CODEC_ANY_FIELDS, &peer->arena, &err);

    call_bytes_free(bytes);
    if (rc != STATUS_OK) {
        watch_peers_end(peer->of, &err);
        return;
    }
    peer->event = (Parley__V1__ConversationEvent *)message;
    if (!peer->has_begun)
        watch_peer_note(peer);
    if (!peer->is_synced &&
        peer->event->kind == PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_SYNCED) {
        peer->is_synced = true;
        peer->is_resumed =
            !peer->has_begun && strcmp(peer->event->reason, WATCH_PEERS_RESUMED) == 0;
        watch_peer_note(peer);
        watch_peer_read(peer);
    }
    peer->has_begun = true;
    peer->of->notify(peer->of->arg);
}

static void on_peer_end(void *arg, const struct error *err, bool is_unsent)
{
    struct watch_peer *peer = arg;
    struct error why = *err;

    peer->out = NULL;
    if (why.status == STATUS_OK || cluster_has_refused(err, is_unsent) || cluster_has_lost(err))
        (void)error_because(&why, STATUS_UNAVAILABLE, REASON_SERVER_DRAINING, NULL,
                            "another parleyd has ended: watch again with the resume token");
    watch_peers_end(peer->of, &why);
}

static bool watch_peers_has(const struct watch_peers *p, const char *id)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->rows[i].id, id) == 0)
            return true;
    return false;
}

static void on_look(void *arg)
{
    struct watch_peers *p = arg;
    const struct journal_peer *other;
    struct error err;

    for (size_t i = 0; !p->is_over && (other = cluster_peer(p->cluster, i)) != NULL; i++)
        if (!watch_peers_has(p, other->id)) {
            (void)error_because(&err, STATUS_UNAVAILABLE, REASON_SERVER_DRAINING, NULL,
                                "another parleyd has joined: watch again with the resume token");
            watch_peers_end(p, &err);
        }
}

static bool watch_peer_begin(struct watch_peer *peer, const struct journal_peer *to,
                             const char *principal, const struct call_piece *request)
{
    static const struct outgoing_handler handler = {.message = on_peer_message, .end = on_peer_end};
    const struct cluster_call_start start = {.to = to,
                                             .principal = principal,
                                             .method = "/parley.v1.Conversations/Watch",
                                             .pieces = request,
                                             .n_pieces = 1};

    memcpy(peer->id, to->id, sizeof(peer->id));
    arena_init(&peer->arena, PEER_MAX_BYTES);
    peer->out = cluster_pass_on(peer->of->cluster, &start, &handler, peer);
    if (peer->out != NULL)
        cluster_call_read(peer->out);
    return peer->out != NULL;
}

static void watch_peers_begin_all(struct watch_peers *p, const char *principal,
                                  const struct call_piece *request)
{
    const struct journal_peer *to;
    struct error err;

    for (; (to = cluster_peer(p->cluster, p->n)) != NULL; p->n++) {
        p->rows[p->n].of = p;
        if (watch_peer_begin(&p->rows[p->n], to, principal, request))
            continue;
        (void)error_draining(&err);
        watch_peers_end(p, &err);
    }
}

void watch_peers_begin(struct watch_peers *p, struct cluster *cluster, const char *principal,
                       const char *token, void (*notify)(void *arg), void *arg)
{
    Parley__V1__ConversationsWatchRequest request = PARLEY__V1__CONVERSATIONS_WATCH_REQUEST__INIT;
    struct call_piece piece;
    uint8_t *bytes;

    *p = (struct watch_peers){.cluster = cluster, .notify = notify, .arg = arg};
    request.resume_token = (char *)(uintptr_t)token; /* it is only read */
    piece = (struct call_piece){.size_bytes = codec_size(&request.base)};
    bytes = xalloc(piece.size_bytes + 1);
    (void)codec_encode(&request.base, bytes);
    piece.data = bytes;
    p->rows = xalloc((cluster_n_peers(cluster) + 1) * sizeof(p->rows[0]));
    watch_peers_begin_all(p, principal, &piece);
    cluster_watch(cluster, &p->looks, on_look, p);
    free(bytes);
}

void watch_peers_leave(struct watch_peers *p)
{
    cluster_unwatch(&p->looks);
    for (size_t i = 0; i < p->n; i++) {
        if (p->rows[i].out != NULL)
            cluster_call_cancel(p->rows[i].out);
        arena_deinit(&p->rows[i].arena);
    }
    free(p->rows);
    p->rows = NULL;
    p->n = 0;
}

bool watch_peers_have_begun(const struct watch_peers *p, bool *ret_is_resumed)
{
    bool is_resumed = true;

    for (size_t i = 0; i < p->n; i++) {
        if (!p->rows[i].has_begun)
            return false;
        is_resumed &= p->rows[i].is_resumed;
    }
    *ret_is_resumed = is_resumed;
    return true;
}

bool watch_peers_are_synced(const struct watch_peers *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (!p->rows[i].is_synced)
            return false;
    return true;
}

Parley__V1__ConversationEvent *watch_peers_next(struct watch_peers *p)
{
    for (size_t i = 0; i < p->n; i++) {
        struct watch_peer *peer = &p->rows[(p->turn + i) % p->n];

        if (peer->is_told)
            watch_peer_read(peer);
        if (peer->event == NULL)
            continue;
        peer->is_told = true;
        watch_peer_note(peer);
        p->turn = (p->turn + i + 1) % p->n;
        return peer->event;
    }
    return NULL;
}

enum status watch_peers_tokens(const struct watch_peers *p, struct buf *out)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < p->n && rc == STATUS_OK; i++)
        rc = buf_printf(out, ",%s", p->rows[i].token);
    return rc;
}
