/* Moves a turn from state to state by one table, and refuses every other move. Between the states
 * it calls the agent, prepares what the agent waits for, and submits the row to the batcher. */
#include "agents/turn.h"

#include <assert.h>
#include <string.h>

#include "agents/agent.h"

static const uint32_t turn_moves[] = {
    [AGENT_TURN_NEW] = 1u << AGENT_TURN_OBSERVED,
    [AGENT_TURN_OBSERVED] = 1u << AGENT_TURN_ASKED | 1u << AGENT_TURN_ENDED | 1u << AGENT_TURN_OVER,
    [AGENT_TURN_ASKED] = 1u << AGENT_TURN_CANCELLED | 1u << AGENT_TURN_ENDED,
    [AGENT_TURN_CANCELLED] = 1u << AGENT_TURN_ENDED,
    [AGENT_TURN_ENDED] = 1u << AGENT_TURN_ASKED | 1u << AGENT_TURN_OVER,
    [AGENT_TURN_OVER] = 0,
};

static bool turn_may(const struct agent_turn *t, enum agent_turn_state to)
{
    return (turn_moves[t->state] & 1u << to) != 0;
}

static void agents_turn_move(struct agent_turn *t, enum agent_turn_state to)
{
    assert(turn_may(t, to));
    t->state = to;
}

void agent_turn_init(struct agent_turn *t, struct arena *arena, size_t reply_limit_bytes)
{
    memset(t, 0, offsetof(struct agent_turn, batcher)); /* agent_turn_ask sets the rest */
    t->arena = arena;
    buf_init(&t->reply.text, reply_limit_bytes);
}

void agent_turn_deinit(struct agent_turn *t)
{
    assert(t->state == AGENT_TURN_NEW || t->state == AGENT_TURN_OVER);
    buf_deinit(&t->reply.text);
    t->state = AGENT_TURN_NEW;
}

enum status agent_turn_observe(struct agent_turn *t, struct clone *c, struct error *err)
{
    enum status rc;

    assert(turn_may(t, AGENT_TURN_OBSERVED));
    if (t->seen.sampling.constraint != NULL && c->agent->type->text == NULL)
        return error_because(err, STATUS_UNIMPLEMENTED, REASON_MODEL_UNSUITABLE, "constraint",
                             "replies of this kind of model cannot be constrained");
    if ((t->seen.pooling != POOLING_NONE || t->seen.want_prompt_logprobs) &&
        (c->agent->type->text == NULL || !c->agent->type->text->gives_prompt_results))
        return error_because(err, STATUS_UNIMPLEMENTED, REASON_MODEL_UNSUITABLE, "model",
                             "this kind of model cannot return %s",
                             t->seen.pooling != POOLING_NONE ? "embeddings"
                                                             : "log-probabilities of prompts");
    rc = c->agent->type->observe(c, t, err);
    if (rc != STATUS_OK)
        return rc;
    agents_turn_move(t, AGENT_TURN_OBSERVED);
    t->clone = c;
    return STATUS_OK;
}

static void on_more(struct batch_request *request, void *arg)
{
    struct agent_turn *t = arg;

    t->terms.more(t);
}

static void on_settled(struct future *f, const struct error *err, void *arg)
{
    struct agent_turn *t = arg;

    agents_turn_move(t, AGENT_TURN_ENDED);
    t->n_steps += t->request.n_steps;
    if (t->first_step_us == 0)
        t->first_step_us = t->request.first_step_us;
    t->terms.ended(t, err);
}

/* Gives the turn to the batcher. */
static enum status agent_turn_submit(struct agent_turn *t, struct error *err)
{
    t->request = (struct batch_request){
        .row = &t->row,
        .flow = &t->clone->flow,
        .deadline_us = t->terms.deadline_us,
        .priority = t->terms.priority,
        .more = t->terms.more != NULL ? on_more : NULL,
        .more_arg = t,
    };
    future_init(&t->request.reply, on_settled, t);
    return batcher_submit(t->batcher, &t->request, err);
}

static enum status agent_turn_prepare(struct agent_turn *t, struct error *err)
{
    if (t->state != AGENT_TURN_OBSERVED ||
        (t->seen.sampling.constraint == NULL && !t->wants_preparing))
        return STATUS_OK;
    return t->clone->agent->type->text->prepare(t->clone, t, err);
}

static void agent_turn_fail(struct agent_turn *t, const struct error *err)
{
    agents_turn_move(t, AGENT_TURN_ENDED);
    t->terms.ended(t, err);
}

void agent_turn_prepared(struct agent_turn *t, const struct error *err)
{
    struct error why = *err;

    assert(t->is_preparing);
    t->is_preparing = false;
    if (t->state == AGENT_TURN_CANCELLED)
        (void)error_set(&why, STATUS_CANCELLED, "the turn was cancelled before it began");
    if (why.status != STATUS_OK || agent_turn_submit(t, &why) != STATUS_OK)
        agent_turn_fail(t, &why);
}

enum status agent_turn_ask(struct agent_turn *t, struct batcher *b,
                           const struct agent_turn_terms *terms, struct error *err)
{
    enum status rc;

    assert(turn_may(t, AGENT_TURN_ASKED));
    if (t->state == AGENT_TURN_ENDED)
        t->row.err = (struct error){0};
    t->batcher = b;
    t->terms = *terms;
    rc = agent_turn_prepare(t, err);
    if (rc == STATUS_OK && !t->is_preparing)
        rc = agent_turn_submit(t, err);
    if (rc == STATUS_OK)
        agents_turn_move(t, AGENT_TURN_ASKED);
    return rc;
}

void agent_turn_postpone(struct agent_turn *t, uint64_t deadline_us)
{
    assert(agent_turn_is_asked(t));
    if (t->is_preparing) {
        if (deadline_us == 0 || (t->terms.deadline_us != 0 && deadline_us > t->terms.deadline_us))
            t->terms.deadline_us = deadline_us;
        return;
    }
    batcher_postpone(t->batcher, &t->request, deadline_us);
}

void agent_turn_cancel(struct agent_turn *t)
{
    assert(agent_turn_is_asked(t));
    if (t->state == AGENT_TURN_CANCELLED)
        return;
    agents_turn_move(t, AGENT_TURN_CANCELLED);
    if (t->is_preparing) {
        struct error ignored;

        /* The batcher settles it soon. If the batcher is full, the turn ends when preparing ends.
         */
        if (agent_turn_submit(t, &ignored) != STATUS_OK)
            return;
        t->is_preparing = false;
        t->clone->agent->type->text->unprepare(t->clone, t);
    }
    batcher_cancel(t->batcher, &t->request);
}

void agent_turn_keep(struct agent_turn *t)
{
    assert(t->state == AGENT_TURN_ENDED);
    agents_turn_move(t, AGENT_TURN_OVER);
    t->clone->agent->type->self_observe(t->clone, t);
}

void agent_turn_drop(struct agent_turn *t)
{
    agents_turn_move(t, AGENT_TURN_OVER);
    if (t->clone->agent->type->drop != NULL)
        t->clone->agent->type->drop(t->clone, t);
}

enum status agent_turn_trace(const struct agent_turn *t, struct buf *out, struct error *err)
{
    const struct agent_type *type = t->clone->agent->type;

    assert(t->state == AGENT_TURN_ENDED);
    return type->trace == NULL ? STATUS_OK : type->trace(t->clone, t, out, err);
}

enum status agent_turn_recall(struct agent_turn *t, const void *trace, size_t size_bytes,
                              struct error *err)
{
    const struct agent_type *type = t->clone->agent->type;

    assert(t->state == AGENT_TURN_OBSERVED);
    if (size_bytes > 0) {
        if (type->recall == NULL)
            return error_set(err, STATUS_DATA_LOSS, "this kind of agent keeps no traces");
        if (type->recall(t->clone, t, trace, size_bytes, err) != STATUS_OK)
            return err->status;
    }
    agents_turn_move(t, AGENT_TURN_ENDED);
    return STATUS_OK;
}
