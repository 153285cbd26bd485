/* Rooms, who is in them, and the cursors of their connections. An entry is appended once, and
 * each cursor points to the next entry that its reader is to take; presence and typing have a
 * version, up to which a cursor has seen them.
 *
 * A person whose last connection is lost is away, and after a while leaves by rooms_tick. What is
 * needed for that is allocated when the person joins, so leaving never fails. */
#include "server/room/room_parts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "base/utf8.h"
#include "server/access/access.h"
#include "server/telemetry/metric.h"

static const struct limit_kind kind_of_rooms = {"rooms", NULL, "room"};
static const struct limit_kind kind_of_people = {"people in rooms", NULL, NULL};
static const struct limit_kind kind_of_room_bytes = {"bytes of rooms' logs", NULL, "text"};

/* A reader's place in a room. */
struct room_cursor {
    struct link link;  /* in its room's cursors, while room is not NULL */
    struct link of;    /* in its reader's cursors */
    struct room *room; /* NULL: the person is out, and the reader is to be told why */
    struct room_member *member;
    struct room_reader *reader;
    struct room_entry *at; /* the next to take; NULL: all are taken */
    uint64_t seen;         /* the room's version */
    bool wants_snapshot;
    const char *why;                          /* where room is NULL; static */
    struct room_heard heard[ROOM_MAX_AGENTS]; /* by the agents' slots */
    char room_name[ROOM_NAME_MAX_BYTES + 1];
};

static const uint64_t act_us = 1000000 / ROOM_ACTS_PER_S;
static const uint64_t acts_us = ROOM_ACTS_AT_ONCE * (1000000 / ROOM_ACTS_PER_S);

void rooms_init(struct rooms *r, const struct env *env, uint64_t (*unix_ms)(void),
                struct alarm *alarm)
{
    *r = (struct rooms){.env = env, .unix_ms = unix_ms, .alarm = alarm};
    hash_init(&r->by_name, env);
    hash_init(&r->by_pin, NULL);   /* ids are random */
    hash_init(&r->by_token, NULL); /* tokens are random */
    list_init(&r->away);
    list_init(&r->notified);
    list_init(&r->answering);
    list_init(&r->failing);
    list_init(&r->sleeping);
    shared_limit_init(&r->n_rooms, &kind_of_rooms, ROOMS_MAX);
    shared_limit_init(&r->n_people, &kind_of_people, ROOMS_MAX_PEOPLE);
    shared_limit_init(&r->bytes, &kind_of_room_bytes, ROOMS_MAX_BYTES);
}

void rooms_set_agents(struct rooms *r, struct conversations *all, struct models *models)
{
    r->conversations = all;
    all->pin = rooms_pin;
    all->pin_self = r;
    r->models = models;
}

/* --- entries --- */

static void copy_room_text(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text);
}

enum status room_entry_make(struct room_entry **out, struct room *room, const struct room_person *p,
                            enum room_entry_kind kind, const struct room_said *said,
                            struct error *err)
{
    struct rooms *r = room->rooms;
    size_t size =
        sizeof(struct room_entry) + said->n_quick_replies * sizeof(char *) + strlen(said->text) + 1;
    struct room_entry *e;
    const char **quick;
    char *at;

    for (size_t i = 0; i < said->n_quick_replies; i++)
        size += strlen(said->quick_replies[i]) + 1;
    if (shared_limit_take(&r->bytes, room->principal, size, err) != STATUS_OK)
        return err->status;
    e = try_alloc(1, size);
    if (e == NULL) {
        shared_limit_give(&r->bytes, room->principal, size);
        return error_no_memory(err, size, "an entry of a room");
    }
    e->kind = kind;
    e->client_seq = said->client_seq;
    e->reply_to = said->reply_to;
    e->size_bytes = size;
    list_init(&e->acks);
    e->from_kind = p->kind;
    copy_room_text(e->from, sizeof(e->from), p->id);
    copy_room_text(e->name, sizeof(e->name), p->name);
    quick = (const char **)(void *)(e + 1);
    at = (char *)(quick + said->n_quick_replies);
    e->quick_replies = quick;
    e->n_quick_replies = said->n_quick_replies;
    for (size_t i = 0; i < said->n_quick_replies; i++) {
        const size_t n = strlen(said->quick_replies[i]) + 1;

        quick[i] = memcpy(at, said->quick_replies[i], n);
        at += n;
    }
    e->text = memcpy(at, said->text, strlen(said->text) + 1);
    *out = e;
    return STATUS_OK;
}

static void room_ack_free(struct room_ack *ack)
{
    list_remove(&ack->link);
    ack->reader->n_acks--;
    if (link_is_on(&ack->of_entry))
        list_remove(&ack->of_entry);
    free(ack);
}

/* Acks of an entry that does not come into the log end with it. */
void room_entry_free(struct room_entry *e, struct rooms *r, uint32_t principal)
{
    struct link *l;

    if (e == NULL)
        return;
    room_write_leave(e);
    while ((l = list_pop(&e->acks)) != NULL)
        room_ack_free(container_of(l, struct room_ack, of_entry));
    shared_limit_give(&r->bytes, principal, e->size_bytes);
    free(e);
}

uint32_t room_first_seq(const struct room *room)
{
    return room_next_seq(room) - (uint32_t)room->n_entries;
}

uint32_t room_next_seq(const struct room *room)
{
    return room->next_seq - (uint32_t)room->n_pending;
}

static struct room_entry *room_entry_at(struct link *l)
{
    return l == NULL ? NULL : container_of(l, struct room_entry, link);
}

void room_notify(struct room *room)
{
    for (struct link *l = list_first(&room->cursors); l != NULL; l = list_next(&room->cursors, l)) {
        struct room_reader *reader = container_of(l, struct room_cursor, link)->reader;

        reader->notify(reader);
    }
}

/* A reader that has not taken the oldest entry goes on behind it, with a snapshot that says from
 * where. */
void room_drop_oldest(struct room *room)
{
    struct room_entry *e = room_entry_at(list_first(&room->log));
    struct conversation_id id;
    bool is_of_agent;

    for (struct link *l = list_first(&room->cursors); l != NULL; l = list_next(&room->cursors, l)) {
        struct room_cursor *c = container_of(l, struct room_cursor, link);

        if (c->at != e)
            continue;
        c->at = room_entry_at(list_next(&room->log, &e->link));
        c->wants_snapshot = true;
    }
    list_remove(&e->link);
    room->n_entries--;
    room_forget_entry(room, e->seq);
    is_of_agent = conversation_id_parse(&id, e->conversation);
    room_entry_free(e, room->rooms, room->principal);
    if (is_of_agent)
        room_pin_release(room, &id);
}

struct room_person *room_person_of(const struct room *room, const char *id)
{
    for (struct link *l = list_first(&room->members); l != NULL; l = list_next(&room->members, l)) {
        struct room_person *p = container_of(l, struct room_member, link)->person;

        if (strcmp(p->id, id) == 0)
            return p;
    }
    return NULL;
}

/* What the room's own do about an entry. */
static void room_entry_tell(struct room *room, const struct room_entry *e)
{
    if (room->n_agents > 0)
        room_agents_hear(room, e);
}

/* An entry that is durable comes into the log. */
static void room_log_append(struct room *room, struct room_entry *e)
{
    struct link *l;

    list_push(&room->log, &e->link);
    room->n_entries++;
    for (l = list_first(&room->cursors); l != NULL; l = list_next(&room->cursors, l)) {
        struct room_cursor *c = container_of(l, struct room_cursor, link);

        if (c->at == NULL)
            c->at = e;
    }
    while ((l = list_pop(&e->acks)) != NULL) {
        struct room_ack *ack = container_of(l, struct room_ack, of_entry);

        ack->seq = e->seq;
        ack->is_ready = true;
        ack->reader->notify(ack->reader);
    }
    if (room->n_entries > ROOM_MAX_ENTRIES)
        room_drop_oldest(room);
    room_entry_tell(room, e);
}

/* Those that are durable, up to the first that is not. */
static void room_settle(struct room *room)
{
    bool has_appended = false;
    struct link *l;

    while ((l = list_first(&room->pending)) != NULL && room_entry_at(l)->is_durable) {
        struct room_entry *e = room_entry_at(list_pop(&room->pending));

        room->n_pending--;
        room_log_append(room, e);
        has_appended = true;
    }
    if (has_appended)
        room_notify(room);
}

static void room_fail(struct room *room)
{
    struct rooms *r = room->rooms;

    if (!link_is_on(&room->failing))
        list_push(&r->failing, &room->failing);
    alarm_by(r->alarm, env_now_us(r->env) + ROOM_RETRY_MS * (uint64_t)1000);
}

void room_entry_written(struct room *room, struct room_entry *e, bool is_durable)
{
    e->is_durable = is_durable;
    if (is_durable)
        room_settle(room);
    else
        room_fail(room);
}

static void room_push(struct room *room, struct room_entry *e)
{
    e->seq = room->next_seq++;
    e->unix_ms = room->rooms->unix_ms();
    list_push(&room->pending, &e->link);
    room->n_pending++;
    e->is_durable = !room_is_kept(room);
}

void room_append_surely(struct room *room, struct room_entry *e)
{
    struct error err;

    room_push(room, e);
    if (!e->is_durable &&
        (link_is_on(&room->failing) || room_keep_entry(room, e, &err) != STATUS_OK))
        room_fail(room);
    room_settle(room);
}

enum status room_append(struct room *room, struct room_entry *e, struct error *err)
{
    enum status rc = STATUS_OK;

    room_push(room, e);
    if (link_is_on(&room->failing)) {
        (void)error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL,
                            "the journal cannot be written: send it again later");
        err->retry_after_ms = ROOM_RETRY_MS;
        rc = err->status;
    } else if (!e->is_durable) {
        rc = room_keep_entry(room, e, err);
    }
    if (rc == STATUS_OK) {
        room_settle(room);
        return STATUS_OK;
    }
    list_remove(&e->link);
    room->n_pending--;
    room->next_seq--;
    room_entry_free(e, room->rooms, room->principal);
    return rc;
}

void room_log_insert(struct room *room, struct room_entry *e)
{
    struct link *at = room->log.head.prev;

    while (at != &room->log.head && room_entry_at(at)->seq > e->seq)
        at = at->prev;
    list_insert_before(at->next, &e->link);
    room->n_entries++;
    if (e->seq >= room->next_seq)
        room->next_seq = e->seq + 1;
}

/* --- rooms --- */

static uint64_t room_hash(const struct rooms *r, uint32_t principal, const char *name)
{
    return hash_text(&r->by_name, hash_bytes(&r->by_name, 0, &principal, sizeof(principal)), name);
}

struct room *rooms_find(const struct rooms *r, uint32_t principal, const char *name)
{
    struct hash_node *n = hash_first(&r->by_name, room_hash(r, principal, name));

    for (; n != NULL; n = hash_next(n)) {
        struct room *room = container_of(n, struct room, node);

        if (room->principal == principal && strcmp(room->name, name) == 0)
            return room;
    }
    return NULL;
}

static enum status room_name_check(const char *name, struct error *err)
{
    const size_t len = strlen(name);

    if (len == 0 || len > ROOM_NAME_MAX_BYTES)
        return error_field(err, "room", "has %zu bytes, it must have 1 to %d", len,
                           ROOM_NAME_MAX_BYTES);
    if (!utf8_is_plain_line(name))
        return error_field(err, "room", "must be one line, without marks that turn its direction");
    return STATUS_OK;
}

static struct room_entry *room_member_free(struct room_member *m, const char *why);

enum status room_open(struct room **out, struct rooms *r, uint32_t principal, const char *name,
                      struct error *err)
{
    struct room *room;

    if (shared_limit_take(&r->n_rooms, principal, 1, err) != STATUS_OK)
        return err->status;
    room = try_alloc(1, sizeof(*room));
    if (room == NULL) {
        shared_limit_give(&r->n_rooms, principal, 1);
        return error_no_memory(err, sizeof(*room), "a room");
    }
    room->rooms = r;
    room->principal = principal;
    room->next_seq = 1;
    list_init(&room->members);
    list_init(&room->log);
    list_init(&room->pending);
    link_init(&room->failing);
    list_init(&room->pins);
    list_init(&room->cursors);
    copy_room_text(room->name, sizeof(room->name), name);
    hash_add(&r->by_name, &room->node, room_hash(r, principal, name));
    *out = room;
    return STATUS_OK;
}

static void room_free(struct room *room)
{
    struct rooms *r = room->rooms;
    struct link *l;

    room_forget(room);
    while ((l = list_first(&room->members)) != NULL) {
        struct room_agent *agent = container_of(l, struct room_member, link)->person->agent;

        (void)room_member_free(container_of(l, struct room_member, link), NULL);
        if (agent != NULL)
            room_agent_free(agent);
    }
    assert(list_is_empty(&room->cursors));
    room_pins_free(room);
    while ((l = list_pop(&room->log)) != NULL || (l = list_pop(&room->pending)) != NULL) {
        room_forget_entry(room, room_entry_at(l)->seq);
        room_entry_free(room_entry_at(l), r, room->principal);
    }
    if (link_is_on(&room->failing))
        list_remove(&room->failing);
    hash_remove(&r->by_name, &room->node);
    shared_limit_give(&r->n_rooms, room->principal, 1);
    free(room);
}

/* A room ends with the last person: agents alone have nobody to talk to.
 */
void room_close_if_empty(struct room *room)
{
    if (room->n_members == room->n_agents)
        room_free(room);
}

/* --- people --- */

const char *room_person_id(const struct room_person *p)
{
    return p->id;
}

const char *room_person_token(const struct room_person *p)
{
    return p->token;
}

const char *room_person_name(const struct room_person *p)
{
    return p->name;
}

enum room_presence room_person_presence(const struct room_person *p)
{
    return p->kind == ROOM_PERSON && list_is_empty(&p->readers) ? ROOM_AWAY : ROOM_HERE;
}

enum room_kind room_person_kind(const struct room_person *p)
{
    return p->kind;
}

static void draw_hex(const struct rooms *r, char *out, size_t n_chars)
{
    unsigned char bytes[ROOM_TOKEN_CHARS / 2];

    assert(n_chars <= 2 * sizeof(bytes));
    r->env->random(r->env->self, bytes, n_chars / 2);
    for (size_t i = 0; i < n_chars / 2; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* The journal has no tokens, but their hashes. */
static enum status room_token_hash(uint8_t out[SHA256_BYTES], struct rooms *r, const char *token,
                                   struct error *err)
{
    if (r->sha256 == NULL && sha256_open(&r->sha256, err) != STATUS_OK)
        return err->status;
    sha256_add(r->sha256, token, strlen(token));
    sha256_take(r->sha256, out);
    return STATUS_OK;
}

static uint64_t room_proof_hash(const struct rooms *r, const uint8_t *proof)
{
    return hash_bytes(&r->by_token, 0, proof, SHA256_BYTES);
}

static struct room_person *room_person_find(const struct rooms *r, uint32_t principal,
                                            const uint8_t *proof)
{
    struct hash_node *n = hash_first(&r->by_token, room_proof_hash(r, proof));

    for (; n != NULL; n = hash_next(n)) {
        struct room_person *p = container_of(n, struct room_person, node);

        if (p->principal == principal && memcmp(p->proof, proof, SHA256_BYTES) == 0)
            return p;
    }
    return NULL;
}

enum status room_person_name_check(const char *name, struct error *err)
{
    if (strlen(name) > ROOM_PERSON_MAX_BYTES || !utf8_is_plain_line(name) ||
        utf8_count(name) > ROOM_PERSON_MAX_CHARS)
        return error_field(err, "name", "must be one line of at most %d characters",
                           ROOM_PERSON_MAX_CHARS);
    return STATUS_OK;
}

void room_person_init(struct room_person *p, const struct rooms *r, enum room_kind kind,
                      uint32_t principal, const char *name)
{
    list_init(&p->members);
    list_init(&p->readers);
    link_init(&p->away);
    p->kind = kind;
    p->principal = principal;
    draw_hex(r, p->id, ROOM_ID_CHARS);
    if (name[0] == '\0')
        (void)snprintf(p->name, sizeof(p->name), "guest %.4s", p->id);
    else
        copy_room_text(p->name, sizeof(p->name), name);
}

static enum status room_person_make(struct room_person **out, struct rooms *r, uint32_t principal,
                                    const char *name, struct error *err)
{
    struct room_person *p = NULL;

    if (room_person_name_check(name, err) != STATUS_OK)
        return err->status;
    if (shared_limit_take(&r->n_people, principal, 1, err) != STATUS_OK)
        return err->status;
    p = try_alloc(1, sizeof(*p));
    if (p == NULL) {
        shared_limit_give(&r->n_people, principal, 1);
        return error_no_memory(err, sizeof(*p), "a person");
    }
    room_person_init(p, r, ROOM_PERSON, principal, name);
    pace_init(&p->acts, env_now_us(r->env), acts_us);
    draw_hex(r, p->token, ROOM_TOKEN_CHARS);
    if (room_token_hash(p->proof, r, p->token, err) != STATUS_OK) {
        shared_limit_give(&r->n_people, principal, 1);
        free(p);
        return err->status;
    }
    hash_add(&r->by_token, &p->node, room_proof_hash(r, p->proof));
    *out = p;
    return STATUS_OK;
}

/* A person without a connection. */
static void room_person_leaves(struct room_person *p, struct rooms *r)
{
    p->gone_us = env_now_us(r->env) + ROOM_GRACE_MS * (uint64_t)1000;
    list_push(&r->away, &p->away);
    alarm_by(r->alarm, p->gone_us);
}

void room_people_may_come(struct rooms *r)
{
    struct list restored;
    struct link *l;

    list_init(&restored);
    list_move(&r->away, &restored);
    while ((l = list_pop(&restored)) != NULL)
        room_person_leaves(container_of(l, struct room_person, away), r);
}

enum status room_person_restore(struct room_person **out, struct rooms *r, uint32_t principal,
                                const char *id, const char *name, const uint8_t *proof,
                                struct error *err)
{
    struct room_person *p = room_person_find(r, principal, proof);

    *out = p;
    if (p != NULL)
        return STATUS_OK;
    p = try_alloc(1, sizeof(*p));
    if (p == NULL)
        return error_no_memory(err, sizeof(*p), "a person");
    shared_limit_hold(&r->n_people, principal, 1);
    room_person_init(p, r, ROOM_PERSON, principal, name);
    copy_room_text(p->id, sizeof(p->id), id);
    memcpy(p->proof, proof, SHA256_BYTES);
    pace_init(&p->acts, env_now_us(r->env), acts_us);
    hash_add(&r->by_token, &p->node, room_proof_hash(r, p->proof));
    p->gone_us = UINT64_MAX;
    list_push(&r->away, &p->away);
    *out = p;
    return STATUS_OK;
}

/* Each act costs a part of a second; EXHAUSTED says when the next may come. */
static enum status room_person_act(struct room_person *p, const struct rooms *r, struct error *err)
{
    const uint64_t wait_us = pace_take(&p->acts, env_now_us(r->env), acts_us, act_us);

    if (wait_us > 0) {
        (void)error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                            "a person does at most %d things a second in rooms", ROOM_ACTS_PER_S);
        err->retry_after_ms = (uint32_t)((wait_us + 999) / 1000);
        return err->status;
    }
    return STATUS_OK;
}

/* --- members --- */

static struct room_member *room_member_find(const struct room_person *p, const char *room_name)
{
    for (struct link *l = list_first(&p->members); l != NULL; l = list_next(&p->members, l)) {
        struct room_member *m = container_of(l, struct room_member, of);

        if (strcmp(m->room->name, room_name) == 0)
            return m;
    }
    return NULL;
}

void room_member_changed(struct room_member *m)
{
    m->version = ++m->room->version;
    room_notify(m->room);
}

enum status room_is_full(struct error *err)
{
    return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, "room",
                         "the room is full: %d are in it", ROOM_MAX_MEMBERS);
}

/* Makes the person a member, with the entry of its end. */
enum status room_member_restore(struct room_member **out, struct room *room, struct room_person *p,
                                struct error *err)
{
    static const struct room_said gone = {.text = "gone"};
    struct rooms *r = room->rooms;
    struct room_entry *left = NULL;
    struct room_member *m = NULL;
    enum status rc = STATUS_OK;

    if (room->n_members >= ROOM_MAX_MEMBERS)
        return room_is_full(err);
    rc = room_entry_make(&left, room, p, ROOM_LEFT, &gone, err);
    if (rc == STATUS_OK && (m = try_alloc(1, sizeof(*m))) == NULL)
        rc = error_no_memory(err, sizeof(*m), "a member of a room");
    if (rc != STATUS_OK) {
        room_entry_free(left, r, room->principal);
        return rc;
    }
    m->room = room;
    m->person = p;
    m->left = left;
    m->version = room->version; /* the entry says that it is here */
    list_push(&room->members, &m->link);
    list_push(&p->members, &m->of);
    room->n_members++;
    room->n_agents += p->kind == ROOM_AGENT;
    p->n_members++;
    *out = m;
    return STATUS_OK;
}

static void room_cursor_out(struct room_cursor *c, const char *why)
{
    list_remove(&c->link);
    c->room = NULL;
    c->member = NULL;
    c->at = NULL;
    c->why = why;
    c->reader->notify(c->reader);
}

/* Frees m. Returns the entry of its end, to be appended; NULL where
 * why is NULL: the room ends, and nobody reads it. */
static struct room_entry *room_member_free(struct room_member *m, const char *why)
{
    struct room *room = m->room;
    struct room_person *p = m->person;
    struct room_entry *left = m->left;
    struct link *l = list_first(&room->cursors), *next;

    for (; l != NULL; l = next) {
        struct room_cursor *c = container_of(l, struct room_cursor, link);

        next = list_next(&room->cursors, l);
        if (c->member == m)
            room_cursor_out(c, why);
    }
    list_remove(&m->link);
    list_remove(&m->of);
    room->n_members--;
    room->n_agents -= p->kind == ROOM_AGENT;
    p->n_members--;
    free(m);
    if (why == NULL) {
        room_entry_free(left, room->rooms, room->principal);
        left = NULL;
    } else {
        left->text = why;
    }
    return left;
}

void room_member_leave(struct room_member *m, const char *why)
{
    struct room *room = m->room;
    struct room_agent *agent = m->person->agent;
    struct conversation_id id;

    room_append_surely(room, room_member_free(m, why));
    if (agent != NULL) {
        id = *room_agent_conversation(agent);
        room_agent_leave_full(agent);
        room_agent_free(agent);
        room_pin_release(room, &id);
    }
    room_close_if_empty(room);
}

enum status room_member_join(struct room_member **out, struct room *room, struct room_person *p,
                             struct error *err)
{
    static const struct room_said nothing = {.text = ""};
    struct room_entry *joined = NULL;

    if (room_entry_make(&joined, room, p, ROOM_JOINED, &nothing, err) != STATUS_OK)
        return err->status;
    if (room_member_restore(out, room, p, err) != STATUS_OK) {
        room_entry_free(joined, room->rooms, room->principal);
        return err->status;
    }
    if (room_append(room, joined, err) != STATUS_OK) {
        (void)room_member_free(*out, NULL);
        return err->status;
    }
    return STATUS_OK;
}

static void room_person_close(struct room_person *p, struct rooms *r)
{
    struct link *l;

    assert(list_is_empty(&p->readers));
    while ((l = list_first(&p->members)) != NULL)
        room_member_leave(container_of(l, struct room_member, of), "gone");
    if (link_is_on(&p->away))
        list_remove(&p->away);
    hash_remove(&r->by_token, &p->node);
    shared_limit_give(&r->n_people, p->principal, 1);
    free(p);
}

static struct room_person *room_first_away(const struct rooms *r)
{
    struct link *l = list_first(&r->away);

    return l == NULL ? NULL : container_of(l, struct room_person, away);
}

void rooms_tick(void *rooms)
{
    struct rooms *r = rooms;
    const uint64_t now = env_now_us(r->env);
    struct room_person *p = NULL;

    rooms_keep_again(r);
    room_agents_tick(r);
    while ((p = room_first_away(r)) != NULL && p->gone_us <= now)
        room_person_close(p, r);
    alarm_set(r->alarm, p == NULL || p->gone_us == UINT64_MAX ? 0 : p->gone_us);
    if (!list_is_empty(&r->sleeping))
        alarm_by(r->alarm, now + ROOM_AGENT_SLEEP_MS * (uint64_t)1000);
    if (!list_is_empty(&r->failing))
        alarm_by(r->alarm, now + ROOM_RETRY_MS * (uint64_t)1000);
    if (!list_is_empty(&r->notified) && !r->is_ending)
        alarm_by(r->alarm, now);
    rooms_restore_again(r);
}

void rooms_drain(void *rooms)
{
    ((struct rooms *)rooms)->is_draining = true;
}

void rooms_end(void *rooms)
{
    struct rooms *r = rooms;

    r->is_draining = r->is_ending = true;
    room_agents_end(r);
}

/* No reader is left, and what is kept stays. A room that is being read may have no person. */
static void rooms_free(struct rooms *r)
{
    struct room_person *p;
    struct hash_node *n, *next;

    assert(r->is_ending && r->n_readers == 0);
    rooms_restore_leave(r);
    while ((p = room_first_away(r)) != NULL)
        room_person_close(p, r);
    for (n = hash_each(&r->by_name, NULL); n != NULL; n = next) {
        next = hash_each(&r->by_name, n);
        room_free(container_of(n, struct room, node));
    }
    assert(r->by_name.n == 0 && r->by_token.n == 0 && r->bytes.held == 0);
}

static void room_person_lose_readers(struct room_person *p, const struct error *why)
{
    struct link *l;

    while ((l = list_first(&p->readers)) != NULL) {
        struct room_reader *reader = container_of(l, struct room_reader, link);

        room_reader_close(reader);
        reader->lost(reader, why);
    }
}

void rooms_leave(struct rooms *r, const struct error *why)
{
    if (r->is_ending)
        return;
    room_agents_unpin(r);
    room_agents_end(r);
    r->is_ending = true;
    for (struct hash_node *n = hash_each(&r->by_token, NULL); n != NULL;
         n = hash_each(&r->by_token, n))
        room_person_lose_readers(container_of(n, struct room_person, node), why);
    rooms_free(r);
    r->is_ending = false;
    rooms_restore_begin(r);
}

void rooms_deinit(void *rooms)
{
    struct rooms *r = rooms;

    r->is_ending = true;
    rooms_free(r);
    shared_limit_deinit(&r->n_rooms);
    shared_limit_deinit(&r->n_people);
    shared_limit_deinit(&r->bytes);
    sha256_close(r->sha256);
    hash_deinit(&r->by_name);
    hash_deinit(&r->by_pin);
    hash_deinit(&r->by_token);
}

/* --- readers --- */

void room_reader_init(struct room_reader *reader, struct rooms *r,
                      void (*notify)(struct room_reader *reader),
                      void (*lost)(struct room_reader *reader, const struct error *why))
{
    *reader = (struct room_reader){.rooms = r, .notify = notify, .lost = lost};
    list_init(&reader->cursors);
    list_init(&reader->acks);
}

enum status room_reader_hello(struct room_reader *reader, const struct principal *who,
                              const char *token, const char *name, struct error *err)
{
    struct rooms *r = reader->rooms;
    struct room_person *p = NULL;
    uint8_t proof[SHA256_BYTES];

    if (reader->person != NULL)
        return error_field(err, "hello", "came before");
    if (rooms_are_ready(r, err) != STATUS_OK)
        return err->status;
    if (token[0] == '\0') {
        if (room_person_make(&p, r, who->id, name, err) != STATUS_OK)
            return err->status;
    } else {
        if (room_token_hash(proof, r, token, err) != STATUS_OK)
            return err->status;
        p = room_person_find(r, who->id, proof);
        if (p == NULL)
            return error_because(err, STATUS_NOT_FOUND, REASON_NONE, "token",
                                 "nobody has this token any more: say hello without one");
        if (p->n_readers >= ROOM_READERS_OF_A_PERSON)
            return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, "token",
                                 "a person has at most %d connections: close one",
                                 ROOM_READERS_OF_A_PERSON);
        copy_room_text(p->token, sizeof(p->token), token);
    }
    list_push(&p->readers, &reader->link);
    p->n_readers++;
    reader->person = p;
    r->n_readers++;
    if (!link_is_on(&p->away))
        return STATUS_OK;
    list_remove(&p->away);
    for (struct link *l = list_first(&p->members); l != NULL; l = list_next(&p->members, l))
        room_member_changed(container_of(l, struct room_member, of));
    return STATUS_OK;
}

static void room_cursor_free(struct room_cursor *c)
{
    if (c->room != NULL)
        list_remove(&c->link);
    list_remove(&c->of);
    c->reader->n_cursors--;
    free(c);
}

void room_reader_close(struct room_reader *reader)
{
    struct rooms *r = reader->rooms;
    struct room_person *p = reader->person;
    struct link *l;

    while ((l = list_first(&reader->cursors)) != NULL)
        room_cursor_free(container_of(l, struct room_cursor, of));
    while ((l = list_first(&reader->acks)) != NULL)
        room_ack_free(container_of(l, struct room_ack, link));
    if (p == NULL)
        return;
    reader->person = NULL;
    list_remove(&reader->link);
    p->n_readers--;
    r->n_readers--;
    if (!list_is_empty(&p->readers))
        return;
    room_person_leaves(p, r);
    for (l = list_first(&p->members); l != NULL; l = list_next(&p->members, l)) {
        struct room_member *m = container_of(l, struct room_member, of);

        m->is_typing = false;
        room_member_changed(m);
    }
}

/* The member that changed first of those that the cursor has not seen change. */
static struct room_member *room_cursor_unseen(const struct room_cursor *c)
{
    struct room_member *first = NULL;

    if (c->seen == c->room->version)
        return NULL;
    for (struct link *l = list_first(&c->room->members); l != NULL;
         l = list_next(&c->room->members, l)) {
        struct room_member *m = container_of(l, struct room_member, link);

        if (m->version > c->seen && (first == NULL || m->version < first->version))
            first = m;
    }
    return first;
}

/* What agents are saying: a piece of one of them, from where the cursor has come to. */
static bool room_cursor_next_piece(struct room_cursor *c, struct room_piece *ret)
{
    struct link *l = list_first(&c->room->members);

    for (; l != NULL; l = list_next(&c->room->members, l)) {
        const struct room_member *m = container_of(l, struct room_member, link);

        ret->member = m;
        if (m->person->kind == ROOM_AGENT && room_agent_next_piece(m->person, c->heard, ret))
            return true;
    }
    return false;
}

static bool room_cursor_next(struct room_cursor *c, struct room_frame *ret)
{
    struct room *room = c->room;
    struct room_member *m;

    *ret = (struct room_frame){.room = room, .room_name = c->room_name};
    if (room == NULL) {
        ret->kind = ROOM_FRAME_OUT;
        ret->why = c->why;
        return true;
    }
    if (c->wants_snapshot) {
        c->wants_snapshot = false;
        c->seen = room->version;
        ret->kind = ROOM_FRAME_SNAPSHOT;
        ret->member = c->member;
        return true;
    }
    if (c->at != NULL) {
        ret->kind = ROOM_FRAME_ENTRY;
        ret->entry = c->at;
        c->at = room_entry_at(list_next(&room->log, &c->at->link));
        return true;
    }
    if (room->n_agents > 0 && room_cursor_next_piece(c, &ret->piece)) {
        ret->kind = ROOM_FRAME_PIECE;
        return true;
    }
    m = room_cursor_unseen(c);
    c->seen = m == NULL ? room->version : m->version;
    ret->kind = ROOM_FRAME_MEMBER;
    ret->member = m;
    return m != NULL;
}

static bool room_reader_next_ack(struct room_reader *reader, struct room_frame *ret)
{
    static struct room_ack ack; /* of one that is freed here */
    struct link *l = list_first(&reader->acks);

    if (l == NULL || !container_of(l, struct room_ack, link)->is_ready)
        return false; /* in the order of asking */
    ack = *container_of(l, struct room_ack, link);
    room_ack_free(container_of(l, struct room_ack, link));
    *ret = (struct room_frame){.kind = ROOM_FRAME_ACK, .room_name = ack.room_name, .ack = &ack};
    return true;
}

bool room_reader_next(struct room_reader *reader, struct room_frame *ret)
{
    struct link *l = list_first(&reader->cursors), *next;

    if (room_reader_next_ack(reader, ret))
        return true;

    for (; l != NULL; l = next) {
        struct room_cursor *c = container_of(l, struct room_cursor, of);
        static char name[ROOM_NAME_MAX_BYTES + 1]; /* of a cursor that is freed here */

        next = list_next(&reader->cursors, l);
        if (!room_cursor_next(c, ret))
            continue;
        if (c->room == NULL) {
            copy_room_text(name, sizeof(name), c->room_name);
            ret->room_name = name;
            room_cursor_free(c);
        } else { /* the other rooms come first the next time */
            list_remove(&c->of);
            list_push(&reader->cursors, &c->of);
        }
        return true;
    }
    return false;
}

/* --- what people do --- */

static enum status room_reader_act(struct room_reader *reader, struct error *err)
{
    if (reader->person == NULL)
        return error_set(err, STATUS_PRECONDITION, "hello must come first");
    if (reader->rooms->is_ending)
        return error_draining(err);
    return room_person_act(reader->person, reader->rooms, err);
}

static struct room_cursor *room_cursor_find(const struct room_reader *reader,
                                            const struct room *room)
{
    for (struct link *l = list_first(&reader->cursors); l != NULL;
         l = list_next(&reader->cursors, l)) {
        struct room_cursor *c = container_of(l, struct room_cursor, of);

        if (c->room == room)
            return c;
    }
    return NULL;
}

static void room_cursor_set(struct room_cursor *c, uint32_t after_seq, bool is_from_now)
{
    struct room *room = c->room;

    c->wants_snapshot = true;
    c->at = NULL;
    if (!is_from_now)
        for (struct link *l = list_first(&room->log); l != NULL && c->at == NULL;
             l = list_next(&room->log, l))
            if (room_entry_at(l)->seq > after_seq)
                c->at = room_entry_at(l);
    c->reader->notify(c->reader);
}

/* The reader's cursor in the room, made if there is none. NULL without memory. */
static struct room_cursor *room_cursor_get(struct room_reader *reader, struct room *room)
{
    struct room_cursor *c = room_cursor_find(reader, room);

    if (c != NULL || (c = try_alloc(1, sizeof(*c))) == NULL)
        return c;
    reader->n_cursors++;
    c->room = room;
    c->reader = reader;
    copy_room_text(c->room_name, sizeof(c->room_name), room->name);
    list_push(&room->cursors, &c->link);
    list_push(&reader->cursors, &c->of);
    return c;
}

static enum status room_enter(struct room_reader *reader, struct room *room, uint32_t after_seq,
                              bool is_from_now, struct error *err)
{
    struct room_person *p = reader->person;
    struct room_member *m = room_member_find(p, room->name);
    struct room_cursor *c;

    if (m == NULL && p->n_members >= ROOMS_OF_A_PERSON)
        return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, "room",
                             "a person is in at most %d rooms: leave one", ROOMS_OF_A_PERSON);
    if (reader->n_cursors >= ROOM_CURSORS_OF_A_READER && room_cursor_find(reader, room) == NULL)
        return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, "room",
                             "the connection has %d rooms and frames 'left' that it has not read: "
                             "read what was sent",
                             ROOM_CURSORS_OF_A_READER);
    if (!is_from_now && after_seq >= room_next_seq(room))
        return error_because(err, STATUS_RANGE, REASON_NONE, "after_seq",
                             "the room has no entry %u, its last is %u", after_seq,
                             room_next_seq(room) - 1);
    c = room_cursor_get(reader, room);
    if (c == NULL)
        return error_no_memory(err, sizeof(*c), "a reader of a room");
    if (m == NULL && room_member_join(&m, room, p, err) != STATUS_OK) {
        room_cursor_free(c);
        return err->status;
    }
    c->member = m;
    room_cursor_set(c, after_seq, is_from_now);
    return STATUS_OK;
}

enum status room_join(struct room_reader *reader, const char *name, uint32_t after_seq,
                      bool is_from_now, struct error *err)
{
    struct room *room;
    enum status rc = room_reader_act(reader, err);

    if (rc == STATUS_OK)
        rc = room_name_check(name, err);
    if (rc != STATUS_OK)
        return rc;
    room = rooms_find(reader->rooms, reader->person->principal, name);
    if (room == NULL) {
        if (room_open(&room, reader->rooms, reader->person->principal, name, err) != STATUS_OK)
            return err->status;
        rc = room_keep(room, err);
    }
    if (rc == STATUS_OK)
        rc = room_enter(reader, room, after_seq, is_from_now, err);
    room_close_if_empty(room);
    return rc;
}

static enum status room_reader_member(struct room_member **out, struct room_reader *reader,
                                      const char *name, struct error *err)
{
    if (reader->person == NULL)
        return error_set(err, STATUS_PRECONDITION, "hello must come first");
    *out = room_member_find(reader->person, name);
    if (*out == NULL)
        return error_because(err, STATUS_PRECONDITION, REASON_NONE, "room",
                             "'%.80s' is no room that the person is in: join it first", name);
    return STATUS_OK;
}

static enum status room_said_check(const struct room_said *said, const struct room *room,
                                   struct error *err)
{
    const size_t len = strlen(said->text);

    if (len == 0 || len > ROOM_TEXT_MAX_BYTES)
        return error_field(err, "text", "has %zu bytes, it must have 1 to %d", len,
                           ROOM_TEXT_MAX_BYTES);
    if (said->n_quick_replies > ROOM_MAX_QUICK_REPLIES)
        return error_field(err, "quick_replies", "are %zu, there may be %d", said->n_quick_replies,
                           ROOM_MAX_QUICK_REPLIES);
    for (size_t i = 0; i < said->n_quick_replies; i++)
        if (strlen(said->quick_replies[i]) > 4 * ROOM_QUICK_REPLY_MAX_CHARS ||
            !utf8_is_plain_line(said->quick_replies[i]) || said->quick_replies[i][0] == '\0' ||
            utf8_count(said->quick_replies[i]) > ROOM_QUICK_REPLY_MAX_CHARS)
            return error_field(err, "quick_replies", "has one that is not 1 to %d characters",
                               ROOM_QUICK_REPLY_MAX_CHARS);
    if (said->reply_to >= room_next_seq(room))
        return error_field(err, "reply_to", "is %u, the room's last entry is %u", said->reply_to,
                           room_next_seq(room) - 1);
    return STATUS_OK;
}

static bool room_entry_says(const struct room_entry *e, const struct room_said *said)
{
    if (strcmp(e->text, said->text) != 0 || e->reply_to != said->reply_to ||
        e->n_quick_replies != said->n_quick_replies)
        return false;
    for (size_t i = 0; i < said->n_quick_replies; i++)
        if (strcmp(e->quick_replies[i], said->quick_replies[i]) != 0)
            return false;
    return true;
}

/* The entry of what a member has said under a number, newest first. */
static struct room_entry *room_find_said(const struct list *entries, const char *from,
                                         uint32_t client_seq)
{
    for (struct link *l = list_last(entries); l != NULL && l != &entries->head; l = l->prev) {
        struct room_entry *e = room_entry_at(l);

        if (e->kind == ROOM_SAID && e->client_seq == client_seq && strcmp(e->from, from) == 0)
            return e;
    }
    return NULL;
}

/* Of a number that was used: the entry that it has. */
static enum status room_said_again(struct room_entry **out, const struct room_member *m,
                                   const struct room_said *said, struct error *err)
{
    struct room_entry *e = room_find_said(&m->room->pending, m->person->id, said->client_seq);

    if (e == NULL)
        e = room_find_said(&m->room->log, m->person->id, said->client_seq);
    if (e == NULL)
        return error_because(err, STATUS_PRECONDITION, REASON_NONE, "client_seq",
                             "%u was said long ago, the next is %u", said->client_seq,
                             m->client_seq + 1);
    if (!room_entry_says(e, said))
        return error_because(err, STATUS_EXISTS, REASON_NONE, "client_seq",
                             "%u was said with other words", said->client_seq);
    *out = e;
    return STATUS_OK;
}

/* Makes the reader's answer about an entry, which it is told once the entry is in the log. */
static enum status room_ack_make(struct room_ack **out, struct room_reader *reader,
                                 const struct room *room, uint32_t client_seq, struct error *err)
{
    struct room_ack *ack;

    if (reader->n_acks >= ROOM_ACKS_OF_A_READER)
        return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                             "%d acks of the connection are not read: read what was sent",
                             ROOM_ACKS_OF_A_READER);
    ack = try_alloc(1, sizeof(*ack));
    if (ack == NULL)
        return error_no_memory(err, sizeof(*ack), "an answer");
    ack->reader = reader;
    ack->client_seq = client_seq;
    copy_room_text(ack->room_name, sizeof(ack->room_name), room->name);
    list_push(&reader->acks, &ack->link);
    reader->n_acks++;
    *out = ack;
    return STATUS_OK;
}

static void room_ack_of(struct room_ack *ack, struct room_entry *e, bool is_pending)
{
    ack->seq = e->seq;
    ack->is_ready = !is_pending;
    if (is_pending)
        list_push(&e->acks, &ack->of_entry);
    else
        ack->reader->notify(ack->reader);
}

/* Appends what is said, and makes its answer. */
static enum status room_member_say(struct room_member *m, struct room_reader *reader,
                                   const struct room_said *said, uint32_t *ret_seq,
                                   struct error *err)
{
    const uint32_t before = m->client_seq;
    struct room *room = m->room;
    struct room_ack *ack = NULL;
    struct room_entry *e;

    if (room_ack_make(&ack, reader, room, said->client_seq, err) != STATUS_OK)
        return err->status;
    if (room_entry_make(&e, room, m->person, ROOM_SAID, said, err) != STATUS_OK) {
        room_ack_free(ack);
        return err->status;
    }
    room_ack_of(ack, e, true);
    if (said->client_seq != 0)
        m->client_seq = said->client_seq;
    room->n_chained = 0;
    *ret_seq = room->next_seq;
    if (room_append(room, e, err) != STATUS_OK) { /* which frees the ack */
        m->client_seq = before;
        return err->status;
    }
    m->is_typing = false; /* the entry says so */
    reader->rooms->n_said++;
    return STATUS_OK;
}

enum status room_say(struct room_reader *reader, const char *name, const struct room_said *said,
                     uint32_t *ret_seq, struct error *err)
{
    struct room_member *m;
    struct room_ack *ack = NULL;
    struct room_entry *e = NULL;

    if (room_reader_member(&m, reader, name, err) != STATUS_OK ||
        room_said_check(said, m->room, err) != STATUS_OK)
        return err->status;
    if (said->client_seq != 0 && said->client_seq <= m->client_seq) { /* it looks through the log */
        if (room_reader_act(reader, err) != STATUS_OK ||
            room_said_again(&e, m, said, err) != STATUS_OK ||
            room_ack_make(&ack, reader, m->room, said->client_seq, err) != STATUS_OK)
            return err->status;
        room_ack_of(ack, e, e->seq >= room_next_seq(m->room));
        *ret_seq = e->seq;
        return STATUS_OK;
    }
    if (said->client_seq > m->client_seq + 1)
        return error_because(err, STATUS_PRECONDITION, REASON_NONE, "client_seq",
                             "is %u, the next is %u", said->client_seq, m->client_seq + 1);
    if (room_reader_act(reader, err) != STATUS_OK)
        return err->status;
    return room_member_say(m, reader, said, ret_seq, err);
}

enum status room_type(struct room_reader *reader, const char *name, bool on, struct error *err)
{
    struct room_member *m;

    if (room_reader_member(&m, reader, name, err) != STATUS_OK)
        return err->status;
    if (m->is_typing == on)
        return STATUS_OK;
    if (room_reader_act(reader, err) != STATUS_OK)
        return err->status;
    m->is_typing = on;
    room_member_changed(m);
    return STATUS_OK;
}

enum status room_leave(struct room_reader *reader, const char *name, struct error *err)
{
    struct room_member *m;

    if (room_reader_member(&m, reader, name, err) != STATUS_OK)
        return err->status;
    if (reader->rooms->is_ending)
        return error_draining(err);
    room_member_leave(m, "left");
    return STATUS_OK;
}

bool room_reader_waits(const struct room_reader *reader)
{
    return reader->n_acks > 0;
}

/* --- agents, by the wish of members --- */

enum status room_reader_invite(struct room_reader *reader, const char *name,
                               const struct room_invitation *i, struct error *err)
{
    struct room_person *agent;
    struct room_member *m;

    if (room_reader_member(&m, reader, name, err) != STATUS_OK ||
        room_reader_act(reader, err) != STATUS_OK)
        return err->status;
    return room_invite(&agent, m->room, i, err);
}

enum status room_reader_dismiss(struct room_reader *reader, const char *name,
                                const char *participant, struct error *err)
{
    struct room_member *m;
    struct room_person *p;

    if (room_reader_member(&m, reader, name, err) != STATUS_OK ||
        room_reader_act(reader, err) != STATUS_OK)
        return err->status;
    p = room_person_of(m->room, participant);
    if (p == NULL || p->kind != ROOM_AGENT)
        return error_because(err, STATUS_NOT_FOUND, REASON_NONE, "participant",
                             "'%.32s' is no agent that members have invited", participant);
    room_member_leave(room_member_find(p, m->room->name), "dismissed");
    return STATUS_OK;
}

enum status room_reader_stop(struct room_reader *reader, const char *name, struct error *err)
{
    struct room_member *m;

    if (room_reader_member(&m, reader, name, err) != STATUS_OK ||
        room_reader_act(reader, err) != STATUS_OK)
        return err->status;
    for (struct link *l = list_first(&m->room->members); l != NULL;
         l = list_next(&m->room->members, l))
        room_agent_stop(container_of(l, struct room_member, link)->person);
    return STATUS_OK;
}

/* --- metrics --- */

void rooms_metrics(const struct rooms *r, struct buf *out)
{
    static const struct metric_row rows[] = {
        METRIC("gauge", "parley_rooms", "Rooms.", rooms, n_rooms.held),
        METRIC("gauge", "parley_rooms_people", "People in rooms, those away too.", rooms,
               n_people.held),
        METRIC("gauge", "parley_rooms_readers", "Connections that read rooms.", rooms, n_readers),
        METRIC("gauge", "parley_rooms_bytes", "Bytes of the rooms' logs.", rooms, bytes.held),
        METRIC("counter", "parley_rooms_said_total", "What people have said in rooms.", rooms,
               n_said),
        METRIC("counter", "parley_rooms_answers_total", "What agents have said in rooms.", rooms,
               n_answers),
    };

    METRIC_ROWS(out, rows, r);
}
