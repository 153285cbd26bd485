#include "server/api/metrics.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/act/session.h"
#include "server/api/kserve/sequences.h"
#include "server/model/models.h"
#include "server/registry/groups.h"
#include "server/room/rooms.h"
#include "server/server.h"
#include "server/service/service.h"
#include "server/work/work.h"
#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

static struct fake_server s;
static struct models models;
static struct sessions sessions;
static struct sequences sequences;
static struct groups groups = {.value_bytes.held = 11, .n_waiting = 2, .n_lost = 9};
static struct rooms rooms = {
    .n_rooms.held = 2, .n_people.held = 5, .bytes.held = 13, .n_readers = 4, .n_said = 8};
static struct service_plan plan;
static struct chat_service service = {
    .config.plan = &plan, .n_users.held = 6, .n_waiting = 1, .n_tasks = 2, .n_said = 12};
static struct work_table work = {.workers_limit.held = 3, .tasks_limit.held = 5, .n_lost = 7};
static struct server server; /* the part that a page uses */
static struct buf page;

static void open_page(size_t limit_bytes)
{
    fake_server_open(&s, "fake", 0, NULL);
    models = (struct models){.loaded = {&s.model}, .n_loaded = 1};
    list_init(&work.principals);
    server = (struct server){
        .env = &s.env,
        .models = &models,
        .conversations = &s.all,
        .sessions = &sessions,
        .sequences = &sequences,
        .groups = &groups,
        .rooms = &rooms,
        .service = &service,
        .work = &work,
    };
    buf_init(&page, limit_bytes);
}

static void close_page(void)
{
    buf_deinit(&page);
    fake_server_close(&s);
}

/* The value of a sample, or -1 where there is none. */
static double sample(const char *name)
{
    size_t len = strlen(name);

    for (const char *line = page.data; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) == 0 && line[len] == ' ')
            return strtod(line + len, NULL);
    }
    return -1;
}

/* Turns are counted on the page, under both families of names. */
START_TEST(test_turns)
{
    struct conversation *c;
    struct fake_reader r;
    struct error err;

    open_page(METRICS_MAX_BYTES);
    c = fake_conversation(&s);
    fake_turn_whole(&s, c, 1, "say 3", FINISH_STOP, "<0><1><2>");
    fake_reader_init(&r);
    ck_assert_int_eq(fake_turn(c, 2, "refuse", &r, &err), STATUS_RANGE);
    statistics_step(&s.model.statistics, 3, 30, 10);
    metrics_render(&server, &page);
    ck_assert_double_eq(sample("nv_inference_request_success{model=\"fake\",version=\"1\"}"), 1);
    ck_assert_double_eq(
        sample("nv_inference_request_failure{model=\"fake\",version=\"1\",reason=\"OTHER\"}"), 1);
    ck_assert_double_eq(
        sample("nv_inference_request_failure{model=\"fake\",version=\"1\",reason=\"CANCELED\"}"),
        0);
    ck_assert_double_eq(sample("nv_inference_pending_request_count{model=\"fake\",version=\"1\"}"),
                        0);
    ck_assert_double_eq(sample("parley_ttft_seconds_count{model=\"fake\"}"), 1);
    ck_assert_double_eq(sample("parley_inter_token_seconds_count{model=\"fake\"}"), 2);
    ck_assert_double_eq(sample("parley_rejects_total{model=\"fake\",reason=\"out_of_range\"}"), 1);
    ck_assert_double_eq(sample("parley_generated_tokens_total{model=\"fake\"}"), 3);
    ck_assert_double_eq(sample("parley_step_rows_bucket{model=\"fake\",le=\"2\"}"), 0);
    ck_assert_double_eq(sample("parley_step_rows_bucket{model=\"fake\",le=\"4\"}"), 1);
    ck_assert_double_eq(sample("parley_step_rows_bucket{model=\"fake\",le=\"+Inf\"}"), 1);
    ck_assert_double_eq(sample("parley_step_rows_sum{model=\"fake\"}"), 3);
    ck_assert_double_eq(sample("parley_conversations{model=\"fake\"}"), 1);
    fake_reader_deinit(&r);
    statistics_deinit(&s.model.statistics);
    close_page();
}
END_TEST

/* What other services have is on the page; of a journal nothing, where there is none. */
START_TEST(test_services)
{
    open_page(METRICS_MAX_BYTES);
    metrics_render(&server, &page);
    ck_assert_double_eq(sample("parley_work_workers"), 3);
    ck_assert_double_eq(sample("parley_work_tasks"), 5);
    ck_assert_double_eq(sample("parley_work_queued"), 0);
    ck_assert_double_eq(sample("parley_work_lost_total"), 7);
    ck_assert_double_eq(sample("parley_registry_groups"), 0);
    ck_assert_double_eq(sample("parley_registry_members"), 0);
    ck_assert_double_eq(sample("parley_registry_waiting"), 2);
    ck_assert_double_eq(sample("parley_registry_bytes"), 11);
    ck_assert_double_eq(sample("parley_registry_lost_total"), 9);
    ck_assert_double_eq(sample("parley_rooms"), 2);
    ck_assert_double_eq(sample("parley_rooms_people"), 5);
    ck_assert_double_eq(sample("parley_rooms_readers"), 4);
    ck_assert_double_eq(sample("parley_rooms_bytes"), 13);
    ck_assert_double_eq(sample("parley_rooms_said_total"), 8);
    ck_assert_double_eq(sample("parley_service_people"), 6);
    ck_assert_double_eq(sample("parley_service_waiting"), 1);
    ck_assert_double_eq(sample("parley_service_tasks"), 2);
    ck_assert_double_eq(sample("parley_service_said_total"), 12);
    ck_assert_double_eq(sample("parley_journal_waiting_bytes"), -1);
    close_page();
}
END_TEST

/* A name that could close its label is escaped. */
START_TEST(test_label)
{
    char name[] = "a\"b\\c";

    open_page(METRICS_MAX_BYTES);
    s.model.name = name;
    metrics_render(&server, &page);
    ck_assert_double_eq(sample("parley_model_ready{model=\"a\\\"b\\\\c\"}"), 1);
    s.model.name = s.model.agent->name;
    close_page();
}
END_TEST

/* A page without room ends with a whole line. */
START_TEST(test_limit)
{
    for (size_t limit = 1; limit < 2000; limit += 97) {
        open_page(limit);
        metrics_render(&server, &page);
        ck_assert_uint_le(page.len, limit);
        if (page.len > 0)
            ck_assert_int_eq(page.data[page.len - 1], '\n');
        close_page();
    }
}
END_TEST

SUITE_MAIN("server/metrics", test_turns, test_services, test_label, test_limit)
