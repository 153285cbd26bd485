/* What the three uses of base/peer.h have in common: workers of agents, workers of functions and
 * hosts of environments that are silent, flooded, detached, killed, or ended by the server. A use
 * is a row of the table below; each test goes through all rows. */
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/peer.h"
#include "server/environment/host.h"
#include "server/environment/vectors.h"
#include "server/model/attached.h"
#include "server/work/work.h"
#include "server/work/worker.h"
#include "tests/unit/base/suite.h"

enum { N_ORDERS = 6, SILENCE_US = 1000000 };

static uint64_t now_us;
static struct alarm due; /* rung by the use's tick */
static unsigned n_ended;
static struct error why; /* with which the peer was ended last */

static uint64_t fake_now(void *self)
{
    return now_us;
}

static void real_random(void *self, void *out, size_t n_bytes)
{
    env_real.random(env_real.self, out, n_bytes);
}

static const struct env env = {.now_us = fake_now, .random = real_random};

/* A use: how it begins and ends, and what its peer, its stream and its clients do. */
struct use {
    const char *name;
    void (*begin)(void);
    struct peer *(*attach)(void);
    void (*detach)(void); /* as the stream does when it has ended */
    void (*tick)(void);
    void (*stop)(void); /* the server stops */
    void (*end)(void);  /* frees everything; the peer is detached */
    void (*ask)(size_t i);
    void (*take)(void); /* the stream takes the next order */
    void (*answer)(void);
    enum status (*outcome)(size_t i); /* of what was asked; OK: it is not known yet */
    size_t max_orders;                /* 0: the use bounds its orders itself */
    enum status lost;                 /* how an order ends that a lost peer has */
    const char *silent;
};

static void on_notify(struct peer *p)
{
}

static const struct use *use;

static void on_ended(struct peer *p, const struct error *err)
{
    ck_assert(peer_is_open(p));
    n_ended++;
    why = *err;
    use->detach();
}

/* --- workers of agents --- */

static struct models no_models;
static struct attached attached;
static struct attached_worker worker;
static struct agent *agent;

static struct speaker {
    struct clone *clone;
    struct agent_turn turn;
    struct arena arena;
    struct message message;
    enum status outcome;
    bool is_asked, is_answered;
} speakers[N_ORDERS];

static struct batch_step step;
static struct row *step_rows[N_ORDERS];
static bool is_stepping;

static void on_step_done(struct batch_step *s)
{
    is_stepping = false;
    for (size_t i = 0; i < s->n_rows; i++) {
        struct speaker *of = container_of(s->rows[i], struct speaker, turn.row);

        of->is_answered = s->rows[i]->outcome != ROW_MORE;
        if (s->rows[i]->outcome == ROW_FAILED)
            of->outcome = s->rows[i]->err.status;
    }
}

static void agent_begin(void)
{
    const struct attached_config config = {.models = &no_models,
                                           .env = &env,
                                           .silence_us = SILENCE_US,
                                           .is_allowed = true,
                                           .alarm = &due};
    const struct agent_config words = {.name = "words", .spec = &attached.peers, .env = &env};
    struct error err;

    attached_init(&attached, &config);
    ck_assert_int_eq(agent_open_type(&agent, &remote_agent_type, &words, &err), STATUS_OK);
}

static struct peer *agent_attach(void)
{
    const struct remote_offer offer = {.version = "", .max_rows = 1, .n_slots = N_ORDERS};
    struct error err;

    worker = (struct attached_worker){.remote.peer = {.notify = on_notify, .ended = on_ended}};
    ck_assert_int_eq(attached_open(&worker, &attached, &err), STATUS_OK);
    ck_assert_int_eq(remote_worker_open(&worker.remote, agent, &offer, &err), STATUS_OK);
    worker.remote.peer.must_speak = false; /* its offer has come */
    return &worker.remote.peer;
}

static void agent_detach(void)
{
    attached_close(&worker);
    remote_worker_close(&worker.remote);
}

static void agent_tick(void)
{
    attached_tick(&attached);
}

static void agent_stop(void)
{
    attached_end(&attached);
}

static void agent_end(void)
{
    for (size_t i = 0; i < N_ORDERS; i++) {
        struct speaker *s = &speakers[i];

        if (!s->is_asked)
            continue;
        remote_agent_type.drop(s->clone, &s->turn);
        agent_turn_deinit(&s->turn);
        arena_deinit(&s->arena);
        clone_close(s->clone);
    }
    memset(speakers, 0, sizeof(speakers));
    agent_unref(agent);
    attached_deinit(&attached);
}

/* A conversation of its own asks, in a step with all that wait for an answer. */
static void agent_ask(size_t i)
{
    struct speaker *s = &speakers[i];
    struct error err;
    size_t n = 0;

    if (is_stepping)
        remote_agent_type.elsewhere->interrupt(agent, &step);
    ck_assert_int_eq(clone_open(&s->clone, agent, &(struct clone_config){0}, &err), STATUS_OK);
    arena_init(&s->arena, 1000);
    agent_turn_init(&s->turn, &s->arena, 100);
    s->message = (struct message){.role = ROLE_USER, .text = "hello", .len = 5};
    s->turn.seen = (struct observation){.messages = &s->message, .n_messages = 1};
    sampling_init(&s->turn.seen.sampling);
    ck_assert_int_eq(remote_agent_type.observe(s->clone, &s->turn, &err), STATUS_OK);
    s->is_asked = true;
    for (size_t k = 0; k < N_ORDERS; k++)
        if (speakers[k].is_asked && !speakers[k].is_answered)
            step_rows[n++] = &speakers[k].turn.row;
    step = (struct batch_step){.rows = step_rows, .n_rows = n, .done = on_step_done};
    is_stepping = true;
    remote_agent_type.elsewhere->begin(agent, &step);
}

static void agent_take(void)
{
    while (remote_worker_order(&worker.remote)->kind != REMOTE_ORDER_STEP)
        remote_worker_taken(&worker.remote);
    remote_worker_taken(&worker.remote);
}

static void agent_answer(void)
{
    const struct peer_order *oldest = peer_oldest(&worker.remote.peer);
    const struct remote_answer done = {.text = "", .outcome = ROW_DONE, .finish = FINISH_STOP};
    uint64_t id = container_of(oldest, const struct remote_step, order.base)->id;
    struct error err;

    ck_assert_int_eq(remote_worker_answer(&worker.remote, id, &done, 1, &err), STATUS_OK);
}

static enum status agent_outcome(size_t i)
{
    return speakers[i].outcome;
}

/* --- workers of functions --- */

static struct work_table work;
static struct work_worker computer;
static struct work_task *tasks[N_ORDERS];

static void work_begin(void)
{
    const struct work_config config = {.env = &env,
                                       .silence_us = SILENCE_US,
                                       .may_attach = true,
                                       .max_bytes = 4000,
                                       .alarm = &due};

    work_init(&work, &config);
}

static struct peer *work_attach(void)
{
    static const char *const functions[] = {"f"};
    const struct work_offer offer = {
        .name = "", .functions = functions, .n_functions = 1, .room = N_ORDERS - 1};
    struct error err;

    computer = (struct work_worker){.peer = {.notify = on_notify, .ended = on_ended}};
    ck_assert_int_eq(work_worker_open(&computer, &work, &offer, &err), STATUS_OK);
    return &computer.peer;
}

static void work_detach(void)
{
    work_worker_close(&computer);
}

static void work_tick_all(void)
{
    work_tick(&work);
}

static void work_stop(void)
{
    work_end(&work);
}

static void work_finish(void)
{
    work_deinit(&work);
    memset(tasks, 0, sizeof(tasks));
}

static void work_ask(size_t i)
{
    const struct work_submission s = {.function = "f", .request_id = ""};
    struct work_bytes none = {0};
    struct error err;

    ck_assert_int_eq(work_submit(&tasks[i], &work, &s, &none, &err), STATUS_OK);
}

static void work_take(void)
{
    ck_assert_ptr_nonnull(work_worker_order(&computer));
    work_worker_taken(&computer);
}

/* Any message shows that the worker lives (Work.Attach). */
static void work_answer(void)
{
    struct work_bytes none = {0};

    peer_heard(&computer.peer);
    work_worker_result(
        &computer, container_of(peer_oldest(&computer.peer), struct work_task, order), &none, NULL);
}

static enum status work_outcome(size_t i)
{
    return tasks[i]->failure == NULL ? STATUS_OK : tasks[i]->failure->err.status;
}

/* --- hosts of environments --- */

static struct vectors vectors;
static struct environment_host host;
static struct vector *vector;
static struct vector_request requests[N_ORDERS];
static struct arena arenas[N_ORDERS];
static const uint32_t indices[N_ORDERS] = {0, 1, 2, 3, 4, 5};

static void host_begin(void)
{
    const struct vectors_config config = {
        .env = &env, .silence_us = SILENCE_US, .is_allowed = true, .alarm = &due};

    vectors_init(&vectors, &config);
    vector = NULL;
}

static struct peer *host_attach(void)
{
    static const struct environment_spaces spaces = {.n_observation = 1, .n_actions = 4};
    const uint64_t seed = 5;
    struct error err;

    host = (struct environment_host){.peer = {.notify = on_notify, .ended = on_ended}};
    ck_assert_int_eq(environment_host_open(&host, &vectors, "counts", &spaces, 0, &err), STATUS_OK);
    if (vector == NULL)
        ck_assert_int_eq(vectors_open(&vector, &vectors, 1, "counts", N_ORDERS, &seed, 1, &err),
                         STATUS_OK);
    return &host.peer;
}

static void host_detach(void)
{
    environment_host_close(&host);
}

static void host_tick(void)
{
    vectors_tick(&vectors);
}

static void host_stop(void)
{
    vectors_end(&vectors);
}

static void host_finish(void)
{
    vectors_deinit(&vectors);
    for (size_t i = 0; i < N_ORDERS; i++)
        if (requests[i].n > 0)
            arena_deinit(&arenas[i]);
    memset(requests, 0, sizeof(requests));
}

static void on_request_done(struct vector_request *r)
{
    r->is_done = true;
}

static void host_ask(size_t i)
{
    struct error err;

    arena_init(&arenas[i], 1 << 16);
    requests[i] = (struct vector_request){
        .is_reset = true, .n = 1, .indices = &indices[i], .done = on_request_done};
    ck_assert_int_eq(vectors_ask(vector, &requests[i], &arenas[i], &err), STATUS_OK);
}

static void host_take(void)
{
    ck_assert_ptr_nonnull(environment_host_order(&host));
    environment_host_taken(&host);
}

static void host_answer(void)
{
    float zero = 0;
    const struct host_answer a = {
        .order = container_of(peer_oldest(&host.peer), struct host_order, base)->id,
        .observation = {"o", TENSOR_F32, 2, {1, 1}, &zero, sizeof(zero)},
    };
    struct error err;

    ck_assert_int_eq(environment_host_answer(&host, &a, &err), STATUS_OK);
}

static enum status host_outcome(size_t i)
{
    return requests[i].failed[0] == NULL ? STATUS_OK : requests[i].failed[0]->status;
}

/* --- the table --- */

static const struct use uses[] = {
    {"agents", agent_begin, agent_attach, agent_detach, agent_tick, agent_stop, agent_end,
     agent_ask, agent_take, agent_answer, agent_outcome, REMOTE_MAX_ORDERS, STATUS_UNAVAILABLE,
     "was not answered within 1000 ms"},
    {"work", work_begin, work_attach, work_detach, work_tick_all, work_stop, work_finish, work_ask,
     work_take, work_answer, work_outcome, 0, STATUS_ABORTED, "said nothing for 1000 ms"},
    {"environments", host_begin, host_attach, host_detach, host_tick, host_stop, host_finish,
     host_ask, host_take, host_answer, host_outcome, HOST_MAX_ORDERS, STATUS_UNAVAILABLE,
     "an order was not answered within 1000 ms"},
};

/* Each test below is called with each use, whose peer is attached. */
static void each_use(void (*test)(struct peer *p))
{
    for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
        use = &uses[i];
        now_us = 1;
        due.at_us = 0;
        n_ended = 0;
        use->begin();
        test(use->attach());
        use->detach();
        use->end();
    }
}

/* The time passes, and the alarm rings if its time has come. */
static void pass(uint64_t us)
{
    now_us += us;
    due.at_us = 0;
    use->tick();
}

static void check_ended(enum status status, const char *text)
{
    ck_assert_msg(n_ended == 1, "%s: ended %u times", use->name, n_ended);
    ck_assert_msg(why.status == status && strstr(why.text, text) != NULL, "%s: %d %s", use->name,
                  (int)why.status, why.text);
}

static void be_silent(struct peer *p)
{
    use->ask(0);
    use->take();
    ck_assert_uint_ne(due.at_us, 0);
    pass(SILENCE_US - 1);
    use->answer();
    ck_assert_uint_eq(p->n_awaited, 0);
    use->ask(1);
    use->take();
    pass(SILENCE_US - 1);
    ck_assert_uint_eq(n_ended, 0);
    ck_assert_uint_eq(due.at_us, now_us + 1);
    pass(1);
    check_ended(STATUS_DEADLINE, use->silent);
    ck_assert_int_eq(use->outcome(0), STATUS_OK);
    ck_assert_int_eq(use->outcome(1), use->lost);
}

/* A peer that leaves what it has taken, or has not taken, unanswered is ended as late as it may be;
 * so is its last client told. */
START_TEST(test_silent)
{
    each_use(be_silent);
}
END_TEST

static void be_slow(struct peer *p)
{
    use->ask(0);
    use->ask(1);
    use->take();
    pass(SILENCE_US - 1);
    use->answer();
    pass(SILENCE_US - 1); /* the order that was not taken is as old as the peer */
    ck_assert_msg(n_ended == 0 && p->n_orders >= 1, "%s", use->name);
    use->take();
    use->answer();
    ck_assert_uint_eq(p->n_awaited, 0);
}

/* An answer shows that the peer lives: the time for its other orders begins anew, also for those
 * that its stream has not taken. */
START_TEST(test_slow)
{
    each_use(be_slow);
}
END_TEST

static void be_idle(struct peer *p)
{
    pass(SILENCE_US - 1);
    ck_assert_uint_eq(n_ended, 0);
    pass(1);
    ck_assert_uint_eq(n_ended, p->must_speak);
}

/* A peer without orders may be silent, but for those that must always speak. */
START_TEST(test_idle)
{
    each_use(be_idle);
}
END_TEST

static void be_flooded(struct peer *p)
{
    ck_assert_uint_eq(p->all->max_orders, use->max_orders);
    p->all->max_orders = use->max_orders == 0 ? 0 : 3;
    for (size_t i = 0; p->n_orders <= 3; i++)
        use->ask(i);
    ck_assert_uint_eq(n_ended, 0); /* never inside */
    if (use->max_orders != 0)
        ck_assert_uint_eq(due.at_us, now_us);
    pass(0);
    if (use->max_orders != 0)
        check_ended(STATUS_EXHAUSTED, "the worker reads too slowly: ");
    else
        ck_assert_uint_eq(n_ended, 0);
}

/* A peer that does not take its orders is ended, by the next tick. */
START_TEST(test_flooded)
{
    each_use(be_flooded);
}
END_TEST

static void be_detached(struct peer *p)
{
    use->ask(0);
    use->take();
    use->answer();
    use->detach();
    use->detach(); /* twice is fine */
    ck_assert(!peer_is_open(p) && list_is_empty(&p->orders) && list_is_empty(&p->awaited));
    pass(0);
    ck_assert_uint_eq(n_ended, 0);
    ck_assert_int_eq(use->outcome(0), STATUS_OK);
    use->attach();
    use->ask(1);
    use->take();
    use->answer();
    ck_assert_int_eq(use->outcome(1), STATUS_OK);
}

/* A peer that detaches with nothing to answer costs nobody anything; another takes its place. */
START_TEST(test_detached)
{
    each_use(be_detached);
}
END_TEST

static void be_killed(struct peer *p)
{
    use->ask(0);
    use->ask(1);
    use->take();
    use->detach();
    ck_assert(!peer_is_open(p) && list_is_empty(&p->orders) && list_is_empty(&p->awaited));
    ck_assert_uint_eq(p->n_orders, 0);
    ck_assert_uint_eq(p->n_awaited, 0);
    ck_assert_int_eq(use->outcome(0), use->lost);
    pass(SILENCE_US);
    ck_assert_uint_eq(n_ended, 0);
    ck_assert_int_ne(use->outcome(1), STATUS_OK); /* nobody has come to take it */
}

/* A peer whose stream breaks has no orders afterwards; what it had is lost, and told. */
START_TEST(test_killed)
{
    each_use(be_killed);
}
END_TEST

static void be_stopped(struct peer *p)
{
    use->ask(0);
    use->take();
    use->stop();
    check_ended(STATUS_UNAVAILABLE, "the server is shutting down");
    ck_assert(!peer_is_open(p));
    ck_assert_int_ne(use->outcome(0), STATUS_OK);
}

/* The server's end ends all peers. */
START_TEST(test_stopped)
{
    each_use(be_stopped);
}
END_TEST

/* A worker of agents must say what it offers; then it is silent as long as nothing is asked. */
START_TEST(test_offer)
{
    struct error err;

    use = &uses[0];
    now_us = 1;
    n_ended = 0;
    use->begin();
    worker = (struct attached_worker){.remote.peer = {.notify = on_notify, .ended = on_ended}};
    ck_assert_int_eq(attached_open(&worker, &attached, &err), STATUS_OK);
    ck_assert_uint_eq(due.at_us, 1 + SILENCE_US);
    pass(SILENCE_US);
    check_ended(STATUS_DEADLINE, "no offer came within 1000 ms");
    use->end();
}
END_TEST

static struct peer pair[2];

static void on_pair_ended(struct peer *p, const struct error *err)
{
    ck_assert(p == &pair[0] && err->status == STATUS_DEADLINE);
    n_ended++;
    peer_close(&pair[1]);
    peer_close(&pair[0]);
}

static void say_silent(const struct peer *p, struct error *err)
{
    (void)error_set(err, STATUS_DEADLINE, "it is silent");
}

/* The end of a peer may end the peer that would be looked at next. */
START_TEST(test_ends_another)
{
    struct peers all = {
        .env = &env, .silence_us = SILENCE_US, .alarm = &due, .say_silent = say_silent};

    now_us = 1;
    n_ended = 0;
    peers_init(&all);
    for (size_t i = 0; i < 2; i++) {
        pair[i] = (struct peer){.notify = on_notify, .ended = on_pair_ended};
        peer_open(&pair[i], &all, true);
    }
    now_us += SILENCE_US;
    peers_tick(&all);
    ck_assert_uint_eq(n_ended, 1);
    ck_assert(list_is_empty(&all.list));
}
END_TEST

SUITE_MAIN("base/peer", test_silent, test_slow, test_idle, test_flooded, test_detached, test_killed,
           test_stopped, test_offer, test_ends_another)
