/* Rooms, the people in them, and the cursors of their connections. An entry is appended once, and
 * each cursor points to the next entry that its reader is to take; presence and typing have a
 * version, up to which a cursor has seen them.
 *
 * A person whose last connection is lost is away, and after a while leaves by rooms_tick. What is
 * needed for that is allocated when the person joins, so leaving never fails. */
#include "server/room/rooms.h"

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

struct room_person {
    struct hash_node node; /* in rooms.by_token */
    struct link away;      /* in rooms.away, while no reader is there */
    struct list members;   /* of struct room_member */
    size_t n_members;
    struct list readers;
    uint32_t principal;
    uint64_t gone_us;   /* when its grace is over, while it is away */
    uint64_t acted_us;  /* up to when its acts are counted */
    uint64_t credit_us; /* how long it could act without waiting */
    char id[ROOM_ID_CHARS + 1];
    char token[ROOM_TOKEN_CHARS + 1];
    char name[ROOM_PERSON_MAX_BYTES + 1];
};

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
    const char *why; /* where room is NULL; static */
    char room_name[ROOM_NAME_MAX_BYTES + 1];
};

static const uint64_t act_us = 1000000 / ROOM_ACTS_PER_S;

void rooms_init(struct rooms *r, const struct env *env, uint64_t (*unix_ms)(void),
                struct alarm *alarm)
{
    *r = (struct rooms){.env = env, .unix_ms = unix_ms, .alarm = alarm};
    hash_init(&r->by_name, env);
    hash_init(&r->by_token, NULL); /* tokens are random */
    list_init(&r->away);
    shared_limit_init(&r->n_rooms, &kind_of_rooms, ROOMS_MAX);
    shared_limit_init(&r->n_people, &kind_of_people, ROOMS_MAX_PEOPLE);
    shared_limit_init(&r->bytes, &kind_of_room_bytes, ROOMS_MAX_BYTES);
}

/* --- entries --- */

static void copy_room_text(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text);
}

/* Makes an entry with copies of what is said, and takes its bytes of the limit. */
static enum status room_entry_make(struct room_entry **out, struct rooms *r,
                                   const struct room_person *p, enum room_entry_kind kind,
                                   const struct room_said *said, struct error *err)
{
    size_t size =
        sizeof(struct room_entry) + said->n_quick_replies * sizeof(char *) + strlen(said->text) + 1;
    struct room_entry *e;
    const char **quick;
    char *at;

    for (size_t i = 0; i < said->n_quick_replies; i++)
        size += strlen(said->quick_replies[i]) + 1;
    if (shared_limit_take(&r->bytes, p->principal, size, err) != STATUS_OK)
        return err->status;
    e = try_alloc(1, size);
    if (e == NULL) {
        shared_limit_give(&r->bytes, p->principal, size);
        return error_no_memory(err, size, "an entry of a room");
    }
    e->kind = kind;
    e->client_seq = said->client_seq;
    e->reply_to = said->reply_to;
    e->size_bytes = size;
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

static void room_entry_free(struct room_entry *e, struct rooms *r, uint32_t principal)
{
    if (e == NULL)
        return;
    shared_limit_give(&r->bytes, principal, e->size_bytes);
    free(e);
}

uint32_t room_first_seq(const struct room *room)
{
    return room->next_seq - (uint32_t)room->n_entries;
}

static struct room_entry *room_entry_at(struct link *l)
{
    return l == NULL ? NULL : container_of(l, struct room_entry, link);
}

static void room_notify(struct room *room)
{
    for (struct link *l = list_first(&room->cursors); l != NULL; l = list_next(&room->cursors, l)) {
        struct room_reader *reader = container_of(l, struct room_cursor, link)->reader;

        reader->notify(reader);
    }
}

/* A reader that has not taken the oldest entry goes on behind it, with a snapshot that says from
 * where. */
static void room_drop_oldest(struct room *room)
{
    struct room_entry *e = room_entry_at(list_first(&room->log));

    for (struct link *l = list_first(&room->cursors); l != NULL; l = list_next(&room->cursors, l)) {
        struct room_cursor *c = container_of(l, struct room_cursor, link);

        if (c->at != e)
            continue;
        c->at = room_entry_at(list_next(&room->log, &e->link));
        c->wants_snapshot = true;
    }
    list_remove(&e->link);
    room->n_entries--;
    room_entry_free(e, room->rooms, room->principal);
}

/* Takes e. */
static void room_append(struct room *room, struct room_entry *e)
{
    e->seq = room->next_seq++;
    e->unix_ms = room->rooms->unix_ms();
    list_push(&room->log, &e->link);
    room->n_entries++;
    for (struct link *l = list_first(&room->cursors); l != NULL; l = list_next(&room->cursors, l)) {
        struct room_cursor *c = container_of(l, struct room_cursor, link);

        if (c->at == NULL)
            c->at = e;
    }
    if (room->n_entries > ROOM_MAX_ENTRIES)
        room_drop_oldest(room);
    room_notify(room);
}

/* --- rooms --- */

static uint64_t room_hash(const struct rooms *r, uint32_t principal, const char *name)
{
    return hash_text(&r->by_name, hash_bytes(&r->by_name, 0, &principal, sizeof(principal)), name);
}

static struct room *room_find(const struct rooms *r, uint32_t principal, const char *name)
{
    struct hash_node *n = hash_first(&r->by_name, room_hash(r, principal, name));

    for (; n != NULL; n = hash_next(n)) {
        struct room *room = container_of(n, struct room, node);

        if (room->principal == principal && strcmp(room->name, name) == 0)
            return room;
    }
    return NULL;
}

/* No control character, and none that turns the direction of what stands beside it. */
static bool is_plain_line(const char *text)
{
    const size_t len = strlen(text);
    uint32_t c;

    for (size_t at = 0, n; at < len; at += n) {
        n = utf8_decode(text + at, len - at, &c);
        if (n == 0 || c < ' ' || (c >= 0x7f && c < 0xa0) || (c >= 0x2028 && c <= 0x202e) ||
            (c >= 0x2066 && c <= 0x2069))
            return false;
    }
    return true;
}

static enum status room_name_check(const char *name, struct error *err)
{
    const size_t len = strlen(name);

    if (len == 0 || len > ROOM_NAME_MAX_BYTES)
        return error_field(err, "room", "has %zu bytes, it must have 1 to %d", len,
                           ROOM_NAME_MAX_BYTES);
    if (!is_plain_line(name))
        return error_field(err, "room", "has a control character, or is not UTF-8");
    return STATUS_OK;
}

static enum status room_open(struct room **out, struct rooms *r, uint32_t principal,
                             const char *name, struct error *err)
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
    list_init(&room->cursors);
    copy_room_text(room->name, sizeof(room->name), name);
    hash_add(&r->by_name, &room->node, room_hash(r, principal, name));
    *out = room;
    return STATUS_OK;
}

static void room_close_if_empty(struct room *room)
{
    struct rooms *r = room->rooms;
    struct link *l;

    if (room->n_members > 0)
        return;
    assert(list_is_empty(&room->cursors));
    while ((l = list_pop(&room->log)) != NULL)
        room_entry_free(room_entry_at(l), r, room->principal);
    hash_remove(&r->by_name, &room->node);
    shared_limit_give(&r->n_rooms, room->principal, 1);
    free(room);
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
    return list_is_empty(&p->readers) ? ROOM_AWAY : ROOM_HERE;
}

static void draw_hex(const struct rooms *r, char *out, size_t n_chars)
{
    unsigned char bytes[ROOM_TOKEN_CHARS / 2];

    assert(n_chars <= 2 * sizeof(bytes));
    r->env->random(r->env->self, bytes, n_chars / 2);
    for (size_t i = 0; i < n_chars / 2; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static struct room_person *room_person_find(const struct rooms *r, uint32_t principal,
                                            const char *token)
{
    struct hash_node *n = hash_first(&r->by_token, hash_text(&r->by_token, 0, token));

    for (; n != NULL; n = hash_next(n)) {
        struct room_person *p = container_of(n, struct room_person, node);

        if (p->principal == principal && strcmp(p->token, token) == 0)
            return p;
    }
    return NULL;
}

static enum status room_person_make(struct room_person **out, struct rooms *r, uint32_t principal,
                                    const char *name, struct error *err)
{
    struct room_person *p = NULL;

    if (strlen(name) > ROOM_PERSON_MAX_BYTES || !is_plain_line(name) ||
        utf8_count(name) > ROOM_PERSON_MAX_CHARS)
        return error_field(err, "name", "must be one line of at most %d characters",
                           ROOM_PERSON_MAX_CHARS);
    if (shared_limit_take(&r->n_people, principal, 1, err) != STATUS_OK)
        return err->status;
    p = try_alloc(1, sizeof(*p));
    if (p == NULL) {
        shared_limit_give(&r->n_people, principal, 1);
        return error_no_memory(err, sizeof(*p), "a person");
    }
    list_init(&p->members);
    list_init(&p->readers);
    link_init(&p->away);
    p->principal = principal;
    p->acted_us = env_now_us(r->env);
    p->credit_us = ROOM_ACTS_AT_ONCE * act_us;
    draw_hex(r, p->id, ROOM_ID_CHARS);
    draw_hex(r, p->token, ROOM_TOKEN_CHARS);
    if (name[0] == '\0')
        (void)snprintf(p->name, sizeof(p->name), "guest %.4s", p->id);
    else
        copy_room_text(p->name, sizeof(p->name), name);
    hash_add(&r->by_token, &p->node, hash_text(&r->by_token, 0, p->token));
    *out = p;
    return STATUS_OK;
}

/* Each act costs a part of a second; EXHAUSTED says when the next may come. */
static enum status room_person_act(struct room_person *p, const struct rooms *r, struct error *err)
{
    const uint64_t now = env_now_us(r->env), most = ROOM_ACTS_AT_ONCE * act_us;

    p->credit_us += now - p->acted_us;
    p->acted_us = now;
    if (p->credit_us > most)
        p->credit_us = most;
    if (p->credit_us < act_us) {
        (void)error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                            "a person does at most %d things a second in rooms", ROOM_ACTS_PER_S);
        err->retry_after_ms = (uint32_t)((act_us - p->credit_us + 999) / 1000);
        return err->status;
    }
    p->credit_us -= act_us;
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

static void room_member_changed(struct room_member *m)
{
    m->version = ++m->room->version;
    room_notify(m->room);
}

/* Makes the person a member, with the entry of its end; *ret_joined is the entry of its begin. */
static enum status room_member_open(struct room_member **out, struct room *room,
                                    struct room_person *p, struct room_entry **ret_joined,
                                    struct error *err)
{
    static const struct room_said nothing = {.text = ""}, gone = {.text = "gone"};
    struct rooms *r = room->rooms;
    struct room_entry *joined = NULL, *left = NULL;
    struct room_member *m = NULL;
    enum status rc = STATUS_OK;

    if (room->n_members >= ROOM_MAX_MEMBERS)
        return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, "room",
                             "the room is full: %d people are in it", ROOM_MAX_MEMBERS);
    rc = room_entry_make(&joined, r, p, ROOM_JOINED, &nothing, err);
    if (rc == STATUS_OK)
        rc = room_entry_make(&left, r, p, ROOM_LEFT, &gone, err);
    if (rc == STATUS_OK && (m = try_alloc(1, sizeof(*m))) == NULL)
        rc = error_no_memory(err, sizeof(*m), "a member of a room");
    if (rc != STATUS_OK) {
        room_entry_free(joined, r, p->principal);
        room_entry_free(left, r, p->principal);
        return rc;
    }
    m->room = room;
    m->person = p;
    m->left = left;
    m->version = room->version; /* the entry says that it is here */
    list_push(&room->members, &m->link);
    list_push(&p->members, &m->of);
    room->n_members++;
    p->n_members++;
    *ret_joined = joined;
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

/* why is static: "left", "gone". */
static void room_member_leave(struct room_member *m, const char *why)
{
    struct room *room = m->room;
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
    m->person->n_members--;
    free(m);
    left->text = why;
    room_append(room, left);
    room_close_if_empty(room);
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

    while ((p = room_first_away(r)) != NULL && p->gone_us <= now)
        room_person_close(p, r);
    alarm_set(r->alarm, p == NULL ? 0 : p->gone_us);
}

void rooms_deinit(void *rooms)
{
    struct rooms *r = rooms;
    struct room_person *p = NULL;

    assert(r->n_readers == 0);
    while ((p = room_first_away(r)) != NULL)
        room_person_close(p, r);
    assert(r->by_name.n == 0 && r->by_token.n == 0 && r->bytes.held == 0);
    shared_limit_deinit(&r->n_rooms);
    shared_limit_deinit(&r->n_people);
    shared_limit_deinit(&r->bytes);
    hash_deinit(&r->by_name);
    hash_deinit(&r->by_token);
}

/* --- readers --- */

void room_reader_init(struct room_reader *reader, struct rooms *r,
                      void (*notify)(struct room_reader *reader))
{
    *reader = (struct room_reader){.rooms = r, .notify = notify};
    list_init(&reader->cursors);
}

enum status room_reader_hello(struct room_reader *reader, const struct principal *who,
                              const char *token, const char *name, struct error *err)
{
    struct rooms *r = reader->rooms;
    struct room_person *p = NULL;

    if (reader->person != NULL)
        return error_field(err, "hello", "came before");
    if (token[0] == '\0') {
        if (room_person_make(&p, r, who->id, name, err) != STATUS_OK)
            return err->status;
    } else {
        p = room_person_find(r, who->id, token);
        if (p == NULL)
            return error_because(err, STATUS_NOT_FOUND, REASON_NONE, "token",
                                 "nobody has this token any more: say hello without one");
    }
    list_push(&p->readers, &reader->link);
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
    free(c);
}

void room_reader_close(struct room_reader *reader)
{
    struct rooms *r = reader->rooms;
    struct room_person *p = reader->person;
    struct link *l;

    while ((l = list_first(&reader->cursors)) != NULL)
        room_cursor_free(container_of(l, struct room_cursor, of));
    if (p == NULL)
        return;
    reader->person = NULL;
    list_remove(&reader->link);
    r->n_readers--;
    if (!list_is_empty(&p->readers))
        return;
    p->gone_us = env_now_us(r->env) + ROOM_GRACE_MS * (uint64_t)1000;
    list_push(&r->away, &p->away);
    alarm_by(r->alarm, p->gone_us);
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
    m = room_cursor_unseen(c);
    c->seen = m == NULL ? room->version : m->version;
    ret->kind = ROOM_FRAME_MEMBER;
    ret->member = m;
    return m != NULL;
}

bool room_reader_next(struct room_reader *reader, struct room_frame *ret)
{
    struct link *l = list_first(&reader->cursors), *next;

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
    struct room_entry *joined = NULL;
    struct room_cursor *c;

    if (m == NULL && p->n_members >= ROOMS_OF_A_PERSON)
        return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, "room",
                             "a person is in at most %d rooms: leave one", ROOMS_OF_A_PERSON);
    if (!is_from_now && after_seq >= room->next_seq)
        return error_because(err, STATUS_RANGE, REASON_NONE, "after_seq",
                             "the room has no entry %u, its last is %u", after_seq,
                             room->next_seq - 1);
    c = room_cursor_get(reader, room);
    if (c == NULL)
        return error_no_memory(err, sizeof(*c), "a reader of a room");
    if (m == NULL && room_member_open(&m, room, p, &joined, err) != STATUS_OK) {
        room_cursor_free(c);
        return err->status;
    }
    c->member = m;
    if (joined != NULL)
        room_append(room, joined);
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
    room = room_find(reader->rooms, reader->person->principal, name);
    if (room == NULL &&
        room_open(&room, reader->rooms, reader->person->principal, name, err) != STATUS_OK)
        return err->status;
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
            !is_plain_line(said->quick_replies[i]) || said->quick_replies[i][0] == '\0' ||
            utf8_count(said->quick_replies[i]) > ROOM_QUICK_REPLY_MAX_CHARS)
            return error_field(err, "quick_replies", "has one that is not 1 to %d characters",
                               ROOM_QUICK_REPLY_MAX_CHARS);
    if (said->reply_to >= room->next_seq)
        return error_field(err, "reply_to", "is %u, the room's last entry is %u", said->reply_to,
                           room->next_seq - 1);
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

/* Of a number that was used: the entry that it has. */
static enum status room_said_again(const struct room_member *m, const struct room_said *said,
                                   uint32_t *ret_seq, struct error *err)
{
    const struct room *room = m->room;

    for (struct link *l = list_last(&room->log); l != NULL && l != &room->log.head; l = l->prev) {
        const struct room_entry *e = room_entry_at(l);

        if (e->kind != ROOM_SAID || e->client_seq != said->client_seq ||
            strcmp(e->from, m->person->id) != 0)
            continue;
        if (!room_entry_says(e, said))
            return error_because(err, STATUS_EXISTS, REASON_NONE, "client_seq",
                                 "%u was said with other words", said->client_seq);
        *ret_seq = e->seq;
        return STATUS_OK;
    }
    return error_because(err, STATUS_PRECONDITION, REASON_NONE, "client_seq",
                         "%u was said long ago, the next is %u", said->client_seq,
                         m->client_seq + 1);
}

enum status room_say(struct room_reader *reader, const char *name, const struct room_said *said,
                     uint32_t *ret_seq, struct error *err)
{
    struct room_member *m;
    struct room_entry *e;

    if (room_reader_member(&m, reader, name, err) != STATUS_OK ||
        room_said_check(said, m->room, err) != STATUS_OK)
        return err->status;
    if (said->client_seq != 0 && said->client_seq <= m->client_seq)
        return room_reader_act(reader, err) != STATUS_OK
                   ? err->status
                   : room_said_again(m, said, ret_seq, err); /* it looks through the log */
    if (said->client_seq > m->client_seq + 1)
        return error_because(err, STATUS_PRECONDITION, REASON_NONE, "client_seq",
                             "is %u, the next is %u", said->client_seq, m->client_seq + 1);
    if (room_reader_act(reader, err) != STATUS_OK ||
        room_entry_make(&e, reader->rooms, m->person, ROOM_SAID, said, err) != STATUS_OK)
        return err->status;
    if (said->client_seq != 0)
        m->client_seq = said->client_seq;
    m->is_typing = false; /* the entry says so */
    reader->rooms->n_said++;
    *ret_seq = m->room->next_seq;
    room_append(m->room, e);
    return STATUS_OK;
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
    room_member_leave(m, "left");
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
    };

    METRIC_ROWS(out, rows, r);
}
