#include "agents/agent.h"
#include "agents/turn.h"

#include "tests/unit/base/suite.h"

/* A kind of agent that logs the framework's calls. */
static struct probe_log {
    unsigned n_closed, n_clones_closed, n_act, n_batch_act, n_stepped, n_reserved, n_released;
    size_t last_n;
    bool open_fails, clone_fails;
} seen;

struct probe {
    struct agent base;
    int opened;
};

struct probe_clone {
    struct clone base;
    uint32_t at_turn;
    bool is_fork;
};

static enum status probe_open(struct agent *a, const struct agent_config *config, struct error *err)
{
    struct probe *p = container_of(a, struct probe, base);

    ck_assert_int_eq(p->opened, 0);
    p->opened = 1;
    if (seen.open_fails)
        return error_set(err, STATUS_NOT_FOUND, "no such file");
    return STATUS_OK;
}

static void probe_close(struct agent *a)
{
    ck_assert_int_eq(container_of(a, struct probe, base)->opened, 1);
    seen.n_closed++;
}

static enum status probe_clone_open(struct clone *c, const struct clone_config *config,
                                    struct error *err)
{
    if (seen.clone_fails)
        return error_set(err, STATUS_EXHAUSTED, "full");
    return STATUS_OK;
}

static void probe_clone_close(struct clone *c)
{
    seen.n_clones_closed++;
}

static enum status probe_fork(struct clone *c, const struct clone *parent, uint32_t at_turn,
                              struct error *err)
{
    struct probe_clone *p = container_of(c, struct probe_clone, base);

    if (seen.clone_fails)
        return error_set(err, STATUS_EXHAUSTED, "full");
    p->is_fork = true;
    p->at_turn = at_turn;
    return STATUS_OK;
}

static size_t probe_cost(const struct agent *a, const struct row *row)
{
    return row->n_scheduled + 7;
}

static size_t probe_min_chunk(const struct agent *a, const struct row *row)
{
    return 3;
}

static enum status probe_reserve(struct agent *a, struct row *row, struct error *err)
{
    seen.n_reserved++;
    return error_set(err, STATUS_EXHAUSTED, "no pages");
}

static void probe_release(struct agent *a, struct row *row)
{
    seen.n_released++;
}

static void probe_act(struct agent *a, struct row *row)
{
    seen.n_act++;
    row->outcome = ROW_DONE;
}

static void probe_batch_act(struct agent *a, struct row *const *rows, size_t n)
{
    seen.n_batch_act++;
    seen.last_n = n;
    for (size_t i = 0; i < n; i++)
        rows[i]->outcome = ROW_DONE;
}

static void probe_stepped(struct agent *a, struct row *row)
{
    seen.n_stepped++;
}

/* The minimal table of a kind; tests extend a copy. */
static struct agent_type probe_type(void)
{
    return (struct agent_type){.name = "probe",
                               .agent_size = sizeof(struct probe),
                               .clone_size = sizeof(struct probe_clone),
                               .open = probe_open,
                               .close = probe_close,
                               .clone_open = probe_clone_open,
                               .clone_close = probe_clone_close,
                               .act = probe_act};
}

static struct agent *open_probe(const struct agent_type *type)
{
    const struct agent_config config = {.name = "p", .env = &env_real};
    struct agent *a = NULL;
    struct error err;

    seen = (struct probe_log){0};
    ck_assert_int_eq(agent_open_type(&a, type, &config, &err), STATUS_OK);
    return a;
}

/* The registry has echo and ends with NULL; every kind in it has its required functions. */
START_TEST(test_registry)
{
    bool has_echo = false;
    const struct agent_type *type;
    size_t i;

    for (i = 0; (type = agent_type_at(i)) != NULL; i++) {
        has_echo |= strcmp(type->name, "echo") == 0;
        ck_assert(type->rewind != NULL && type->reset != NULL);
        ck_assert(type->observe != NULL && type->self_observe != NULL);
        ck_assert((type->act != NULL) != (type->batch_act != NULL));
        ck_assert_uint_ge(type->agent_size, sizeof(struct agent));
        ck_assert_uint_ge(type->clone_size, sizeof(struct clone));
    }
    ck_assert(has_echo);
    ck_assert_ptr_null(agent_type_at(i + 1));
}
END_TEST

/* An unknown kind is NOT_FOUND, and the error names the known ones. */
START_TEST(test_unknown_kind)
{
    const struct agent_config config = {.name = "x", .env = &env_real};
    struct agent *a = NULL;
    struct error err;

    ck_assert_int_eq(agent_open(&a, "parrot", &config, &err), STATUS_NOT_FOUND);
    ck_assert_ptr_null(a);
    ck_assert_ptr_nonnull(strstr(err.text, "parrot"));
    ck_assert_ptr_nonnull(strstr(err.text, "echo"));
}
END_TEST

/* The original lives as long as its holders and its clones. */
START_TEST(test_shared_until_last)
{
    const struct agent_type type = probe_type();
    struct agent *a = open_probe(&type);
    struct clone *c;
    struct error err;

    ck_assert_str_eq(a->name, "p");
    ck_assert_ptr_eq(agent_ref(a), a);
    ck_assert_int_eq(clone_open(&c, a, &(struct clone_config){0}, &err), STATUS_OK);
    ck_assert_uint_eq(a->n_clones, 1);
    ck_assert_ptr_null(c->flow.head);
    agent_unref(a);
    agent_unref(a);
    ck_assert_uint_eq(seen.n_closed, 0);
    clone_close(c);
    ck_assert_uint_eq(seen.n_clones_closed, 1);
    ck_assert_uint_eq(seen.n_closed, 1);
    agent_unref(NULL);
    clone_close(NULL);
}
END_TEST

/* The framework closes what fails half-way, and returns nothing. */
START_TEST(test_failing_open)
{
    struct agent_type type = probe_type();
    const struct agent_config config = {.name = "p", .env = &env_real};
    struct agent *a = NULL;
    struct clone *c = NULL, *fork = NULL;
    struct error err;

    seen = (struct probe_log){.open_fails = true};
    ck_assert_int_eq(agent_open_type(&a, &type, &config, &err), STATUS_NOT_FOUND);
    ck_assert_ptr_null(a);
    ck_assert_uint_eq(seen.n_closed, 1);

    type.fork = probe_fork;
    a = open_probe(&type);
    ck_assert_int_eq(clone_open(&c, a, &(struct clone_config){0}, &err), STATUS_OK);
    seen.clone_fails = true;
    ck_assert_int_eq(clone_open(&fork, a, &(struct clone_config){0}, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(clone_fork(&fork, c, 1, &err), STATUS_EXHAUSTED);
    ck_assert_ptr_null(fork);
    ck_assert_uint_eq(seen.n_clones_closed, 2);
    ck_assert_uint_eq(a->n_clones, 1);
    clone_close(c);
    agent_unref(a);
    ck_assert_uint_eq(seen.n_closed, 1);
}
END_TEST

/* A fork is a clone of the same original; kinds without fork are UNIMPLEMENTED. */
START_TEST(test_fork)
{
    struct agent_type type = probe_type();
    struct agent *a = open_probe(&type);
    struct clone *c, *fork = NULL;
    struct error err;

    ck_assert_int_eq(clone_open(&c, a, &(struct clone_config){0}, &err), STATUS_OK);
    ck_assert_int_eq(clone_fork(&fork, c, 2, &err), STATUS_UNIMPLEMENTED);
    ck_assert_ptr_null(fork);
    ck_assert_uint_eq(a->n_clones, 1);
    type.fork = probe_fork;
    ck_assert_int_eq(clone_fork(&fork, c, 2, &err), STATUS_OK);
    ck_assert_ptr_eq(fork->agent, a);
    ck_assert_uint_eq(a->n_clones, 2);
    ck_assert_uint_eq(container_of(fork, struct probe_clone, base)->at_turn, 2);
    clone_close(c);
    clone_close(fork);
    agent_unref(a);
    ck_assert_uint_eq(seen.n_closed, 1);
}
END_TEST

/* A step is computed row by row, or by batch_act. */
START_TEST(test_compute)
{
    struct agent_type type = probe_type();
    struct agent *a = open_probe(&type);
    struct row rows[3] = {{0}};
    struct row *const three[] = {&rows[0], &rows[1], &rows[2]};

    agent_compute(a, three, 3);
    ck_assert_uint_eq(seen.n_act, 3);
    type.act = NULL;
    type.batch_act = probe_batch_act;
    agent_compute(a, three, 3);
    ck_assert_uint_eq(seen.n_act, 3);
    ck_assert_uint_eq(seen.n_batch_act, 1);
    ck_assert_uint_eq(seen.last_n, 3);
    agent_unref(a);
}
END_TEST

/* The adapter leaves out what a kind leaves out, except the cost, which is 1, and passes the rest
 * on. */
START_TEST(test_adapter_options)
{
    struct agent_type type = probe_type();
    struct agent *a = open_probe(&type);
    struct row row = {.n_scheduled = 5};
    struct batch_agent to;
    struct error err;

    agent_batch_adapter(a, &to);
    ck_assert_uint_eq(to.cost(to.self, &row), 1);
    ck_assert(to.min_chunk == NULL && to.reserve == NULL && to.release == NULL);
    ck_assert(to.stepped == NULL);
    type.cost = probe_cost;
    type.min_chunk = probe_min_chunk;
    type.reserve = probe_reserve;
    type.release = probe_release;
    type.stepped = probe_stepped;
    agent_batch_adapter(a, &to);
    ck_assert_uint_eq(to.cost(to.self, &row), 12);
    ck_assert_uint_eq(to.min_chunk(to.self, &row), 3);
    ck_assert_int_eq(to.reserve(to.self, &row, &err), STATUS_EXHAUSTED);
    ck_assert_str_eq(err.text, "no pages");
    to.release(to.self, &row);
    to.stepped(to.self, &row);
    ck_assert_uint_eq(seen.n_reserved, 1);
    ck_assert_uint_eq(seen.n_released, 1);
    ck_assert_uint_eq(seen.n_stepped, 1);
    agent_unref(a);
}
END_TEST

/* A turn starts empty with a bounded reply, is found by its row, and ends empty. */
START_TEST(test_turn)
{
    struct agent_turn turn;
    struct arena arena;

    arena_init(&arena, 1000);
    memset(&turn, 0xff, sizeof(turn));
    agent_turn_init(&turn, &arena, 4);
    ck_assert_ptr_eq(agent_turn_of(&turn.row), &turn);
    ck_assert_ptr_eq(turn.arena, &arena);
    ck_assert_uint_eq(turn.reply.n_tokens, 0);
    ck_assert_int_eq(turn.reply.finish, FINISH_NONE);
    ck_assert_int_eq(buf_append(&turn.reply.text, "12345", 5), STATUS_EXHAUSTED);
    ck_assert_int_eq(buf_append(&turn.reply.text, "1234", 4), STATUS_OK);
    agent_turn_deinit(&turn);
    ck_assert_ptr_null(turn.reply.text.data);
    agent_turn_deinit(&turn);
    arena_deinit(&arena);
}
END_TEST

SUITE_MAIN("agents/agent", test_registry, test_unknown_kind, test_shared_until_last,
           test_failing_open, test_fork, test_compute, test_adapter_options, test_turn)
