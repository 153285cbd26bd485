/* parley.v1.Conversations, Watch. Each message is pulled when the one before is out: first the
 * conversations in memory (snapshot.h), then those that the journal has alone, then SYNCED, then
 * events. Events that come meanwhile wait in the ring for SYNCED; where they fill half of it they
 * go between, so that none is lost.
 *
 * The journal is read a row at a time, behind all that was appended before. So a row tells nothing
 * of an event that is still in the ring. If an event went out while a row was read, the row is read
 * again.
 *
 * Where daemons share the journal, a watch of all conversations is a watch at each of them
 * (watch_peers.h). Another daemon's part has only what the journal cannot tell: those conversations
 * that are in its memory alone, SYNCED once all that it has changed is written, and its events. The
 * snapshot here begins behind that SYNCED, and the events of others come behind the SYNCED here, so
 * that no row is older than an event before it. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/watch_peers.h"
#include "server/api/parley/wire.h"
#include "server/conversation/conversation.h"
#include "server/conversation/keeping.h"
#include "server/conversation/names.h"
#include "server/conversation/retention.h"
#include "server/conversation/snapshot.h"
#include "server/conversation/watch.h"
#include "server/server.h"

enum { STATE_MAX_BYTES = 4 << 20 };

#define TOKENS_MAX_BYTES ((size_t)(JOURNAL_MAX_MEMBERS + 1) * WATCH_TOKEN_CHARS)

struct watch_call {
    struct call *call;
    struct conversations *all;
    struct watcher watcher;
    struct watch_peers peers;     /* of a watch of all; none of a part */
    struct journal_wait row_wait; /* for the next row of the journal, or of a part's SYNCED */
    uint64_t row_place;           /* in the journal, of the last row */
    uint64_t first_serial;        /* conversations with it, and newer ones, opened meanwhile */
    bool is_reading, is_row_old;  /* an event went out since the read began */
    bool is_part;                 /* another daemon passes on what this one has */
    bool is_resuming;             /* all go on behind the token, or all begin anew */
    bool owes_synced;             /* of a part that goes on behind its token: said first */
};

static const Parley__V1__ConversationEventKind event_kinds[] = {
    [WATCH_OPENED] = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_OPENED,
    [WATCH_FORKED] = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_FORKED,
    [WATCH_EVICTED] = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_EVICTED,
    [WATCH_RECOMPUTED] = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_RECOMPUTED,
    [WATCH_EXPIRED] = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_EXPIRED,
    [WATCH_CLOSED] = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_CLOSED,
};

static void watch_service_notify(void *arg)
{
    struct watch_call *w = arg;

    call_notify(w->call);
}

/* Ends the call. What a wait that goes on brings would be written behind the end. */
static void watch_service_finish(struct watch_call *w, const struct error *err)
{
    journal_leave(&w->row_wait);
    watch_peers_leave(&w->peers);
    call_finish(w->call, err);
}

/* more: another message follows in any case. */
static void watch_service_write(struct watch_call *w, Parley__V1__ConversationEvent *message,
                                bool more)
{
    char token[WATCH_TOKEN_CHARS];
    struct error err;
    struct buf tokens;

    watch_token_format(token, w->watcher.ring, &w->watcher.place);
    buf_init(&tokens, TOKENS_MAX_BYTES);
    if (buf_append_text(&tokens, token) == STATUS_OK &&
        watch_peers_tokens(&w->peers, &tokens) == STATUS_OK) {
        message->resume_token = tokens.data;
        call_write(w->call, &message->base, more);
    } else {
        (void)error_no_memory(&err, TOKENS_MAX_BYTES, "a resume token");
        watch_service_finish(w, &err);
    }
    buf_deinit(&tokens);
}

/* Whether a message of the snapshot can be written as soon as the one before is out. */
static bool has_snapshot(const struct watch_call *w)
{
    return !w->watcher.place.is_synced && !w->is_part &&
           (w->watcher.at != NULL || w->all->keeping.journal == NULL);
}

static void write_happened(struct watch_call *w, const struct watch_event *event)
{
    Parley__V1__ConversationEvent message = PARLEY__V1__CONVERSATION_EVENT__INIT;
    char id[CONVERSATION_ID_CHARS], parent[CONVERSATION_ID_CHARS];

    conversation_id_format(&event->id, id);
    message.conversation = id;
    message.kind = event_kinds[event->what];
    message.reason = (char *)event->reason;
    message.unix_ms = event->unix_ms;
    if (event->what == WATCH_FORKED) {
        conversation_id_format(&event->parent, parent);
        message.parent = parent;
    }
    watch_service_write(w, &message, has_snapshot(w));
}

static void write_lost(struct watch_call *w, uint64_t lost)
{
    Parley__V1__ConversationEvent message = PARLEY__V1__CONVERSATION_EVENT__INIT;

    message.kind = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_LOST;
    message.lost = lost > UINT32_MAX ? UINT32_MAX : (uint32_t)lost;
    message.unix_ms = conversations_unix_ms(w->all);
    watch_service_write(w, &message, has_snapshot(w));
}

static void write_state(struct watch_call *w, Parley__V1__Conversation *state, bool more)
{
    Parley__V1__ConversationEvent message = PARLEY__V1__CONVERSATION_EVENT__INIT;

    message.kind = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_SNAPSHOT;
    message.state = state;
    message.conversation = state->conversation;
    message.unix_ms = conversations_unix_ms(w->all);
    watch_service_write(w, &message, more);
}

static void write_open(struct watch_call *w, const struct conversation *c)
{
    Parley__V1__Conversation *state;
    struct arena arena;
    struct error err;

    arena_init(&arena, STATE_MAX_BYTES);
    if (wire_conversation(&state, c, call_principal(w->call), &arena, &err) == STATUS_OK)
        write_state(w, state, has_snapshot(w));
    else
        watch_service_finish(w, &err);
    arena_deinit(&arena);
}

static void write_synced(struct watch_call *w, const char *reason)
{
    Parley__V1__ConversationEvent message = PARLEY__V1__CONVERSATION_EVENT__INIT;

    message.kind = PARLEY__V1__CONVERSATION_EVENT_KIND__CONVERSATION_EVENT_KIND_SYNCED;
    message.reason = (char *)(uintptr_t)reason; /* it is only read */
    message.unix_ms = conversations_unix_ms(w->all);
    watch_service_write(w, &message, false);
}

/* Whether the row is of a conversation that was in memory when the snapshot passed it, or is being
 * deleted. */
static bool is_row_told(const struct watch_call *w, const struct journal_row *row)
{
    const struct conversation *c;
    struct conversation_id id;

    memcpy(id.bytes, row->id, sizeof(id.bytes));
    c = conversations_get(w->all, &id);
    return (c != NULL && c->serial < w->first_serial) || retention_is_closing(w->all, &id);
}

static void watch_write_row(struct watch_call *w, const struct journal_row *row)
{
    Parley__V1__Conversation *state;
    struct arena arena;
    struct error err;

    w->row_place = row->place;
    if (is_row_told(w, row)) {
        call_notify(w->call);
        return;
    }
    arena_init(&arena, STATE_MAX_BYTES);
    if (wire_listed_conversation(&state, w->all, row, call_principal(w->call), &arena, &err) ==
        STATUS_OK)
        write_state(w, state, false);
    else
        watch_service_finish(w, &err);
    arena_deinit(&arena);
}

static void on_row(void *arg, struct journal_found *found, const struct error *err)
{
    struct watch_call *w = arg;
    const struct link *row = list_first(&found->rows);

    w->is_reading = false;
    if (err->status != STATUS_OK)
        watch_service_finish(w, err);
    else if (w->is_row_old || !call_is_write_ready(w->call)) /* it was cut */
        call_notify(w->call);
    else if (row != NULL)
        watch_write_row(w, container_of(row, const struct journal_row, link));
    else {
        snapshot_end(&w->watcher);
        write_synced(w, "");
    }
}

static void read_row(struct watch_call *w)
{
    const struct journal_query q = {.by = JOURNAL_PAGE,
                                    .principal = keeping_principal(w->all, w->watcher.principal),
                                    .place = w->row_place,
                                    .max_rows = 1};

    w->is_reading = true;
    w->is_row_old = false;
    journal_read(w->all->keeping.journal, &w->row_wait, &q, on_row, w);
}

static void write_snapshot(struct watch_call *w)
{
    const struct conversation *c = snapshot_next(&w->watcher);

    if (c != NULL)
        write_open(w, c);
    else if (w->all->keeping.journal != NULL && !w->watcher.is_one)
        read_row(w);
    else {
        snapshot_end(&w->watcher);
        write_synced(w, "");
    }
}

/* --- with other daemons --- */

static void on_part_settled(void *arg, const struct error *err)
{
    struct watch_call *w = arg;

    w->is_reading = false;
    if (err->status != STATUS_OK) {
        watch_service_finish(w, err);
    } else if (w->is_row_old || !call_is_write_ready(w->call)) {
        call_notify(w->call);
    } else {
        snapshot_end(&w->watcher);
        write_synced(w, "");
    }
}

/* Those that are kept are in the journal, which the other daemon reads. */
static void write_part(struct watch_call *w)
{
    const struct conversation *c;

    do {
        c = snapshot_next(&w->watcher);
    } while (c != NULL && c->host.is_kept);
    if (c != NULL) {
        write_open(w, c);
    } else {
        w->is_reading = true;
        w->is_row_old = false;
        journal_settle(w->all->keeping.journal, &w->row_wait, on_part_settled, w);
    }
}

static void watch_begin_peers(struct watch_call *w, const char *token)
{
    w->is_resuming = token[0] != '\0';
    watch_peers_begin(&w->peers, call_server(w->call)->cluster, call_principal(w->call)->name,
                      token, watch_service_notify, w);
}

static void watch_begin_anew(struct watch_call *w)
{
    struct error ignored; /* "" is a token */

    (void)!watch_token_parse(&w->watcher.place, w->watcher.ring, "", &ignored);
    w->first_serial = w->all->n_opened;
    snapshot_begin(w->all, &w->watcher);
    watch_begin_peers(w, "");
    call_notify(w->call); /* there may be no peers */
}

/* Tokens of other daemons than those that live now tell nothing of what the others did. */
static void watch_join(struct watch_call *w, const char *token)
{
    if (watch_token_parts(token) == 1 + cluster_n_peers(call_server(w->call)->cluster))
        watch_begin_peers(w, token);
    else
        watch_begin_anew(w);
}

/* Returns whether the snapshot and the events of this daemon may come. */
static bool watch_is_joined(struct watch_call *w)
{
    Parley__V1__ConversationEvent *message;
    bool is_resumed = false;

    if (w->peers.is_over) {
        watch_service_finish(w, &w->peers.err);
        return false;
    }
    if (!watch_peers_have_begun(&w->peers, &is_resumed))
        return false;
    if (w->is_resuming && (!is_resumed || watch_place_is_new(&w->watcher.place))) {
        watch_peers_leave(&w->peers);
        watch_begin_anew(w);
        return false;
    }
    w->is_resuming = false;
    if (watch_peers_are_synced(&w->peers))
        return true;
    message = watch_peers_next(&w->peers);
    if (message != NULL)
        watch_service_write(w, message, false);
    return false;
}

static void watch_service_write_ready(struct call *call, void *state)
{
    struct watch_call *w = state;
    struct watcher *watcher = &w->watcher;
    Parley__V1__ConversationEvent *message;
    struct watch_event event;
    uint64_t lost;

    if (w->owes_synced) {
        w->owes_synced = false;
        write_synced(w, WATCH_PEERS_RESUMED);
        return;
    }
    if (w->peers.cluster != NULL && !watch_is_joined(w))
        return;
    if ((watcher->place.is_synced || watcher_is_pressed(watcher)) &&
        watcher_next(watcher, &event, &lost)) {
        if (lost > 0)
            write_lost(w, lost);
        else
            write_happened(w, &event);
        w->is_row_old = true;
    } else if (w->is_reading) {
        return;
    } else if (!watcher->place.is_synced && w->is_part) {
        write_part(w);
    } else if (!watcher->place.is_synced) {
        write_snapshot(w);
    } else if ((message = watch_peers_next(&w->peers)) != NULL) {
        watch_service_write(w, message, false);
    } else if (watcher->is_one &&
               conversations_get_of(w->all, watcher->principal, &watcher->id) == NULL) {
        watch_service_finish(w, NULL); /* it is closed, and the watcher knows */
    }
}

static void watch_service_on_close(struct call *call, void *state, enum status why)
{
    struct watch_call *w = state;

    journal_leave(&w->row_wait);
    watch_peers_leave(&w->peers);
    watcher_close(&w->watcher);
    free(w);
}

static void watch_service_drain(struct call *call, void *state)
{
    struct error err;

    (void)error_draining(&err);
    watch_service_finish(state, &err);
}

/* One conversation must be open, unless there are events of it to come: it was closed behind the
 * resume token. */
static enum status check_one(const struct watch_call *w, const char *id, struct error *err)
{
    struct watcher ahead = w->watcher;
    struct watch_event event;
    struct conversation *c;
    uint64_t lost;

    if (!w->watcher.is_one || watcher_next(&ahead, &event, &lost))
        return STATUS_OK;
    return conversation_call_find(&c, w->call, id, err);
}

static enum status open_watch(struct watch_call *w,
                              const Parley__V1__ConversationsWatchRequest *request,
                              struct error *err)
{
    const bool is_one = request->conversation[0] != '\0';
    const uint32_t principal = call_principal(w->call)->id;
    struct conversation_id id;
    struct conversation *c;
    struct watch_place place;
    enum status rc;

    rc = watch_token_parse(&place, &w->all->watch, request->resume_token, err);
    if (rc == STATUS_OK && is_one &&
        !conversation_names_resolve(&id, call_server(w->call)->names, principal,
                                    request->conversation))
        rc = conversations_find(&c, w->all, principal, request->conversation,
                                err); /* for its words */
    if (rc != STATUS_OK)
        return rc;
    watcher_open(&w->watcher, &w->all->watch, principal, is_one ? &id : NULL, &place,
                 watch_service_notify, w);
    rc = check_one(w, request->conversation, err);
    if (rc != STATUS_OK)
        watcher_close(&w->watcher);
    else
        snapshot_begin(w->all, &w->watcher);
    return rc;
}

static void watch_service_start_watch(struct call *call,
                                      const Parley__V1__ConversationsWatchRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = watch_service_write_ready,
                                                .drain = watch_service_drain,
                                                .on_close = watch_service_on_close};
    struct server *server = call_server(call);
    struct watch_call *w = call_state(call, sizeof(*w));
    struct error err;

    if (w == NULL)
        return;
    w->call = call;
    w->all = server->conversations;
    w->row_place = INT64_MAX;
    w->first_serial = w->all->n_opened;
    if (open_watch(w, request, &err) != STATUS_OK) {
        free(w);
        call_finish(call, &err);
        return;
    }
    call_set_handler(call, &handler, w);
    w->is_part = !w->watcher.is_one && call_is_passed_on(call);
    w->owes_synced = w->is_part && w->watcher.place.is_synced;
    if (!w->watcher.is_one && !w->is_part && cluster_can_pass_on(server->cluster))
        watch_join(w, request->resume_token);
    call_notify(call);
}

#define WATCH_SERVICE_METHODS(METHOD)                                                    \
    METHOD(FOUND_SERVER_STREAM, KEY, "Conversations/Watch", conversations_watch_request, \
           conversation_event, watch_service_start_watch)

PARLEY_TABLE(watch_service_methods, WATCH_SERVICE_METHODS)
