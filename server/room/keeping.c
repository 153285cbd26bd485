/* Rooms in the journal. Each room, each of its members and each of its entries is a kept thing of
 * its own, which is written when it changes, so that a text costs one small transaction; what an
 * agent has said is kept as its place in the agent's conversation, and as text only where that is
 * not the whole reply there: the start reads rooms before it loads models, without which thoughts
 * cannot be divided from words.
 *
 * Reading: all of it at the start, in three passes, then the conversations that entries name, one
 * after the other. Failures: an entry that could not be written stays pending, and nobody is told
 * of it; it is written again, in the same order, until that succeeds. Of an entry whose room is
 * gone the journal is told to forget it: a kill came between. Each thing names its room's life, so
 * that a later room of the same name has nothing of an earlier one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "base/log.h"
#include "server/access/access.h"
#include "server/conversation/lookup.h"
#include "server/journal/body_bytes.h"
#include "server/journal/keeper.h"
#include "server/room/room_parts.h"

enum { ROOM_BODY_VERSION = 1, ROOM_BODY_BYTES = 8 << 20, ROOM_KEY_BYTES = 256 };
enum { ROOM_OF_ROOM = 'r', ROOM_OF_MEMBER = 'm', ROOM_OF_ENTRY = 'e' };

struct room_write {
    struct room *room;
    struct room_entry *entry; /* NULL: it is not there any more */
};

bool room_is_kept(const struct room *room)
{
    const struct rooms *r = room->rooms;

    return r->keeping.journal != NULL && !r->is_ending;
}

/* --- writing --- */

/* A thing that is written. */
struct room_thing {
    struct buf body;
    struct body_writer w;
    struct journal_record record;
    char key[ROOM_KEY_BYTES];
};

/* what: ROOM_OF_…; rest: the rest of the thing's name, "" of a room. */
static void room_thing_begin(struct room_thing *t, const struct room *room, int what,
                             const char *rest)
{
    const struct rooms *r = room->rooms;
    char sum[JOURNAL_SUM_BYTES] = {0};

    (void)snprintf(t->key, sizeof(t->key), "%c/%s%s%s", what, room->name,
                   rest[0] == '\0' ? "" : "/", rest);
    t->record = (struct journal_record){
        .kind = JOURNAL_KEEP,
        .generation = KEEPER_ROOM,
        .unix_ms = r->unix_ms(),
        .principal = r->keeping.principal_name(r->keeping.self, room->principal),
        .name = t->key,
        .owner_epoch = r->epoch,
    };
    r->env->random(r->env->self, t->record.conversation, sizeof(t->record.conversation));
    buf_init(&t->body, ROOM_BODY_BYTES);
    t->w = (struct body_writer){.out = &t->body};
    t->w.has_failed = buf_append(&t->body, sum, sizeof(sum)) != STATUS_OK;
    body_put_u32(&t->w, ROOM_BODY_VERSION);
    body_put_bytes(&t->w, room->life, sizeof(room->life));
    body_put_text(&t->w, t->record.principal);
    body_put_text(&t->w, t->key);
    body_put_u32(&t->w, (uint32_t)what);
    body_put_text(&t->w, room->name);
}

/* Ends t. */
static enum status room_thing_write(struct room_thing *t, const struct room *room,
                                    journal_done_fn done, void *arg, struct error *err)
{
    enum status rc = body_written(&t->w, err);

    if (rc == STATUS_OK) {
        journal_put_sum(t->body.data, t->body.len);
        t->record.body = t->body.data;
        t->record.size_bytes = t->body.len;
        rc = journal_append(room->rooms->keeping.journal, &t->record, done, arg, err);
    }
    buf_deinit(&t->body);
    return rc;
}

static enum status room_thing_unwrite(const struct room *room, int what, const char *rest,
                                      struct error *err)
{
    struct room_thing t;

    room_thing_begin(&t, room, what, rest);
    buf_deinit(&t.body);
    t.record.kind = JOURNAL_FORGET;
    return journal_append(room->rooms->keeping.journal, &t.record, NULL, NULL, err);
}

/* What cannot be forgotten is forgotten by the next process, which finds no room to it. */
static void room_thing_forget(const struct room *room, int what, const char *rest)
{
    struct error err;

    if (room_thing_unwrite(room, what, rest, &err) != STATUS_OK)
        log_warn("room_forget", "error=\"%s\"", err.text);
}

static const char *room_entry_key(char out[16], uint32_t seq)
{
    (void)snprintf(out, 16, "%010u", seq);
    return out;
}

void room_forget_entry(const struct room *room, uint32_t seq)
{
    char key[16];

    if (room_is_kept(room))
        room_thing_forget(room, ROOM_OF_ENTRY, room_entry_key(key, seq));
}

/* A conversation that the room has needed ends with it. */
static void room_pin_free(struct room *room, struct room_pin *pin)
{
    struct rooms *r = room->rooms;

    if (!r->is_ending)
        conversations_close_by_id(r->conversations, &pin->id, "its room does not need it");
    hash_remove(&r->by_pin, &pin->node);
    free(pin);
}

/* The room first: what a kill leaves over has no room. */
void room_forget(const struct room *room)
{
    if (!room_is_kept(room))
        return;
    room_thing_forget(room, ROOM_OF_ROOM, "");
    for (struct link *l = list_first(&room->members); l != NULL; l = list_next(&room->members, l))
        room_thing_forget(room, ROOM_OF_MEMBER,
                          container_of(l, struct room_member, link)->person->id);
}

void room_pins_free(struct room *room)
{
    struct link *l;

    while ((l = list_pop(&room->pins)) != NULL)
        room_pin_free(room, container_of(l, struct room_pin, link));
}

enum status room_keep(struct room *room, struct error *err)
{
    struct room_thing t;

    if (!room_is_kept(room))
        return STATUS_OK;
    room->rooms->env->random(room->rooms->env->self, room->life, sizeof(room->life));
    room_thing_begin(&t, room, ROOM_OF_ROOM, "");
    return room_thing_write(&t, room, NULL, NULL, err);
}

static void body_put_agent(struct body_writer *w, const struct room_agent *a)
{
    struct room_agent_state state;

    room_agent_state(a, &state);
    body_put_u32(w, (uint32_t)state.policy);
    body_put_u32(w, state.every);
    body_put_u32(w, state.heard);
    body_put_bytes(w, state.conversation.bytes, sizeof(state.conversation.bytes));
    body_put_u32(w, state.generation);
    body_put_u32(w, state.turn);
    body_put_u32(w, state.hears);
}

enum status room_keep_member(const struct room_member *m, struct error *err)
{
    const struct room_person *p = m->person;
    struct room_thing t;

    if (!room_is_kept(m->room))
        return STATUS_OK;
    room_thing_begin(&t, m->room, ROOM_OF_MEMBER, p->id);
    body_put_u32(&t.w, (uint32_t)p->kind);
    body_put_text(&t.w, p->id);
    body_put_text(&t.w, p->name);
    body_put_u32(&t.w, m->client_seq);
    if (p->kind == ROOM_AGENT)
        body_put_agent(&t.w, p->agent);
    else
        body_put_bytes(&t.w, p->proof, sizeof(p->proof));
    return room_thing_write(&t, m->room, NULL, NULL, err);
}

static void on_entry_written(void *arg, const struct error *err)
{
    struct room_write *write = arg;

    if (write->entry != NULL) {
        write->entry->write = NULL;
        room_entry_written(write->room, write->entry, err->status == STATUS_OK);
    }
    free(write);
}

void room_write_leave(struct room_entry *e)
{
    if (e->write != NULL)
        e->write->entry = NULL;
    e->write = NULL;
}

/* The words of an agent are in its conversation, unless they are a part of what is there. */
static void body_put_entry(struct body_writer *w, const struct room_entry *e)
{
    const bool is_elsewhere = e->conversation[0] != '\0';

    body_put_u32(w, e->seq);
    body_put_u32(w, (uint32_t)e->kind);
    body_put_u32(w, (uint32_t)e->from_kind);
    body_put_u64(w, e->unix_ms);
    body_put_text(w, e->from);
    body_put_text(w, e->name);
    body_put_u32(w, e->client_seq);
    body_put_u32(w, e->reply_to);
    body_put_text(w, is_elsewhere && !e->is_part ? "" : e->text);
    body_put_u32(w, (uint32_t)e->n_quick_replies);
    for (size_t i = 0; i < e->n_quick_replies; i++)
        body_put_text(w, e->quick_replies[i]);
    body_put_text(w, e->conversation);
    if (!is_elsewhere)
        return;
    body_put_u32(w, e->generation);
    body_put_u32(w, e->turn);
    body_put_text(w, e->finish_reason);
    body_put_u32(w, e->is_part);
}

static struct room_member *room_member_of(const struct room *room, const char *id)
{
    for (struct link *l = list_first(&room->members); l != NULL; l = list_next(&room->members, l)) {
        struct room_member *m = container_of(l, struct room_member, link);

        if (strcmp(m->person->id, id) == 0)
            return m;
    }
    return NULL;
}

enum status room_keep_entry(struct room *room, struct room_entry *e, struct error *err)
{
    const struct room_member *m = room_member_of(room, e->from);
    struct journal *j = room->rooms->keeping.journal;
    struct room_write *write;
    struct room_thing t;
    char key[16];
    enum status rc = STATUS_OK;

    write = try_alloc(1, sizeof(*write));
    if (write == NULL)
        return error_no_memory(err, sizeof(*write), "an entry that is written");
    write->room = room;
    write->entry = e;
    journal_hold(j);
    if (m != NULL && e->kind != ROOM_LEFT)
        rc = room_keep_member(m, err);
    if (rc == STATUS_OK) {
        room_thing_begin(&t, room, ROOM_OF_ENTRY, room_entry_key(key, e->seq));
        body_put_entry(&t.w, e);
        rc = room_thing_write(&t, room, on_entry_written, write, err);
    }
    if (rc == STATUS_OK && e->kind == ROOM_LEFT && m == NULL)
        rc = room_thing_unwrite(room, ROOM_OF_MEMBER, e->from, err);
    if (rc == STATUS_OK) {
        journal_release(j);
        e->write = write;
    } else { /* one without the other is no state that the room has had */
        journal_drop(j);
        free(write);
    }
    return rc;
}

/* In their order; the next failure stops it. */
static bool room_keep_again(struct room *room)
{
    struct error err;

    for (struct link *l = list_first(&room->pending); l != NULL; l = list_next(&room->pending, l)) {
        struct room_entry *e = container_of(l, struct room_entry, link);

        if (e->is_durable || e->write != NULL)
            continue;
        if (room_keep_entry(room, e, &err) != STATUS_OK)
            return false;
    }
    return true;
}

void rooms_keep_again(struct rooms *r)
{
    struct link *l = list_first(&r->failing), *next;

    for (; l != NULL; l = next) {
        struct room *room = container_of(l, struct room, failing);

        next = list_next(&r->failing, l);
        if (room_keep_again(room))
            list_remove(&room->failing);
    }
}

/* --- pins --- */

static uint64_t room_pin_hash(const struct rooms *r, const struct conversation_id *id)
{
    return hash_bytes(&r->by_pin, 0, id->bytes, sizeof(id->bytes));
}

static struct room_pin *room_pin_find(const struct room *room, const struct conversation_id *id)
{
    for (struct link *l = list_first(&room->pins); l != NULL; l = list_next(&room->pins, l)) {
        struct room_pin *pin = container_of(l, struct room_pin, link);

        if (memcmp(&pin->id, id, sizeof(*id)) == 0)
            return pin;
    }
    return NULL;
}

void room_pin_drop(struct room *room, const struct conversation_id *id)
{
    struct room_pin *pin = room_pin_find(room, id);

    if (pin == NULL)
        return;
    list_remove(&pin->link);
    room_pin_free(room, pin);
}

static bool entries_name(const struct list *entries, const char *conversation)
{
    for (struct link *l = list_first(entries); l != NULL; l = list_next(entries, l))
        if (strcmp(container_of(l, struct room_entry, link)->conversation, conversation) == 0)
            return true;
    return false;
}

void room_pin_release(struct room *room, const struct conversation_id *id)
{
    char text[CONVERSATION_ID_CHARS];

    conversation_id_format(id, text);
    if (entries_name(&room->log, text) || entries_name(&room->pending, text))
        return;
    for (struct link *l = list_first(&room->members); l != NULL; l = list_next(&room->members, l)) {
        const struct room_agent *a = container_of(l, struct room_member, link)->person->agent;

        if (a != NULL && room_agent_needs(a, id))
            return;
    }
    room_pin_drop(room, id);
}

enum status room_pin_add(struct room *room, const struct conversation_id *id, struct error *err)
{
    struct room_pin *pin;

    if (room_pin_find(room, id) != NULL)
        return STATUS_OK;
    pin = try_alloc(1, sizeof(*pin));
    if (pin == NULL)
        return error_no_memory(err, sizeof(*pin), "a conversation of a room");
    pin->id = *id;
    hash_add(&room->rooms->by_pin, &pin->node, room_pin_hash(room->rooms, id));
    list_push(&room->pins, &pin->link);
    return STATUS_OK;
}

/* --- reading --- */

struct rooms_restore {
    struct rooms *rooms;
    struct journal_wait wait;
    struct lookup lookup;
    bool is_looking;
    bool has_pins;     /* which conversations rooms need is known, or will not be */
    uint64_t again_us; /* when the journal is asked again; 0: it is being asked, or has answered */
    struct list pins;  /* of struct restored_pin: conversations to be read */
};

struct restored_pin {
    struct link link;
    struct room *room;
    struct conversation_id id;
    bool is_asked;
};

enum status rooms_are_ready(const struct rooms *r, struct error *err)
{
    if (r->restore == NULL)
        return STATUS_OK;
    (void)error_set(err, STATUS_UNAVAILABLE, "the stored rooms are being read: come again");
    err->retry_after_ms = 100;
    return STATUS_UNAVAILABLE;
}

/* What the journal says first of a thing. */
struct restored_thing {
    struct body_reader body; /* the rest */
    const struct principal *owner;
    const char *principal, *key, *room;
    const uint8_t *life; /* [JOURNAL_ID_BYTES] */
};

/* Begins to read what the journal says of a thing. Whether it is one of these. */
static bool restored_begin(struct restored_thing *ret, const struct rooms *r,
                           const struct journal_event *e, int what, struct arena *arena)
{
    struct body_reader *out = &ret->body;
    size_t len;

    if (!journal_sum_is_right(e->body, e->size_bytes))
        return false;
    *out = body_begin(e->body + JOURNAL_SUM_BYTES, e->size_bytes - JOURNAL_SUM_BYTES,
                      ROOM_BODY_VERSION, arena);
    ret->life = body_take_bytes(out, &len);
    if (len != JOURNAL_ID_BYTES)
        return false;
    ret->principal = body_take_text(out);
    ret->owner = r->keeping.find_principal(r->keeping.self, ret->principal);
    ret->key = body_take_text(out);
    if (body_take_u32(out) != (uint32_t)what)
        return false;
    ret->room = body_take_text(out);
    return ret->owner != NULL;
}

/* NULL: it is gone. */
static struct room *restored_room(const struct rooms *r, const struct restored_thing *t)
{
    struct room *room = rooms_find(r, t->owner->id, t->room);

    return room != NULL && memcmp(t->life, room->life, sizeof(room->life)) == 0 ? room : NULL;
}

static enum status restore_room(struct rooms *r, struct restored_thing *t, struct error *err)
{
    struct room *room;

    if (body_end(&t->body, err) != STATUS_OK)
        return err->status;
    if (rooms_find(r, t->owner->id, t->room) != NULL)
        return STATUS_OK;
    if (room_open(&room, r, t->owner->id, t->room, err) != STATUS_OK)
        return err->status;
    memcpy(room->life, t->life, sizeof(room->life));
    return STATUS_OK;
}

static enum status restored_agent_read(struct room_agent_state *out, struct body_reader *body,
                                       struct error *err)
{
    const void *conversation;
    size_t len;

    out->policy = (enum room_policy)body_take_up_to(body, ROOM_EVERY_N);
    out->every = body_take_u32(body);
    out->heard = body_take_u32(body);
    conversation = body_take_bytes(body, &len);
    out->generation = body_take_u32(body);
    out->turn = body_take_u32(body);
    out->hears = body_take_u32(body);
    if (body_end(body, err) != STATUS_OK)
        return err->status;
    if (len != sizeof(out->conversation.bytes))
        return error_set(err, STATUS_DATA_LOSS, "a stored agent has no conversation");
    memcpy(out->conversation.bytes, conversation, len);
    return STATUS_OK;
}

static enum status restore_member(struct room *room, struct body_reader *body, struct error *err)
{
    const enum room_kind kind = (enum room_kind)body_take_up_to(body, ROOM_AGENT);
    const char *id = body_take_text(body), *name = body_take_text(body);
    const uint32_t client_seq = body_take_u32(body);
    struct room_agent_state state;
    struct room_person *p = NULL;
    struct room_member *m;
    const void *proof;
    size_t len;

    if (strlen(id) != ROOM_ID_CHARS || room_person_name_check(name, err) != STATUS_OK)
        return error_set(err, STATUS_DATA_LOSS, "a stored member has no id or name");
    if (kind == ROOM_AGENT)
        return restored_agent_read(&state, body, err) != STATUS_OK
                   ? err->status
                   : room_agent_restore(room, id, name, &state, err);
    proof = body_take_bytes(body, &len);
    if (body_end(body, err) != STATUS_OK)
        return err->status;
    if (len != SHA256_BYTES)
        return error_set(err, STATUS_DATA_LOSS, "a stored member has no token");
    if (room_person_restore(&p, room->rooms, room->principal, id, name, proof, err) != STATUS_OK ||
        room_member_restore(&m, room, p, err) != STATUS_OK)
        return err->status;
    m->client_seq = client_seq;
    return STATUS_OK;
}

static const char *restored_finish(const char *name)
{
    for (int f = 0; f <= FINISH_WORKER_LOST; f++)
        if (strcmp(finish_name((enum finish)f), name) == 0)
            return finish_name((enum finish)f);
    return "";
}

static const char *restored_word(enum room_entry_kind kind, const char *text)
{
    static const char *const words[] = {"left", "gone", "dismissed"};

    for (size_t i = 0; kind == ROOM_LEFT && i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(words[i], text) == 0)
            return words[i];
    return NULL;
}

/* What is read of an entry. */
struct restored_entry {
    struct room_person from;
    struct room_entry head; /* its numbers and names */
    struct room_said said;
};

static enum status restored_entry_read(struct restored_entry *out, struct body_reader *body,
                                       struct error *err)
{
    struct room_entry *e = &out->head;
    const char **quick;

    e->seq = body_take_u32(body);
    e->kind = (enum room_entry_kind)body_take_up_to(body, ROOM_FAILED);
    e->from_kind = (enum room_kind)body_take_up_to(body, ROOM_AGENT);
    e->unix_ms = body_take_u64(body);
    (void)snprintf(out->from.id, sizeof(out->from.id), "%s", body_take_text(body));
    (void)snprintf(out->from.name, sizeof(out->from.name), "%s", body_take_text(body));
    out->from.kind = e->from_kind;
    out->said.client_seq = body_take_u32(body);
    out->said.reply_to = body_take_u32(body);
    out->said.text = body_take_text(body);
    out->said.n_quick_replies = body_take_up_to(body, ROOM_MAX_QUICK_REPLIES);
    quick = body_take_array(body, out->said.n_quick_replies, sizeof(quick[0]), 8);
    for (size_t i = 0; quick != NULL && i < out->said.n_quick_replies; i++)
        quick[i] = body_take_text(body);
    out->said.quick_replies = quick;
    (void)snprintf(e->conversation, sizeof(e->conversation), "%s", body_take_text(body));
    if (e->conversation[0] != '\0') {
        e->generation = body_take_u32(body);
        e->turn = body_take_u32(body);
        e->finish_reason = restored_finish(body_take_text(body));
        e->is_part = body_take_up_to(body, 1) != 0;
    }
    return body_end(body, err);
}

static enum status restored_entry_make(struct room_entry **out, struct room *room,
                                       const struct restored_entry *of, struct error *err)
{
    const char *word = restored_word(of->head.kind, of->said.text);
    enum room_entry_kind kind = of->head.kind;
    struct room_said said = of->said;
    struct room_entry *e;
    struct error why;

    if (strlen(said.text) > ROOM_ANSWER_MAX_BYTES) { /* earlier versions took it */
        kind = ROOM_FAILED;
        (void)room_answer_too_long(&why);
        said.text = why.text;
    }
    if (room_entry_make(&e, room, &of->from, kind, &said, err) != STATUS_OK)
        return err->status;
    if (word != NULL)
        e->text = word;
    e->seq = of->head.seq;
    e->unix_ms = of->head.unix_ms;
    memcpy(e->conversation, of->head.conversation, sizeof(e->conversation));
    e->generation = of->head.generation;
    e->turn = of->head.turn;
    e->finish_reason = of->head.finish_reason;
    e->is_part = of->head.is_part;
    e->is_durable = true;
    *out = e;
    return STATUS_OK;
}

static enum status restore_entry(struct room *room, struct body_reader *body, struct error *err)
{
    struct restored_entry of = {.from.kind = ROOM_PERSON};
    struct conversation_id id;
    struct room_entry *e;

    if (restored_entry_read(&of, body, err) != STATUS_OK ||
        restored_entry_make(&e, room, &of, err) != STATUS_OK)
        return err->status;
    room_log_insert(room, e);
    return conversation_id_parse(&id, e->conversation) ? room_pin_add(room, &id, err) : STATUS_OK;
}

static enum status restore_thing(struct rooms *r, const struct journal_event *e, int what,
                                 struct error *err)
{
    struct restored_thing t;
    struct arena arena;
    struct room *room;
    enum status rc = STATUS_OK;

    arena_init(&arena, ROOM_BODY_BYTES);
    if (restored_begin(&t, r, e, what, &arena)) {
        if (what == ROOM_OF_ROOM)
            rc = restore_room(r, &t, err);
        else if ((room = restored_room(r, &t)) != NULL)
            rc = what == ROOM_OF_MEMBER ? restore_member(room, &t.body, err)
                                        : restore_entry(room, &t.body, err);
    }
    arena_deinit(&arena);
    return rc;
}

/* Whether all of them are there. */
static bool restore_pass(struct rooms *r, const struct journal_found *found, int what)
{
    struct error err;
    bool is_whole = true;

    for (struct link *l = list_first(&found->events); l != NULL; l = list_next(&found->events, l)) {
        if (restore_thing(r, container_of(l, struct journal_event, link), what, &err) == STATUS_OK)
            continue;
        log_error("restore", "room error=\"%s\"", err.text);
        is_whole = false;
    }
    return is_whole;
}

/* --- what agents have said --- */

/* The words of a turn; the caller frees them. */
static enum status restored_words(char **out, const struct completed_turn *turn, struct error *err)
{
    *out = try_strndup(turn->text, turn->len);
    if (*out == NULL)
        return error_no_memory(err, turn->len, "what an agent has said");
    room_words_end_nowhere(*out, turn->len);
    return STATUS_OK;
}

/* The entries that a conversation has the words of get them. */
static void restore_words(struct room *room, const struct conversation *c)
{
    struct link *l = list_first(&room->log), *next;
    char id[CONVERSATION_ID_CHARS];

    conversation_id_format(&c->id, id);
    for (; l != NULL; l = next) {
        struct room_entry *e = container_of(l, struct room_entry, link), *with;
        struct restored_entry of = {.from.kind = e->from_kind, .head = *e};
        const struct completed_turn *turn;
        struct error err;
        char *words;

        next = list_next(&room->log, l);
        if (e->is_part || strcmp(e->conversation, id) != 0)
            continue;
        turn = completed_turn_find(c->host.newest, e->turn);
        if (turn == NULL || e->generation != c->host.generation)
            continue;
        memcpy(of.from.id, e->from, sizeof(of.from.id));
        memcpy(of.from.name, e->name, sizeof(of.from.name));
        with = NULL;
        if (restored_words(&words, turn, &err) == STATUS_OK) {
            of.said = (struct room_said){.text = words};
            if (restored_entry_make(&with, room, &of, &err) != STATUS_OK)
                with = NULL;
            free(words);
        }
        if (with == NULL) {
            log_error("restore", "room error=\"%s\"", err.text);
            continue;
        }
        list_insert_before(&e->link, &with->link);
        list_remove(&e->link);
        room_entry_free(e, room->rooms, room->principal);
    }
}

static void restore_next(struct rooms_restore *restore);

/* The journal cannot answer now. */
static void restore_wait(struct rooms_restore *restore)
{
    const struct rooms *r = restore->rooms;

    restore->again_us = env_now_us(r->env) + ROOM_RETRY_MS * (uint64_t)1000;
    alarm_by(r->alarm, restore->again_us);
}

static void on_pin_found(struct lookup *l, const struct error *err)
{
    struct rooms_restore *restore = container_of(l, struct rooms_restore, lookup);

    restore->is_looking = false;
    if (err->status != STATUS_OK)
        log_error("restore", "room error=\"%s\"", err->text);
    if (err->status == STATUS_UNAVAILABLE) {
        container_of(list_first(&restore->pins), struct restored_pin, link)->is_asked = false;
        restore_wait(restore);
    } else {
        restore_next(restore);
    }
}

static void restore_go_on(struct room *room)
{
    struct link *l = list_first(&room->members), *next;

    for (; l != NULL; l = next) {
        struct room_member *m = container_of(l, struct room_member, link);

        next = list_next(&room->members, l);
        if (m->person->kind == ROOM_AGENT)
            room_agent_go_on(m->person->agent);
    }
    room_close_if_empty(room); /* the last entry, and not the end of the room, was written */
}

static void restore_end(struct rooms_restore *restore)
{
    struct rooms *r = restore->rooms;
    struct hash_node *n, *next;
    size_t n_rooms = r->by_name.n;

    r->restore = NULL;
    free(restore);
    room_people_may_come(r);
    for (n = hash_each(&r->by_name, NULL); n != NULL; n = next) {
        next = hash_each(&r->by_name, n);
        restore_go_on(container_of(n, struct room, node));
    }
    if (n_rooms > 0)
        log_info("restored", "rooms=%zu", n_rooms);
}

/* Reads the conversations of the pins, one after the other. */
static void restore_next(struct rooms_restore *restore)
{
    struct rooms *r = restore->rooms;
    char text[CONVERSATION_ID_CHARS];
    struct link *l;

    while ((l = list_first(&restore->pins)) != NULL) {
        struct restored_pin *pin = container_of(l, struct restored_pin, link);
        const struct conversation *c = conversations_get(r->conversations, &pin->id);

        if (c == NULL && !pin->is_asked) {
            pin->is_asked = true;
            conversation_id_format(&pin->id, text);
            if (lookup_begin(&restore->lookup, r->conversations, JOURNAL_BY_ID, LOOKUP_HERE,
                             pin->room->principal, text, on_pin_found)) {
                restore->is_looking = true;
                return;
            }
        }
        if (c != NULL)
            restore_words(pin->room, c);
        list_remove(&pin->link);
        free(pin);
    }
    restore_end(restore);
}

static void restore_pins(struct rooms_restore *restore, struct room *room)
{
    for (struct link *l = list_first(&room->pins); l != NULL; l = list_next(&room->pins, l)) {
        struct restored_pin *pin = xalloc(sizeof(*pin));

        *pin =
            (struct restored_pin){.room = room, .id = container_of(l, struct room_pin, link)->id};
        list_push(&restore->pins, &pin->link);
    }
}

/* A kill may have come before the first entry, or behind the last member. */
static void restore_begin_room(struct rooms_restore *restore, struct room *room)
{
    while (room->n_entries > ROOM_MAX_ENTRIES)
        room_drop_oldest(room);
    restore_pins(restore, room);
}

/* The conversation that an agent, or an entry, of a room that is gone names; false: none. */
static bool restored_conversation(struct conversation_id *out, int what, struct body_reader *body)
{
    struct restored_entry of = {.from.kind = ROOM_PERSON};
    struct room_agent_state state;
    struct error ignored;

    if (what == ROOM_OF_ENTRY)
        return restored_entry_read(&of, body, &ignored) == STATUS_OK &&
               conversation_id_parse(out, of.head.conversation);
    if (body_take_up_to(body, ROOM_AGENT) != ROOM_AGENT)
        return false;
    (void)body_take_text(body); /* its id, its name, its client_seq */
    (void)body_take_text(body);
    (void)body_take_u32(body);
    if (restored_agent_read(&state, body, &ignored) != STATUS_OK)
        return false;
    *out = state.conversation;
    return true;
}

/* Entries and members whose room is gone. Their conversations were the room's: they end first, as
 * nothing else names them. */
static void restore_forget(struct rooms *r, const struct journal_event *e)
{
    const int whats[] = {ROOM_OF_MEMBER, ROOM_OF_ENTRY};
    struct restored_thing t;
    struct arena arena;

    for (size_t i = 0; i < 2; i++) {
        struct journal_record record = {
            .kind = JOURNAL_FORGET, .generation = KEEPER_ROOM, .owner_epoch = r->epoch};
        struct conversation_id id;
        struct error err;

        arena_init(&arena, ROOM_BODY_BYTES);
        if (restored_begin(&t, r, e, whats[i], &arena) && restored_room(r, &t) == NULL) {
            if (restored_conversation(&id, whats[i], &t.body))
                conversations_close_by_id(r->conversations, &id, "its room is gone");
            record.principal = t.principal;
            record.name = t.key;
            if (journal_append(r->keeping.journal, &record, NULL, NULL, &err) != STATUS_OK)
                log_warn("room_forget", "error=\"%s\"", err.text);
        }
        arena_deinit(&arena);
    }
}

static void on_rooms_found(void *arg, struct journal_found *found, const struct error *err)
{
    struct rooms_restore *restore = arg;
    struct rooms *r = restore->rooms;
    struct hash_node *n;
    bool is_whole;

    if (err->status != STATUS_OK) { /* hello stays UNAVAILABLE: what there is, is not known */
        log_error("restore", "room error=\"%s\"", err->text);
        restore->has_pins = err->status != STATUS_UNAVAILABLE;
        if (!restore->has_pins)
            restore_wait(restore);
        return;
    }
    if (r->keeping.arrived != NULL && !r->keeping.arrived(r->keeping.self, found->owner_epoch))
        return; /* restore is gone */
    r->epoch = found->owner_epoch;
    restore->has_pins = true;
    is_whole = restore_pass(r, found, ROOM_OF_ROOM);
    (void)restore_pass(r, found, ROOM_OF_MEMBER);
    (void)restore_pass(r, found, ROOM_OF_ENTRY);
    for (struct link *l = is_whole ? list_first(&found->events) : NULL; l != NULL;
         l = list_next(&found->events, l))
        restore_forget(r, container_of(l, struct journal_event, link));
    for (n = hash_each(&r->by_name, NULL); n != NULL; n = hash_each(&r->by_name, n))
        restore_begin_room(restore, container_of(n, struct room, node));
    restore_next(restore);
}

static void restore_ask(struct rooms_restore *restore)
{
    const struct journal_query q = {.by = JOURNAL_KEPT, .number = KEEPER_ROOM};

    journal_read(restore->rooms->keeping.journal, &restore->wait, &q, on_rooms_found, restore);
}

void rooms_restore_again(struct rooms *r)
{
    struct rooms_restore *restore = r->restore;

    if (restore == NULL || restore->again_us == 0 || r->is_ending)
        return;
    if (restore->again_us > env_now_us(r->env)) {
        alarm_by(r->alarm, restore->again_us);
        return;
    }
    restore->again_us = 0;
    if (restore->has_pins)
        restore_next(restore);
    else
        restore_ask(restore);
}

void rooms_restore_begin(struct rooms *r)
{
    r->restore = xalloc(sizeof(*r->restore));
    *r->restore = (struct rooms_restore){.rooms = r};
    list_init(&r->restore->pins);
    restore_ask(r->restore);
}

void rooms_keep(struct rooms *r, const struct rooms_keeping *keeping)
{
    r->keeping = *keeping;
    if (keeping->journal != NULL)
        rooms_restore_begin(r);
}

void rooms_restore_leave(struct rooms *r)
{
    struct rooms_restore *restore = r->restore;
    struct link *l;

    if (restore == NULL)
        return;
    journal_leave(&restore->wait);
    if (restore->is_looking)
        lookup_leave(&restore->lookup);
    while ((l = list_pop(&restore->pins)) != NULL)
        free(container_of(l, struct restored_pin, link));
    r->restore = NULL;
    free(restore);
}

enum conversation_pin rooms_pin(const void *rooms, const struct conversation_id *id)
{
    const struct rooms *r = rooms;
    struct hash_node *n = hash_first(&r->by_pin, room_pin_hash(r, id));

    while (n != NULL && memcmp(&container_of(n, struct room_pin, node)->id, id, sizeof(*id)) != 0)
        n = hash_next(n);
    if (n != NULL)
        return PIN_HELD;
    return r->restore == NULL || r->restore->has_pins || journal_is_elsewhere(&r->restore->wait)
               ? PIN_NONE
               : PIN_UNKNOWN;
}
