/* Workers: the orders of a server as callbacks, with the clones that they name, and the answers to
 * steps.
 *
 * The table of clones belongs to the thread of the callbacks. An order that names a clone which is
 * not there is the server's fault and ends the call, as every order does that cannot be done: the
 * server then opens the clones at another worker, or here again. */
#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "client/lib/parts.h"
#include "parley/v1/agents.pb-c.h"
#include "proto/codec.h"

enum { WORKER_FIRST_DELAY_MS = 50, WORKER_LAST_DELAY_MS = 1000 };

/* Bound on what an answer takes beside its texts and numbers, which are not copied. */
#define ANSWER_MAX_BYTES ((size_t)16 << 20)

struct worker_clone {
    struct hash_node node; /* in the call's clones */
    uint64_t number;
    void *user;
};

struct worker_call {
    struct parley_call base;
    struct parley_worker_events events;
    struct hash clones;
    struct waiter *waiter; /* of parley_worker_run; NULL: none */
    bool was_accepted;
};

static struct worker_call *worker_call_of(struct parley_call *call)
{
    return (struct worker_call *)call;
}

/* --- clones --- */

static struct worker_clone *worker_look_up(const struct worker_call *w, uint64_t number)
{
    uint64_t hash = hash_bytes(&w->clones, 0, &number, sizeof(number));

    for (struct hash_node *n = hash_first(&w->clones, hash); n != NULL; n = hash_next(n)) {
        struct worker_clone *c = container_of(n, struct worker_clone, node);

        if (c->number == number)
            return c;
    }
    return NULL;
}

static enum status worker_find(struct worker_clone **out, const struct worker_call *w,
                               uint64_t number, struct error *err)
{
    struct worker_clone *c = worker_look_up(w, number);

    if (c == NULL)
        return error_set(err, STATUS_INTERNAL,
                         "the server speaks of clone %" PRIu64 ", which is not open", number);
    *out = c;
    return STATUS_OK;
}

/* Takes user; NULL: the worker could not make it. */
static enum status worker_add(struct worker_call *w, uint64_t number, void *user, struct error *err)
{
    struct worker_clone *c = NULL;
    enum status rc = STATUS_OK;

    if (user == NULL)
        return error_set(err, STATUS_EXHAUSTED, "the worker could not open clone %" PRIu64, number);
    if (worker_look_up(w, number) != NULL)
        rc = error_set(err, STATUS_INTERNAL, "the server opens clone %" PRIu64 " twice", number);
    else if ((c = try_alloc(1, sizeof(*c))) == NULL)
        rc = error_no_memory(err, sizeof(*c), "a clone");
    if (rc != STATUS_OK) {
        w->events.close(w->events.arg, user);
        return rc;
    }
    c->number = number;
    c->user = user;
    hash_add(&w->clones, &c->node, hash_bytes(&w->clones, 0, &number, sizeof(number)));
    return STATUS_OK;
}

static void worker_remove(struct worker_call *w, struct worker_clone *c)
{
    hash_remove(&w->clones, &c->node);
    hash_shrink(&w->clones);
    w->events.close(w->events.arg, c->user);
    free(c);
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
    struct worker_clone *clone = NULL;

    if (sampling == NULL)
        return error_no_memory(err, sizeof(*sampling), "a row");
    if (w->events.open != NULL && worker_find(&clone, w, from->clone, err) != STATUS_OK)
        return err->status;
    *out = (struct parley_worker_row){
        .clone = clone == NULL ? NULL : clone->user,
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
    w->events.step(w->events.arg, &w->base, &step);
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

    return worker_add(w, from->clone, w->events.open(w->events.arg, &what), err);
}

static enum status worker_replay(struct worker_call *w, const Parley__V1__AgentCloneReplay *from,
                                 struct arena *arena, struct error *err)
{
    const struct parley_message *messages = NULL;
    struct worker_clone *c = NULL;

    if (worker_find(&c, w, from->clone, err) != STATUS_OK ||
        worker_messages(&messages, from->messages, from->n_messages, arena, err) != STATUS_OK)
        return err->status;
    return w->events.replay(w->events.arg, c->user, from->turn, messages, from->n_messages,
                            from->reply)
               ? STATUS_OK
               : worker_failed(from->clone, "replay a turn to", err);
}

static enum status worker_fork(struct worker_call *w, const Parley__V1__AgentCloneFork *from,
                               struct error *err)
{
    struct worker_clone *parent = NULL;

    if (worker_find(&parent, w, from->parent, err) != STATUS_OK)
        return err->status;
    return worker_add(w, from->clone, w->events.fork(w->events.arg, parent->user, from->at_turn),
                      err);
}

static enum status worker_rewind(struct worker_call *w, const Parley__V1__AgentCloneRewind *from,
                                 struct error *err)
{
    struct worker_clone *c = NULL;

    if (worker_find(&c, w, from->clone, err) != STATUS_OK)
        return err->status;
    return w->events.rewind(w->events.arg, c->user, from->to_turn)
               ? STATUS_OK
               : worker_failed(from->clone, "rewind", err);
}

static enum status worker_save(struct worker_call *w, uint64_t clone, struct error *err)
{
    Parley__V1__AgentsAttachRequest request = PARLEY__V1__AGENTS_ATTACH_REQUEST__INIT;
    Parley__V1__AgentState state = PARLEY__V1__AGENT_STATE__INIT;
    struct worker_clone *c = NULL;
    void *bytes;

    if (worker_find(&c, w, clone, err) != STATUS_OK)
        return err->status;
    bytes = w->events.save(w->events.arg, c->user, &state.state.len);
    if (bytes == NULL)
        return worker_failed(clone, "save", err);
    state.clone = clone;
    state.state.data = bytes;
    request.what_case = PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_STATE;
    request.state = &state;
    (void)parley_call_send(&w->base, &request.base); /* fails when the stream ends by itself */
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

static enum status worker_take(struct worker_call *w, const Parley__V1__AgentsAttachResponse *m,
                               struct arena *arena, struct error *err)
{
    struct worker_clone *c = NULL;

    if (!worker_may_take(w, m))
        return error_set(err, STATUS_INTERNAL, "the server sent an order that was not offered");
    switch (m->what_case) {
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_ACCEPTED:
        w->was_accepted = true;
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
        if (worker_find(&c, w, m->close->clone, err) != STATUS_OK)
            return err->status;
        worker_remove(w, c);
        return STATUS_OK;
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

static enum status on_worker_order(struct parley_call *call, const void *data, size_t len,
                                   struct error *err)
{
    ProtobufCMessage *m = NULL;
    struct arena arena;
    enum status rc;

    arena_init(&arena, DECODED_MAX_BYTES);
    rc = codec_decode(&m, &parley__v1__agents_attach_response__descriptor, data, len,
                      CODEC_ANY_FIELDS, &arena, err);
    if (rc == STATUS_OK)
        rc = worker_take(worker_call_of(call), (const Parley__V1__AgentsAttachResponse *)m, &arena,
                         err);
    else
        (void)error_prefix(err, "the server's order is not understood");
    arena_deinit(&arena);
    return rc;
}

static void on_worker_end(struct parley_call *call, const struct parley_error *err)
{
    struct worker_call *w = worker_call_of(call);
    struct hash_node *n;

    while ((n = hash_each(&w->clones, NULL)) != NULL)
        worker_remove(w, container_of(n, struct worker_clone, node));
    hash_deinit(&w->clones);
    if (w->events.end != NULL)
        w->events.end(w->events.arg, err);
    if (w->waiter != NULL)
        waiter_tell(w->waiter, err);
}

/* --- the stream --- */

static char *worker_text(const char *text)
{
    return (char *)(uintptr_t)(text == NULL ? "" : text); /* only read */
}

static bool worker_send_offer(struct worker_call *w, const struct parley_worker_offer *o)
{
    Parley__V1__AgentsAttachRequest request = PARLEY__V1__AGENTS_ATTACH_REQUEST__INIT;
    Parley__V1__AgentOffer offer = PARLEY__V1__AGENT_OFFER__INIT;
    Parley__V1__AgentTensors tensors = PARLEY__V1__AGENT_TENSORS__INIT;
    Parley__V1__AgentCapability can[4];
    const struct parley_worker_events *e = &w->events;

    offer.name = worker_text(o->name);
    offer.version = worker_text(o->version);
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
    request.what_case = PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_OFFER;
    request.offer = &offer;
    return parley_call_send(&w->base, &request.base);
}

static struct parley_call *worker_begin(struct parley_channel *channel,
                                        const struct parley_worker_offer *offer,
                                        const struct parley_worker_events *events,
                                        struct waiter *waiter)
{
    static const struct call_kind kind = {true, on_worker_order, on_worker_end, NULL};
    const struct call_start how = {
        .method = "/parley.v1.Agents/Attach", .is_bidi = true, .waits_for_server = true};
    struct parley_call *call = parley_call_make(sizeof(struct worker_call), &kind);
    struct worker_call *w = worker_call_of(call);

    assert(events->step != NULL);
    assert(events->open == NULL || (events->replay != NULL && events->close != NULL));
    if (call == NULL)
        return NULL;
    w->events = *events;
    w->waiter = waiter;
    hash_init(&w->clones, NULL);
    parley_call_start(channel, call, &how);
    if (!worker_send_offer(w, offer))
        parley_call_cancel(call); /* the call's end reports it */
    return call;
}

struct parley_call *parley_worker_start(struct parley_channel *channel,
                                        const struct parley_worker_offer *offer,
                                        const struct parley_worker_events *events)
{
    assert(events->end != NULL);
    return worker_begin(channel, offer, events, NULL);
}

/* Whether it is of no use to attach again. */
static bool is_final(const struct parley_error *err)
{
    static const char unloaded[] = "was unloaded";
    size_t len = strlen(err->text), n = sizeof(unloaded) - 1;

    return err->status != PARLEY_UNAVAILABLE ||
           (len >= n && strcmp(err->text + len - n, unloaded) == 0);
}

enum parley_status parley_worker_run(struct parley_channel *channel,
                                     const struct parley_worker_offer *offer,
                                     const struct parley_worker_events *events,
                                     struct parley_error *ret_err)
{
    int delay_ms = WORKER_FIRST_DELAY_MS;
    struct parley_error outcome = {0};
    struct parley_call *call;
    struct waiter waiter;
    struct error err = {0};

    assert(channel_may_wait(channel));
    for (;;) {
        waiter_init(&waiter);
        call = worker_begin(channel, offer, events, &waiter);
        if (call == NULL) {
            (void)error_no_memory(&err, sizeof(struct worker_call), "a worker");
            outcome_of_failure(&outcome, &err);
            waiter_tell(&waiter, &outcome);
        }
        (void)waiter_wait(&waiter, channel, &outcome);
        if (call != NULL && worker_call_of(call)->was_accepted)
            delay_ms = WORKER_FIRST_DELAY_MS;
        parley_call_unref(call);
        if (is_final(&outcome))
            break;
        (void)poll(NULL, 0, delay_ms); /* a signal ends it early: that does no harm */
        delay_ms = delay_ms < WORKER_LAST_DELAY_MS / 2 ? 2 * delay_ms : WORKER_LAST_DELAY_MS;
    }
    if (ret_err != NULL)
        *ret_err = outcome;
    return outcome.status;
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
        const struct parley_tensor *from = &answer->output[i];

        parley__v1__tensor__init(&tensors[i]);
        tensors[i].name = worker_text(from->name);
        tensors[i].dtype = (Parley__V1__DType)((int)from->dtype + 1);
        tensors[i].shape = (int64_t *)(uintptr_t)from->shape; /* only read, as the data */
        tensors[i].n_shape = from->n_dims;
        tensors[i].data.data = (uint8_t *)(uintptr_t)from->data;
        tensors[i].data.len = from->size_bytes;
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
    detail->message = worker_text(err->text);
    detail->field = worker_text(err->field);
    detail->reason = worker_text(err->reason);
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

    row->text = worker_text(answer->text);
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
