#include "agents/agent.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static enum status no_such_type(const char *name, struct error *err)
{
    char names[120] = "";
    size_t len = 0;
    const struct agent_type *type;

    for (size_t i = 0; (type = agent_type_at(i)) != NULL; i++) {
        size_t more = strlen(type->name);

        assert(len + 2 + more < sizeof names);
        if (i > 0) {
            memcpy(names + len, ", ", 2);
            len += 2;
        }
        memcpy(names + len, type->name, more + 1);
        len += more;
    }
    return error_set(err, STATUS_NOT_FOUND, "no kind of agent is called '%.40s'; there are: %s",
                     name, names);
}

static const struct agent_type *find_type(const char *name)
{
    const struct agent_type *type;

    for (size_t i = 0; (type = agent_type_at(i)) != NULL; i++)
        if (strcmp(type->name, name) == 0)
            return type;
    return NULL;
}

static void free_agent(struct agent *a)
{
    a->type->close(a);
    free(a->name);
    free(a);
}

enum status agent_open_type(struct agent **out, const struct agent_type *type,
                            const struct agent_config *config, struct error *err)
{
    struct agent *a;
    enum status rc;

    assert(type->act != NULL || (type->batch_act != NULL && type->use_batch_act));
    a = try_alloc(1, type->agent_size);
    if (a == NULL)
        return error_no_memory(err, type->agent_size, "an agent");
    a->type = type;
    a->env = config->env;
    a->n_refs = 1;
    a->name = xstrdup(config->name != NULL ? config->name : type->name);
    rc = type->open(a, config, err);
    if (rc == STATUS_OK)
        *out = a;
    else
        free_agent(a);
    return rc;
}

enum status agent_open(struct agent **out, const char *type, const struct agent_config *config,
                       struct error *err)
{
    const struct agent_type *found;

    if (type == NULL) {
        enum status rc = agent_kind_of_file(&type, config->path, err);

        if (rc != STATUS_OK)
            return rc;
    }
    found = find_type(type);
    if (found == NULL)
        return no_such_type(type, err);
    return agent_open_type(out, found, config, err);
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
static struct clone *make_clone(struct agent *a, struct error *err)
{
    struct clone *c = try_alloc(1, a->type->clone_size);

    if (c == NULL) {
        (void)error_no_memory(err, a->type->clone_size, "a clone");
        return NULL;
    }
    c->agent = agent_ref(a);
    asker_init(&c->asker);
    a->n_clones++;
    return c;
}

enum status clone_open(struct clone **out, struct agent *a, const struct clone_config *config,
                       struct error *err)
{
    struct clone *c = make_clone(a, err);
    enum status rc;

    if (c == NULL)
        return err->status;
    rc = a->type->clone_open(c, config, err);
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
        return error_set(err, STATUS_UNIMPLEMENTED, "an agent of kind '%s' cannot be forked",
                         a->type->name);
    c = make_clone(a, err);
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
    assert(c->asker.front == NULL);
    a = c->agent;
    a->type->clone_close(c);
    free(c);
    a->n_clones--;
    agent_unref(a);
}

static size_t adapt_cost(void *self, const struct row *row)
{
    const struct agent *a = self;

    return a->type->cost != NULL ? a->type->cost(a, row) : 1;
}

static size_t adapt_min_grant(void *self, const struct row *row)
{
    const struct agent *a = self;

    return a->type->min_grant(a, row);
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

static void adapt_batch_act(void *self, struct row *const *rows, size_t n)
{
    struct agent *a = self;

    a->type->batch_act(a, rows, n);
}

static void act_row_by_row(void *self, struct row *const *rows, size_t n)
{
    struct agent *a = self;

    for (size_t i = 0; i < n; i++)
        a->type->act(a, rows[i]);
}

static void adapt_stepped(void *self, struct row *row)
{
    struct agent *a = self;

    a->type->stepped(a, row);
}

void agent_batch_adapter(struct agent *a, struct batch_agent *out)
{
    const struct agent_type *type = a->type;
    bool in_batch = type->batch_act != NULL && type->use_batch_act;

    *out = (struct batch_agent){
        .cost = adapt_cost,
        .min_grant = type->min_grant != NULL ? adapt_min_grant : NULL,
        .reserve = type->reserve != NULL ? adapt_reserve : NULL,
        .release = type->release != NULL ? adapt_release : NULL,
        .batch_act = in_batch ? adapt_batch_act : act_row_by_row,
        .stepped = type->stepped != NULL ? adapt_stepped : NULL,
        .self = a,
    };
}

void agent_turn_init(struct agent_turn *t, struct arena *arena, size_t reply_limit_bytes)
{
    *t = (struct agent_turn){.arena = arena};
    buf_init(&t->reply.text, reply_limit_bytes);
}

void agent_turn_deinit(struct agent_turn *t)
{
    buf_deinit(&t->reply.text);
    *t = (struct agent_turn){0};
}
