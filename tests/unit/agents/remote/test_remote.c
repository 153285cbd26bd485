/* Attached agents under random schedules: conversations ask, are kept, dropped, forked and rewound
 * while workers come, answer late, and go. Each worker does its orders in their order; whenever it
 * gets a turn's first row, its clone must have exactly the conversation's past, and a reply must be
 * the one that this past and the messages give, or the part of it that was said before a loss.
 * Memory is short now and then. */
#include "agents/remote/remote.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "tests/unit/base/suite.h"

enum {
    N_SEEDS = 300,
    N_EVENTS = 2000,
    N_CONVERSATIONS = 6,
    N_WORKERS = 3,
    MAX_TURNS = 40,
    N_CLONES = 4096,
    MAX_ANSWERS = 64,
    REPLY_LEN = 8,
};

/* What a clone has had: a hash of each turn and all before it. */
struct past {
    uint64_t at[MAX_TURNS + 2];
    uint32_t n;
};

struct fake_clone {
    bool is_open;
    struct past past;
    size_t n_said; /* of the reply under way */
};

struct late_answer {
    uint64_t step;
    size_t n;
    struct remote_answer rows[N_CONVERSATIONS * 4];
    char texts[N_CONVERSATIONS * 4][REPLY_LEN + 1];
};

struct fake_worker {
    struct remote_worker remote;
    bool is_attached;
    struct fake_clone *clones; /* [N_CLONES] by id */
    struct late_answer answers[MAX_ANSWERS];
    size_t n_answers;
};

struct talker {
    struct clone *clone;
    struct agent_turn turn;
    struct arena arena;
    struct message message;
    char text[32];
    bool is_asked;
    struct past past;
};

static struct {
    uint64_t seed, random, now_us;
    struct peers peers;
    struct agent *agent;
    unsigned capabilities;
    struct fake_worker workers[N_WORKERS];
    struct talker talkers[N_CONVERSATIONS];
    struct batch_step step;
    struct row *rows[N_CONVERSATIONS];
    bool is_stepping, is_aborting;
    unsigned n_kept, n_lost, n_failed, n_states, n_messages;
} s;

static unsigned pick(unsigned n)
{
    s.random ^= s.random << 13;
    s.random ^= s.random >> 7;
    s.random ^= s.random << 17;
    return (unsigned)(s.random >> 33) % n;
}

static void memory_fails_soon(void)
{
    fault_after = pick(10) == 0 ? (long)pick(6) : -1;
}

static uint64_t fake_now(void *self)
{
    return s.now_us;
}

static uint64_t mix(uint64_t hash, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    return hash;
}

static uint64_t last_of(const struct past *p)
{
    return p->n == 0 ? 14695981039346656037u : p->at[p->n - 1];
}

static void past_add(struct past *p, const char *message, const char *reply, size_t reply_len)
{
    uint64_t hash = mix(last_of(p), message, strlen(message));

    ck_assert_uint_lt(p->n, MAX_TURNS + 2);
    p->at[p->n++] = mix(hash, reply, reply_len);
}

/* The whole reply to a message behind a past. */
static void reply_to(char out[REPLY_LEN + 1], const struct past *p, const char *message)
{
    uint64_t hash = mix(last_of(p), message, strlen(message));

    (void)snprintf(out, REPLY_LEN + 1, "%08llx", (unsigned long long)(hash >> 32));
}

/* --- a worker --- */

static struct fake_clone *clone_at(struct fake_worker *w, uint64_t id, bool is_open)
{
    ck_assert_uint_lt(id, N_CLONES);
    ck_assert_int_eq(w->clones[id].is_open, is_open);
    return &w->clones[id];
}

static void past_of_transcript(struct past *out, const struct remote_turn *t)
{
    if (t == NULL)
        return;
    past_of_transcript(out, t->before);
    past_add(out, t->messages[0].text, t->reply.data, t->reply.len);
}

static void do_row(struct fake_worker *w, const struct remote_row *row, struct late_answer *a)
{
    bool is_stateless = remote_worker_is_stateless(&w->remote);
    const char *message = row->said->messages[0].text;
    struct remote_answer *answer = &a->rows[a->n];
    char whole[REPLY_LEN + 1], *text = a->texts[a->n];
    struct fake_clone *c, passing = {.n_said = row->said->reply.len};
    size_t n;

    if (is_stateless) {
        c = &passing;
        past_of_transcript(&c->past, row->said->before);
    } else {
        c = clone_at(w, remote_row_clone(row), true);
        if (!row->has_begun)
            c->n_said = 0;
    }
    ck_assert_uint_eq(c->past.n, row->said->number - 1);
    for (size_t i = 0; i < N_CONVERSATIONS; i++)
        if (row->turn == &s.talkers[i].turn)
            ck_assert(memcmp(c->past.at, s.talkers[i].past.at, c->past.n * 8) == 0);
    reply_to(whole, &c->past, message);
    *answer = (struct remote_answer){.row = (uint32_t)a->n, .text = text, .outcome = ROW_MORE};
    a->n++;
    text[0] = '\0';
    if (!row->has_begun && pick(12) == 0) {
        answer->outcome = ROW_FAILED;
        (void)error_set(&answer->err, STATUS_INTERNAL, "it failed");
        return;
    }
    n = pick(3) == 0 ? REPLY_LEN : pick(REPLY_LEN);
    if (n > REPLY_LEN - c->n_said)
        n = REPLY_LEN - c->n_said;
    memcpy(text, whole + c->n_said, n);
    text[n] = '\0';
    c->n_said += n;
    if (c->n_said < REPLY_LEN)
        return;
    answer->outcome = ROW_DONE;
    answer->finish = FINISH_STOP;
    past_add(&c->past, message, whole, REPLY_LEN);
}

static void do_step(struct fake_worker *w, const struct remote_step *step)
{
    struct late_answer *a = &w->answers[w->n_answers++];

    ck_assert_uint_lt(w->n_answers, MAX_ANSWERS);
    a->step = step->id;
    a->n = 0;
    for (struct link *l = list_first(&step->rows); l != NULL; l = list_next(&step->rows, l))
        do_row(w, container_of(l, struct remote_row, link), a);
    ck_assert_uint_eq(a->n, step->n_rows);
    for (size_t i = a->n; i > 1; i--) { /* in any order */
        size_t other = pick((unsigned)i);
        struct remote_answer moved = a->rows[i - 1];

        a->rows[i - 1] = a->rows[other];
        a->rows[other] = moved;
    }
}

static void do_open(struct fake_worker *w, const struct remote_order *o)
{
    struct fake_clone *c = clone_at(w, o->clone, false);

    *c = (struct fake_clone){.is_open = true};
    if (o->state == NULL)
        return;
    s.n_states++;
    ck_assert_uint_eq(o->state->size_bytes, sizeof(struct past));
    memcpy(&c->past, o->state->data, sizeof(struct past));
    ck_assert_uint_eq(c->past.n, o->at_turn);
}

static void do_order(struct fake_worker *w, const struct remote_order *o)
{
    struct fake_clone *c;

    switch (o->kind) {
    case REMOTE_ORDER_OPEN:
        do_open(w, o);
        break;
    case REMOTE_ORDER_REPLAY:
        c = clone_at(w, o->clone, true);
        ck_assert_uint_eq(c->past.n + 1, o->turn->number);
        past_add(&c->past, o->turn->messages[0].text, o->turn->reply.data, o->turn->reply.len);
        break;
    case REMOTE_ORDER_FORK:
        ck_assert(s.capabilities & REMOTE_FORK);
        c = clone_at(w, o->clone, false);
        *c = *clone_at(w, o->parent, true);
        ck_assert_uint_le(o->at_turn, c->past.n);
        ck_assert(o->at_turn == c->past.n || s.capabilities & REMOTE_REWIND);
        c->past.n = o->at_turn;
        break;
    case REMOTE_ORDER_REWIND:
        ck_assert(s.capabilities & REMOTE_REWIND);
        c = clone_at(w, o->clone, true);
        ck_assert_uint_le(o->at_turn, c->past.n);
        c->past.n = o->at_turn;
        break;
    case REMOTE_ORDER_CLOSE:
        clone_at(w, o->clone, true)->is_open = false;
        break;
    case REMOTE_ORDER_STEP:
        do_step(w, remote_order_step(o));
        break;
    case REMOTE_ORDER_CANCEL:
        break;
    case REMOTE_ORDER_SAVE:
        ck_assert(s.capabilities & REMOTE_SAVE);
        (void)clone_at(w, o->clone, true);
        break;
    }
}

static void worker_take_orders(struct fake_worker *w, unsigned n)
{
    const struct remote_order *o;

    for (; n > 0 && (o = remote_worker_order(&w->remote)) != NULL; n--) {
        struct error err;
        uint64_t saved = o->kind == REMOTE_ORDER_SAVE ? o->clone : 0;

        do_order(w, o);
        remote_worker_taken(&w->remote);
        if (saved != 0) /* at once: its clone is as it was asked for */
            ck_assert_int_eq(remote_worker_state(&w->remote, saved, &w->clones[saved].past,
                                                 sizeof(struct past), &err),
                             STATUS_OK);
    }
}

static void worker_answer(struct fake_worker *w)
{
    size_t at = pick((unsigned)w->n_answers);
    struct late_answer a;
    struct error err;

    a = w->answers[at];
    for (size_t i = 0; i < a.n; i++) /* texts move with the struct */
        a.rows[i].text = a.texts[a.rows[i].row];
    w->answers[at] = w->answers[--w->n_answers];
    memory_fails_soon();
    ck_assert_int_eq(remote_worker_answer(&w->remote, a.step, a.rows, a.n, &err), STATUS_OK);
    fault_after = -1;
    ck_assert_int_eq(remote_worker_answer(&w->remote, a.step, a.rows, a.n, &err), STATUS_INVALID);
}

static void on_notify(struct peer *p)
{
}

static void worker_go(struct fake_worker *w)
{
    peer_close(&w->remote.peer);
    remote_worker_close(&w->remote);
    w->is_attached = false;
}

static void on_ended(struct peer *p, const struct error *err)
{
    ck_assert_int_eq(err->status, STATUS_DEADLINE);
    worker_go(container_of(p, struct fake_worker, remote.peer));
}

static void say_silent(const struct peer *p, struct error *err)
{
    remote_worker_say_silent(container_of(p, struct remote_worker, peer), err);
}

static void worker_come_or_go(struct fake_worker *w)
{
    const struct remote_offer offer = {.version = "",
                                       .max_rows = 1 + pick(4),
                                       .n_slots = 1 + pick(3),
                                       .capabilities = s.capabilities,
                                       .save_every = 2};
    struct error err;

    if (w->is_attached && pick(4) != 0)
        return; /* they stay for a while */
    if (w->is_attached) {
        worker_go(w);
        return;
    }
    memset(w->clones, 0, N_CLONES * sizeof(w->clones[0]));
    w->n_answers = 0;
    w->remote = (struct remote_worker){.peer = {.notify = on_notify, .ended = on_ended}};
    peer_open(&w->remote.peer, &s.peers, false);
    ck_assert_int_eq(remote_worker_open(&w->remote, s.agent, &offer, &err), STATUS_OK);
    w->is_attached = true;
}

/* --- conversations, as the batcher and the turn's owner see them --- */

static void talker_end(struct talker *t, bool is_kept)
{
    const struct agent_type *type = s.agent->type;

    if (is_kept) {
        past_add(&t->past, t->text, t->turn.reply.text.data, t->turn.reply.text.len);
        type->self_observe(t->clone, &t->turn);
        s.n_kept++;
    } else {
        type->drop(t->clone, &t->turn);
    }
    agent_turn_deinit(&t->turn);
    arena_deinit(&t->arena);
    t->is_asked = false;
}

static void talker_check_reply(const struct talker *t)
{
    const struct buf *text = &t->turn.reply.text;
    char whole[REPLY_LEN + 1];

    reply_to(whole, &t->past, t->text);
    if (t->turn.reply.finish == FINISH_STOP) {
        ck_assert_uint_eq(text->len, REPLY_LEN);
    } else {
        ck_assert_int_eq(t->turn.reply.finish, FINISH_WORKER_LOST);
        ck_assert_uint_gt(text->len, 0);
        s.n_lost++;
    }
    ck_assert(memcmp(text->data, whole, text->len) == 0);
}

static void on_done(struct batch_step *step)
{
    ck_assert(s.is_stepping);
    s.is_stepping = false;
    for (size_t i = 0; i < step->n_rows; i++) {
        struct talker *t = container_of(agent_turn_of(step->rows[i]), struct talker, turn);

        switch (step->rows[i]->outcome) {
        case ROW_DONE:
            talker_check_reply(t);
            talker_end(t, pick(8) != 0);
            break;
        case ROW_FAILED:
            s.n_failed++;
            ck_assert(s.is_aborting ||
                      step->rows[i]->err.status != STATUS_OK); /* the model's text */
            talker_end(t, false);
            break;
        case ROW_MORE:
            if (pick(20) == 0) /* a cancel, or a deadline */
                talker_end(t, t->turn.reply.text.len > 0 && pick(2) == 0);
            break;
        }
    }
}

static void begin_step(void)
{
    size_t n = 0;

    for (size_t i = 0; i < N_CONVERSATIONS; i++) {
        struct talker *t = &s.talkers[i];

        if (!t->is_asked || pick(10) == 0)
            continue;
        t->turn.row.outcome = ROW_FAILED;
        t->turn.row.err = (struct error){0};
        s.rows[n++] = &t->turn.row;
    }
    if (n == 0)
        return;
    s.step = (struct batch_step){.rows = s.rows, .n_rows = n, .done = on_done};
    s.is_stepping = true;
    s.agent->type->elsewhere->begin(s.agent, &s.step);
}

static void talker_ask(struct talker *t)
{
    struct error err;
    enum status rc;

    arena_init(&t->arena, 1000);
    agent_turn_init(&t->turn, &t->arena, 100);
    (void)snprintf(t->text, sizeof(t->text), "message %u", ++s.n_messages);
    t->message = (struct message){.role = ROLE_USER, .text = t->text, .len = strlen(t->text)};
    t->turn.seen = (struct observation){.messages = &t->message, .n_messages = 1};
    sampling_init(&t->turn.seen.sampling);
    t->turn.request.deadline_us = 0;
    memory_fails_soon();
    rc = s.agent->type->observe(t->clone, &t->turn, &err);
    fault_after = -1;
    if (rc == STATUS_OK) {
        t->is_asked = true;
        return;
    }
    ck_assert(rc == STATUS_EXHAUSTED || rc == STATUS_UNAVAILABLE);
    ck_assert(rc == STATUS_EXHAUSTED || remote_agent_n_workers(s.agent) == 0);
    agent_turn_deinit(&t->turn);
    arena_deinit(&t->arena);
}

static void talker_open(struct talker *t)
{
    struct error err;

    *t = (struct talker){0};
    ck_assert_int_eq(clone_open(&t->clone, s.agent,
                                &(struct clone_config){.system = "be brief", .system_len = 8},
                                &err),
                     STATUS_OK);
}

static void talker_fork(struct talker *t, const struct talker *from)
{
    struct clone *clone;
    uint32_t at_turn = pick(from->past.n + 1);
    struct error err;

    ck_assert_int_eq(clone_fork(&clone, from->clone, at_turn, &err), STATUS_OK);
    clone_close(t->clone);
    t->clone = clone;
    t->past = from->past;
    t->past.n = at_turn;
}

static void talker_rewind(struct talker *t)
{
    struct error err;

    ck_assert_int_eq(s.agent->type->rewind(t->clone, t->past.n + 1, &err), STATUS_RANGE);
    t->past.n = pick(t->past.n + 1);
    ck_assert_int_eq(s.agent->type->rewind(t->clone, t->past.n, &err), STATUS_OK);
}

static void tick(uint64_t late_us)
{
    s.now_us += late_us;
    peers_tick(&s.peers);
    remote_agent_tick(s.agent, s.now_us);
    s.now_us -= late_us;
}

static void talker_act(struct talker *t)
{
    struct talker *other = &s.talkers[pick(N_CONVERSATIONS)];

    if (t->is_asked)
        return;
    if (t->past.n >= MAX_TURNS || pick(20) == 0) {
        clone_close(t->clone);
        talker_open(t);
    } else if (pick(12) == 0 && other != t) {
        talker_fork(t, other);
    } else if (pick(12) == 0) {
        talker_rewind(t);
    } else {
        talker_ask(t);
    }
}

static void happen(void)
{
    struct fake_worker *w = &s.workers[pick(N_WORKERS)];
    unsigned what = pick(100);

    s.now_us += pick(100);
    if (what < 3)
        worker_come_or_go(w);
    else if (what < 30)
        talker_act(&s.talkers[pick(N_CONVERSATIONS)]);
    else if (what < 50 && w->is_attached)
        worker_take_orders(w, 1 + pick(4));
    else if (what < 70 && w->is_attached && w->n_answers > 0)
        worker_answer(w);
    else if (what < 72 && s.is_stepping)
        s.agent->type->elsewhere->interrupt(s.agent, &s.step);
    else if (what < 73)
        tick(pick(16) == 0 ? 2000000 : 0);
    else if (!s.is_stepping)
        begin_step();
}

static void run_seed(uint64_t seed)
{
    static const struct env env = {.now_us = fake_now};
    static struct alarm ignored; /* ticks come anyway */
    const struct agent_config agent = {.name = "words", .spec = &s.peers, .env = &env};
    struct error err;

    s.random = seed * 2654435761u + 1;
    s.capabilities = pick(4) == 0 ? REMOTE_STATELESS : pick(16);
    s.is_stepping = s.is_aborting = false;
    s.peers = (struct peers){
        .env = &env, .silence_us = 1000000, .alarm = &ignored, .say_silent = say_silent};
    peers_init(&s.peers);
    ck_assert_int_eq(agent_open_type(&s.agent, &remote_agent_type, &agent, &err), STATUS_OK);
    for (size_t i = 0; i < N_CONVERSATIONS; i++)
        talker_open(&s.talkers[i]);
    worker_come_or_go(&s.workers[0]);
    ck_assert_uint_eq(remote_agent_n_workers(s.agent), 1);
    for (unsigned i = 0; i < N_EVENTS; i++)
        happen();
    s.is_aborting = true;
    if (s.is_stepping)
        s.agent->type->elsewhere->abort(s.agent, &s.step);
    for (size_t i = 0; i < N_CONVERSATIONS; i++) {
        if (s.talkers[i].is_asked)
            talker_end(&s.talkers[i], false);
        clone_close(s.talkers[i].clone);
    }
    for (size_t i = 0; i < N_WORKERS; i++)
        while (s.workers[i].is_attached)
            worker_come_or_go(&s.workers[i]);
    agent_unref(s.agent);
}

START_TEST(test_schedules)
{
    for (size_t i = 0; i < N_WORKERS; i++)
        s.workers[i].clones = calloc(N_CLONES, sizeof(s.workers[i].clones[0]));
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        s.seed = seed;
        run_seed(seed);
    }
    for (size_t i = 0; i < N_WORKERS; i++)
        free(s.workers[i].clones);
    /* All of it happened. */
    ck_assert_uint_gt(s.n_kept, 5000);
    ck_assert_uint_gt(s.n_lost, 200);
    ck_assert_uint_gt(s.n_failed, 100);
    ck_assert_uint_gt(s.n_states, 50);
}
END_TEST

SUITE_MAIN("agents/remote", test_schedules)
