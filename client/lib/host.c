/* Hosts: the orders of a server for environments as callbacks, and their answers.
 *
 * The happy path: a reset makes the environments whose numbers are new, and calls reset; a step
 * finds them and calls step; parley_host_answer sends what became of them, from any thread. An
 * order that names an environment which is not there, or has actions of another shape, is the
 * server's fault and ends the call. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/lib/attachment.h"

/* Bound on what an answer takes beside its numbers, which are not copied. */
#define HOST_ANSWER_MAX_BYTES ((size_t)16 << 20)

struct host_call {
    struct attachment base;
    struct parley_host_events events;
    size_t n_observations, n_action_numbers; /* constant after the start */
};

static struct host_call *host_call_of(struct attachment *a)
{
    return (struct host_call *)a;
}

/* --- orders --- */

/* As many environments as numbers; those that are not there are made if it may. */
static enum status host_call_environments(struct parley_host_order *out, struct host_call *h,
                                          const uint64_t *numbers, size_t n, bool may_make,
                                          struct arena *arena, struct error *err)
{
    void **environments = arena_alloc(arena, n, sizeof(*environments));

    if (environments == NULL)
        return error_no_memory(err, n * sizeof(*environments), "an order");
    for (size_t i = 0; i < n; i++) {
        environments[i] = attachment_look_up(&h->base, numbers[i]);
        if (environments[i] == NULL && may_make) {
            environments[i] = h->events.make(h->events.arg);
            if (attachment_add(&h->base, numbers[i], environments[i], err) != STATUS_OK)
                return err->status;
        } else if (attachment_find(&environments[i], &h->base, numbers[i], err) != STATUS_OK) {
            return err->status;
        }
    }
    out->environments = environments;
    out->n = n;
    return STATUS_OK;
}

static enum status host_call_reset(struct host_call *h, const Parley__V1__AgentEnvReset *from,
                                   struct arena *arena, struct error *err)
{
    struct parley_host_order order = {.id = from->order, .seeds = from->seed};

    if (from->n_seed != from->n_environment)
        return error_set(err, STATUS_INTERNAL,
                         "the server's order %" PRIu64 " has %zu seeds for %zu environments",
                         from->order, from->n_seed, from->n_environment);
    if (host_call_environments(&order, h, from->environment, from->n_environment, true, arena,
                               err) != STATUS_OK)
        return err->status;
    h->events.reset(h->events.arg, &h->base.base, &order);
    return STATUS_OK;
}

/* The actions, copied to where numbers may lie. */
static enum status host_call_actions(struct parley_host_order *out, const struct host_call *h,
                                     const Parley__V1__AgentEnvStep *from, struct arena *arena,
                                     struct error *err)
{
    bool is_choice = h->n_action_numbers == 0;
    size_t width = is_choice ? sizeof(int64_t) : h->n_action_numbers * sizeof(float);
    const Parley__V1__Tensor *t = from->action;
    void *actions;

    if (t == NULL ||
        t->dtype != (is_choice ? PARLEY__V1__DTYPE__DTYPE_I64 : PARLEY__V1__DTYPE__DTYPE_F32) ||
        t->data.len % width != 0 || t->data.len / width != from->n_environment)
        return error_set(err, STATUS_INTERNAL,
                         "the server's order %" PRIu64 " has actions of another shape",
                         from->order);
    actions = arena_alloc(arena, t->data.len, 1);
    if (actions == NULL)
        return error_no_memory(err, t->data.len, "actions");
    if (t->data.len > 0)
        memcpy(actions, t->data.data, t->data.len);
    if (is_choice)
        out->choices = actions;
    else
        out->numbers = actions;
    return STATUS_OK;
}

static enum status host_call_step(struct host_call *h, const Parley__V1__AgentEnvStep *from,
                                  struct arena *arena, struct error *err)
{
    struct parley_host_order order = {.id = from->order};

    if (host_call_environments(&order, h, from->environment, from->n_environment, false, arena,
                               err) != STATUS_OK ||
        host_call_actions(&order, h, from, arena, err) != STATUS_OK)
        return err->status;
    h->events.step(h->events.arg, &h->base.base, &order);
    return STATUS_OK;
}

static enum status host_call_take(struct attachment *a, const Parley__V1__AgentsAttachResponse *m,
                                  struct arena *arena, struct error *err)
{
    struct host_call *h = host_call_of(a);

    switch (m->what_case) {
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_ACCEPTED:
        a->was_accepted = true;
        if (h->events.accepted != NULL)
            h->events.accepted(h->events.arg);
        return STATUS_OK;
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_ENV_RESET:
        return host_call_reset(h, m->env_reset, arena, err);
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_ENV_STEP:
        return host_call_step(h, m->env_step, arena, err);
    case PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_ENV_CLOSE:
        for (size_t i = 0; i < m->env_close->n_environment; i++)
            if (attachment_look_up(a, m->env_close->environment[i]) != NULL &&
                attachment_remove(a, m->env_close->environment[i], err) != STATUS_OK)
                return err->status;
        return STATUS_OK;
    default:
        return error_set(err, STATUS_INTERNAL,
                         "the server sent an order that is not for environments");
    }
}

static void host_call_drop(struct attachment *a, void *environment)
{
    struct host_call *h = host_call_of(a);

    h->events.free(h->events.arg, environment);
}

static void host_call_end(struct attachment *a, const struct parley_error *err)
{
    struct host_call *h = host_call_of(a);

    if (h->events.end != NULL)
        h->events.end(h->events.arg, err);
}

/* --- the stream --- */

static struct attachment *host_call_begin(struct parley_channel *channel, const void *offer,
                                          const void *events, struct waiter *waiter)
{
    static const struct attachment_kind kind = {"environment", host_call_take, host_call_drop,
                                                host_call_end};
    Parley__V1__AgentOffer message = PARLEY__V1__AGENT_OFFER__INIT;
    Parley__V1__AgentEnvironment spaces = PARLEY__V1__AGENT_ENVIRONMENT__INIT;
    struct attachment *a = attachment_make(sizeof(struct host_call), &kind, waiter);
    const struct parley_host_offer *o = offer;
    const struct parley_host_events *e = events;

    assert(e->make != NULL && e->free != NULL && e->reset != NULL && e->step != NULL);
    if (a == NULL)
        return NULL;
    host_call_of(a)->events = *e;
    host_call_of(a)->n_observations = o->n_observations;
    host_call_of(a)->n_action_numbers = o->n_action_numbers;
    spaces.observations = o->n_observations;
    spaces.actions = o->n_actions;
    spaces.action_numbers = o->n_action_numbers;
    spaces.max_instances = o->max_instances;
    message.name = attachment_text(o->name);
    message.environment = &spaces;
    attachment_start(a, channel, &message);
    return a;
}

struct parley_call *parley_host_start(struct parley_channel *channel,
                                      const struct parley_host_offer *offer,
                                      const struct parley_host_events *events)
{
    assert(events->end != NULL);
    return (struct parley_call *)host_call_begin(channel, offer, events, NULL);
}

enum parley_status parley_host_run(struct parley_channel *channel,
                                   const struct parley_host_offer *offer,
                                   const struct parley_host_events *events,
                                   struct parley_error *ret_err)
{
    return attachment_run(channel, host_call_begin, offer, events, ret_err);
}

/* --- answers --- */

/* Why environment i has failed; NULL: it has not. */
static const char *results_failure(const struct parley_host_results *r, size_t i, size_t width)
{
    bool is_finite = r->rewards == NULL || isfinite(r->rewards[i]);

    if (r->failures != NULL && r->failures[i] != NULL)
        return r->failures[i];
    for (size_t k = 0; k < width; k++)
        is_finite = is_finite && isfinite(r->observations[i * width + k]);
    return is_finite ? NULL : "the environment returned a number that is not finite";
}

/* False without memory. */
static bool results_fill_failures(Parley__V1__AgentEnvResult *out,
                                  const struct parley_host_results *r, size_t width,
                                  struct arena *arena)
{
    for (size_t i = 0; i < r->n; i++) {
        const char *why = results_failure(r, i, width);
        Parley__V1__AgentEnvFailure *failure;

        if (why == NULL)
            continue;
        if (out->failures == NULL)
            out->failures = arena_alloc(arena, r->n, sizeof(out->failures[0]));
        failure = arena_alloc(arena, 1, sizeof(*failure));
        if (out->failures == NULL || failure == NULL)
            return false;
        parley__v1__agent_env_failure__init(failure);
        failure->place = (uint32_t)i;
        failure->message = attachment_text(why);
        out->failures[out->n_failures++] = failure;
    }
    return true;
}

bool parley_host_answer(struct parley_call *host, uint64_t order,
                        const struct parley_host_results *results)
{
    enum { N_TENSORS = 4 };
    const struct parley_host_results *r = results;
    size_t width = host_call_of((struct attachment *)host)->n_observations;
    const int64_t shape[2] = {(int64_t)r->n, (int64_t)width};
    const struct parley_tensor tensors[N_TENSORS] = {
        {"", PARLEY_F32, shape, 2, r->observations, r->n * width * sizeof(float)},
        {"", PARLEY_F32, shape, 1, r->rewards, r->n * sizeof(float)},
        {"", PARLEY_BOOL, shape, 1, r->terminated, r->n * sizeof(bool)},
        {"", PARLEY_BOOL, shape, 1, r->truncated, r->n * sizeof(bool)},
    };
    Parley__V1__AgentsAttachRequest request = PARLEY__V1__AGENTS_ATTACH_REQUEST__INIT;
    Parley__V1__AgentEnvResult result = PARLEY__V1__AGENT_ENV_RESULT__INIT;
    Parley__V1__Tensor sent[N_TENSORS];
    struct arena arena;
    bool is_sent = false;

    for (size_t i = 0; i < N_TENSORS; i++)
        attachment_fill_tensor(&sent[i], &tensors[i]);
    result.order = order;
    result.observation = &sent[0];
    if (r->rewards != NULL) {
        result.reward = &sent[1];
        result.terminated = &sent[2];
        result.truncated = &sent[3];
    }
    request.what_case = PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_ENV_RESULT;
    request.env_result = &result;
    arena_init(&arena, HOST_ANSWER_MAX_BYTES);
    if (results_fill_failures(&result, r, width, &arena))
        is_sent = parley_call_send(host, &request.base);
    arena_deinit(&arena);
    return is_sent;
}
