/* Agents in rooms. Each has a conversation of its own, and hears what others say without having to
 * answer: when it is to answer, all that was said since its last turn becomes the messages of one
 * turn, each with its speaker's name. What it says streams to the readers as pieces, and is an
 * entry when the turn is complete. An agent whose conversation is full goes on in a new one.
 *
 * The domain of conversations notifies inside its own functions, so an agent that was notified is
 * put into a list, which rooms_tick goes through.
 *
 * Where the journal cannot be written, or the lease is over, a conversation leaves memory amid its
 * turn. The journal has the turn, so the agent looks for its conversation and reads the turn again,
 * as after a restart. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/reply/reply_parser.h"
#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "base/log.h"
#include "base/name.h"
#include "base/utf8.h"
#include "server/conversation/conversation.h"
#include "server/conversation/lookup.h"
#include "server/conversation/opening.h"
#include "server/conversation/reader.h"
#include "server/journal/journal.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/room/room_parts.h"

struct room_agent {
    struct room_person person;
    struct room *room;
    struct room_member *member;
    unsigned slot; /* no other agent of the room has it */
    enum room_policy policy;
    uint32_t every;
    uint32_t n_unanswered; /* of ROOM_EVERY_N: texts of people since its last answer */
    uint32_t heard;        /* up to this entry all is in its turns */
    bool is_called;        /* it is to answer once its present answer has ended */
    bool was_called;       /* before the process began */
    struct lookup lookup;  /* of its conversation in the journal */
    bool is_looking;
    bool has_looked; /* the journal has answered: */
    struct error
        look_error;   /* why it did not say; OK: it has no conversation that is not in memory */
    bool is_resuming; /* it is to go on with an answer that an earlier process had begun, or that
                         was lost */
    bool is_waiting;  /* its conversation could not be looked for */
    unsigned n_lost;  /* how often it has lost its present answer */
    bool is_stopped;  /* that was stopped, also where it is read again */
    uint64_t patient_until_us; /* up to when it waits for its model, or the journal */
    struct conversation_id conversation;
    char conversation_text[CONVERSATION_ID_CHARS];
    struct conversation_id full; /* has_full: the one before, which it goes back to where the
                                    journal has not got its successor */
    bool has_full;
    /* Of its present answer. */
    bool is_answering;
    struct link answering;            /* in rooms.answering */
    uint64_t answer;                  /* which one of the rooms */
    uint32_t generation, turn, hears; /* hears: heard, once the turn is complete */
    struct turn_reader reader;
    struct reply_format format; /* a copy: a model may leave before its reply is read */
    struct reply_parser *parser;
    struct buf words;     /* of its reply, without thoughts */
    size_t n_reply_bytes; /* that the reply has, with them */
    struct link notified; /* in rooms.notified */
};

enum {
    ROOM_AGENT_MAX_ARENA_BYTES = 1 << 20,
    ROOM_AGENT_MAX_LOST = 8, /* then an answer has failed that the journal may never take */
};
#define ROOM_AGENT_PATIENCE_US ((uint64_t)5 * 60 * 1000 * 1000)

static struct room_hearing room_agent_hearing(const struct room_agent *a)
{
    return (struct room_hearing){a->room, a->person.id, a->heard};
}

/* --- what it says --- */

/* Appends an entry of the agent's. Without memory, or behind the limit of bytes, there is none. */
static bool room_agent_append(struct room_agent *a, enum room_entry_kind kind, const char *text,
                              const char *finish_reason)
{
    const struct room_said said = {.text = text};
    struct room_entry *e;
    struct error err;

    if (room_entry_make(&e, a->room, &a->person, kind, &said, &err) != STATUS_OK) {
        log_warn("room_entry", "conversation=%s turn=%u error=\"%s\"", a->conversation_text,
                 a->turn, err.text);
        return false;
    }
    if (kind == ROOM_SAID) {
        memcpy(e->conversation, a->conversation_text, sizeof(e->conversation));
        e->generation = a->generation;
        e->turn = a->turn;
        e->finish_reason = finish_reason;
        e->is_part = a->words.len != a->n_reply_bytes;
        a->room->n_chained++;
        a->room->rooms->n_answers++;
    }
    room_append_surely(a->room, e);
    return true;
}

static void room_agent_notified(void *arg)
{
    struct room_agent *a = arg;
    struct rooms *r = a->room->rooms;

    if (link_is_on(&a->notified))
        return;
    list_push(&r->notified, &a->notified);
    alarm_by(r->alarm, env_now_us(r->env));
}

static void on_room_agent_looked(struct lookup *l, const struct error *err)
{
    struct room_agent *a = container_of(l, struct room_agent, lookup);

    a->is_looking = false;
    a->has_looked = true;
    a->look_error = *err;
    room_agent_notified(a);
}

/* Has the agent's conversation in memory, which an idle one leaves. Returns false where that takes
 * a while: then the agent is notified. */
static bool room_agent_look(struct room_agent *a)
{
    struct conversations *all = a->room->rooms->conversations;

    if (a->is_looking)
        return false;
    if (conversations_get(all, &a->conversation) == NULL && !a->has_looked)
        a->is_looking =
            lookup_begin(&a->lookup, all, JOURNAL_BY_ID, LOOKUP_HERE, a->person.principal,
                         a->conversation_text, on_room_agent_looked);
    a->has_looked = false;
    return !a->is_looking;
}

/* Begins to read a turn of c, whose thoughts the room is not told. */
static enum status room_agent_listen(struct room_agent *a, struct conversation *c,
                                     const struct turn_request *request, struct error *err)
{
    const struct reply_format *format = c->host.model->info.text.reply_format;
    struct reply_parser_config config = {.places = {reader_has_token, &a->reader}};
    enum status rc;

    if (format != NULL) {
        a->format = *format;
        config.format = &a->format;
    }
    if (reply_parser_open(&a->parser, &config, err) != STATUS_OK)
        return err->status;
    a->n_reply_bytes = 0;
    reader_init(&a->reader, room_agent_notified, a);
    rc = conversation_turn(c, request, &a->reader, err);
    if (rc == STATUS_OK)
        return STATUS_OK;
    reply_parser_close(a->parser);
    a->parser = NULL;
    return rc;
}

/* Begins a turn of c. */
static enum status room_agent_ask(struct room_agent *a, struct conversation *c, struct error *err)
{
    const struct room_hearing hearing = room_agent_hearing(a);
    struct turn_request request = {.is_detached = true};
    struct arena arena;
    enum status rc;

    arena_init(&arena, ROOM_AGENT_MAX_ARENA_BYTES);
    rc = room_hearing_gather(&request, &hearing, c, &arena, err);
    if (rc == STATUS_OK) {
        a->turn = c->host.n_turns + c->host.n_live + (c->unended.request != NULL) + 1;
        a->generation = c->host.generation;
        a->hears = room_next_seq(a->room) - 1;
        a->is_answering = true;
        rc = room_keep_member(a->member, err); /* before the turn's own record */
        a->is_answering = false;
    }
    if (rc == STATUS_OK)
        rc = room_agent_listen(a, c, &request, err);
    arena_deinit(&arena);
    return rc;
}

/* Opens a conversation of the agent's, which has the room's name among its metadata. */
static enum status room_agent_open(struct conversation **out, struct room_agent *a, struct model *m,
                                   const struct open_request *options, struct error *err)
{
    const struct pair metadata = {"room", a->room->name};
    struct open_request request = *options;
    struct conversation *c;

    request.principal = a->room->principal;
    request.metadata = &metadata;
    request.n_metadata = 1;
    if (opening_open(&c, a->room->rooms->conversations, m, "", &request, err) != STATUS_OK)
        return err->status;
    if (room_pin_add(a->room, &c->id, err) != STATUS_OK) {
        conversation_close(c, WATCH_CLOSED, "the agent could not join its room");
        return err->status;
    }
    c->is_pinned = true;
    a->conversation = c->id;
    a->generation = c->host.generation;
    conversation_id_format(&c->id, a->conversation_text);
    *out = c;
    return STATUS_OK;
}

void room_agent_leave_full(struct room_agent *a)
{
    if (!a->has_full)
        return;
    a->has_full = false;
    room_pin_release(a->room, &a->full);
}

/* The journal could not be written when it was to have a new conversation. */
static void room_agent_go_back(struct room_agent *a)
{
    room_pin_drop(a->room, &a->conversation);
    a->conversation = a->full;
    a->has_full = false;
    conversation_id_format(&a->conversation, a->conversation_text);
    a->is_resuming = false;
    a->is_called = true;
    room_agent_notified(a);
}

/* Begins its turn in a new conversation like c, which is full. The room needs c until that turn is
 * complete, and as long as its log has words of c. */
static enum status room_agent_ask_anew(struct room_agent *a, struct conversation *c,
                                       struct error *err)
{
    const struct conversation_id full = c->id;
    const struct open_request options = {
        .system = c->host.options->system,
        .system_len = c->host.options->system_len,
        .overrides = c->host.options->overrides,
    };
    struct journal *j = a->room->rooms->keeping.journal;
    struct conversation *with;
    enum status rc;

    room_agent_leave_full(a);
    if (j != NULL)
        journal_hold(j); /* no conversation that a kill leaves over */
    rc = room_agent_open(&with, a, c->host.model, &options, err);
    if (rc == STATUS_OK) {
        c->is_pinned = false;
        a->full = full;
        a->has_full = true;
        rc = room_agent_ask(a, with, err);
    }
    if (j != NULL)
        journal_release(j);
    return rc;
}

/* Begins an answer to what was said since the last one. */
static enum status room_agent_begin(struct room_agent *a, struct error *err)
{
    struct conversation *c = conversations_get(a->room->rooms->conversations, &a->conversation);
    bool is_new;
    enum status rc;

    if (c == NULL)
        return error_set(err, STATUS_NOT_FOUND,
                         "its conversation was closed: dismiss it, and invite it again");
    is_new = room_hearing_is_new(c);
    rc = room_agent_ask(a, c, err);
    if (rc != STATUS_OK && !is_new &&
        (err->reason == REASON_CONTEXT_EXCEEDED || err->reason == REASON_CONVERSATION_FULL))
        rc = room_agent_ask_anew(a, c, err);
    if (rc != STATUS_OK && err->reason == REASON_CONTEXT_EXCEEDED)
        return error_because(err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                             "what was said last is longer than its context: say it in fewer "
                             "words");
    return rc;
}

static void room_agent_begun(struct room_agent *a)
{
    struct rooms *r = a->room->rooms;

    assert(!a->is_answering);
    a->answer = ++r->n_begun;
    a->is_answering = true;
    a->was_called = false;
    list_push(&r->answering, &a->answering);
    a->member->is_typing = true;
    room_member_changed(a->member);
    room_agent_notified(a); /* what runs on this loop may have begun */
    if (a->is_stopped)
        reader_cancel(&a->reader);
}

/* It looks again later. */
static void room_agent_sleep(struct room_agent *a)
{
    if (!link_is_on(&a->notified))
        list_push(&a->room->rooms->sleeping, &a->notified);
}

static void room_agent_say_failed(struct room_agent *a, const char *why)
{
    a->n_lost = 0;
    a->is_stopped = a->was_called = false;
    a->member->is_typing = false; /* the entry says so */
    if (!room_agent_append(a, ROOM_FAILED, why, NULL))
        room_member_changed(a->member);
}

/* A model that is not loaded yet, soon after the start, is waited for; so is the worker that was
 * answering, or was to. */
static void room_agent_could_not(struct room_agent *a, const struct error *err)
{
    if ((err->status == STATUS_UNAVAILABLE ||
         ((a->is_resuming || a->was_called) && err->reason == REASON_MODEL_NOT_FOUND)) &&
        env_now_us(a->room->rooms->env) < a->patient_until_us) {
        log_debug("room_agent", "conversation=%s waits=\"%s\"", a->conversation_text, err->text);
        a->is_called = a->is_called || !a->is_resuming;
        room_agent_sleep(a);
        return;
    }
    a->is_resuming = false;
    room_agent_say_failed(a, err->text);
}

static void room_agent_answer(struct room_agent *a)
{
    const struct room_hearing hearing = room_agent_hearing(a);
    struct error err;

    if (a->room->rooms->is_draining)
        return;
    a->is_called = false;
    if (!room_hearing_has_news(&hearing)) {
        a->is_stopped = false;
        return; /* it has answered that, with what came before it was called */
    }
    a->n_unanswered = 0;
    if (room_agent_begin(a, &err) != STATUS_OK)
        room_agent_could_not(a, &err);
    else
        room_agent_begun(a);
}

/* The conversation could not be looked for, and may be there: a turn that was begun in it stays
 * begun. */
static void room_agent_could_not_look(struct room_agent *a)
{
    struct rooms *r = a->room->rooms;
    const bool is_resuming = a->is_resuming;
    struct error err = a->look_error;

    a->look_error = (struct error){.status = STATUS_OK};
    if (r->is_draining)
        return;
    if (err.status == STATUS_UNAVAILABLE && !a->is_waiting) {
        a->is_waiting = true;
        a->patient_until_us = env_now_us(r->env) + ROOM_AGENT_PATIENCE_US;
    }
    room_agent_could_not(a, &err);
    if (link_is_on(&a->notified))
        return;
    a->is_called = a->is_waiting = false;
    a->is_resuming = is_resuming;
}

/* Reads an answer that an earlier process had begun, or one that was lost. */
static void room_agent_resume(struct room_agent *a)
{
    const struct turn_request request = {
        .is_detached = true,
        .number = a->turn,
        .resume = {.is_wanted = true, .generation = a->generation},
    };
    struct conversation *c = conversations_get(a->room->rooms->conversations, &a->conversation);
    struct error err;

    if (a->room->rooms->is_draining)
        return;
    a->is_resuming = false;
    if (c == NULL || (c->host.n_turns + c->host.n_live < a->turn && c->unended.request == NULL)) {
        a->is_called = true; /* the turn itself was not written */
        return;
    }
    if (room_agent_listen(a, c, &request, &err) == STATUS_OK) {
        room_agent_begun(a);
    } else {
        a->is_resuming = true;
        room_agent_could_not(a, &err);
    }
}

/* Ends the reading of the present answer. */
static void room_agent_leave_turn(struct room_agent *a)
{
    if (!a->is_answering)
        return;
    reader_close(&a->reader, STATUS_CANCELLED);
    reply_parser_close(a->parser);
    a->parser = NULL;
    list_remove(&a->answering);
    a->is_answering = false;
}

static void room_agent_done(struct room_agent *a, const struct turn_event *event,
                            const struct error *why)
{
    const char *words = a->words.len == 0 ? "" : a->words.data;

    room_agent_leave_turn(a);
    if (why != NULL) {
        room_agent_say_failed(a, why->text);
    } else {
        a->n_lost = 0;
        a->is_stopped = false;
        a->heard = a->hears;
        a->member->is_typing = false;
        if (!room_agent_append(a, ROOM_SAID, words, finish_name(event->finish)))
            room_member_changed(a->member);
        room_agent_leave_full(a);
    }
    buf_clear(&a->words);
}

void room_words_end_nowhere(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\0')
            text[i] = '?';
}

enum status room_answer_too_long(struct error *err)
{
    return error_set(err, STATUS_RANGE, "the answer has more than %d bytes", ROOM_ANSWER_MAX_BYTES);
}

/* Takes more of the reply, or its end. */
static enum status room_agent_divide(struct room_agent *a, const struct turn_event *event,
                                     bool *ret_has_words, struct error *err)
{
    struct reply_part part;
    enum status rc;

    if (event->kind == EVENT_DONE) {
        rc = reply_parser_end(a->parser, err);
    } else {
        a->n_reply_bytes += event->piece.len;
        rc = reply_parser_add(a->parser, event->piece.text, event->piece.len, err);
    }
    while (rc == STATUS_OK && reply_parser_next(a->parser, &part)) {
        if (part.kind != REPLY_TEXT || part.len == 0)
            continue;
        if (part.len > ROOM_ANSWER_MAX_BYTES - a->words.len)
            return room_answer_too_long(err);
        if (buf_append(&a->words, part.text, part.len) != STATUS_OK)
            return error_no_memory(err, a->words.len + part.len, "what an agent says");
        room_words_end_nowhere(a->words.data + a->words.len - part.len, part.len);
        *ret_has_words = true;
    }
    return rc;
}

static void room_agent_be_patient(struct room_agent *a)
{
    a->patient_until_us = env_now_us(a->room->rooms->env) + ROOM_AGENT_PATIENCE_US;
    room_agent_sleep(a);
}

/* The turn has failed. Returns whether it did because its conversation has left memory: then it is
 * read again, and told from its begin on. */
static bool room_agent_lose_turn(struct room_agent *a)
{
    if (!room_is_kept(a->room) || a->n_lost >= ROOM_AGENT_MAX_LOST ||
        conversations_get(a->room->rooms->conversations, &a->conversation) != NULL)
        return false;
    a->n_lost++;
    room_agent_leave_turn(a);
    buf_clear(&a->words);
    a->is_resuming = true;
    room_agent_be_patient(a);
    return true;
}

/* An answer that is computed again could not be stored now, however long that takes. */
static bool room_agent_waits_for_journal(struct room_agent *a)
{
    if (!a->is_resuming || journal_trouble(a->room->rooms->keeping.journal) == NULL)
        return false;
    room_agent_be_patient(a);
    return true;
}

/* Goes on with an answer, or begins one, once its conversation is there. */
static void room_agent_go_on_now(struct room_agent *a)
{
    const struct rooms *r = a->room->rooms;

    if (a->is_answering || (!a->is_resuming && !a->is_called) || r->is_draining ||
        room_agent_waits_for_journal(a) || !room_agent_look(a))
        return;
    if (a->look_error.status != STATUS_OK &&
        conversations_get(r->conversations, &a->conversation) == NULL) {
        room_agent_could_not_look(a);
        return;
    }
    a->look_error.status = STATUS_OK;
    a->is_waiting = false;
    if (a->has_full && conversations_get(r->conversations, &a->conversation) == NULL) {
        room_agent_go_back(a);
        return;
    }
    if (a->is_resuming)
        room_agent_resume(a);
    if (a->is_called && !a->is_resuming && !a->is_answering)
        room_agent_answer(a);
}

/* The turn is complete. One that was to be computed again has no reply where its agent would not
 * give the same one. */
static void room_agent_end_turn(struct room_agent *a, const struct turn_event *event)
{
    struct error err;

    if (event->finish != FINISH_ERROR || a->words.len > 0) {
        room_agent_done(a, event, NULL);
        return;
    }
    a->heard = a->hears;
    (void)error_set(&err, STATUS_ABORTED,
                    "the answer was cut off, and the agent would give another one: ask again");
    room_agent_done(a, event, &err);
}

/* Takes what the agent has said since. */
static void room_agent_read(struct room_agent *a)
{
    struct turn_event event;
    struct error err;
    bool has_piece = false;

    while (a->is_answering && reader_next(&a->reader, &event)) {
        if (event.kind == EVENT_PIECE || event.kind == EVENT_DONE) {
            if (room_agent_divide(a, &event, &has_piece, &err) != STATUS_OK) {
                reader_cancel(&a->reader);
                a->heard = a->hears; /* the turn stays in its conversation */
                room_agent_done(a, &event, &err);
            } else if (event.kind == EVENT_DONE) {
                room_agent_end_turn(a, &event);
            }
        } else if (event.kind == EVENT_FAILED) {
            err = *event.err; /* it is the reader's */
            if (!room_agent_lose_turn(a))
                room_agent_done(a, &event, &err);
        }
    }
    if (has_piece)
        room_notify(a->room);
    if (!link_is_on(&a->notified)) /* else it sleeps, or is read once more */
        room_agent_go_on_now(a);
}

/* An answer that has ended may call other agents, which are then behind in the list. */
void room_agents_tick(struct rooms *r)
{
    struct link *l;

    list_move(&r->sleeping, &r->notified);
    while (!r->is_ending && (l = list_pop(&r->notified)) != NULL)
        room_agent_read(container_of(l, struct room_agent, notified));
}

void room_agents_end(struct rooms *r)
{
    struct link *l;

    while ((l = list_first(&r->answering)) != NULL)
        room_agent_leave_turn(container_of(l, struct room_agent, answering));
    while (list_pop(&r->notified) != NULL || list_pop(&r->sleeping) != NULL)
        continue;
}

static void room_unpin(const struct room *room)
{
    for (struct link *l = list_first(&room->members); l != NULL; l = list_next(&room->members, l)) {
        const struct room_person *p = container_of(l, struct room_member, link)->person;
        struct conversation *c = p->agent == NULL ? NULL
                                                  : conversations_get(room->rooms->conversations,
                                                                      &p->agent->conversation);

        if (c != NULL)
            c->is_pinned = false;
    }
}

void room_agents_unpin(struct rooms *r)
{
    for (struct hash_node *n = hash_each(&r->by_name, NULL); n != NULL;
         n = hash_each(&r->by_name, n))
        room_unpin(container_of(n, struct room, node));
}

bool room_agent_next_piece(const struct room_person *agent, struct room_heard *heard,
                           struct room_piece *ret)
{
    static char text[ROOM_PIECE_MAX_BYTES + 1];
    const struct room_agent *a = agent->agent;
    struct room_heard *h = &heard[a->slot];
    size_t len;

    if (h->answer != a->answer)
        *h = (struct room_heard){.answer = a->answer};
    if (!a->is_answering || h->at >= a->words.len)
        return false;
    len = a->words.len - h->at;
    if (len > ROOM_PIECE_MAX_BYTES)
        len = utf8_complete_len(a->words.data + h->at, ROOM_PIECE_MAX_BYTES);
    memcpy(text, a->words.data + h->at, len);
    text[len] = '\0';
    ret->conversation = a->conversation_text;
    ret->generation = a->generation;
    ret->turn = a->turn;
    ret->offset = h->at;
    ret->text = text;
    h->at += len;
    return true;
}

/* --- when it answers --- */

static bool room_agent_is_asked(struct room_agent *a, const struct room_entry *e)
{
    const bool is_person = e->from_kind == ROOM_PERSON;

    if (is_person && a->policy == ROOM_EVERY_N)
        a->n_unanswered++;
    switch (a->policy) {
    case ROOM_WHEN_NAMED:
        return (is_person || (e->from_kind == ROOM_AGENT && a->room->n_chained < ROOM_MAX_CHAIN)) &&
               name_is_in(e->text, a->person.name);
    case ROOM_EVERY_TURN:
        return is_person;
    case ROOM_EVERY_N:
        return is_person && a->n_unanswered >= a->every;
    }
    return false;
}

/* Has an agent answer now, or once its present answer ends. */
static void room_ask(struct room_person *agent)
{
    struct room_agent *a = agent->agent;

    a->is_called = true;
    room_agent_notified(a); /* entries are appended in the order of what was said: not inside */
}

void room_agents_hear(struct room *room, const struct room_entry *e)
{
    struct link *l = list_first(&room->members), *next;

    if (e->kind != ROOM_SAID)
        return;
    for (; l != NULL; l = next) {
        struct room_person *p = container_of(l, struct room_member, link)->person;

        next = list_next(&room->members, l);
        if (p->kind == ROOM_AGENT && strcmp(e->from, p->id) != 0 &&
            room_agent_is_asked(p->agent, e))
            room_ask(p);
    }
}

void room_agent_stop(const struct room_person *p)
{
    struct room_agent *a = p->agent;

    if (p->kind != ROOM_AGENT || (!a->is_answering && !a->is_resuming))
        return;
    a->is_stopped = true;
    if (a->is_answering)
        reader_cancel(&a->reader);
}

/* --- coming and going --- */

static enum status invitation_check(const struct room *room, const struct room_invitation *i,
                                    struct error *err)
{
    if (room->rooms->conversations == NULL)
        return error_set(err, STATUS_UNIMPLEMENTED, "no agent can be invited here");
    if (room->n_agents >= ROOM_MAX_AGENTS)
        return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, "room",
                             "a room has at most %d agents: dismiss one", ROOM_MAX_AGENTS);
    if (room->n_members >= ROOM_MAX_MEMBERS)
        return room_is_full(err);
    if (strlen(i->system) > ROOM_SYSTEM_MAX_BYTES)
        return error_field(err, "system", "has %zu bytes, it may have %d", strlen(i->system),
                           ROOM_SYSTEM_MAX_BYTES);
    if (i->policy == ROOM_EVERY_N && i->every == 0)
        return error_field(err, "every", "is 0: an agent answers every 1st, 2nd, … text");
    return STATUS_OK;
}

static unsigned room_free_slot(const struct room *room)
{
    unsigned used = 0, slot = 0;

    for (struct link *l = list_first(&room->members); l != NULL; l = list_next(&room->members, l)) {
        const struct room_person *p = container_of(l, struct room_member, link)->person;

        if (p->kind == ROOM_AGENT)
            used |= 1U << p->agent->slot;
    }
    while ((used >> slot & 1) != 0)
        slot++;
    return slot;
}

/* A model's name may be longer than a person's: it is cut. */
static void room_agent_name(char out[ROOM_PERSON_MAX_BYTES + 1], const char *name)
{
    size_t len = 0;
    uint32_t c;

    for (size_t i = 0, n; i < ROOM_PERSON_MAX_CHARS && name[len] != '\0'; i++, len += n)
        n = utf8_next(name + len, strlen(name + len), &c);
    assert(len <= ROOM_PERSON_MAX_BYTES);
    memcpy(out, name, len);
    out[len] = '\0';
}

enum status room_invite(struct room_person **out, struct room *room,
                        const struct room_invitation *i, struct error *err)
{
    const struct sampling_overrides overrides = {
        .given = SAMPLING_MAX_TOKENS,
        .values.max_tokens = i->max_tokens == 0 ? ROOM_ANSWER_TOKENS : i->max_tokens,
    };
    const struct open_request options = {
        .system = i->system, .system_len = strlen(i->system), .overrides = &overrides};
    struct rooms *r = room->rooms;
    char name[ROOM_PERSON_MAX_BYTES + 1];
    struct conversation *c;
    struct room_agent *a;
    struct model *m;

    if (invitation_check(room, i, err) != STATUS_OK ||
        room_person_name_check(i->name, err) != STATUS_OK)
        return err->status;
    models_request(r->models, i->model);
    if (models_get(&m, r->models, i->model, err) != STATUS_OK)
        return err->status;
    a = try_alloc(1, sizeof(*a));
    if (a == NULL)
        return error_no_memory(err, sizeof(*a), "an agent");
    room_agent_name(name, i->name[0] == '\0' ? m->name : i->name);
    room_person_init(&a->person, r, ROOM_AGENT, room->principal, name);
    a->person.agent = a;
    a->room = room;
    a->slot = room_free_slot(room);
    a->policy = i->policy;
    a->every = i->every;
    a->heard = room->next_seq;                      /* of its own coming */
    buf_init(&a->words, ROOM_ANSWER_MAX_BYTES + 1); /* with its end */
    if (room_agent_open(&c, a, m, &options, err) != STATUS_OK) {
        free(a);
        return err->status;
    }
    if (room_member_join(&a->member, room, &a->person, err) != STATUS_OK) {
        room_pin_drop(room, &a->conversation);
        room_agent_free(a);
        return err->status;
    }
    *out = &a->person;
    return STATUS_OK;
}

void room_agent_free(struct room_agent *a)
{
    const struct rooms *r = a->room->rooms;
    struct conversation *c =
        r->is_ending ? NULL : conversations_get(r->conversations, &a->conversation);

    if (c != NULL)
        c->is_pinned = false; /* a room that is kept reads it again */
    if (a->is_answering && !r->is_ending)
        reader_cancel(&a->reader);
    room_agent_leave_turn(a);
    if (a->is_looking)
        lookup_leave(&a->lookup);
    if (link_is_on(&a->notified))
        list_remove(&a->notified);
    buf_deinit(&a->words);
    free(a);
}

/* --- what is kept --- */

const struct conversation_id *room_agent_conversation(const struct room_agent *a)
{
    return &a->conversation;
}

bool room_agent_needs(const struct room_agent *a, const struct conversation_id *id)
{
    return memcmp(&a->conversation, id, sizeof(*id)) == 0 ||
           (a->has_full && memcmp(&a->full, id, sizeof(*id)) == 0);
}

void room_agent_state(const struct room_agent *a, struct room_agent_state *out)
{
    const bool has_begun = a->is_answering || a->is_resuming;

    *out = (struct room_agent_state){
        .policy = a->policy,
        .every = a->every,
        .heard = a->heard,
        .conversation = a->conversation,
        .generation = a->generation,
        .turn = has_begun ? a->turn : 0,
        .hears = has_begun ? a->hears : 0,
    };
}

enum status room_agent_restore(struct room *room, const char *id, const char *name,
                               const struct room_agent_state *state, struct error *err)
{
    struct rooms *r = room->rooms;
    struct room_agent *a;

    if (room->n_agents >= ROOM_MAX_AGENTS)
        return error_set(err, STATUS_DATA_LOSS, "a stored room has too many agents");
    a = try_alloc(1, sizeof(*a));
    if (a == NULL)
        return error_no_memory(err, sizeof(*a), "an agent");
    room_person_init(&a->person, r, ROOM_AGENT, room->principal, name);
    memcpy(a->person.id, id, sizeof(a->person.id));
    a->person.agent = a;
    a->room = room;
    a->slot = room_free_slot(room);
    a->policy = state->policy;
    a->every = state->every;
    a->heard = state->heard;
    a->conversation = state->conversation;
    conversation_id_format(&a->conversation, a->conversation_text);
    a->generation = state->generation;
    a->turn = state->turn;
    a->hears = state->hears;
    a->is_resuming = state->turn != 0;
    a->patient_until_us = env_now_us(r->env) + ROOM_AGENT_PATIENCE_US;
    buf_init(&a->words, ROOM_ANSWER_MAX_BYTES + 1); /* with its end */
    if (room_pin_add(room, &a->conversation, err) != STATUS_OK ||
        room_member_restore(&a->member, room, &a->person, err) != STATUS_OK) {
        buf_deinit(&a->words);
        free(a);
        return err->status;
    }
    return STATUS_OK;
}

void room_agent_go_on(struct room_agent *a)
{
    struct room *room = a->room;
    bool is_called_by[2] = {false}; /* [enum room_kind] */

    room->n_chained = 0;
    for (struct link *l = list_first(&room->log); l != NULL; l = list_next(&room->log, l)) {
        const struct room_entry *e = container_of(l, const struct room_entry, link);
        const bool is_own = strcmp(e->from, a->person.id) == 0;

        if (e->kind == ROOM_SAID) {
            room->n_chained = e->from_kind == ROOM_PERSON ? 0 : room->n_chained + 1;
            if (!is_own && e->seq > a->heard && e->seq > a->hears && room_agent_is_asked(a, e))
                is_called_by[e->from_kind] = true;
            if (room->n_chained >= ROOM_MAX_CHAIN)
                is_called_by[ROOM_AGENT] = false;
        } else if (is_own) { /* it has come, or has failed: that was its answer */
            is_called_by[ROOM_PERSON] = is_called_by[ROOM_AGENT] = false;
            a->n_unanswered = 0;
        }
    }
    a->was_called = a->is_called = is_called_by[ROOM_PERSON] || is_called_by[ROOM_AGENT];
    if (a->is_resuming || a->is_called)
        room_agent_notified(a);
}
