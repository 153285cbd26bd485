/* Opens, shares and frees agents and their clones, for all kinds of agents. The second half adapts
 * a clone's turns to the batcher, which knows rows and costs alone. */
#include "agents/agent.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { AGENT_MAX_ROWS = 256, AGENT_MAX_WAITING = 16384 };

static void free_agent(struct agent *a)
{
    if (a->type->close != NULL)
        a->type->close(a);
    free(a->name);
    free(a);
}

enum status agent_open_type(struct agent **out, const struct agent_type *type,
                            const struct agent_config *config, struct error *err)
{
    struct agent *a;
    enum status rc;

    assert((type->act != NULL) + (type->batch_act != NULL) + (type->elsewhere != NULL) == 1);
    a = try_alloc(1, type->agent_size);
    if (a == NULL)
        return error_no_memory(err, type->agent_size, "an agent");
    a->type = type;
    a->env = config->env;
    a->n_refs = 1;
    a->name = xstrdup(config->name != NULL ? config->name : type->name);
    rc = type->open != NULL ? type->open(a, config, err) : STATUS_OK;
    if (rc == STATUS_OK)
        *out = a;
    else
        free_agent(a);
    return rc;
}

struct agent *agent_ref(struct agent *a)
{
    a->n_refs++;
    return a;
}

void agent_unref(struct agent *a)
{
    if (a == NULL)
        return;
    assert(a->n_refs > 0);
    if (--a->n_refs > 0)
        return;
    assert(a->n_clones == 0);
    free_agent(a);
}

/* A clone of a, not yet opened by its kind. */
static struct clone *make_clone(struct agent *a, struct tenant *tenant, struct error *err)
{
    struct clone *c = try_alloc(1, a->type->clone_size);

    if (c == NULL) {
        (void)error_no_memory(err, a->type->clone_size, "a clone");
        return NULL;
    }
    c->agent = agent_ref(a);
    flow_init(&c->flow);
    c->flow.tenant = tenant;
    a->n_clones++;
    return c;
}

enum status clone_open(struct clone **out, struct agent *a, const struct clone_config *config,
                       struct error *err)
{
    struct clone *c = make_clone(a, config->tenant, err);
    enum status rc;

    if (c == NULL)
        return err->status;
    rc = a->type->clone_open != NULL ? a->type->clone_open(c, config, err) : STATUS_OK;
    if (rc == STATUS_OK)
        *out = c;
    else
        clone_close(c);
    return rc;
}

enum status clone_fork(struct clone **out, const struct clone *parent, uint32_t at_turn,
                       struct error *err)
{
    struct agent *a = parent->agent;
    struct clone *c;
    enum status rc;

    if (a->type->fork == NULL)
        return error_because(err, STATUS_UNIMPLEMENTED, REASON_MODEL_UNSUITABLE, NULL,
                             "an agent of kind '%s' cannot be forked", a->type->name);
    c = make_clone(a, parent->flow.tenant, err);
    if (c == NULL)
        return err->status;
    rc = a->type->fork(c, parent, at_turn, err);
    if (rc == STATUS_OK)
        *out = c;
    else
        clone_close(c);
    return rc;
}

void clone_close(struct clone *c)
{
    struct agent *a;

    if (c == NULL)
        return;
    assert(c->flow.head == NULL);
    a = c->agent;
    if (a->type->clone_close != NULL)
        a->type->clone_close(c);
    free(c);
    a->n_clones--;
    agent_unref(a);
}

void clone_describe(const struct clone *c, struct clone_info *out)
{
    *out = (struct clone_info){.state_bytes = c->agent->type->clone_size};
    if (c->agent->type->clone_info != NULL)
        c->agent->type->clone_info(c, out);
}

void agent_describe(const struct agent *a, struct agent_info *out)
{
    *out = (struct agent_info){
        .name = a->name, .kind = a->type->name, .architecture = "", .backend = "", .version = "1"};
    sampling_init(&out->defaults);
    if (a->type->info != NULL)
        a->type->info(a, out);
}

void agent_batching(const struct agent *a, struct batcher_config *out)
{
    *out = (struct batcher_config){
        .policy = BATCH_CONTINUOUS, .max_rows = AGENT_MAX_ROWS, .max_waiting = AGENT_MAX_WAITING};
    if (a->type->batching != NULL)
        a->type->batching(a, out);
}

static size_t adapt_cost(void *self, const struct row *row)
{
    const struct agent *a = self;

    return a->type->cost != NULL ? a->type->cost(a, row) : 1;
}

static size_t adapt_min_chunk(void *self, const struct row *row)
{
    const struct agent *a = self;

    return a->type->min_chunk(a, row);
}

static enum status adapt_reserve(void *self, struct row *row, struct error *err)
{
    struct agent *a = self;

    return a->type->reserve(a, row, err);
}

static void adapt_release(void *self, struct row *row)
{
    struct agent *a = self;

    a->type->release(a, row);
}

static void adapt_stepped(void *self, struct row *row)
{
    struct agent *a = self;

    a->type->stepped(a, row);
}

void agent_batch_adapter(struct agent *a, struct batch_agent *out)
{
    const struct agent_type *type = a->type;

    *out = (struct batch_agent){
        .cost = adapt_cost,
        .min_chunk = type->min_chunk != NULL ? adapt_min_chunk : NULL,
        .reserve = type->reserve != NULL ? adapt_reserve : NULL,
        .release = type->release != NULL ? adapt_release : NULL,
        .stepped = type->stepped != NULL ? adapt_stepped : NULL,
        .self = a,
    };
}

void agent_compute(struct agent *a, struct row *const *rows, size_t n)
{
    const struct agent_type *type = a->type;

    assert(type->elsewhere == NULL);
    if (type->batch_act != NULL) {
        type->batch_act(a, rows, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        type->act(a, rows[i]);
}
