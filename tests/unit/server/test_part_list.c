/* The walks over the daemon's parts. The real rows of SERVER_PARTS stand for parts of this file,
 * all alike, that note what is done with them. */
#include "server/part_list.h"

#include <check.h>
#include <string.h>

#include "base/alarm.h"
#include "tests/unit/base/suite.h"

static uv_loop_t loop;
static struct server server;
static struct part_host host;
static struct part_list list;
static void *order[2 * N_PARTS]; /* [n_done] the parts with which something was done */
static size_t n_done, n_rung;
static void *busy; /* the part that has not ended yet */

struct noted {
    struct alarm *alarm;
    bool is_draining;
};

static void note(void *self)
{
    ck_assert_uint_lt(n_done, 2 * N_PARTS);
    order[n_done++] = self;
}

static void note_init(void *self, struct part_host *given, struct alarm *alarm)
{
    ck_assert_ptr_eq(given, &host);
    ck_assert_ptr_nonnull(server.replays); /* the last row has its memory */
    ck_assert(!((struct noted *)self)->is_draining);
    ((struct noted *)self)->alarm = alarm;
    note(self);
}

static void note_tick(void *self)
{
    n_rung++;
}

static void note_drain(void *self)
{
    ((struct noted *)self)->is_draining = true;
}

static void note_end(void *self)
{
    ck_assert(((struct noted *)self)->is_draining);
    note(self);
}

static bool note_is_idle(const void *self)
{
    return self != busy;
}

static bool note_stop(void *self)
{
    note(self);
    return self != busy;
}

#define NOTED_PART(name, type)                                           \
    const struct part name##_part = {.size_bytes = sizeof(struct noted), \
                                     .init = note_init,                  \
                                     .tick = note_tick,                  \
                                     .drain = note_drain,                \
                                     .end = note_end,                    \
                                     .is_idle = note_is_idle,            \
                                     .stop = note_stop,                  \
                                     .is_kept = note_stop,               \
                                     .deinit = note};
#define NOTED_DECLARE(name, type) extern const struct part name##_part;
SERVER_PARTS(NOTED_DECLARE)
SERVER_PARTS(NOTED_PART)

static void begin(void)
{
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    host = (struct part_host){.loop = &loop, .env = &env_real, .server = &server};
    n_done = n_rung = 0;
    busy = NULL;
    part_list_init(&list, &host);
}

static void end(void)
{
    part_list_close(&list);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    part_list_deinit(&list);
}

/* Something was done with n parts, from the first row or from the last. */
static void check_order(size_t n, bool is_forward)
{
    ck_assert_uint_eq(n_done, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_ptr_eq(order[i], list.rows[is_forward ? i : N_PARTS - 1 - i].self);
    n_done = 0;
}

/* Parts are made in the order of the rows, each with its own alarm, and server has them. */
START_TEST(makes)
{
    begin();
    check_order(N_PARTS, true);
    ck_assert_ptr_eq(server.models, list.rows[PART_models].self);
    ck_assert_ptr_eq(server.replays, list.rows[PART_replays].self);
    for (size_t i = 0; i < N_PARTS; i++)
        alarm_by(((struct noted *)list.rows[i].self)->alarm, 1);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_uint_eq(n_rung, N_PARTS);
    end();
    ck_assert_uint_eq(n_done, N_PARTS); /* all are freed */
}
END_TEST

/* All are drained before one is ended. One that is busy keeps the list from being idle. */
START_TEST(ends)
{
    begin();
    n_done = 0;
    part_list_end(&list);
    check_order(N_PARTS, true);
    busy = server.sessions;
    ck_assert(!part_list_are_idle(&list));
    busy = NULL;
    ck_assert(part_list_are_idle(&list));
    end();
}
END_TEST

/* Parts are stopped from the last row; one that takes longer is asked again, and those before it
 * wait. None is stopped twice. */
START_TEST(stops)
{
    const size_t n_behind = N_PARTS - 1 - PART_params;

    begin();
    n_done = 0;
    busy = server.params;
    ck_assert(!part_list_stop(&list));
    check_order(n_behind + 1, false);
    ck_assert(!part_list_stop(&list));
    ck_assert_uint_eq(n_done, 1);
    busy = NULL;
    ck_assert(part_list_stop(&list));
    ck_assert_uint_eq(n_done, 1 + 1 + PART_params);
    ck_assert(part_list_stop(&list));
    ck_assert_uint_eq(n_done, 1 + 1 + PART_params);
    end();
}
END_TEST

/* What is to be kept is written by all at once: one that takes longer keeps no other waiting. */
START_TEST(keeps)
{
    begin();
    n_done = 0;
    busy = server.stores;
    ck_assert(!part_list_are_kept(&list));
    check_order(N_PARTS, true);
    busy = NULL;
    ck_assert(part_list_are_kept(&list));
    n_done = 0;
    end();
}
END_TEST

SUITE_MAIN("server/part_list", makes, ends, stops, keeps)
