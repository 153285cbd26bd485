/* Happy path: turn_open queues a turn; when it comes to the front it is observed by the clone and
 * asked of the batcher (start); after steps that had something to say readers are woken (on_more);
 * when the ask settles, the clone self-observes, the reply becomes a record, readers go on in that,
 * and the next turn starts (on_settled).
 *
 * What can go wrong: the agent refuses to observe, the batcher refuses the ask, the row fails,
 * there is no memory for the record: then the clone drops the turn, the conversation is as it was
 * before, and readers get the error. A cancel or a deadline before the first step is such an end
 * too; after it, what was said so far is the reply. Turns behind one that never was are numbered
 * anew, and those whose caller chose the number fail, since it would no longer be right. */
#include "server/turn.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "server/conversation.h"
#include "server/model.h"

static const uint32_t turn_moves[] = {
    [TURN_QUEUED] = 1u << TURN_ASKED | 1u << TURN_GONE,
    [TURN_ASKED] = 1u << TURN_ENDING | 1u << TURN_GONE,
    [TURN_ENDING] = 1u << TURN_GONE,
    [TURN_GONE] = 0,
};

static void turn_move(struct turn *t, enum turn_state to)
{
    assert((turn_moves[t->state] & 1u << to) != 0);
    t->state = to;
}

static uint64_t now_us(const struct turn *t)
{
    return env_now_us(t->conversation->all->config.env);
}

/* 0 (none) counts as the latest. */
static uint64_t latest_deadline_us(const struct turn *t)
{
    uint64_t latest = 0;
    struct link *at;

    for (at = list_first(&t->readers); at != NULL; at = list_next(&t->readers, at)) {
        const struct reader *r = container_of(at, struct reader, link);

        if (r->deadline_us == 0)
            return 0;
        latest = r->deadline_us > latest ? r->deadline_us : latest;
    }
    return latest;
}

static void wake_readers(struct turn *t)
{
    struct link *at;

    for (at = list_first(&t->readers); at != NULL; at = list_next(&t->readers, at)) {
        struct reader *r = container_of(at, struct reader, link);

        r->wake(r->arg);
    }
}

static struct statistics *statistics(const struct turn *t)
{
    return &t->conversation->model->statistics;
}

/* Tokens that came together share the time since the one before. */
static void time_tokens(struct turn *t)
{
    const struct reply *reply = &t->agent.reply;
    size_t n_new = reply->n_tokens - t->told_tokens;
    uint64_t now;

    if (n_new == 0 && (t->first_token_us != 0 || reply->text.len == 0))
        return;
    now = now_us(t);
    if (t->first_token_us == 0) {
        t->first_token_us = now;
        statistics_first_token(statistics(t), now - t->accepted_us);
    } else {
        statistics_tokens(statistics(t), n_new, (now - t->last_token_us) / n_new);
    }
    t->last_token_us = now;
}

/* What there is of the reply may be read from now on. */
static void tell(struct turn *t)
{
    const struct reply *reply = &t->agent.reply;

    time_tokens(t);
    t->told_len = reply->text.len;
    t->told_tokens = reply->n_tokens;
    t->told_prompt = reply->n_prompt;
    t->told_cached = reply->n_cached;
    t->told_prefilled = reply->n_prefilled;
}

static void free_turn(struct turn *t)
{
    assert(list_is_empty(&t->readers));
    agent_turn_deinit(&t->agent);
    arena_deinit(&t->arena);
    body_close(t->body);
    free(t);
}

/* Readers go on in the record, or have but an error to read. err is what they end with, OK for
 * done. */
static void release_readers(struct turn *t, struct record *record, const struct error *err)
{
    struct link *at;

    while ((at = list_pop(&t->readers)) != NULL) {
        struct reader *r = container_of(at, struct reader, link);

        r->turn = NULL;
        r->record = record == NULL ? NULL : record_ref(record);
        r->err = *err;
        r->wake(r->arg);
    }
}

static void count_success(const struct turn *t, const struct record *record)
{
    struct statistics *s = statistics(t);
    const struct timings *timings = &record->timings;
    uint64_t now = now_us(t);
    const struct request_times times = {
        .total_us = now - t->accepted_us,
        .queue_us = timings->queue_us - t->input_us,
        .input_us = t->input_us,
        .infer_us = timings->prefill_us + timings->decode_us,
        .output_us = now - t->accepted_us - timings->total_us,
    };

    statistics_succeed(s, &times, now);
    histogram_add(&s->prefill, &histogram_times, timings->prefill_us, 1);
    histogram_add(&s->decode, &histogram_times, timings->decode_us, 1);
    s->n_prompt += record->usage.n_prompt;
    s->n_cached += record->usage.n_cached;
    s->n_said += record->usage.n_completion;
}

static void count(const struct turn *t, const struct record *record, const struct error *err)
{
    if (record != NULL && err->status == STATUS_OK && record->finish != FINISH_CANCELLED)
        count_success(t, record);
    else
        statistics_fail(statistics(t), err->status == STATUS_OK ? STATUS_CANCELLED : err->status,
                        now_us(t) - t->accepted_us);
}

/* The turn leaves the queue and is no more. */
static void remove_turn(struct turn *t, struct record *record, const struct error *err)
{
    struct conversation *c = t->conversation;

    turn_move(t, TURN_GONE);
    count(t, record, err);
    release_readers(t, record, err);
    list_remove(&t->link);
    c->n_live--;
    conversations_turn_gone(c->all);
    free_turn(t);
}

/* A turn never was: those behind it move up. */
static void renumber(struct conversation *c)
{
    uint32_t next = c->n_turns + 1;
    struct link *at = list_first(&c->turns);

    while (at != NULL) {
        struct turn *t = container_of(at, struct turn, link);
        struct error err;

        at = list_next(&c->turns, at);
        if (!t->is_numbered)
            t->number = next;
        if (t->number == next) {
            next++;
            continue;
        }
        (void)error_set(&err, STATUS_ABORTED,
                        "turn %u was not taken because one before it failed; the next is %u",
                        t->number, next);
        remove_turn(t, NULL, &err);
    }
}

static void on_more(struct ask *ask, void *arg)
{
    struct turn *t = arg;

    (void)ask;
    tell(t);
    wake_readers(t);
}

static void on_settled(struct future *f, const struct error *err, void *arg);

static enum status ask(struct turn *t, struct error *err)
{
    struct conversation *c = t->conversation;

    t->ask = (struct ask){
        .row = &t->agent.row,
        .asker = &c->clone->asker,
        .deadline_us = latest_deadline_us(t),
        .priority = c->terms->limits.priority,
        .more = on_more,
        .more_arg = t,
    };
    future_init(&t->ask.reply, on_settled, t);
    return batcher_ask(c->model->batcher, &t->ask, err);
}

/* The conversation's bound on its context, once the agent has counted the prompt. */
static enum status bound_tokens(struct turn *t, struct error *err)
{
    uint32_t max = t->conversation->terms->limits.max_tokens;
    struct sampling *s = &t->agent.seen.sampling;
    uint32_t n_prompt = t->agent.reply.n_prompt;

    if (max == 0)
        return STATUS_OK;
    if (n_prompt >= max)
        return error_set(err, STATUS_RANGE,
                         "the prompt has %u tokens, the conversation is limited to %u", n_prompt,
                         max);
    if (s->max_tokens == 0 || s->max_tokens > max - n_prompt)
        s->max_tokens = max - n_prompt;
    return STATUS_OK;
}

/* What is given of sampling, from the model's to the turn's. */
static void lay_sampling(const struct turn *t, struct sampling *s)
{
    const struct conversation *c = t->conversation;

    *s = c->model->info.defaults;
    s->seed = c->seed;
    s->has_seed = true;
    sampling_patch_lay(c->terms->patch, s);
    sampling_patch_lay(t->body->patch, s);
    s->want_logprobs = t->body->n_logprobs > 0;
    s->n_logprobs = t->body->n_logprobs;
}

/* On failure the clone is as it was. */
static enum status start(struct turn *t, struct error *err)
{
    struct conversation *c = t->conversation;
    const struct agent_type *type = c->clone->agent->type;
    uint64_t begun_us;
    enum status rc;

    agent_turn_init(&t->agent, &t->arena, c->all->config.max_reply_bytes);
    t->agent.seen = (struct observation){
        .messages = t->body->messages,
        .n_messages = t->body->n_messages,
        .is_plain = t->body->is_plain,
        .plain_ids = t->body->plain_ids,
        .n_plain_ids = t->body->n_plain_ids,
        .turn = t->number,
    };
    lay_sampling(t, &t->agent.seen.sampling);
    begun_us = now_us(t);
    rc = type->observe(c->clone, &t->agent, err);
    if (rc != STATUS_OK)
        return rc;
    t->input_us = now_us(t) - begun_us;
    rc = bound_tokens(t, err);
    if (rc == STATUS_OK)
        rc = ask(t, err);
    if (rc != STATUS_OK) {
        type->drop(c->clone, &t->agent);
        return rc;
    }
    turn_move(t, TURN_ASKED);
    tell(t);
    return STATUS_OK;
}

/* Starts the turn at the front, if it waits; those that cannot start fail. */
static void advance(struct conversation *c)
{
    while (!list_is_empty(&c->turns)) {
        struct turn *t = container_of(list_first(&c->turns), struct turn, link);
        struct error err;

        if (t->state != TURN_QUEUED)
            return;
        if (start(t, &err) == STATUS_OK) {
            wake_readers(t);
            return;
        }
        remove_turn(t, NULL, &err);
        renumber(c);
    }
}

/* After a turn has gone. */
static void go_on(struct conversation *c)
{
    advance(c);
    if (c->is_closed && c->n_live == 0)
        conversation_free(c);
}

static void take_timings(const struct turn *t, struct timings *out)
{
    uint64_t now = now_us(t);
    uint64_t first_step = t->first_step_us == 0 ? now : t->first_step_us;
    uint64_t first_token = t->first_token_us == 0 ? now : t->first_token_us;

    *out = (struct timings){
        .queue_us = first_step - t->accepted_us,
        .prefill_us = first_token > first_step ? first_token - first_step : 0,
        .decode_us = now - first_token,
        .total_us = now - t->accepted_us,
        .n_steps = t->n_steps,
    };
}

/* The clone learns what it said, and the turn counts. On failure nothing has changed. */
static enum status keep(struct turn *t, struct record **out, struct error *err)
{
    struct conversation *c = t->conversation;
    struct record *record;
    enum status rc;

    rc = record_open(&record, c->newest, t->body, &t->agent.reply, err);
    if (rc != STATUS_OK)
        return rc;
    t->body = NULL;
    take_timings(t, &record->timings);
    c->clone->agent->type->self_observe(c->clone, &t->agent);
    c->newest = record;
    c->n_turns++;
    c->last_done_us = now_us(t);
    c->all->n_turns++;
    *out = record;
    return STATUS_OK;
}

/* Why an ask that ended early did so, as the reply says it; FINISH_NONE if it did not. */
static enum finish early_finish(const struct turn *t, enum status status)
{
    if (status != STATUS_CANCELLED && status != STATUS_DEADLINE && status != STATUS_UNAVAILABLE)
        return FINISH_NONE;
    if (t->state == TURN_ENDING)
        return t->why;
    return status == STATUS_DEADLINE ? FINISH_DEADLINE : FINISH_CANCELLED;
}

static void on_settled(struct future *f, const struct error *settled, void *arg)
{
    struct turn *t = arg;
    struct conversation *c = t->conversation;
    struct record *record = NULL;
    struct error err = *settled;
    enum finish early = early_finish(t, settled->status);
    uint64_t deadline_us;

    (void)f;
    t->n_steps += t->ask.n_steps;
    if (t->first_step_us == 0)
        t->first_step_us = t->ask.first_step_us;
    tell(t);

    /* A reader with more patience came after the ask was made: the row goes on where it stands. */
    deadline_us = latest_deadline_us(t);
    if (settled->status == STATUS_DEADLINE && t->state == TURN_ASKED &&
        (deadline_us == 0 || deadline_us > now_us(t)) && ask(t, &err) == STATUS_OK)
        return;

    if (early != FINISH_NONE && t->n_steps > 0) {
        t->agent.reply.finish = early;
        if (keep(t, &record, &err) == STATUS_OK && early == FINISH_CANCELLED)
            err.status = STATUS_OK; /* cancelled is a way to be done */
        else if (record != NULL)
            (void)error_set(&err, STATUS_DEADLINE, "the deadline passed after %zu tokens",
                            t->told_tokens);
    } else if (early != FINISH_NONE && early == FINISH_DEADLINE) {
        (void)error_set(&err, STATUS_DEADLINE, "the deadline passed before the turn began");
    } else if (settled->status == STATUS_OK) {
        (void)keep(t, &record, &err); /* a failure is in err, which the readers get */
    }
    if (record == NULL)
        c->clone->agent->type->drop(c->clone, &t->agent);
    remove_turn(t, record, &err);
    if (record == NULL)
        renumber(c);
    go_on(c);
}

enum status turn_open(struct conversation *c, const struct turn_request *r, uint32_t number,
                      struct reader *reader, struct error *err)
{
    struct turn *t = try_alloc(1, sizeof(*t));
    enum status rc;

    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a turn");
    t->conversation = c;
    t->number = number;
    t->is_numbered = r->number != 0;
    t->accepted_us = now_us(t);
    list_init(&t->readers);
    arena_init(&t->arena, c->all->config.max_arena_bytes);
    reader->deadline_us = r->deadline_us;
    rc = body_open(&t->body, r, err);
    if (rc == STATUS_OK) {
        turn_attach(t, reader);
        if (list_is_empty(&c->turns))
            rc = start(t, err);
        if (rc != STATUS_OK) {
            list_remove(&reader->link);
            reader->turn = NULL;
        }
    }
    if (rc != STATUS_OK) {
        free_turn(t);
        return rc;
    }
    list_push(&c->turns, &t->link);
    c->n_live++;
    statistics_begin(statistics(t));
    conversations_turn_began(c->all);
    return STATUS_OK;
}

void turn_end(struct turn *t, enum finish why)
{
    struct conversation *c = t->conversation;
    struct error err;

    switch (t->state) {
    case TURN_QUEUED:
        if (why == FINISH_DEADLINE)
            (void)error_set(&err, STATUS_DEADLINE, "the deadline passed before the turn began");
        else
            (void)error_set(&err, STATUS_CANCELLED, "the turn was cancelled before it began");
        remove_turn(t, NULL, &err);
        renumber(c);
        go_on(c);
        break;
    case TURN_ASKED:
        turn_move(t, TURN_ENDING);
        t->why = why;
        batcher_cancel(c->model->batcher, &t->ask);
        break;
    case TURN_ENDING:
        break;
    case TURN_GONE:
        assert(0);
    }
}

void turn_attach(struct turn *t, struct reader *r)
{
    r->turn = t;
    list_push(&t->readers, &r->link);
}

void turn_attach_record(struct record *record, struct reader *r)
{
    r->record = record_ref(record);
}
