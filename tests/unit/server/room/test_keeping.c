/* Rooms and a journal whose store is in memory: what a later process has of them. The store
 * outlives the rooms, as a disk does. */
#include "server/room/rooms.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "server/access/access.h"
#include "server/conversation/conversations.h"
#include "server/journal/body_bytes.h"
#include "tests/support/memory_store.h"
#include "tests/unit/base/suite.h"

static uint64_t now_us;
static unsigned drawn;
static uv_loop_t loop;
static struct journal *j;
static struct alarm alarm_of_rooms;
static struct rooms r;
static struct conversations all; /* there is none */
static const struct principal only = {.name = ""};
static unsigned n_lost, n_arrived;
static bool is_again_elsewhere; /* what is read next was read under another epoch */

static uint64_t clock_now_us(void *self)
{
    return now_us;
}

static void clock_random(void *self, void *out, size_t n_bytes)
{
    memset(out, 0, n_bytes);
    memcpy(out, &drawn, n_bytes < sizeof(drawn) ? n_bytes : sizeof(drawn));
    drawn++;
}

static const struct env fake_env = {clock_now_us, clock_random, NULL};

static uint64_t wall_ms(void)
{
    return 1700000000000 + now_us / 1000;
}

static const char *name_of(void *self, uint32_t principal)
{
    return only.name;
}

static const struct principal *find_only(void *self, const char *name)
{
    return &only;
}

static void leave(void)
{
    struct error why;

    (void)error_set(&why, STATUS_UNAVAILABLE, "another parleyd has this now: ask again");
    rooms_leave(&r, &why);
}

static bool on_arrived(void *self, uint64_t epoch)
{
    const bool is_right = !is_again_elsewhere;

    n_arrived++;
    is_again_elsewhere = false;
    if (!is_right)
        leave();
    return is_right;
}

static bool is_ready(void)
{
    return r.restore == NULL;
}

static void run_until(bool (*holds)(void))
{
    while (!holds())
        (void)uv_run(&loop, UV_RUN_ONCE);
}

/* What was appended is in the store, or was refused. */
static void settle(void)
{
    memory_store_settle(j, &loop);
}

static void pass_ms(uint64_t ms)
{
    now_us += ms * 1000;
    if (alarm_of_rooms.at_us != 0 && alarm_of_rooms.at_us <= now_us)
        alarm_ring(&alarm_of_rooms);
}

/* A process. max_waiting_bytes as of struct journal_config: a forget is refused behind it. */
static void start(size_t max_waiting_bytes)
{
    struct rooms_keeping keeping = {
        .principal_name = name_of, .find_principal = find_only, .arrived = on_arrived};

    now_us += 1000000;
    j = memory_store_open(&loop, max_waiting_bytes);
    alarm_of_rooms = (struct alarm){.tick = rooms_tick, .owner = &r};
    rooms_init(&r, &fake_env, wall_ms, &alarm_of_rooms);
    rooms_set_agents(&r, &all, NULL);
    keeping.journal = j;
    rooms_keep(&r, &keeping);
}

/* The readers are closed. */
static void stop(void)
{
    rooms_end(&r);
    rooms_restore_leave(&r);
    memory_store_close(j, &loop);
    rooms_deinit(&r);
}

static void on_notify(struct room_reader *reader)
{
}

static void on_lost(struct room_reader *reader, const struct error *why)
{
    ck_assert_ptr_null(reader->person);
    ck_assert_int_eq(why->status, STATUS_UNAVAILABLE);
    n_lost++;
}

static enum status attach(struct room_reader *reader, const char *token)
{
    struct error err;

    room_reader_init(reader, &r, on_notify, on_lost);
    return room_reader_hello(reader, &only, token, "ann", &err);
}

static enum status join(struct room_reader *reader, const char *room)
{
    struct error err;

    return room_join(reader, room, 0, false, &err);
}

static enum status say(struct room_reader *reader, const char *room, uint32_t client_seq)
{
    const struct room_said said = {.text = "hello", .client_seq = client_seq};
    struct error err;
    uint32_t seq;

    return room_say(reader, room, &said, &seq, &err);
}

/* --- tests --- */

/* Whatever allocation fails, a later process has both the entry and its number, or neither. */
START_TEST(test_both_or_none)
{
    char token[ROOM_TOKEN_CHARS + 1];
    struct room_reader ann;
    enum status rc = STATUS_EXHAUSTED;

    for (long n = 0; rc != STATUS_OK; n++) {
        store.n = 0;
        start(0);
        run_until(is_ready);
        ck_assert_int_eq(attach(&ann, ""), STATUS_OK);
        ck_assert_int_eq(join(&ann, "den"), STATUS_OK);
        (void)snprintf(token, sizeof(token), "%s", room_person_token(ann.person));
        settle();
        fault_after = n;
        rc = say(&ann, "den", 1);
        fault_after = -1;
        settle();
        room_reader_close(&ann);
        stop();
        start(0);
        run_until(is_ready);
        ck_assert_int_eq(attach(&ann, token), STATUS_OK);
        ck_assert_int_eq(join(&ann, "den"), STATUS_OK);
        ck_assert_int_eq(say(&ann, "den", 1), STATUS_OK); /* the same, or now */
        settle();
        ck_assert_uint_eq(room_next_seq(rooms_find(&r, only.id, "den")), 3);
        room_reader_close(&ann);
        stop();
    }
}
END_TEST

/* An ended room leaves nothing, and where the journal could not forget it, a later room of its name
 * has nothing of it. */
START_TEST(test_lives)
{
    struct room_reader ann;
    struct error err;

    for (size_t max_waiting_bytes = 0; max_waiting_bytes < 2; max_waiting_bytes++) {
        store.n = 0;
        start(max_waiting_bytes);
        run_until(is_ready);
        ck_assert_int_eq(attach(&ann, ""), STATUS_OK);
        ck_assert_int_eq(join(&ann, "den"), STATUS_OK);
        for (uint32_t i = 1; i <= 3; i++)
            ck_assert_int_eq(say(&ann, "den", i), STATUS_OK);
        settle();
        ck_assert_int_eq(room_leave(&ann, "den", &err), STATUS_OK);
        settle();
        ck_assert(max_waiting_bytes != 0 || store.n == 0);
        ck_assert_int_eq(join(&ann, "den"), STATUS_OK);
        settle();
        room_reader_close(&ann);
        stop();
        start(0);
        run_until(is_ready);
        ck_assert_uint_eq(room_next_seq(rooms_find(&r, only.id, "den")), 2);
        settle();
        ck_assert_uint_eq(store.n, 3); /* the room, ann, and her coming */
        stop();
    }
}
END_TEST

static bool is_known(void)
{
    const struct conversation_id id = {{1}};

    return !conversations_is_pinned(&all, &id);
}

/* Whether a room needs a conversation is unknown while that is being read, and not for ever: where
 * another process has the rooms, none here is needed. A read that failed comes again. */
START_TEST(test_unknown)
{
    struct conversation c = {.all = &all, .id = {{1}}};
    struct room_reader ann;
    struct error err;

    store.n = 0;
    store.is_failing = true;
    start(0);
    ck_assert_int_eq(conversation_check_pins(&c, &err), STATUS_UNAVAILABLE);
    settle();
    while (alarm_of_rooms.at_us == 0) /* the read ends behind what was appended */
        (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(conversation_check_pins(&c, &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(attach(&ann, ""), STATUS_UNAVAILABLE);
    room_reader_close(&ann);
    store.is_failing = false;
    pass_ms(ROOM_RETRY_MS);
    run_until(is_ready);
    ck_assert(is_known());
    stop();
    store.is_elsewhere = true;
    start(0);
    ck_assert_int_eq(conversation_check_pins(&c, &err), STATUS_UNAVAILABLE);
    run_until(is_known);
    ck_assert_int_eq(conversation_check_pins(&c, &err), STATUS_OK);
    ck_assert_int_eq(attach(&ann, ""), STATUS_UNAVAILABLE);
    room_reader_close(&ann);
    stop();
    store.is_elsewhere = false;
}
END_TEST

/* Makes what ann said last an agent's words, which its conversation has. */
static void give_words_to_agent(void)
{
    struct kept *last = &store.kept[store.n - 1];
    struct body_writer w = {0};
    struct buf body;

    buf_init(&body, KEPT_BODY_MAX);
    w.out = &body;
    ck_assert_int_eq(buf_append(&body, last->body, last->size_bytes - sizeof(uint64_t)), STATUS_OK);
    body_put_text(&w, "01000000000000000000000000000000"); /* in place of "" */
    body_put_u32(&w, 1);
    body_put_u32(&w, 1);
    body_put_text(&w, "stop");
    body_put_u32(&w, 0);
    ck_assert(!w.has_failed);
    journal_put_sum(body.data, body.len);
    memcpy(last->body, body.data, body.len);
    last->size_bytes = body.len;
    buf_deinit(&body);
}

static bool has_failed_by_id(void)
{
    return alarm_of_rooms.at_us != 0 && store.n_by_id == 1;
}

/* Where an agent's words cannot be read now they are asked for again, and people wait. */
START_TEST(test_words_later)
{
    struct room_reader ann;

    store.n = 0;
    start(0);
    run_until(is_ready);
    ck_assert_int_eq(attach(&ann, ""), STATUS_OK);
    ck_assert_int_eq(join(&ann, "den"), STATUS_OK);
    ck_assert_int_eq(say(&ann, "den", 1), STATUS_OK);
    settle();
    room_reader_close(&ann);
    stop();
    give_words_to_agent();
    store.n_failing = 1;
    start(0);
    all.keeping.journal = j;
    run_until(has_failed_by_id);
    ck_assert_int_eq(attach(&ann, ""), STATUS_UNAVAILABLE);
    room_reader_close(&ann);
    pass_ms(ROOM_RETRY_MS);
    run_until(is_ready);
    ck_assert_uint_eq(store.n_by_id, 2);
    ck_assert_ptr_nonnull(rooms_find(&r, only.id, "den"));
    all.keeping.journal = NULL;
    stop();
}
END_TEST

/* An answer that an earlier version took, and no frame takes, is an entry that says so. */
START_TEST(test_large_words)
{
    const struct room_entry *e;
    struct room_reader ann;

    for (size_t more = 0; more < 2; more++) {
        store.n = 0;
        start(0);
        run_until(is_ready);
        ck_assert_int_eq(attach(&ann, ""), STATUS_OK);
        ck_assert_int_eq(join(&ann, "den"), STATUS_OK);
        ck_assert_int_eq(say(&ann, "den", 1), STATUS_OK);
        settle();
        room_reader_close(&ann);
        stop();
        memory_store_enlarge('e', "hello", ROOM_ANSWER_MAX_BYTES + more);
        start(0);
        run_until(is_ready);
        e = container_of(list_last(&rooms_find(&r, only.id, "den")->log), const struct room_entry,
                         link);
        ck_assert_uint_eq(e->seq, 2);
        ck_assert_int_eq(e->kind, (more == 0 ? ROOM_SAID : ROOM_FAILED));
        if (more == 0)
            ck_assert_uint_eq(strlen(e->text), ROOM_ANSWER_MAX_BYTES);
        else
            ck_assert_str_eq(e->text, "the answer has more than 131072 bytes");
        stop();
    }
}
END_TEST

/* People have their grace from when they can come back, however long the reading took. */
START_TEST(test_grace_of_restored)
{
    char token[ROOM_TOKEN_CHARS + 1];
    struct room_reader ann;

    store.n = 0;
    start(0);
    run_until(is_ready);
    ck_assert_int_eq(attach(&ann, ""), STATUS_OK);
    ck_assert_int_eq(join(&ann, "den"), STATUS_OK);
    (void)snprintf(token, sizeof(token), "%s", room_person_token(ann.person));
    settle();
    room_reader_close(&ann);
    stop();
    start(0);
    run_until(is_ready);
    pass_ms(ROOM_GRACE_MS - 1);
    ck_assert_int_eq(attach(&ann, token), STATUS_OK);
    room_reader_close(&ann);
    pass_ms(ROOM_GRACE_MS);
    ck_assert_int_eq(attach(&ann, token), STATUS_NOT_FOUND);
    ck_assert_ptr_null(rooms_find(&r, only.id, "den"));
    room_reader_close(&ann);
    settle();
    ck_assert_uint_eq(store.n, 0);
    stop();
}
END_TEST

/* Another process has had the rooms for a while: readers are told, nothing stays in memory, what
 * was being written is forgotten, and what the journal has is read again, as often as it must be.
 */
START_TEST(test_left)
{
    char token[ROOM_TOKEN_CHARS + 1];
    struct room_reader readers[2], *ann = &readers[0];
    size_t n_kept;

    store.n = 0;
    start(0);
    run_until(is_ready);
    ck_assert_int_eq(attach(ann, ""), STATUS_OK);
    ck_assert_int_eq(join(ann, "den"), STATUS_OK);
    ck_assert_int_eq(say(ann, "den", 1), STATUS_OK);
    (void)snprintf(token, sizeof(token), "%s", room_person_token(ann->person));
    ck_assert_int_eq(attach(&readers[1], token), STATUS_OK);
    settle();
    n_kept = store.n;
    store.is_full = true;
    ck_assert_int_eq(say(ann, "den", 2), STATUS_OK);
    n_lost = n_arrived = 0;
    is_again_elsewhere = true;
    leave();
    ck_assert_uint_eq(n_lost, 2);
    ck_assert_uint_eq(r.n_readers + r.by_name.n + r.by_token.n + r.bytes.held + r.n_people.held, 0);
    ck_assert_int_eq(attach(ann, token), STATUS_UNAVAILABLE);
    run_until(is_ready);
    ck_assert_uint_eq(n_arrived, 2);
    store.is_full = false;
    ck_assert_uint_eq(store.n, n_kept);
    ck_assert_int_eq(attach(ann, token), STATUS_OK);
    ck_assert_int_eq(join(ann, "den"), STATUS_OK);
    ck_assert_uint_eq(room_next_seq(rooms_find(&r, only.id, "den")), 3);
    ck_assert_int_eq(say(ann, "den", 2), STATUS_OK);
    settle();
    ck_assert_uint_eq(room_next_seq(rooms_find(&r, only.id, "den")), 4);
    ck_assert_uint_eq(store.n, n_kept + 1);
    room_reader_close(ann);
    stop();
}
END_TEST

/* --- agents, whose records are written here: no model is --- */

static const char echo_id[] = "eeeeeeeeeeeeeeee", other_id[] = "0000000000000000";
static uint8_t life[JOURNAL_ID_BYTES]; /* of the room den */

/* Ann has made the room, and all have ended. */
static void make_den(void)
{
    struct room_reader ann;

    store.n = 0;
    start(0);
    run_until(is_ready);
    ck_assert_int_eq(attach(&ann, ""), STATUS_OK);
    ck_assert_int_eq(join(&ann, "den"), STATUS_OK);
    settle();
    memcpy(life, rooms_find(&r, only.id, "den")->life, sizeof(life));
    room_reader_close(&ann);
    stop();
}

static void thing_begin(struct body_writer *w, struct buf *body, char what, const char *name)
{
    const char sum[JOURNAL_SUM_BYTES] = {0};

    buf_init(body, KEPT_BODY_MAX);
    *w = (struct body_writer){.out = body};
    ck_assert_int_eq(buf_append(body, sum, sizeof(sum)), STATUS_OK);
    body_put_u32(w, 1);
    body_put_bytes(w, life, sizeof(life));
    body_put_text(w, only.name);
    body_put_text(w, name);
    body_put_u32(w, (uint32_t)what);
    body_put_text(w, "den");
}

static void thing_end(const struct body_writer *w, struct buf *body, const char *name)
{
    struct kept *k = &store.kept[store.n++];

    ck_assert(!w->has_failed);
    journal_put_sum(body->data, body->len);
    *k = (struct kept){.size_bytes = body->len};
    (void)snprintf(k->name, sizeof(k->name), "%s", name);
    memcpy(k->body, body->data, body->len);
    buf_deinit(body);
}

/* Echo, which answers to its name, and has heard all up to this entry. */
static void put_echo(uint32_t heard)
{
    const struct conversation_id id = {{1}};
    struct body_writer w;
    struct buf body;
    char name[64];

    (void)snprintf(name, sizeof(name), "m/den/%s", echo_id);
    thing_begin(&w, &body, 'm', name);
    body_put_u32(&w, ROOM_AGENT);
    body_put_text(&w, echo_id);
    body_put_text(&w, "Echo");
    body_put_u32(&w, 0);
    body_put_u32(&w, ROOM_WHEN_NAMED);
    body_put_u32(&w, 0);
    body_put_u32(&w, heard);
    body_put_bytes(&w, id.bytes, sizeof(id.bytes));
    body_put_u32(&w, 1);
    body_put_u32(&w, 0); /* it answers nothing */
    body_put_u32(&w, 0);
    thing_end(&w, &body, name);
}

/* conversation "": the words are the entry's alone. */
static void put_entry(uint32_t seq, enum room_entry_kind kind, const char *from, const char *text,
                      const char *conversation)
{
    struct body_writer w;
    struct buf body;
    char name[64];

    (void)snprintf(name, sizeof(name), "e/den/%010u", seq);
    thing_begin(&w, &body, 'e', name);
    body_put_u32(&w, seq);
    body_put_u32(&w, kind);
    body_put_u32(&w, strcmp(from, "ann") == 0 ? ROOM_PERSON : ROOM_AGENT);
    body_put_u64(&w, wall_ms());
    body_put_text(&w, from);
    body_put_text(&w, from);
    body_put_u32(&w, 0);
    body_put_u32(&w, 0);
    body_put_text(&w, text);
    body_put_u32(&w, 0);
    body_put_text(&w, conversation);
    if (conversation[0] != '\0') {
        body_put_u32(&w, 1);
        body_put_u32(&w, 1);
        body_put_text(&w, "stop");
        body_put_u32(&w, 0);
    }
    thing_end(&w, &body, name);
}

/* a: Ann names Echo, o: she names nobody, e: Echo says something, f: it fails, s: another agent
 * names it. The first of them has seq 2. */
static const struct {
    const char *said;
    uint32_t heard;
    bool is_called;
} calls[] = {
    {"a", 1, true},      {"ae", 2, false},     {"aae", 2, true}, /* while it answered */
    {"aoe", 2, false},   {"aaf", 1, false},    {"aafa", 1, true},
    {"ase", 2, true},    {"aes", 2, true},     {"aeses", 4, false}, /* four have followed */
    {"aesse", 4, false}, {"aeseso", 4, false}, {"aesesa", 4, true},
};

/* An agent answers after a restart what it would have answered without one. */
START_TEST(test_calls)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        make_den();
        put_echo(calls[i].heard);
        for (uint32_t seq = 2; calls[i].said[seq - 2] != '\0'; seq++) {
            const char c = calls[i].said[seq - 2];

            put_entry(seq, c == 'f' ? ROOM_FAILED : ROOM_SAID,
                      c == 'a' || c == 'o' ? "ann"
                      : c == 's'           ? other_id
                                           : echo_id,
                      c == 'o' ? "hello" : "Echo?", "");
        }
        start(0);
        run_until(is_ready);
        ck_assert_msg(list_is_empty(&r.notified) != calls[i].is_called, "%s", calls[i].said);
        stop();
    }
}
END_TEST

/* What a kill leaves of a room that has ended goes, and so do the conversations of its agents. */
START_TEST(test_conversations_of_gone)
{
    make_den();
    for (size_t i = 0; i < store.n; i++)
        if (store.kept[i].name[0] == 'r')
            store.kept[i] = store.kept[--store.n];
    put_echo(1);
    put_entry(2, ROOM_SAID, other_id, "", "02000000000000000000000000000000");
    store.n_closed = 0;
    start(0);
    all.keeping.journal = j;
    all.config.env = &fake_env;
    run_until(is_ready);
    settle();
    ck_assert_uint_eq(store.n, 0);
    ck_assert_uint_eq(store.n_closed, 2);
    all.keeping.journal = NULL;
    stop();
}
END_TEST

SUITE_MAIN("server/room/keeping", test_both_or_none, test_lives, test_unknown, test_words_later,
           test_large_words, test_grace_of_restored, test_left, test_calls,
           test_conversations_of_gone)
