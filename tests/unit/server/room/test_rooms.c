#include "server/room/rooms.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/env.h"
#include "server/access/access.h"
#include "tests/fault/sweep.h"
#include "tests/unit/base/suite.h"

static uint64_t now_us;
static unsigned drawn, n_notified;
static struct alarm alarm_of_rooms;
static struct rooms r;
static const struct principal only = {.name = ""}, ann_key = {.id = 1, .name = "ann"},
                              bob_key = {.id = 2, .name = "bob"};

static uint64_t clock_now_us(void *self)
{
    return now_us;
}

static void clock_random(void *self, void *out, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        ((unsigned char *)out)[i] = (unsigned char)(drawn >> 8 * (i & 3));
    drawn++;
}

static const struct env fake_env = {clock_now_us, clock_random, NULL};

static uint64_t wall_ms(void)
{
    return 1700000000000 + now_us / 1000;
}

static void begin(void)
{
    now_us = 1000000;
    drawn = 1;
    alarm_of_rooms = (struct alarm){.tick = rooms_tick, .owner = &r};
    rooms_init(&r, &fake_env, wall_ms, &alarm_of_rooms);
}

static void pass_ms(uint64_t ms)
{
    now_us += ms * 1000;
    if (alarm_of_rooms.at_us != 0 && alarm_of_rooms.at_us <= now_us)
        alarm_ring(&alarm_of_rooms);
}

static void on_notify(struct room_reader *reader)
{
    n_notified++;
}

static enum status attach(struct room_reader *reader, const struct principal *who,
                          const char *token, const char *name)
{
    struct error err;

    room_reader_init(reader, &r, on_notify, NULL);
    return room_reader_hello(reader, who, token, name, &err);
}

static enum status say(struct room_reader *reader, const char *room, const char *text,
                       uint32_t client_seq)
{
    const struct room_said said = {.text = text, .client_seq = client_seq};
    struct error err;
    uint32_t seq;

    return room_say(reader, room, &said, &seq, &err);
}

static enum status join(struct room_reader *reader, const char *room, uint32_t after_seq)
{
    struct error err;

    return room_join(reader, room, after_seq, false, &err);
}

/* What a reader is told, in words: "snapshot 1..3;1 +ann;2 ann: hello;ann is away;". */
static const char *told(struct room_reader *reader)
{
    static char out[8192];
    struct room_frame f;
    size_t n = 0;

    out[0] = '\0';
    while (room_reader_next(reader, &f) && n < sizeof(out)) {
        char *at = out + n;
        const size_t room = sizeof(out) - n;

        if (f.kind == ROOM_FRAME_SNAPSHOT)
            (void)snprintf(at, room, "snapshot %u..%u;", room_first_seq(f.room),
                           room_next_seq(f.room));
        else if (f.kind == ROOM_FRAME_OUT)
            (void)snprintf(at, room, "out of %s, %s;", f.room_name, f.why);
        else if (f.kind == ROOM_FRAME_ACK)
            ck_assert_uint_gt(f.ack->seq, 0); /* tests of numbers look at it */
        else if (f.kind == ROOM_FRAME_MEMBER)
            (void)snprintf(at, room, "%s is %s%s;", room_person_name(f.member->person),
                           room_person_presence(f.member->person) == ROOM_HERE ? "here" : "away",
                           f.member->is_typing ? ", typing" : "");
        else
            (void)snprintf(at, room, "%u %s%s%s;", f.entry->seq,
                           f.entry->kind == ROOM_JOINED ? "+"
                           : f.entry->kind == ROOM_LEFT ? "-"
                                                        : "",
                           f.entry->name, f.entry->kind == ROOM_JOINED ? "" : f.entry->text);
        n += strlen(at);
    }
    return out;
}

static void end(void)
{
    rooms_deinit(&r);
    ck_assert_int_eq(fault_after, -1);
}

/* --- tests --- */

/* A person without a connection is away, comes back with its token and misses nothing, or is gone
 * after the grace period; the room ends with its last member. */
START_TEST(test_grace)
{
    struct room_reader ann, bob, again;
    char token[ROOM_TOKEN_CHARS + 1];

    begin();
    ck_assert_int_eq(attach(&ann, &only, "", "ann"), STATUS_OK);
    ck_assert_int_eq(attach(&bob, &only, "", "bob"), STATUS_OK);
    (void)snprintf(token, sizeof(token), "%s", room_person_token(bob.person));
    ck_assert_int_eq(join(&ann, "den", 0), STATUS_OK);
    ck_assert_int_eq(join(&bob, "den", 0), STATUS_OK);
    ck_assert_str_eq(told(&ann), "snapshot 1..3;1 +ann;2 +bob;");
    ck_assert_str_eq(told(&bob), "snapshot 1..3;1 +ann;2 +bob;");
    room_reader_close(&bob);
    ck_assert_str_eq(told(&ann), "bob is away;");
    pass_ms(ROOM_GRACE_MS - 1);
    ck_assert_int_eq(say(&ann, "den", "hello", 1), STATUS_OK);
    ck_assert_int_eq(attach(&again, &only, token, ""), STATUS_OK);
    ck_assert_int_eq(join(&again, "den", 2), STATUS_OK);
    ck_assert_str_eq(told(&again), "snapshot 1..4;3 annhello;");
    ck_assert_str_eq(told(&ann), "3 annhello;bob is here;");
    pass_ms(ROOM_GRACE_MS);
    ck_assert_str_eq(told(&ann), ""); /* it is here */
    room_reader_close(&again);
    pass_ms(ROOM_GRACE_MS);
    ck_assert_str_eq(told(&ann), "4 -bobgone;");
    ck_assert_int_eq(attach(&again, &only, token, ""), STATUS_NOT_FOUND);
    room_reader_close(&again);
    room_reader_close(&ann);
    ck_assert_uint_eq(r.n_rooms.held, 1);
    pass_ms(ROOM_GRACE_MS);
    ck_assert_uint_eq(r.n_rooms.held + r.n_people.held + r.bytes.held, 0);
    ck_assert_uint_eq(alarm_of_rooms.at_us, 0);
    end();
}
END_TEST

/* The same number with the same words is the same entry, as long as the log has it. */
START_TEST(test_numbers)
{
    const struct room_said first = {.text = "one", .client_seq = 1};
    struct room_reader ann, bob;
    struct error err;
    uint32_t seq;

    begin();
    ck_assert_int_eq(attach(&ann, &only, "", "ann"), STATUS_OK);
    ck_assert_int_eq(attach(&bob, &only, "", "bob"), STATUS_OK);
    ck_assert_int_eq(say(&ann, "den", "early", 1), STATUS_PRECONDITION);
    ck_assert_int_eq(join(&ann, "den", 0), STATUS_OK);
    ck_assert_int_eq(join(&bob, "den", 0), STATUS_OK);
    ck_assert_int_eq(say(&ann, "den", "gap", 2), STATUS_PRECONDITION);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(room_say(&ann, "den", &first, &seq, &err), STATUS_OK);
        ck_assert_uint_eq(seq, 3);
    }
    ck_assert_int_eq(say(&ann, "den", "two", 1), STATUS_EXISTS);
    ck_assert_int_eq(say(&bob, "den", "one", 1), STATUS_OK); /* another's number */
    ck_assert_int_eq(say(&ann, "den", "two", 2), STATUS_OK);
    ck_assert_int_eq(room_say(&ann, "den", &first, &seq, &err), STATUS_OK);
    ck_assert_uint_eq(seq, 3);
    ck_assert_str_eq(told(&bob), "snapshot 1..6;1 +ann;2 +bob;3 annone;4 bobone;5 anntwo;");
    for (int i = 0; i < ROOM_MAX_ENTRIES; i++) {
        pass_ms(1000);
        ck_assert_int_eq(say(&bob, "den", "on and on", 0), STATUS_OK);
        (void)told(&bob);
    }
    ck_assert_int_eq(room_say(&ann, "den", &first, &seq, &err), STATUS_PRECONDITION);
    room_reader_close(&ann);
    room_reader_close(&bob);
    end();
}
END_TEST

/* A reader so slow that the log has dropped what it would take next goes on behind it, and is told
 * from where; it costs no memory meanwhile. */
START_TEST(test_slow)
{
    struct room_reader ann, slow;
    struct room_frame f;
    size_t held = 0;

    begin();
    ck_assert_int_eq(attach(&ann, &only, "", "ann"), STATUS_OK);
    ck_assert_int_eq(attach(&slow, &only, "", "slow"), STATUS_OK);
    ck_assert_int_eq(join(&ann, "den", 0), STATUS_OK);
    ck_assert_int_eq(join(&slow, "den", 0), STATUS_OK);
    ck_assert(room_reader_next(&slow, &f) && f.kind == ROOM_FRAME_SNAPSHOT);
    for (int i = 0; i < 2 * ROOM_MAX_ENTRIES; i++) {
        pass_ms(1000);
        ck_assert_int_eq(say(&ann, "den", "a line", 0), STATUS_OK);
        (void)told(&ann);
        if (i == ROOM_MAX_ENTRIES)
            held = r.bytes.held;
    }
    ck_assert_uint_eq(r.bytes.held, held);
    ck_assert(room_reader_next(&slow, &f) && f.kind == ROOM_FRAME_SNAPSHOT);
    ck_assert_uint_eq(room_first_seq(f.room), ROOM_MAX_ENTRIES + 3);
    for (uint32_t seq = ROOM_MAX_ENTRIES + 3; seq < 2 * ROOM_MAX_ENTRIES + 3; seq++)
        ck_assert(room_reader_next(&slow, &f) && f.entry->seq == seq);
    ck_assert(!room_reader_next(&slow, &f));
    room_reader_close(&ann);
    room_reader_close(&slow);
    end();
}
END_TEST

/* Typing is a state: a reader is told what holds now, once. */
START_TEST(test_typing)
{
    struct room_reader ann, bob;
    struct error err;

    begin();
    ck_assert_int_eq(attach(&ann, &only, "", "ann"), STATUS_OK);
    ck_assert_int_eq(attach(&bob, &only, "", "bob"), STATUS_OK);
    ck_assert_int_eq(join(&ann, "den", 0), STATUS_OK);
    ck_assert_int_eq(join(&bob, "den", 0), STATUS_OK);
    (void)told(&bob);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(room_type(&ann, "den", true, &err), STATUS_OK);
        ck_assert_int_eq(room_type(&ann, "den", false, &err), STATUS_OK);
        ck_assert_int_eq(room_type(&ann, "den", true, &err), STATUS_OK);
    }
    ck_assert_str_eq(told(&bob), "ann is here, typing;");
    n_notified = 0;
    ck_assert_int_eq(room_type(&ann, "den", true, &err), STATUS_OK);
    ck_assert_uint_eq(n_notified, 0);
    ck_assert_int_eq(say(&ann, "den", "so", 1), STATUS_OK);
    ck_assert_str_eq(told(&bob), "3 annso;");
    ck_assert_int_eq(room_leave(&ann, "den", &err), STATUS_OK);
    ck_assert_str_eq(told(&bob), "4 -annleft;");
    ck_assert_str_eq(told(&ann), "out of den, left;");
    ck_assert_int_eq(room_leave(&ann, "den", &err), STATUS_PRECONDITION);
    ck_assert_int_eq(room_leave(&bob, "den", &err), STATUS_OK);
    ck_assert_uint_eq(r.n_rooms.held, 0);
    ck_assert_str_eq(told(&bob), "out of den, left;");
    room_reader_close(&ann);
    room_reader_close(&bob);
    end();
}
END_TEST

/* Rooms and people of one principal are nothing to another, who may hold half of what there is. */
START_TEST(test_principals)
{
    static struct room_reader people[ROOMS_MAX_PEOPLE / 2 + 2];
    struct room_reader ann, bob, thief;
    const size_t half = ROOMS_MAX_PEOPLE / 2;

    begin();
    ck_assert_int_eq(attach(&ann, &ann_key, "", "ann"), STATUS_OK);
    ck_assert_int_eq(attach(&bob, &bob_key, "", "bob"), STATUS_OK);
    ck_assert_int_eq(attach(&thief, &bob_key, room_person_token(ann.person), ""), STATUS_NOT_FOUND);
    ck_assert_int_eq(join(&ann, "den", 0), STATUS_OK);
    ck_assert_int_eq(join(&bob, "den", 0), STATUS_OK);
    ck_assert_str_eq(told(&ann), "snapshot 1..2;1 +ann;");
    ck_assert_str_eq(told(&bob), "snapshot 1..2;1 +bob;");
    for (size_t i = 0; i < half - 1; i++)
        ck_assert_int_eq(attach(&people[i], &ann_key, "", ""), STATUS_OK);
    ck_assert_int_eq(attach(&people[half], &ann_key, "", ""), STATUS_EXHAUSTED);
    ck_assert_int_eq(attach(&people[half + 1], &bob_key, "", ""), STATUS_OK);
    for (size_t i = 0; i < half + 2; i++)
        if (i != half - 1)
            room_reader_close(&people[i]);
    room_reader_close(&ann);
    room_reader_close(&bob);
    room_reader_close(&thief);
    end();
}
END_TEST

/* Each limit is a refusal that changes nothing. */
START_TEST(test_limits)
{
    static const char *const names[] = {"a\nb", "a\x7f", "\xe2\x80\xae", "\xff",
                                        "123456789012345678901234567890123"};
    static struct room_reader crowd[ROOM_MAX_MEMBERS + 1];
    struct room_reader ann;
    char name[ROOM_NAME_MAX_BYTES + 2];

    begin();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        ck_assert_int_eq(attach(&ann, &only, "", names[i]), STATUS_INVALID);
    ck_assert_int_eq(attach(&ann, &only, "", "\xc3\xa4nn"), STATUS_OK);
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    ck_assert_int_eq(join(&ann, name, 0), STATUS_INVALID);
    ck_assert_int_eq(join(&ann, "", 0), STATUS_INVALID);
    ck_assert_int_eq(join(&ann, "new", 1), STATUS_RANGE);
    ck_assert_uint_eq(r.n_rooms.held, 0);
    for (int i = 0; i <= ROOMS_OF_A_PERSON; i++) {
        pass_ms(1000);
        (void)snprintf(name, sizeof(name), "room %d", i);
        ck_assert_int_eq(join(&ann, name, 0), i < ROOMS_OF_A_PERSON ? STATUS_OK : STATUS_EXHAUSTED);
    }
    ck_assert_uint_eq(r.n_rooms.held, ROOMS_OF_A_PERSON);
    for (int i = 0; i <= ROOM_MAX_MEMBERS; i++) {
        ck_assert_int_eq(attach(&crowd[i], &only, "", ""), STATUS_OK);
        ck_assert_int_eq(join(&crowd[i], "full", 0),
                         i < ROOM_MAX_MEMBERS ? STATUS_OK : STATUS_EXHAUSTED);
    }
    pass_ms(60000);
    for (int i = 0; i < ROOM_ACTS_AT_ONCE; i++)
        ck_assert_int_eq(say(&ann, "room 0", "!", 0), STATUS_OK);
    ck_assert_int_eq(say(&ann, "room 0", "!", 0), STATUS_EXHAUSTED);
    pass_ms(1000 / ROOM_ACTS_PER_S);
    ck_assert_int_eq(say(&ann, "room 0", "!", 0), STATUS_OK);
    ck_assert_int_eq(say(&ann, "room 0", "!", 0), STATUS_EXHAUSTED);
    for (int i = 0; i <= ROOM_MAX_MEMBERS; i++)
        room_reader_close(&crowd[i]);
    room_reader_close(&ann);
    end();
}
END_TEST

/* A connection that reads nothing has so many acks, and ends of rooms; a person so many
 * connections.
 */
START_TEST(test_unread)
{
    static struct room_reader tabs[ROOM_READERS_OF_A_PERSON];
    char token[ROOM_TOKEN_CHARS + 1];
    struct room_reader ann;
    struct error err;

    begin();
    ck_assert_int_eq(attach(&ann, &only, "", "ann"), STATUS_OK);
    ck_assert_int_eq(join(&ann, "den", 0), STATUS_OK);
    for (int i = 0; i <= ROOM_ACKS_OF_A_READER; i++) {
        pass_ms(1000);
        ck_assert_int_eq(say(&ann, "den", "!", 0),
                         i < ROOM_ACKS_OF_A_READER ? STATUS_OK : STATUS_EXHAUSTED);
    }
    (void)told(&ann);
    ck_assert_int_eq(say(&ann, "den", "!", 0), STATUS_OK);
    for (int i = 1; i <= ROOM_CURSORS_OF_A_READER; i++) {
        pass_ms(1000);
        ck_assert_int_eq(join(&ann, "hall", 0),
                         i < ROOM_CURSORS_OF_A_READER ? STATUS_OK : STATUS_EXHAUSTED);
        if (i < ROOM_CURSORS_OF_A_READER)
            ck_assert_int_eq(room_leave(&ann, "hall", &err), STATUS_OK);
    }
    (void)told(&ann);
    ck_assert_int_eq(join(&ann, "hall", 0), STATUS_OK);
    (void)snprintf(token, sizeof(token), "%s", room_person_token(ann.person));
    for (int i = 1; i <= ROOM_READERS_OF_A_PERSON; i++)
        ck_assert_int_eq(attach(&tabs[i - 1], &only, token, ""),
                         i < ROOM_READERS_OF_A_PERSON ? STATUS_OK : STATUS_EXHAUSTED);
    for (int i = 0; i < ROOM_READERS_OF_A_PERSON; i++)
        room_reader_close(&tabs[i]);
    room_reader_close(&ann);
    end();
}
END_TEST

/* Rooms and bytes of logs are bounded for all, and for each principal at half. What is given back
 * can be taken again. */
START_TEST(test_shared_limits)
{
    struct room_reader ann, bob;
    struct error err;
    char text[1001];

    begin();
    r.n_rooms.max = 4;
    memset(text, 'x', sizeof(text));
    text[1000] = '\0';
    ck_assert_int_eq(attach(&ann, &ann_key, "", "ann"), STATUS_OK);
    ck_assert_int_eq(attach(&bob, &bob_key, "", "bob"), STATUS_OK);
    ck_assert_int_eq(join(&ann, "one", 0), STATUS_OK);
    ck_assert_int_eq(join(&ann, "two", 0), STATUS_OK);
    ck_assert_int_eq(room_join(&ann, "three", 0, false, &err), STATUS_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "rooms"));
    ck_assert_int_eq(join(&bob, "one", 0), STATUS_OK);
    ck_assert_int_eq(room_leave(&ann, "two", &err), STATUS_OK);
    ck_assert_int_eq(join(&ann, "three", 0), STATUS_OK);
    pass_ms(60000);
    r.bytes.max = 2 * (r.bytes.by_principal[ann_key.id] + 3000);
    ck_assert_int_eq(say(&ann, "one", text, 1), STATUS_OK);
    ck_assert_int_eq(say(&ann, "one", text, 2), STATUS_OK);
    ck_assert_int_eq(say(&ann, "one", text, 3), STATUS_EXHAUSTED);
    ck_assert_int_eq(say(&bob, "one", text, 1), STATUS_OK);
    ck_assert_int_eq(room_leave(&ann, "three", &err), STATUS_OK);
    ck_assert_int_eq(room_leave(&ann, "one", &err), STATUS_OK);
    ck_assert_int_eq(join(&ann, "one", 0), STATUS_OK);
    ck_assert_int_eq(say(&ann, "one", text, 1), STATUS_OK);
    room_reader_close(&ann);
    room_reader_close(&bob);
    end();
}
END_TEST

static enum status meet_once(void *arg)
{
    struct room_reader ann, bob;
    struct error err;
    enum status rc;

    begin();
    rc = attach(&ann, &only, "", "ann");
    if (rc == STATUS_OK)
        rc = join(&ann, "den", 0);
    if (attach(&bob, &only, "", "bob") == STATUS_OK && rc == STATUS_OK) {
        rc = join(&bob, "den", 0);
        if (rc == STATUS_OK)
            rc = say(&bob, "den", "hello", 1);
        if (rc == STATUS_OK)
            rc = room_leave(&bob, "den", &err);
    } else {
        rc = STATUS_EXHAUSTED;
    }
    if (rc == STATUS_OK)
        ck_assert_str_eq(told(&ann), "snapshot 1..5;1 +ann;2 +bob;3 bobhello;4 -bobleft;");
    room_reader_close(&bob);
    room_reader_close(&ann);
    pass_ms(ROOM_GRACE_MS);
    ck_assert_uint_eq(r.n_rooms.held + r.n_people.held + r.bytes.held, 0);
    rooms_deinit(&r);
    return rc;
}

/* Whatever allocation fails, the log has no gap, nothing is lost and nothing stays. */
START_TEST(test_no_memory)
{
    ck_assert_int_gt(sweep(meet_once, NULL), 8);
}
END_TEST

SUITE_MAIN("server/room/rooms", test_grace, test_numbers, test_slow, test_typing, test_principals,
           test_limits, test_unread, test_shared_limits, test_no_memory)
