#include "server/registry/groups.h"

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "tests/unit/base/suite.h"

static struct groups all;
static struct error err;

static uint64_t random_state;

static void draw(void *self, void *out, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        random_state = random_state * 6364136223846793005U + 1442695040888963407U;
        ((unsigned char *)out)[i] = (unsigned char)(random_state >> 56);
    }
}

static uint32_t pick(uint32_t n)
{
    uint32_t x;

    draw(NULL, &x, sizeof(x));
    return x % n;
}

static uint64_t now_us;
static struct alarm due = {.tick = groups_tick, .owner = &all};

static uint64_t now(void *self)
{
    return now_us;
}

static const struct env env = {.now_us = now, .random = draw};

static void on_notify(struct group_listener *l)
{
}

static void begin(uint64_t seed)
{
    random_state = seed;
    due.at_us = 0;
    groups_init(&all, &env, &due);
}

static void join_leased(struct group_member *m, const char *name, uint32_t lease_ms)
{
    ck_assert_msg(group_join(m, &all, 1, "g", name, lease_ms, on_notify, &err) == STATUS_OK, "%s",
                  err.text);
}

static void join(struct group_member *m, const char *name)
{
    join_leased(m, name, 0);
}

/* The listener's next events: "+a" joined, "-a" left, "!a" lost, "v=a" put, "v~a" deleted, "."
 * synced. */
static const char *told(struct group_listener *l)
{
    static char text[4096];
    struct group_event *e;
    size_t len = 0;

    text[0] = '\0';
    while ((e = group_next_event(l)) != NULL) {
        static const char signs[] = {'+', '-', '!', '=', '~', '.'};

        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s%c%s", len > 0 ? " " : "",
                                e->key, signs[e->what], e->member);
        group_event_unref(e);
    }
    return text;
}

START_TEST(events)
{
    struct group_member a, b;
    struct group_listener watch;
    struct group *g;

    begin(1);
    ck_assert_int_eq(groups_find(&g, &all, 1, "g", &err), STATUS_NOT_FOUND);
    join(&a, "a");
    ck_assert_str_eq(told(&a.listener), "+a .");
    ck_assert_int_eq(group_put(&a, GROUP_VALUE, "v", "1", 1, &err), STATUS_OK);
    join(&b, "b");
    ck_assert_str_eq(told(&b.listener), "+a +b v=a .");
    ck_assert_str_eq(told(&a.listener), "v=a +b");
    ck_assert_int_eq(groups_find(&g, &all, 2, "g", &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(groups_find(&g, &all, 1, "g", &err), STATUS_OK);
    ck_assert_int_eq(group_listen(&watch, g, on_notify, &err), STATUS_OK);
    ck_assert_str_eq(told(&watch), "+a +b v=a .");
    group_member_end(&a, true);
    ck_assert_str_eq(told(&b.listener), "v~a !a");
    group_member_end(&b, false);
    ck_assert_str_eq(told(&watch), "v~a !a -b");
    ck_assert_int_eq(groups_find(&g, &all, 1, "g", &err), STATUS_OK);
    group_unlisten(&watch);
    group_unlisten(&watch);
    groups_deinit(&all);
}
END_TEST

START_TEST(entries)
{
    struct group_member a, b;
    const struct group_entry *found;

    begin(1);
    join(&a, "a");
    join(&b, "b");
    ck_assert_int_eq(group_join(&b, &all, 1, "g", "b", 0, on_notify, &err), STATUS_EXISTS);
    ck_assert_int_eq(group_put(&a, GROUP_VALUE, "k", "one", 3, &err), STATUS_OK);
    ck_assert_int_eq(group_put(&b, GROUP_SERVICE, "k", NULL, 0, &err), STATUS_OK);
    ck_assert_int_eq(group_put(&a, GROUP_VALUE, "k", "two", 3, &err), STATUS_EXISTS);
    ck_assert_int_eq(group_put(&b, GROUP_VALUE, "k", "two", 3, &err), STATUS_EXISTS);
    ck_assert_ptr_nonnull(strstr(err.text, "held by the member 'a'"));
    ck_assert_int_eq(group_delete(&b, GROUP_VALUE, "k", &err), STATUS_PRECONDITION);
    ck_assert_int_eq(group_delete(&b, GROUP_VALUE, "none", &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(group_get(&found, a.group, GROUP_VALUE, "k", &err), STATUS_OK);
    ck_assert_mem_eq(found->put->value, "one", 3);
    ck_assert_int_eq(group_get(&found, a.group, GROUP_SERVICE, "k", &err), STATUS_OK);
    ck_assert_ptr_eq(found->member, &b);
    ck_assert_int_eq(group_delete(&b, GROUP_SERVICE, "k", &err), STATUS_OK);
    ck_assert_int_eq(group_get(&found, a.group, GROUP_SERVICE, "k", &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(group_put(&a, GROUP_VALUE, "", NULL, 0, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "key");
    ck_assert_int_eq(group_put(&a, GROUP_VALUE, "l", "", GROUP_VALUE_MAX_BYTES + 1, &err),
                     STATUS_INVALID);
    ck_assert_str_eq(err.field, "value");
    ck_assert_uint_eq(all.value_bytes.held, 3);
    group_member_end(&a, false);
    group_member_end(&b, false);
    groups_deinit(&all);
}
END_TEST

static enum status outcome[3];

static void arrived(struct future *f, const struct error *e, void *arg)
{
    ck_assert_int_eq(*(enum status *)arg, STATUS_UNKNOWN);
    *(enum status *)arg = e->status;
    err = *e;
}

static enum status wait_at(struct group_wait *w, struct group_member *m, uint64_t epoch, uint32_t n,
                           size_t i)
{
    outcome[i] = STATUS_UNKNOWN;
    return group_wait(w, m, "b", epoch, n, arrived, &outcome[i], &err);
}

START_TEST(barriers)
{
    struct group_member m[3];
    struct group_wait w[3];

    begin(1);
    join(&m[0], "a");
    join(&m[1], "b");
    join(&m[2], "c");
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(wait_at(&w[i], &m[i], 1, i == 0 ? 0 : 3, i), STATUS_OK);
    ck_assert(outcome[0] == STATUS_OK && outcome[1] == STATUS_OK && outcome[2] == STATUS_OK);
    /* One that is over is passed, the next but one is not. */
    ck_assert_int_eq(wait_at(&w[0], &m[0], 1, 0, 0), STATUS_OK);
    ck_assert_int_eq(outcome[0], STATUS_OK);
    ck_assert_int_eq(wait_at(&w[0], &m[0], 3, 0, 0), STATUS_INVALID);
    ck_assert_str_eq(err.field, "epoch");
    ck_assert_int_eq(wait_at(&w[0], &m[0], 0, 0, 0), STATUS_INVALID);
    /* One waits twice; one says another number; one goes away, and comes again. */
    ck_assert_int_eq(wait_at(&w[0], &m[0], 2, 2, 0), STATUS_OK);
    ck_assert_int_eq(wait_at(&w[1], &m[0], 2, 2, 1), STATUS_EXISTS);
    ck_assert_int_eq(wait_at(&w[1], &m[1], 2, 3, 1), STATUS_INVALID);
    ck_assert_str_eq(err.field, "n");
    group_wait_cancel(&w[0]);
    group_wait_cancel(&w[0]);
    ck_assert_int_eq(outcome[0], STATUS_UNKNOWN);
    ck_assert_int_eq(wait_at(&w[1], &m[1], 2, 2, 1), STATUS_OK);
    ck_assert_int_eq(outcome[1], STATUS_UNKNOWN);
    ck_assert_int_eq(wait_at(&w[0], &m[0], 2, 2, 0), STATUS_OK);
    ck_assert(outcome[0] == STATUS_OK && outcome[1] == STATUS_OK);
    /* A member that leaves cannot be waited for; two of the others can. */
    ck_assert_int_eq(wait_at(&w[0], &m[0], 3, 0, 0), STATUS_OK);
    group_member_end(&m[2], false);
    ck_assert_int_eq(outcome[0], STATUS_ABORTED);
    ck_assert_str_eq(err.text, "the member 'c' left");
    join(&m[2], "c");
    ck_assert_int_eq(wait_at(&w[0], &m[0], 3, 2, 0), STATUS_OK);
    group_member_end(&m[2], false);
    ck_assert_int_eq(outcome[0], STATUS_UNKNOWN);
    join(&m[2], "c");
    group_member_end(&m[2], true);
    ck_assert_int_eq(outcome[0], STATUS_ABORTED);
    ck_assert_str_eq(err.text, "the member 'c' was lost");
    /* One that is lost while it waits. */
    ck_assert_int_eq(wait_at(&w[0], &m[0], 3, 2, 0), STATUS_OK);
    group_member_end(&m[0], true);
    ck_assert_int_eq(outcome[0], STATUS_CANCELLED);
    group_member_end(&m[1], false);
    groups_deinit(&all);
}
END_TEST

/* Names beyond the most: those where nobody waits are forgotten, the one unused for longest first.
 */
START_TEST(many_barriers)
{
    struct group_member a, b;
    struct group_wait w[2], waits[GROUP_MAX_BARRIERS];
    enum status said[GROUP_MAX_BARRIERS];
    char name[16];

    begin(1);
    join(&a, "a");
    join(&b, "b");
    ck_assert_int_eq(wait_at(&w[0], &a, 1, 2, 0), STATUS_OK);
    for (int i = 0; i < 3 * GROUP_MAX_BARRIERS; i++) {
        (void)snprintf(name, sizeof(name), "%d", i);
        for (size_t j = 1; j < 3; j++) {
            outcome[j] = STATUS_UNKNOWN;
            ck_assert_int_eq(
                group_wait(&w[1], j == 1 ? &a : &b, name, 1, 1, arrived, &outcome[j], &err),
                STATUS_OK);
            ck_assert_int_eq(outcome[j], STATUS_OK); /* b: it is over already */
        }
        ck_assert_uint_le(a.group->n_barriers, GROUP_MAX_BARRIERS);
    }
    ck_assert_int_eq(outcome[0], STATUS_UNKNOWN);
    ck_assert_int_eq(wait_at(&w[1], &b, 1, 2, 1), STATUS_OK);
    ck_assert(outcome[0] == STATUS_OK && outcome[1] == STATUS_OK);
    /* "b" was used last, so it is the last that is forgotten; where all are waited at, none is. */
    for (int i = 0; i < GROUP_MAX_BARRIERS; i++) {
        ck_assert_int_eq(wait_at(&w[0], &a, 1, 2, 0), STATUS_OK);
        ck_assert_int_eq(outcome[0], STATUS_OK);
        (void)snprintf(name, sizeof(name), "w%d", i);
        said[i] = STATUS_UNKNOWN;
        ck_assert_int_eq(group_wait(&waits[i], &a, name, 1, 2, arrived, &said[i], &err), STATUS_OK);
    }
    ck_assert_int_eq(wait_at(&w[0], &a, 1, 2, 0), STATUS_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "256 barriers where members wait"));
    group_member_end(&a, true);
    group_member_end(&b, false);
    groups_deinit(&all);
}
END_TEST

/* One that does not renew is lost: its barrier names it, and its lease is no one's. */
START_TEST(leases)
{
    struct group_member a, b, *found;
    struct group_wait w;
    uint64_t lease;

    begin(1);
    now_us = 1000000;
    ck_assert_int_eq(group_join(&a, &all, 1, "g", "a", GROUP_LEASE_MIN_MS - 1, on_notify, &err),
                     STATUS_INVALID);
    ck_assert_str_eq(err.field, "lease_ms");
    ck_assert_int_eq(group_join(&a, &all, 1, "g", "a", GROUP_LEASE_MAX_MS + 1, on_notify, &err),
                     STATUS_INVALID);
    join(&a, "a");
    ck_assert_uint_eq(due.at_us, 0);
    join_leased(&b, "b", 2000);
    lease = group_member_lease(&b);
    ck_assert_uint_eq(due.at_us, 3000000);
    ck_assert_int_eq(wait_at(&w, &a, 1, 0, 0), STATUS_OK);
    now_us = 2500000;
    group_member_renew(&b);
    now_us = due.at_us;
    alarm_ring(&due);
    ck_assert(!b.is_expired && outcome[0] == STATUS_UNKNOWN);
    ck_assert_uint_eq(due.at_us, 4500000);
    (void)told(&a.listener);
    now_us = due.at_us;
    alarm_ring(&due);
    ck_assert(b.is_expired && b.group == NULL);
    ck_assert_str_eq(told(&a.listener), "!b");
    ck_assert_int_eq(outcome[0], STATUS_ABORTED);
    ck_assert_str_eq(err.text, "the member 'b' was lost");
    ck_assert_int_eq(groups_member(&found, &all, 1, lease, &err), STATUS_NOT_FOUND);
    alarm_ring(&due);
    ck_assert_uint_eq(due.at_us, 0);
    group_member_end(&a, false);
    groups_deinit(&all);
}
END_TEST

START_TEST(slow_listener)
{
    struct group_member a, b;

    begin(1);
    join(&a, "a");
    join(&b, "b");
    for (int i = 0; i < GROUP_MAX_EVENTS && !a.listener.is_over; i++) {
        ck_assert_int_eq(group_put(&b, GROUP_VALUE, "k", NULL, 0, &err), STATUS_OK);
        ck_assert_int_eq(group_delete(&b, GROUP_VALUE, "k", &err), STATUS_OK);
        (void)told(&b.listener);
    }
    ck_assert(a.listener.is_over && !b.listener.is_over);
    group_member_end(&a, true);
    group_member_end(&b, false);
    groups_deinit(&all);
}
END_TEST

static void without_memory(void)
{
    struct group_member a = {0}, b = {0};
    struct group_wait w;
    bool is_a, is_b;

    is_a = group_join(&a, &all, 1, "g", "a", 1000, on_notify, &err) == STATUS_OK;
    is_b = group_join(&b, &all, 1, "g", "b", 0, on_notify, &err) == STATUS_OK;
    if (is_a) {
        (void)!group_put(&a, GROUP_VALUE, "k", "one", 3, &err);
        (void)!group_put(&a, GROUP_VALUE, "l", "one", 3, &err);
        (void)!group_delete(&a, GROUP_VALUE, "k", &err);
        outcome[0] = STATUS_UNKNOWN;
        if (group_wait(&w, &a, "b", 1, 2, arrived, &outcome[0], &err) == STATUS_OK)
            group_wait_cancel(&w);
        group_member_end(&a, true);
    }
    if (is_b)
        group_member_end(&b, false);
}

START_TEST(no_memory)
{
    begin(1);
    for (long i = 0; i < 64; i++) {
        fault_after = i;
        without_memory();
        if (fault_after >= 0) { /* none failed */
            ck_assert_int_gt(i, 8);
            break;
        }
    }
    ck_assert_int_ge(fault_after, 0);
    fault_after = -1;
    groups_deinit(&all);
}
END_TEST

/* --- members that come, go and are lost in any order --- */

enum { N_NAMES = 6, N_KEYS = 4, N_STEPS = 400 };

struct simulated {
    struct group_member member;
    struct group_wait wait;
    bool is_there, is_waiting;
    uint64_t epoch, passed; /* waits for; the last that it passed */
    /* What it was told. */
    bool knows[N_NAMES];
    int holder[N_KEYS]; /* -1: none */
};

static struct simulated world[N_NAMES];

static void simulated_arrived(struct future *f, const struct error *e, void *arg)
{
    struct simulated *s = arg;

    ck_assert(s->is_waiting);
    s->is_waiting = false;
    if (e->status == STATUS_OK)
        s->passed = s->epoch;
    else
        ck_assert(e->status == STATUS_ABORTED || e->status == STATUS_CANCELLED);
}

static void simulated_take(struct simulated *s)
{
    struct group_event *e;

    while ((e = group_next_event(&s->member.listener)) != NULL) {
        const int who = e->member[0] - 'a';

        if (e->what == GROUP_JOINED) {
            ck_assert(!s->knows[who]);
            s->knows[who] = true;
        } else if (e->what == GROUP_LEFT || e->what == GROUP_LOST) {
            ck_assert(s->knows[who]);
            s->knows[who] = false;
        } else if (e->what == GROUP_PUT) {
            ck_assert_int_eq(s->holder[e->key[0] - '0'], -1);
            s->holder[e->key[0] - '0'] = who;
        } else if (e->what == GROUP_DELETED) {
            ck_assert_int_eq(s->holder[e->key[0] - '0'], who);
            s->holder[e->key[0] - '0'] = -1;
        }
        group_event_unref(e);
    }
}

/* Each member that has taken its events knows what there is. */
static void simulated_check(void)
{
    const struct group_entry *found;

    for (size_t i = 0; i < N_NAMES; i++) {
        struct simulated *s = &world[i];

        if (!s->is_there)
            continue;
        simulated_take(s);
        for (size_t k = 0; k < N_NAMES; k++)
            ck_assert(s->knows[k] == world[k].is_there);
        for (size_t k = 0; k < N_KEYS; k++) {
            const char key[2] = {(char)('0' + k), '\0'};
            bool is_there = group_get(&found, s->member.group, GROUP_VALUE, key, &err) == STATUS_OK;

            ck_assert(is_there == (s->holder[k] >= 0));
            ck_assert(!is_there || found->member == &world[s->holder[k]].member);
        }
    }
}

/* After a while, members that did not renew are lost, and no others. */
static void simulated_pass(uint64_t us)
{
    bool was_leased = false;

    now_us += us;
    if (due.at_us != 0 && due.at_us <= now_us)
        alarm_ring(&due);
    for (size_t i = 0; i < N_NAMES; i++) {
        struct simulated *s = &world[i];

        if (!s->is_there)
            continue;
        ck_assert(s->member.is_expired == (s->member.lease_ms != 0 && s->member.due_us <= now_us));
        ck_assert(!s->member.is_expired || !s->is_waiting);
        s->is_there = !s->member.is_expired;
        was_leased |= s->is_there && s->member.lease_ms != 0;
    }
    ck_assert(!was_leased || due.at_us > now_us);
}

static void simulated_step(struct simulated *s, size_t i, uint64_t *epoch)
{
    const char name[2] = {(char)('a' + i), '\0'}, key[2] = {(char)('0' + pick(N_KEYS)), '\0'};

    if (!s->is_there) {
        *s = (struct simulated){.is_there = true, .holder = {-1, -1, -1, -1}};
        join_leased(&s->member, name, pick(2) == 0 ? 0 : 1000 + pick(2000));
        return;
    }
    switch (pick(10)) {
    case 8:
        group_member_renew(&s->member);
        break;
    case 9:
        simulated_pass(pick(1000) * 1000);
        break;
    case 0:
        group_member_end(&s->member, pick(2) == 0);
        ck_assert(!s->is_waiting);
        s->is_there = false;
        break;
    case 1:
        if (s->is_waiting) {
            group_wait_cancel(&s->wait);
            s->is_waiting = false;
        }
        break;
    case 2:
    case 3:
        if (group_put(&s->member, GROUP_VALUE, key, "v", 1, &err) != STATUS_OK)
            ck_assert_int_eq(err.status, STATUS_EXISTS);
        break;
    case 4:
        if (group_delete(&s->member, GROUP_VALUE, key, &err) != STATUS_OK)
            ck_assert(err.status == STATUS_NOT_FOUND || err.status == STATUS_PRECONDITION);
        break;
    case 5:
        simulated_take(s);
        break;
    default:
        if (s->is_waiting)
            break;
        s->is_waiting = true;
        s->epoch = *epoch + 1;
        ck_assert_msg(group_wait(&s->wait, &s->member, "b", s->epoch, 3, simulated_arrived, s,
                                 &err) == STATUS_OK,
                      "%s", err.text);
        if (s->passed == s->epoch)
            (*epoch)++;
    }
}

/* All that wait for a barrier of three are fewer than three; nobody passes alone. */
static void simulated_check_barrier(uint64_t before, uint64_t epoch)
{
    size_t n_waiting = 0, n_passed = 0;

    for (size_t i = 0; i < N_NAMES; i++) {
        n_waiting += world[i].is_there && world[i].is_waiting;
        n_passed += world[i].is_there && world[i].passed == epoch && epoch > before;
    }
    ck_assert_uint_lt(n_waiting, 3);
    ck_assert(epoch == before || n_passed == 3);
}

START_TEST(simulated)
{
    const char *wanted = getenv("PARLEY_SEEDS");
    const uint64_t n_seeds = wanted != NULL ? strtoull(wanted, NULL, 10) : 500;
    uint64_t n_passed = 0;

    for (uint64_t seed = 1; seed <= n_seeds; seed++) {
        uint64_t epoch = 0;
        struct group *g;

        begin(seed);
        for (size_t i = 0; i < N_NAMES; i++)
            world[i].is_there = false;
        for (size_t step = 0; step < N_STEPS; step++) {
            const size_t i = pick(N_NAMES);
            const uint64_t before = epoch;

            if (groups_find(&g, &all, 1, "g", &err) != STATUS_OK)
                epoch = 0; /* the barriers went with the group */
            simulated_step(&world[i], i, &epoch);
            simulated_check_barrier(epoch < before ? epoch : before, epoch);
            if (pick(8) == 0)
                simulated_check();
        }
        n_passed += epoch;
        for (size_t i = 0; i < N_NAMES; i++)
            if (world[i].is_there)
                group_member_end(&world[i].member, false);
        groups_deinit(&all);
    }
    ck_assert_uint_gt(n_passed, n_seeds);
}
END_TEST

/* A principal has at most half of the groups and of their values' bytes; with that another goes
 * on. */
START_TEST(halves)
{
    static struct group_member members[GROUPS_MAX / 2 + 1];
    static const char value[GROUP_VALUE_MAX_BYTES];
    const size_t n_values = GROUP_MAX_BYTES / 2 / GROUP_VALUE_MAX_BYTES;
    struct group_member other;
    char name[16];

    begin(1);
    for (size_t i = 0; i <= GROUPS_MAX / 2; i++) {
        (void)snprintf(name, sizeof(name), "g%zu", i);
        ck_assert_int_eq(group_join(&members[i], &all, 1, name, "m", 0, on_notify, &err),
                         i < GROUPS_MAX / 2 ? STATUS_OK : STATUS_EXHAUSTED);
    }
    ck_assert_ptr_nonnull(strstr(err.text, "half of the limit of 4096 groups"));
    ck_assert_int_eq(group_join(&other, &all, 2, "g", "m", 0, on_notify, &err), STATUS_OK);
    for (size_t i = 0; i <= n_values; i++) {
        (void)snprintf(name, sizeof(name), "k%zu", i);
        ck_assert_int_eq(group_put(&members[0], GROUP_VALUE, name, value, sizeof(value), &err),
                         i < n_values ? STATUS_OK : STATUS_EXHAUSTED);
    }
    ck_assert_str_eq(err.field, "value");
    ck_assert_int_eq(group_put(&members[1], GROUP_VALUE, "k", "1", 1, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(group_put(&other, GROUP_VALUE, "k", value, sizeof(value), &err), STATUS_OK);
    for (size_t i = 0; i < GROUPS_MAX / 2; i++)
        group_member_end(&members[i], false);
    group_member_end(&other, false);
    groups_deinit(&all);
}
END_TEST

SUITE_MAIN("server/registry/groups", events, entries, barriers, many_barriers, leases,
           slow_listener, no_memory, simulated, halves)
