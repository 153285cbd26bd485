/* Workers: the orders of a server as callbacks, with the clones that they name, and the answers to
 * steps.
 *
 * The table of clones belongs to the thread of the callbacks. An order that names a clone which is
 * not there is the server's fault and ends the call, as every order does that cannot be done: the
 * server then opens the clones at another worker, or here again. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/attachment.h"

/* Bound on what an answer takes beside its texts and numbers, which are not copied. */
#define ANSWER_MAX_BYTES ((size_t)16 << 20)

struct worker_call {
    struct attachment base;
    struct parley_worker_events events;
};

static struct worker_call *worker_call_of(struct attachment *a)
{
    return (struct worker_call *)a;
}

/* --- steps --- */

static enum status worker_messages(const struct parley_message **out,
                                   Parley__V1__Message *const *from, size_t n, struct arena *arena,
                                   struct error *err)
{
    struct parley_message *messages = arena_alloc(arena, n, sizeof(*messages));

    if (messages == NULL)
        return error_no_memory(err, n * sizeof(*messages), "messages");
    for (size_t i = 0; i < n; i++)
        messages[i] = (struct parley_message){from[i]->role, from[i]->text};
    *out = messages;
    return STATUS_OK;
}

/* The numbers, copied to where floats may lie. */
static enum status worker_observation(const float **out, const Parley__V1__AgentRow *from,
                                      struct arena *arena, struct error *err)
{
    const Parley__V1__Tensor *t = from->n_observation > 0 ? from->observation[0] : NULL;
    float *numbers;

    *out = NULL;
    if (t == NULL)
        return STATUS_OK;
    numbers = arena_alloc(arena, t->data.len, 1);
    if (numbers == NULL)
        return error_no_memory(err, t->data.len, "an observation");
    if (t->data.len > 0)
        memcpy(numbers, t->data.data, t->data.len);
    *out = numbers;
    return STATUS_OK;
}

static enum status worker_row(struct parley_worker_row *out, const struct worker_call *w,
                              const Parley__V1__AgentRow *from, struct arena *arena,
                              struct error *err)
{
    struct parley_sampling *sampling = arena_alloc(arena, 1, sizeof(*sampling));
    void *clone = NULL;

    if (sampling == NULL)
        return error_no_memory(err, sizeof(*sampling), "a row");
    if (w->events.open != NULL && attachment_find(&clone, &w->base, from->clone, err) != STATUS_OK)
        return err->status;
    *out = (struct parley_worker_row){
        .clone = clone,
        .turn = from->turn,
        .is_continued = from->is_continued,
        .n_messages = from->n_messages,
        .sampling = sampling,
        .system = from->system,
        .n_history = from->n_history,
        .reply = from->reply,
        .reward = from->reward,
        .is_first = from->is_first,
    };
    if (worker_messages(&out->messages, from->messages, from->n_messages, arena, err) !=
            STATUS_OK ||
        worker_messages(&out->history, from->history, from->n_history, arena, err) != STATUS_OK ||
        worker_observation(&out->observation, from, arena, err) != STATUS_OK)
        return err->status;
    return sampling_take(sampling, from->sampling, arena, err);
}

static enum status worker_step(struct worker_call *w, const Parley__V1__AgentStep *from,
                               struct arena *arena, struct error *err)
{
    struct parley_worker_row *rows = arena_alloc(arena, from->n_rows, sizeof(*rows));
    struct parley_worker_step step = {from->step, rows, from->n_rows};

    if (rows == NULL)
        return error_no_memory(err, from->n_rows * sizeof(*rows), "a step");
    for (size_t i = 0; i < from->n_rows; i++) {
        if (from->rows[i]->row != i)
            return error_set(err, STATUS_INTERNAL,
                             "the server's step %" PRIu64 " has row %u in place %zu", from->step,
                             from->rows[i]->row, i);
        if (worker_row(&rows[i], w, from->rows[i], arena, err) != STATUS_OK)
            return err->status;
    }
    w->events.step(w->events.arg, &w->base.base, &step);
    return STATUS_OK;
}

/* --- orders of clones --- */

static enum status worker_failed(uint64_t clone, const char *what, struct error *err)
{
    return error_set(err, STATUS_EXHAUSTED, "the worker could not %s clone %" PRIu64, what, clone);
}

static enum status worker_open(struct worker_call *w, const Parley__V1__AgentCloneOpen *from,
                               struct error *err)
{
    const struct parley_worker_open what = {from->system, from->has_state ? from->state.data : NULL,
                                            from->has_state ? from->state.len : 0, from->turn};

    return attachment_add(&w->base, from->clone, w->events.open(w->events.arg, &what), err);
}

static enum status worker_replay(struct worker_call *w, const Parley__V1__AgentCloneReplay *from,
                                 struct arena *arena, struct error *err)
{
    const struct parley_message *messages = NULL;
    void *c = NULL;

    if (attachment_find(&c, &w->base, from->clone, err) != STATUS_OK ||
        worker_messages(&messages, from->messages, from->n_messages, arena, err) != STATUS_OK)
        return err->status;
    return w->events.replay(w->events.arg, c, from->turn, messages, from->n_messages, from->reply)
               ? STATUS_OK
               : worker_failed(from->clone, "replay a turn to", err);
}

static enum status worker_fork(struct worker_call *w, const Parley__V1__AgentCloneFork *from,
                               struct error *err)
{
    void *parent = NULL;

    if (attachment_find(&parent, &w->base, from->parent, err) != STATUS_OK)
        return err->status;
    return attachment_add(&w->base, from->clone,
                          w->events.fork(w->events.arg, parent, from->at_turn), err);
}

static enum status worker_rewind(struct worker_call *w, const Parley__V1__AgentCloneRewind *from,
                                 struct error *err)
{
    void *c = NULL;

    if (attachment_find(&c, &w->base, from->clone, err) != STATUS_OK)
        return err->status;
    return w->events.rewind(w->events.arg, c, from->to_turn)
               ? STATUS_OK
               : worker_failed(from->clone, "rewind", err);
}

static enum status worker_save(struct worker_call *w, uint64_t clone, struct error *err)
{
    Parley__V1__AgentsAttachRequest request = PARLEY__V1__AGENTS_ATTACH_REQUEST__INIT;
    Parley__V1__AgentState state = PARLEY__V1__AGENT_STATE__INIT;
    void *c = NULL;
    void *bytes;

    if (attachment_find(&c, &w->base, clone, err) != STATUS_OK)
        return err->status;
    bytes = w->events.save(w->events.arg, c, &state.state.len);
    if (bytes == NULL)
        return worker_failed(clone, "save", err);
    state.clone = clone;
    state.state.data = bytes;
    request.what_case = PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_STATE;
    request.state = &state;
    (void)parley_call_send(&w->base.base, &request.base); /* fails when the stream ends by itself */
    free(bytes);
    return STATUS_OK;
}

/* The order is one that the offer allows: of what was not offered none may come. */
static bool worker_may_take(const struct worker_call *w, const Parley__V1__AgentsAttachResponse *m)
{
    switch (m->what_case) {
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_OPEN:
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_REPLAY:
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_CLOSE:
        return w->events.open != NULL;
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_FORK:
        return w->events.open != NULL && w->events.fork != NULL;
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_REWIND:
        return w->events.open != NULL && w->events.rewind != NULL;
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_SAVE:
        return w->events.open != NULL && w->events.save != NULL;
    default:
        return true;
    }
}

static enum status worker_take(struct attachment *a, const Parley__V1__AgentsAttachResponse *m,
                               struct arena *arena, struct error *err)
{
    struct worker_call *w = worker_call_of(a);

    if (!worker_may_take(w, m))
        return error_set(err, STATUS_INTERNAL, "the server sent an order that was not offered");
    switch (m->what_case) {
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_ACCEPTED:
        a->was_accepted = true;
        if (w->events.accepted != NULL)
            w->events.accepted(w->events.arg);
        return STATUS_OK;
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_OPEN:
        return worker_open(w, m->open, err);
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_REPLAY:
        return worker_replay(w, m->replay, arena, err);
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_FORK:
        return worker_fork(w, m->fork, err);
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_REWIND:
        return worker_rewind(w, m->rewind, err);
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_CLOSE:
        return attachment_remove(&w->base, m->close->clone, err);
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_STEP:
        return worker_step(w, m->step, arena, err);
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_CANCEL:
        if (w->events.cancel != NULL)
            w->events.cancel(w->events.arg, m->cancel->step, m->cancel->row);
        return STATUS_OK;
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_SAVE:
        return worker_save(w, m->save->clone, err);
    default:
        return error_set(err, STATUS_UNIMPLEMENTED, "the server sent an order that is not known");
    }
}

static void worker_drop(struct attachment *a, void *clone)
{
    struct worker_call *w = worker_call_of(a);

    w->events.close(w->events.arg, clone);
}

static void worker_end(struct attachment *a, const struct parley_error *err)
{
    struct worker_call *w = worker_call_of(a);

    if (w->events.end != NULL)
        w->events.end(w->events.arg, err);
}

/* --- the stream --- */

static void worker_call_start(struct worker_call *w, struct parley_channel *channel,
                              const struct parley_worker_offer *o)
{
    Parley__V1__AgentOffer offer = PARLEY__V1__AGENT_OFFER__INIT;
    Parley__V1__AgentTensors tensors = PARLEY__V1__AGENT_TENSORS__INIT;
    Parley__V1__AgentCapability can[4];
    const struct parley_worker_events *e = &w->events;

    offer.name = attachment_text(o->name);
    offer.version = attachment_text(o->version);
    offer.max_rows = o->max_rows;
    offer.slots = o->slots;
    offer.save_every = o->save_every;
    offer.max_cost = o->max_cost;
    offer.cost_unit = o->is_cost_in_bytes ? PARLEY__V1__AGENT_COST_UNIT__AGENT_COST_UNIT_BYTE
                                          : PARLEY__V1__AGENT_COST_UNIT__AGENT_COST_UNIT_ROW;
    offer.capabilities = can;
    if (e->open == NULL)
        can[offer.n_capabilities++] = PARLEY__V1__AGENT_CAPABILITY__AGENT_CAPABILITY_STATELESS;
    if (e->open != NULL && e->fork != NULL)
        can[offer.n_capabilities++] = PARLEY__V1__AGENT_CAPABILITY__AGENT_CAPABILITY_FORK;
    if (e->open != NULL && e->rewind != NULL)
        can[offer.n_capabilities++] = PARLEY__V1__AGENT_CAPABILITY__AGENT_CAPABILITY_REWIND;
    if (e->open != NULL && e->save != NULL)
        can[offer.n_capabilities++] = PARLEY__V1__AGENT_CAPABILITY__AGENT_CAPABILITY_SAVE;
    if (o->is_deterministic)
        can[offer.n_capabilities++] = PARLEY__V1__AGENT_CAPABILITY__AGENT_CAPABILITY_DETERMINISTIC;
    tensors.observations = o->n_observations;
    tensors.actions = o->n_actions;
    tensors.action_numbers = o->n_action_numbers;
    tensors.has_logp = o->has_logp;
    tensors.has_value = o->has_value;
    offer.tensors = o->n_observations > 0 ? &tensors : NULL;
    attachment_start(&w->base, channel, &offer);
}

static struct attachment *worker_begin(struct parley_channel *channel, const void *offer,
                                       const void *events, struct waiter *waiter)
{
    static const struct attachment_kind kind = {"clone", worker_take, worker_drop, worker_end};
    const struct parley_worker_events *e = events;
    struct attachment *a = attachment_make(sizeof(struct worker_call), &kind, waiter);

    assert(e->step != NULL);
    assert(e->open == NULL || (e->replay != NULL && e->close != NULL));
    if (a == NULL)
        return NULL;
    worker_call_of(a)->events = *e;
    worker_call_start(worker_call_of(a), channel, offer);
    return a;
}

struct parley_call *parley_worker_start(struct parley_channel *channel,
                                        const struct parley_worker_offer *offer,
                                        const struct parley_worker_events *events)
{
    assert(events->end != NULL);
    return (struct parley_call *)worker_begin(channel, offer, events, NULL);
}

enum parley_status parley_worker_run(struct parley_channel *channel,
                                     const struct parley_worker_offer *offer,
                                     const struct parley_worker_events *events,
                                     struct parley_error *ret_err)
{
    return attachment_run(channel, worker_begin, offer, events, ret_err);
}

/* --- answers --- */

static Parley__V1__Tensor **worker_output(const struct parley_row_answer *answer,
                                          struct arena *arena)
{
    Parley__V1__Tensor *tensors = arena_alloc(arena, answer->n_output, sizeof(*tensors));
    Parley__V1__Tensor **list = arena_alloc(arena, answer->n_output, sizeof(*list));

    if (tensors == NULL || list == NULL)
        return NULL;
    for (size_t i = 0; i < answer->n_output; i++) {
        attachment_fill_tensor(&tensors[i], &answer->output[i]);
        list[i] = &tensors[i];
    }
    return list;
}

static Parley__V1__ErrorDetail *worker_detail(const struct parley_error *err, struct arena *arena)
{
    Parley__V1__ErrorDetail *detail = arena_alloc(arena, 1, sizeof(*detail));

    if (detail == NULL)
        return NULL;
    parley__v1__error_detail__init(detail);
    detail->code = (uint32_t)err->status;
    detail->message = attachment_text(err->text);
    detail->field = attachment_text(err->field);
    detail->reason = attachment_text(err->reason);
    detail->retry_after_ms = err->retry_after_ms;
    return detail;
}

/* False without memory. */
static bool worker_fill_row(Parley__V1__AgentRowResult *row, const struct parley_row_answer *answer,
                            struct arena *arena)
{
    static const Parley__V1__AgentRowOutcome outcomes[] = {
        [PARLEY_ROW_DONE] = PARLEY__V1__AGENT_ROW_OUTCOME__AGENT_ROW_OUTCOME_DONE,
        [PARLEY_ROW_MORE] = PARLEY__V1__AGENT_ROW_OUTCOME__AGENT_ROW_OUTCOME_MORE,
        [PARLEY_ROW_FAILED] = PARLEY__V1__AGENT_ROW_OUTCOME__AGENT_ROW_OUTCOME_FAILED,
    };

    row->text = attachment_text(answer->text);
    row->outcome = outcomes[answer->outcome];
    if (answer->is_cut)
        row->finish_reason = PARLEY__V1__FINISH_REASON__FINISH_REASON_LENGTH;
    row->prompt_tokens = answer->prompt_tokens;
    row->params_version = answer->params_version;
    row->n_output = answer->n_output;
    if (answer->n_output > 0 && (row->output = worker_output(answer, arena)) == NULL)
        return false;
    return answer->error == NULL || (row->error = worker_detail(answer->error, arena)) != NULL;
}

bool parley_worker_answer(struct parley_call *worker, uint64_t step,
                          const struct parley_row_answer *answers, size_t n_rows)
{
    Parley__V1__AgentsAttachRequest request = PARLEY__V1__AGENTS_ATTACH_REQUEST__INIT;
    Parley__V1__AgentStepResult result = PARLEY__V1__AGENT_STEP_RESULT__INIT;
    Parley__V1__AgentRowResult *rows, **list;
    struct arena arena;
    bool is_sent = false;

    arena_init(&arena, ANSWER_MAX_BYTES);
    rows = arena_alloc(&arena, n_rows, sizeof(*rows));
    list = arena_alloc(&arena, n_rows, sizeof(*list));
    if (rows == NULL || list == NULL)
        goto out;
    for (size_t i = 0; i < n_rows; i++) {
        parley__v1__agent_row_result__init(&rows[i]);
        rows[i].row = (uint32_t)i;
        list[i] = &rows[i];
        if (!worker_fill_row(&rows[i], &answers[i], &arena))
            goto out;
    }
    result.step = step;
    result.rows = list;
    result.n_rows = n_rows;
    request.what_case = PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_RESULT;
    request.result = &result;
    is_sent = parley_call_send(worker, &request.base);
out:
    arena_deinit(&arena);
    return is_sent;
}
