/* Who is asked what in which order, what is refused, and what happens when somebody fails. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "tests/support/fake_task.h"
#include "tests/unit/base/suite.h"
#include "worlds/baselines/dictionary.h"
#include "worlds/baselines/simple.h"
#include "worlds/metrics/metrics.h"
#include "worlds/world/world.h"

static struct error err;

/* --- a participant that writes down what it is called for ----------------------------------------
 */

struct recorder {
    struct participant base;
    char name;
    bool wants_batches, breaks; /* breaks: its row of slot 1 fails, or its act */
};

struct recorder_clone {
    struct participant_clone base;
    uint32_t index;
};

static char calls[4096];
static size_t n_inits, n_deinits;

static void write_down(const struct participant *p, const char *what)
{
    const struct recorder *r =
        container_of((struct participant *)(uintptr_t)p, struct recorder, base);
    size_t len = strlen(calls);

    (void)snprintf(calls + len, sizeof(calls) - len, "%c.%s ", r->name, what);
}

static bool breaks(const struct participant_clone *c)
{
    return container_of(c->original, const struct recorder, base)->breaks &&
           container_of(c, const struct recorder_clone, base)->index == 1;
}

static enum status rec_init(struct participant_clone *c, const struct participant_slot *place,
                            struct error *e)
{
    container_of(c, struct recorder_clone, base)->index = place->index;
    n_inits++;
    return STATUS_OK;
}

static void rec_deinit(struct participant_clone *c)
{
    n_deinits++;
}

static enum status rec_observe(struct participant_clone *c, const struct act *act,
                               const struct act **ret_observation, struct error *e)
{
    write_down(c->original, "observe");
    *ret_observation = act;
    return STATUS_OK;
}

static enum status rec_act(struct participant_clone *c, struct act *out, struct error *e)
{
    write_down(c->original, "act");
    if (breaks(c))
        return error_set(e, STATUS_INTERNAL, "broke");
    return act_set(out, ACT_TEXT, value_text((struct text){"hm", 2}), e);
}

static void rec_batch_act(struct participant *p, struct participant_row *rows, size_t n)
{
    write_down(p, "batch_act");
    for (size_t i = 0; i < n; i++) {
        rows[i].failed = breaks(rows[i].clone);
        if (rows[i].failed)
            (void)error_set(&rows[i].err, STATUS_INTERNAL, "broke");
        else
            ck_assert_int_eq(
                act_set(rows[i].out, ACT_TEXT, value_text((struct text){"hm", 2}), &rows[i].err),
                STATUS_OK);
    }
}

static enum status rec_self_observe(struct participant_clone *c, const struct act *reply,
                                    struct error *e)
{
    ck_assert_uint_eq(act_text(reply).len, 2);
    write_down(c->original, "self_observe");
    return STATUS_OK;
}

static void rec_reset(struct participant_clone *c)
{
    write_down(c->original, "reset");
}

static bool rec_use_batch_act(const struct participant *p)
{
    return container_of(p, const struct recorder, base)->wants_batches;
}

static const struct participant_type both_type = {.name = "both",
                                                  .clone_size = sizeof(struct recorder_clone),
                                                  .clone_init = rec_init,
                                                  .clone_deinit = rec_deinit,
                                                  .observe = rec_observe,
                                                  .act = rec_act,
                                                  .batch_act = rec_batch_act,
                                                  .self_observe = rec_self_observe,
                                                  .use_batch_act = rec_use_batch_act};

static const struct participant_type act_type = {.name = "acts",
                                                 .clone_size = sizeof(struct recorder_clone),
                                                 .clone_init = rec_init,
                                                 .clone_deinit = rec_deinit,
                                                 .reset = rec_reset,
                                                 .observe = rec_observe,
                                                 .act = rec_act};

static const struct participant_type batch_type = {.name = "batches",
                                                   .clone_size = sizeof(struct recorder_clone),
                                                   .clone_init = rec_init,
                                                   .clone_deinit = rec_deinit,
                                                   .observe = rec_observe,
                                                   .batch_act = rec_batch_act,
                                                   .self_observe = rec_self_observe};

static struct recorder recorder(char name, const struct participant_type *type)
{
    struct recorder r = {.name = name, .wants_batches = true};

    participant_init(&r.base, type);
    calls[0] = '\0';
    n_inits = n_deinits = 0;
    return r;
}

/* One parley of the task and these agents. */
static enum status one_parley(struct participant *task, struct participant *const *agents,
                              size_t n_agents, size_t batch_size)
{
    const struct world_config config = {.tasks = &task,
                                        .n_tasks = 1,
                                        .agents = agents,
                                        .n_agents = n_agents,
                                        .batch_size = batch_size};
    struct world *w;
    enum status rc;

    ck_assert_int_eq(world_open(&w, &config, &err), STATUS_OK);
    rc = world_parley(w, &err);
    world_close(w);
    ck_assert_uint_eq(n_inits, n_deinits);
    return rc;
}

/* A plain world calls act, a batch world batch_act once and then self_observe of each clone; an
 * agent that does not want batches is called one clone after the other, and has observed itself. */
START_TEST(test_who_is_asked)
{
    struct fake_example *examples = fake_examples(6, 1);
    struct fake_task *task = fake_task_open("t", examples, 6);
    struct recorder a = recorder('a', &both_type);
    struct participant *agent = &a.base;

    ck_assert_int_eq(one_parley(&task->base, &agent, 1, 1), STATUS_OK);
    ck_assert_str_eq(calls, "a.observe a.act ");
    calls[0] = '\0';
    ck_assert_int_eq(one_parley(&task->base, &agent, 1, 3), STATUS_OK);
    ck_assert_str_eq(calls, "a.observe a.observe a.observe a.batch_act a.self_observe "
                            "a.self_observe a.self_observe ");
    calls[0] = '\0';
    a.wants_batches = false;
    ck_assert_int_eq(one_parley(&task->base, &agent, 1, 2), STATUS_OK);
    ck_assert_str_eq(calls, "a.observe a.observe a.act a.act ");
    participant_unref(&task->base);
    free(examples);
}
END_TEST

/* Who has batch_act alone is asked by a batch of one in a plain world. */
START_TEST(test_batch_of_one)
{
    struct fake_example *examples = fake_examples(1, 1);
    struct fake_task *task = fake_task_open("t", examples, 1);
    struct recorder a = recorder('a', &batch_type);
    struct participant *agent = &a.base;

    ck_assert_int_eq(one_parley(&task->base, &agent, 1, 0), STATUS_OK);
    ck_assert_str_eq(calls, "a.observe a.batch_act a.self_observe ");
    ck_assert(fake_task_is_even(task, 1));
    participant_unref(&task->base);
    free(examples);
}
END_TEST

/* Each answer of a plain world is a batch of one row, whether its agent acts or is asked; a batch
 * world has one of all its rows. They count on when the world begins anew. */
START_TEST(test_counters)
{
    struct fake_example *examples = fake_examples(6, 2);
    struct fake_task *task = fake_task_open("t", examples, 12);
    struct recorder acts = recorder('a', &both_type), asked = recorder('b', &batch_type);
    const struct {
        struct participant *agent;
        size_t batch_size;
        uint64_t n_batches;
    } cases[] = {{&acts.base, 1, 24}, {&asked.base, 1, 24}, {&acts.base, 6, 4}};
    uint64_t n_words = 0;

    for (size_t i = 0; i < 12; i++)
        n_words += 2 * (examples[i].text_words + examples[i].label_words);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct participant *tasks[] = {&task->base}, *agent = cases[i].agent;
        const struct world_config config = {.tasks = tasks,
                                            .n_tasks = 1,
                                            .agents = &agent,
                                            .n_agents = 1,
                                            .batch_size = cases[i].batch_size,
                                            .counts_words = true};
        struct world_counters counters;
        struct world *w;

        ck_assert_int_eq(world_open(&w, &config, &err), STATUS_OK);
        ck_assert_int_eq(world_run(w, &err), STATUS_OK);
        world_reset(w);
        calls[0] = '\0';
        ck_assert_int_eq(world_run(w, &err), STATUS_OK);
        calls[0] = '\0';
        world_counters(w, &counters);
        ck_assert_uint_eq(counters.n_examples, 12);
        ck_assert_uint_eq(counters.n_batches, cases[i].n_batches);
        ck_assert_uint_eq(counters.n_rows, 24);
        ck_assert_uint_eq(counters.n_words, n_words);
        ck_assert_uint_eq(counters.n_cells, counters.n_padded);
        ck_assert_int_eq(counters.n_padded == n_words, cases[i].batch_size == 1);
        world_reset(w); /* the next world begins with the first episode */
        world_close(w);
    }
    participant_unref(&task->base);
    free(examples);
}
END_TEST

/* Round robin: each acts once, and all the others observe it. */
START_TEST(test_round_robin)
{
    struct recorder t = recorder('t', &act_type), a = recorder('a', &both_type),
                    b = recorder('b', &act_type);
    struct participant *agents[] = {&a.base, &b.base};

    ck_assert_int_eq(one_parley(&t.base, agents, 2, 1), STATUS_OK);
    ck_assert_str_eq(calls, "t.act a.observe b.observe a.act t.observe b.observe "
                            "b.act t.observe a.observe ");
    calls[0] = '\0';
    ck_assert_int_eq(one_parley(&t.base, agents, 2, 2), STATUS_OK);
    ck_assert_str_eq(calls, "t.act t.act a.observe b.observe a.observe b.observe a.batch_act "
                            "t.observe a.self_observe b.observe t.observe a.self_observe b.observe "
                            "b.act b.act t.observe a.observe t.observe a.observe ");
}
END_TEST

/* With a graph only those who are to hear an act observe it: b hears t and a in private, and t what
 * a says. An end that is said begins the agents anew, or is the last of the world. */
START_TEST(test_graph)
{
    struct recorder t = recorder('t', &act_type), a = recorder('a', &act_type),
                    b = recorder('b', &act_type);
    struct participant *task = &t.base, *agents[] = {&a.base, &b.base};
    struct world_graph graph = {.hears = {1 << 1, 1 << 0, 1 << 0 | 1 << 1}, .ends = 1};
    struct world_config config = {
        .tasks = &task, .n_tasks = 1, .agents = agents, .n_agents = 2, .graph = &graph};
    static const char parley[] = "t.act a.observe b.observe a.act t.observe b.observe b.act ";
    struct world_row row;
    struct world *w;

    ck_assert_int_eq(world_open(&w, &config, &err), STATUS_OK);
    for (size_t i = 0; i < 2; i++, calls[0] = '\0') {
        ck_assert_int_eq(world_parley(w, &err), STATUS_OK);
        ck_assert_str_eq(calls, parley);
        ck_assert(!world_episode_done(w) && !world_epoch_done(w));
    }
    world_close(w);

    graph.end_text = (struct text){"m", 1};
    ck_assert_int_eq(world_open(&w, &config, &err), STATUS_OK);
    ck_assert_int_eq(world_parley(w, &err), STATUS_OK);
    ck_assert(world_episode_done(w) && !world_epoch_done(w));
    calls[0] = '\0';
    ck_assert_int_eq(world_parley(w, &err), STATUS_OK);
    ck_assert_int_eq(strncmp(calls, "a.reset b.reset t.act ", 22), 0);
    world_close(w);

    graph.ends_world = true;
    for (config.batch_size = 1; config.batch_size < 4; config.batch_size += 2) {
        ck_assert_int_eq(world_open(&w, &config, &err), STATUS_OK);
        ck_assert_int_eq(world_parley(w, &err), STATUS_OK);
        ck_assert(world_epoch_done(w));
        calls[0] = '\0';
        ck_assert_int_eq(world_parley(w, &err), STATUS_OK);
        ck_assert_str_eq(calls, "");
        for (size_t i = 0; i < world_n_rows(w); i++) {
            world_row(w, i, &row);
            ck_assert(act_is_padding(&row.acts[0]) && act_is_padding(&row.acts[2]));
        }
        world_close(w);
    }
    ck_assert_uint_eq(n_inits, n_deinits);
}
END_TEST

/* Several agents do not talk about padding, which a slot has that waits for the others. */
START_TEST(test_idle)
{
    struct fake_example *examples = fake_examples(3, 1);
    struct fake_task *task = fake_task_open("t", examples, 3);
    struct recorder a = recorder('a', &both_type), b = recorder('b', &act_type);
    struct participant *tasks[] = {&task->base}, *agents[] = {&a.base, &b.base};
    const struct world_config config = {
        .tasks = tasks, .n_tasks = 1, .agents = agents, .n_agents = 2, .batch_size = 2};
    struct world *w;

    ck_assert_int_eq(world_open(&w, &config, &err), STATUS_OK);
    ck_assert_int_eq(world_parley(w, &err), STATUS_OK);
    calls[0] = '\0';
    ck_assert_int_eq(world_parley(w, &err), STATUS_OK);
    ck_assert_str_eq(calls, "a.observe b.observe a.batch_act a.self_observe b.observe b.act "
                            "a.observe ");
    ck_assert(world_epoch_done(w) && fake_task_is_even(task, 1));
    world_close(w);
    participant_unref(&task->base);
    free(examples);
}
END_TEST

/* A clone is initialised once and closed once, also when one in the middle cannot be made. */
START_TEST(test_failures)
{
    struct fake_example *examples = fake_examples(6, 1);
    struct fake_task *task = fake_task_open("t", examples, 6);
    struct recorder a = recorder('a', &both_type);
    struct participant *agent = &a.base;

    a.breaks = true;
    ck_assert_int_eq(one_parley(&task->base, &agent, 1, 4), STATUS_INTERNAL);
    ck_assert_str_eq(err.text, "'both': broke");
    a.wants_batches = false;
    ck_assert_int_eq(one_parley(&task->base, &agent, 1, 4), STATUS_INTERNAL);
    ck_assert_str_eq(err.text, "'both': broke");
    participant_unref(&task->base);
    free(examples);
}
END_TEST

/* A dynamic world in which a row fails says so, and can be reset and closed. */
START_TEST(test_dynamic_failure)
{
    struct fake_example *examples = fake_examples(20, 2);
    struct fake_task *task = fake_task_open("t", examples, 40);
    struct recorder a = recorder('a', &batch_type);
    struct participant *tasks[] = {&task->base}, *agent = &a.base;
    const struct world_config config = {.tasks = tasks,
                                        .n_tasks = 1,
                                        .agents = &agent,
                                        .n_agents = 1,
                                        .batch_size = 4,
                                        .dynamic = DYNAMIC_FULL,
                                        .text_truncate = 16};
    struct world *w;

    a.breaks = true;
    ck_assert_int_eq(world_open(&w, &config, &err), STATUS_OK);
    ck_assert_int_eq(world_run(w, &err), STATUS_INTERNAL);
    ck_assert_str_eq(err.text, "'batches': broke");
    for (size_t i = 0; i < 40; i++)
        atomic_store(&task->n_answered[i], 0);
    a.breaks = false;
    world_reset(w);
    ck_assert_int_eq(world_run(w, &err), STATUS_OK);
    ck_assert(fake_task_is_even(task, 1));
    world_close(w);
    ck_assert_uint_eq(n_inits, n_deinits);
    participant_unref(&task->base);
    free(examples);
}
END_TEST

/* --- what is refused
 * ------------------------------------------------------------------------------ */

static void check_refused(const struct world_config *config, const char *text)
{
    struct world *w;

    ck_assert_int_eq(world_open(&w, config, &err), STATUS_INVALID);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

START_TEST(test_refused)
{
    struct recorder t = recorder('t', &act_type), a = recorder('a', &both_type),
                    b = recorder('b', &act_type);
    struct participant *tasks[] = {&t.base, &t.base}, *agents[] = {&a.base, &b.base};
    struct participant *acts = &b.base, *batches = &a.base;
    const double weights[] = {1, -1};
    struct world_config c = {.tasks = tasks, .n_tasks = 1, .agents = agents, .n_agents = 1};

    c.n_tasks = 0;
    check_refused(&c, "tasks are missing");
    c.n_tasks = 1;
    c.n_agents = 0;
    check_refused(&c, "agents are missing");
    c.n_agents = 1;
    c.n_tasks = 2;
    check_refused(&c, "task_names are missing");
    c.task_names = (const struct text[]){{"a", 1}, {"b", 1}};
    c.shuffle = true;
    c.weights = weights;
    c.n_weights = 2;
    check_refused(&c, "a weight must be 0 or above");

    c = (struct world_config){.tasks = tasks,
                              .n_tasks = 1,
                              .agents = agents,
                              .n_agents = 1,
                              .batch_size = 4,
                              .dynamic = DYNAMIC_FULL};
    check_refused(&c, "text_truncate is not set");
    c.text_truncate = SIZE_MAX;
    check_refused(&c, "too large for a batch");
    c.text_truncate = 64;
    c.n_agents = 2;
    check_refused(&c, "only with one");
    c.n_agents = 1;
    c.agents = &acts;
    check_refused(&c, "'acts' has no batch_act");
    c.agents = agents;
    c.tasks = &batches;
    check_refused(&c, "makes batches already");
    c.n_threads = 3; /* the same from threads */
    check_refused(&c, "makes batches already");
    ck_assert_uint_eq(n_inits, n_deinits);
}
END_TEST

/* --- dynamic
 * -------------------------------------------------------------------------------------- */

struct seen {
    size_t n_parleys, last[64], longest_wait; /* by slot */
    size_t slot_of[64];                       /* by episode; one more than it */
    const struct fake_task *task;
};

static void see(void *arg, const struct world *w, uint32_t thread)
{
    struct seen *s = arg;

    s->n_parleys++;
    for (size_t i = 0; i < world_n_rows(w); i++) {
        struct world_row row;
        size_t example, episode;

        world_row(w, i, &row);
        example = fake_task_example(s->task, &row.acts[0]);
        episode = s->task->examples[example].episode;
        if (s->n_parleys - s->last[row.slot] > s->longest_wait)
            s->longest_wait = s->n_parleys - s->last[row.slot];
        s->last[row.slot] = s->n_parleys;
        if (!s->task->is_endless) {
            ck_assert(s->slot_of[episode] == 0 || s->slot_of[episode] == row.slot + 1);
            s->slot_of[episode] = row.slot + 1;
        }
    }
}

static struct participant *repeat_query(void)
{
    struct simple_config config;
    struct participant *agent;

    simple_config_init(&config);
    ck_assert_int_eq(simple_open(&agent, "repeat_query", &config, &err), STATUS_OK);
    return agent;
}

/* Long turns that never end do not keep a short one waiting for longer than max_age and a step for
 * each who waits as long. */
START_TEST(test_nobody_starves)
{
    enum { N_SLOTS = 40, AGE = 10 };
    struct fake_example examples[32];
    struct seen seen = {0};
    struct participant *tasks[1], *agent = repeat_query();
    struct world_config config = {.tasks = tasks,
                                  .n_tasks = 1,
                                  .agents = &agent,
                                  .n_agents = 1,
                                  .batch_size = 2,
                                  .dynamic = DYNAMIC_BATCHSORT,
                                  .text_truncate = 64,
                                  .n_slots = N_SLOTS,
                                  .n_examples = 4000,
                                  .max_age = AGE,
                                  .watch = see,
                                  .watch_arg = &seen};
    struct fake_task *task;
    struct world *w;

    for (size_t i = 0; i < 32; i++)
        examples[i] = (struct fake_example){
            .episode = i, .text_words = i % 16 == 0 ? 1 : 60, .label_words = 1};
    task = fake_task_open("t", examples, 32);
    task->is_endless = true;
    seen.task = task;
    tasks[0] = &task->base;
    ck_assert_int_eq(world_open(&w, &config, &err), STATUS_OK);
    ck_assert_int_eq(world_run(w, &err), STATUS_OK);
    ck_assert_uint_le(seen.longest_wait, AGE + N_SLOTS);
    world_close(w);
    participant_unref(&task->base);
    participant_unref(agent);
}
END_TEST

/* Turns of an episode keep their slot; a turn without text or label takes part like any other. */
START_TEST(test_slots_and_empty_texts)
{
    struct fake_example examples[60];
    struct seen seen = {0};
    struct participant *tasks[1], *agent = repeat_query();
    struct world_config config = {.tasks = tasks,
                                  .n_tasks = 1,
                                  .agents = &agent,
                                  .n_agents = 1,
                                  .batch_size = 3,
                                  .dynamic = DYNAMIC_FULL,
                                  .text_truncate = 8,
                                  .n_slots = 7,
                                  .watch = see,
                                  .watch_arg = &seen};
    struct fake_task *task;
    struct world *w;

    for (size_t i = 0; i < 60; i++)
        examples[i] = (struct fake_example){.episode = i / 3,
                                            .turn = i % 3,
                                            .text_words = i == 30 ? 0 : (uint32_t)(1 + i % 5),
                                            .label_words = (uint32_t)(i % 2)};
    task = fake_task_open("t", examples, 60);
    seen.task = task;
    tasks[0] = &task->base;
    ck_assert_int_eq(world_open(&w, &config, &err), STATUS_OK);
    ck_assert_int_eq(world_run(w, &err), STATUS_OK);
    ck_assert(fake_task_is_even(task, 1));
    world_close(w);
    participant_unref(&task->base);
    participant_unref(agent);
}
END_TEST

/* A ragged agent's batch is bounded by the sum of its rows, and no cell is padded. */
static void ragged_lengths(const struct participant_clone *c, const struct act *seen,
                           struct lengths *out)
{
    out->text = (uint32_t)act_text(seen).len;
    out->label = 0;
}

START_TEST(test_ragged)
{
    static const struct participant_type ragged_type = {.name = "ragged",
                                                        .batch_act = rec_batch_act,
                                                        .lengths = ragged_lengths,
                                                        .clone_size = sizeof(struct recorder_clone),
                                                        .is_ragged = true};
    struct fake_example *examples = fake_examples(50, 1);
    struct fake_task *task = fake_task_open("t", examples, 50);
    struct recorder a = recorder('r', &ragged_type);
    struct participant *tasks[] = {&task->base}, *agent = &a.base;
    struct world_counters counters;
    struct world_config config = {.tasks = tasks,
                                  .n_tasks = 1,
                                  .agents = &agent,
                                  .n_agents = 1,
                                  .batch_size = 4,
                                  .dynamic = DYNAMIC_FULL,
                                  .text_truncate = 16,
                                  .label_truncate = 4};
    struct world *w;

    ck_assert_int_eq(world_open(&w, &config, &err), STATUS_OK);
    ck_assert_int_eq(world_run(w, &err), STATUS_OK);
    world_counters(w, &counters);
    ck_assert(fake_task_is_even(task, 1));
    ck_assert_uint_eq(counters.n_cells, counters.n_words);
    ck_assert_uint_le(counters.n_words, counters.n_parleys * 80);
    world_close(w);
    participant_unref(&task->base);
    free(examples);
}
END_TEST

/* --- agents
 * --------------------------------------------------------------------------------------- */

/* What an IR baseline that learns hears goes into its dictionary, text and labels. */
START_TEST(test_learning)
{
    struct dictionary *d;
    struct simple_config config;
    struct participant *agent;
    struct participant_clone *clone;
    struct arena arena;
    struct act heard, reply;
    const struct act *observation;
    const struct text label = {"the end", 7}, candidates[] = {{"some", 4}, {"the quux", 8}};

    arena_init(&arena, SIZE_MAX);
    ck_assert_int_eq(dictionary_open(&d, &err), STATUS_OK);
    ck_assert_uint_eq(dictionary_n(d), 4);
    ck_assert_int_eq(dictionary_add(d, (struct text){"the Café\n_x1, the", 18}, &err), STATUS_OK);
    ck_assert_uint_eq(dictionary_n(d), 9); /* the Café \n _x1 , */
    ck_assert_uint_eq(dictionary_count(d, (struct text){"the", 3}), 2);
    simple_config_init(&config);
    config.dictionary = d;
    config.learns = true;
    ck_assert_int_eq(simple_open(&agent, "ir_baseline", &config, &err), STATUS_OK);
    clone = xalloc(participant_clone_size(agent));
    ck_assert_int_eq(participant_clone_init(clone, agent, &(struct participant_slot){0, 0}, &err),
                     STATUS_OK);
    act_init(&heard, &arena);
    ck_assert_int_eq(act_set(&heard, ACT_TEXT, value_text((struct text){"Quux the", 8}), &err),
                     STATUS_OK);
    ck_assert_int_eq(act_set(&heard, ACT_LABELS, value_list(&label, 1), &err), STATUS_OK);
    ck_assert_int_eq(act_set(&heard, ACT_LABEL_CANDIDATES, value_list(candidates, 2), &err),
                     STATUS_OK);
    ck_assert_int_eq(participant_observe(clone, &heard, &observation, &err), STATUS_OK);
    act_init(&reply, &arena);
    ck_assert_int_eq(agent->type->act(clone, &reply, &err), STATUS_OK);
    ck_assert_uint_eq(dictionary_n(d), 11);
    ck_assert_uint_eq(dictionary_count(d, (struct text){"the", 3}), 4);
    ck_assert_uint_eq(dictionary_count(d, (struct text){"Quux", 4}), 1);
    ck_assert_uint_eq(act_text(&reply).len, 8); /* of the candidates, the one that shares words */
    participant_clone_deinit(clone);
    free(clone);
    participant_unref(agent);
    dictionary_close(d);
    arena_deinit(&arena);
}
END_TEST

/* An agent that is not there, one without its dictionary, and a chance above 1. */
START_TEST(test_agents_refused)
{
    struct participant *agent;
    struct simple_config config;

    simple_config_init(&config);
    ck_assert_int_eq(simple_open(&agent, "oracle", &config, &err), STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.text, "ir_baseline, random_candidate, repeat_label"));
    ck_assert_int_eq(simple_open(&agent, "unigram", &config, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "'unigram' needs a dictionary");
    config.cant_answer_percent = 1.5;
    ck_assert_int_eq(simple_open(&agent, "repeat_label", &config, &err), STATUS_INVALID);
}
END_TEST

SUITE_MAIN("worlds/world", test_who_is_asked, test_batch_of_one, test_counters, test_round_robin,
           test_graph, test_idle, test_failures, test_dynamic_failure, test_refused,
           test_nobody_starves, test_slots_and_empty_texts, test_ragged, test_learning,
           test_agents_refused)
