#include "tests/support/fake_server.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the fake agent --- */

enum { FAKE_MAX_TOKENS = 256 };

struct fake_clone {
    struct clone base;
    uint32_t n_turns, n_dropped;
};

/* In the turn's arena. */
struct fake_turn {
    unsigned n_say, n_fail, n_long, n_steps;
    size_t n_pages; /* held: one a step */
    struct reply_token tokens[FAKE_MAX_TOKENS];
    struct top_logprob tops[FAKE_MAX_TOKENS][2];
};

static struct sampling last_sampling;
static size_t n_pages_max, n_pages_held;
static char last_system[64];

static const struct fake_clone *fake_of(const struct clone *c)
{
    return container_of(c, const struct fake_clone, base);
}

static enum status fake_open(struct agent *a, const struct agent_config *config, struct error *err)
{
    return STATUS_OK;
}

static void fake_close(struct agent *a)
{
}

static void fake_info(const struct agent *a, struct agent_info *out)
{
    *out = (struct agent_info){.name = a->name,
                               .kind = "fake",
                               .architecture = "",
                               .backend = "",
                               .version = "1",
                               .text.n_vocab = FAKE_MAX_TOKENS};
    sampling_init(&out->defaults);
    out->defaults.top_k = 7;
}

static void fake_batching(const struct agent *a, struct batcher_config *out)
{
    *out = (struct batcher_config){
        .policy = BATCH_CONTINUOUS, .max_rows = 4, .max_waiting = 64, .max_cost = 64};
}

static enum status fake_clone_open(struct clone *c, const struct clone_config *config,
                                   struct error *err)
{
    (void)snprintf(last_system, sizeof(last_system), "%s",
                   config->system == NULL ? "" : config->system);
    return STATUS_OK;
}

static void fake_clone_close(struct clone *c)
{
}

static void fake_clone_info(const struct clone *c, struct clone_info *out)
{
    *out = (struct clone_info){.n_tokens = fake_of(c)->n_turns};
}

static enum status fake_fork(struct clone *c, const struct clone *parent, uint32_t at_turn,
                             struct error *err)
{
    assert(at_turn <= fake_of(parent)->n_turns);
    ((struct fake_clone *)container_of(c, struct fake_clone, base))->n_turns = at_turn;
    return STATUS_OK;
}

static enum status fake_rewind(struct clone *c, uint32_t at_turn, struct error *err)
{
    container_of(c, struct fake_clone, base)->n_turns = at_turn;
    return STATUS_OK;
}

static enum status fake_observe(struct clone *c, struct agent_turn *turn, struct error *err)
{
    const char *text = turn->seen.messages[turn->seen.n_messages - 1].text;
    struct fake_turn *f;

    last_sampling = turn->seen.sampling;
    assert(turn->seen.turn == fake_of(c)->n_turns + 1);
    if (strcmp(text, "refuse") == 0)
        return error_set(err, STATUS_RANGE, "refused, as ordered");
    f = arena_alloc(turn->arena, 1, sizeof(*f));
    if (f == NULL)
        return error_no_memory(err, sizeof(*f), "a turn");
    f->n_say = 1;
    (void)sscanf(text, "say %u", &f->n_say);
    (void)sscanf(text, "fail %u", &f->n_fail);
    (void)sscanf(text, "long %u", &f->n_long);
    assert(f->n_say <= FAKE_MAX_TOKENS);
    turn->reply.tokens = f->tokens;
    turn->reply.n_prompt = f->n_long == 0 ? 3 : f->n_long;
    turn->row.clone = c;
    turn->row.turn = f;
    return STATUS_OK;
}

static enum status fake_reserve(struct agent *a, struct row *row, struct error *err)
{
    struct fake_turn *f = row->turn;
    size_t n_more = f->n_steps + 1 - f->n_pages;

    if (n_more > n_pages_max - n_pages_held)
        return error_set(err, STATUS_EXHAUSTED, "no page is left");
    f->n_pages += n_more;
    n_pages_held += n_more;
    return STATUS_OK;
}

static void fake_release(struct agent *a, struct row *row)
{
    struct fake_turn *f = row->turn;

    n_pages_held -= f->n_pages;
    f->n_pages = 0;
}

static void fake_self_observe(struct clone *c, struct agent_turn *turn)
{
    fake_release(c->agent, &turn->row);
    container_of(c, struct fake_clone, base)->n_turns++;
}

static void fake_drop(struct clone *c, struct agent_turn *turn)
{
    fake_release(c->agent, &turn->row);
    container_of(c, struct fake_clone, base)->n_dropped++;
}

static void say_token(struct agent_turn *turn, struct fake_turn *f)
{
    struct reply *reply = &turn->reply;
    size_t n = reply->n_tokens;
    struct reply_token *t = &f->tokens[n];

    if (buf_printf(&reply->text, "<%zu>", n) != STATUS_OK) {
        (void)error_set(&turn->row.err, STATUS_EXHAUSTED, "the reply is too long");
        turn->row.outcome = ROW_FAILED;
        return;
    }
    *t = (struct reply_token){.id = (int32_t)n, .text_end = (uint32_t)reply->text.len};
    if (turn->seen.sampling.want_logprobs) {
        t->logprob = -(float)n;
        t->n_top = 2;
        f->tops[n][0] = (struct top_logprob){.id = t->id, .logprob = t->logprob};
        f->tops[n][1] = (struct top_logprob){.id = t->id + 1, .logprob = -9};
        t->top = f->tops[n];
    }
    reply->n_tokens++;
}

static void fake_act(struct agent *a, struct row *row)
{
    struct agent_turn *turn = agent_turn_of(row);
    struct fake_turn *f = row->turn;
    uint32_t max = turn->seen.sampling.max_tokens;

    row->outcome = ROW_MORE;
    if (++f->n_steps == f->n_fail) {
        (void)error_set(&row->err, STATUS_INTERNAL, "failed, as ordered");
        row->outcome = ROW_FAILED;
        return;
    }
    if (turn->reply.n_prefilled + 1 < turn->reply.n_prompt && f->n_long > 0) {
        turn->reply.n_prefilled++;
        return;
    }
    turn->reply.n_prefilled = turn->reply.n_prompt;
    if (f->n_fail > 0)
        return;
    say_token(turn, f);
    if (row->outcome == ROW_FAILED)
        return;
    if (turn->reply.n_tokens == f->n_say) {
        turn->reply.finish = FINISH_STOP;
        row->outcome = ROW_DONE;
    } else if (max > 0 && turn->reply.n_tokens == max) {
        turn->reply.finish = FINISH_LENGTH;
        row->outcome = ROW_DONE;
    }
}

static const struct agent_type fake_agent = {
    .name = "fake",
    .agent_size = sizeof(struct agent),
    .clone_size = sizeof(struct fake_clone),
    .open = fake_open,
    .close = fake_close,
    .info = fake_info,
    .batching = fake_batching,
    .clone_open = fake_clone_open,
    .clone_close = fake_clone_close,
    .clone_info = fake_clone_info,
    .fork = fake_fork,
    .rewind = fake_rewind,
    .observe = fake_observe,
    .self_observe = fake_self_observe,
    .drop = fake_drop,
    .reserve = fake_reserve,
    .release = fake_release,
    .act = fake_act,
};

uint32_t fake_clone_n_turns(const struct conversation *c)
{
    return fake_of(c->host.clone)->n_turns;
}

uint32_t fake_clone_n_dropped(const struct conversation *c)
{
    return fake_of(c->host.clone)->n_dropped;
}

void fake_set_pages(size_t n)
{
    n_pages_max = n;
}

const struct sampling *fake_last_sampling(void)
{
    return &last_sampling;
}

const char *fake_last_system(void)
{
    return last_system;
}

/* --- the server --- */

static uint64_t fake_now_us(void *self)
{
    const struct fake_server *s = self;

    return s->now_us;
}

static void fake_random(void *self, void *out, size_t n_bytes)
{
    struct fake_server *s = self;
    unsigned char *bytes = out;

    s->drawn++;
    memset(bytes, 0, n_bytes);
    for (size_t i = 0; i < n_bytes; i += 8)
        memcpy(bytes + i, &s->drawn, n_bytes - i < 8 ? n_bytes - i : 8);
}

static void fake_begin_step(void *self, struct batch_step *step)
{
    struct fake_server *s = self;

    assert(s->step == NULL);
    s->step = step;
}

static void fake_arm_tick(void *self, uint64_t at_us)
{
    struct fake_server *s = self;

    s->tick_at_us = at_us;
}

void fake_server_open(struct fake_server *s, const char *kind, size_t max_waiting,
                      const struct conversations_config *config)
{
    struct batch_compute compute = {.begin = fake_begin_step, .self = s};
    struct batch_timer timer = {.arm = fake_arm_tick, .self = s};
    struct conversations_config c = {0};
    struct agent_config agent_config = {.name = kind, .env = &s->env};
    struct batch_agent adapter;
    struct error err;
    enum status rc;

    *s = (struct fake_server){.now_us = 1000000,
                              .expiry = {.tick = conversations_tick, .owner = &s->all}};
    n_pages_max = SIZE_MAX;
    s->env = (struct env){.now_us = fake_now_us, .random = fake_random, .self = s};
    if (config != NULL)
        c = *config;
    c.env = &s->env;
    c.unix_ms = 1700000000000;
    c.alarm = &s->expiry;
    conversations_init(&s->all, &c);
    if (strcmp(kind, "fake") == 0)
        rc = agent_open_type(&s->model.agent, &fake_agent, &agent_config, &err);
    else
        rc = agent_open(&s->model.agent, kind, &agent_config, &err);
    assert(rc == STATUS_OK);
    s->model.name = s->model.agent->name;
    s->model.state = MODEL_READY;
    agent_describe(s->model.agent, &s->model.info);
    agent_batching(s->model.agent, &s->model.batching);
    if (max_waiting > 0) {
        s->model.batching.max_waiting = max_waiting;
        if (s->model.batching.max_rows > max_waiting)
            s->model.batching.max_rows = max_waiting;
    }
    agent_batch_adapter(s->model.agent, &adapter);
    assert(batcher_open(&s->model.batcher, &s->model.batching, &adapter, &compute, &timer, &s->env,
                        &err) == STATUS_OK);
}

bool fake_server_step(struct fake_server *s)
{
    struct batch_step *step;

    if (s->step == NULL && s->tick_at_us != 0 && s->tick_at_us <= s->now_us) {
        s->tick_at_us = 0;
        batcher_tick(s->model.batcher);
    }
    step = s->step;
    if (step == NULL)
        return s->tick_at_us != 0 && s->tick_at_us <= s->now_us;
    s->step = NULL;
    s->now_us += 1000;
    agent_compute(s->model.agent, step->rows, step->n_rows);
    step->done(step);
    return true;
}

void fake_server_run(struct fake_server *s)
{
    while (fake_server_step(s))
        continue;
}

static void on_closed(void *arg)
{
    struct fake_server *s = arg;

    s->is_closed = true;
}

void fake_server_close(struct fake_server *s)
{
    conversations_close_all(&s->all, NULL, "the server is shutting down");
    fake_server_run(s);
    assert(s->all.n == 0);
    assert(s->all.n_live == 0);
    assert(s->all.n_closing == 0);
    assert(s->model.n_conversations == 0);
    conversations_deinit(&s->all);
    batcher_close(s->model.batcher, on_closed, s);
    fake_server_run(s);
    assert(s->is_closed);
    tenants_deinit(&s->model.tenants);
    agent_unref(s->model.agent);
}

/* --- readers --- */

static void fake_notify(void *arg)
{
    struct fake_reader *r = arg;

    r->n_notified++;
}

void fake_reader_init(struct fake_reader *r)
{
    *r = (struct fake_reader){0};
    buf_init(&r->text, (size_t)16 << 20);
    reader_init(&r->reader, fake_notify, r);
}

void fake_reader_read(struct fake_reader *r)
{
    struct turn_event e;

    while (reader_has_more(&r->reader)) {
        assert(reader_next(&r->reader, &e));
        assert(!r->is_done && !r->has_failed);
        switch (e.kind) {
        case EVENT_ACCEPTED:
            assert(!r->has_accepted);
            r->has_accepted = true;
            r->number = e.number;
            r->n_prompt = e.n_prompt;
            break;
        case EVENT_PROGRESS:
            assert(e.n_done < e.n_total);
            r->n_progress++;
            break;
        case EVENT_PIECE:
            assert(r->has_accepted);
            r->n_pieces++;
            assert(buf_append(&r->text, e.piece.text, e.piece.len) == STATUS_OK);
            for (size_t i = 0; i < e.piece.n_tokens; i++) {
                struct piece_token t;

                reader_token(&r->reader, &e, i, &t);
                assert(r->n_ids < 256);
                r->ids[r->n_ids++] = t.id;
                if (e.piece.has_logprobs) {
                    assert(t.n_tops == 2);
                    assert(t.tops[0].id == t.id);
                    assert(t.tops[1].id == t.id + 1);
                    r->logprobs[r->n_logprobs++] = t.logprob;
                }
            }
            break;
        case EVENT_DONE:
            r->is_done = true;
            r->done = e;
            break;
        case EVENT_FAILED:
            r->has_failed = true;
            r->err = *e.err;
            break;
        }
    }
    assert(!reader_next(&r->reader, &e));
}

void fake_reader_deinit(struct fake_reader *r)
{
    reader_close(&r->reader, STATUS_CANCELLED);
    buf_deinit(&r->text);
}

struct conversation *fake_conversation(struct fake_server *s)
{
    struct open_request request = {.system = ""};
    struct conversation *c;
    struct error err;

    assert(conversation_open(&c, &s->all, &s->model, &request, &err) == STATUS_OK);
    return c;
}

enum status fake_turn(struct conversation *c, uint32_t number, const char *text,
                      struct fake_reader *r, struct error *err)
{
    struct message m = {.role = ROLE_USER, .text = text, .len = strlen(text)};
    struct turn_request request = {.number = number, .messages = &m, .n_messages = 1};

    return conversation_turn(c, &request, &r->reader, err);
}

void fake_turn_whole(struct fake_server *s, struct conversation *c, uint32_t number,
                     const char *text, enum finish finish, const char *reply)
{
    struct fake_reader r;
    struct error err;

    fake_reader_init(&r);
    assert(fake_turn(c, number, text, &r, &err) == STATUS_OK);
    fake_server_run(s);
    fake_reader_read(&r);
    assert(r.is_done);
    assert(r.done.finish == finish);
    assert(strcmp(r.text.data == NULL ? "" : r.text.data, reply) == 0);
    fake_reader_deinit(&r);
}
