#include "worlds/world/world.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "worlds/world/kinds.h"
#include "worlds/world/participants.h"

enum { MAX_THREADS = 1024 };

static enum status world_check(const struct world_config *c, struct error *err)
{
    if (c->n_tasks == 0)
        return error_field(err, "tasks", "are missing, a world needs at least one");
    if (c->n_agents == 0)
        return error_field(err, "agents", "are missing, a world needs at least one");
    if (c->n_tasks > 1 && c->task_names == NULL)
        return error_field(err, "task_names", "are missing, several tasks need names");
    if (c->graph != NULL && c->n_agents >= WORLD_GRAPH_POSITIONS)
        return error_field(err, "agents", "are %zu, a graph can have at most %d", c->n_agents,
                           WORLD_GRAPH_POSITIONS - 1);
    if (c->graph != NULL && c->dynamic != DYNAMIC_NONE)
        return error_field(err, "dynamic", "batching does not work with a graph");
    if (c->n_threads > MAX_THREADS)
        return error_field(err, "n_threads", "is %zu, it must be at most %d", c->n_threads,
                           MAX_THREADS);
    if (c->batch_size > UINT32_MAX || c->n_slots > UINT32_MAX)
        return error_field(err, "batch_size", "is too large");
    return STATUS_OK;
}

static enum status world_open_thread(struct world **out, const struct world_config *config,
                                     uint32_t thread, struct quota *quota, struct error *err)
{
    struct participants *participants;
    enum status rc = participants_open(&participants, config, thread, quota, err);

    if (rc != STATUS_OK)
        return rc;
    if (config->batch_size <= 1)
        return plain_open(out, participants, err);
    if (config->dynamic != DYNAMIC_NONE)
        return dynamic_open(out, participants, config, err);
    return batch_open(out, participants, config->batch_size, err);
}

enum status world_open(struct world **out, const struct world_config *config, struct error *err)
{
    enum status rc = world_check(config, err);
    struct quota *quota;

    if (rc != STATUS_OK)
        return rc;
    if (config->n_threads > 1)
        return hogwild_open(out, config, world_open_thread, err);
    quota = xalloc(sizeof(*quota));
    quota_init(quota, config->n_examples);
    rc = world_open_thread(out, config, 0, quota, err);
    if (rc != STATUS_OK)
        free(quota);
    else
        (*out)->quota = quota;
    return rc;
}

void world_close(struct world *w)
{
    struct quota *quota;

    if (w == NULL)
        return;
    quota = w->quota;
    w->type->close(w);
    free(quota);
}

enum status world_parley(struct world *w, struct error *err)
{
    enum status rc = w->type->parley(w, err);

    if (rc != STATUS_OK)
        return rc;
    w->counters.n_parleys++;
    if (w->participants->watch != NULL && w->type->row != NULL)
        w->participants->watch(w->participants->watch_arg, w, w->participants->thread);
    return STATUS_OK;
}

enum status world_run(struct world *w, struct error *err)
{
    enum status rc = STATUS_OK;

    while (rc == STATUS_OK && !world_epoch_done(w))
        rc = world_parley(w, err);
    return rc;
}

void world_reset(struct world *w)
{
    w->type->reset(w);
    participants_reset(w->participants);
    w->counters = (struct world_counters){0};
}

bool world_episode_done(const struct world *w)
{
    return w->type->episode_done(w);
}

bool world_epoch_done(const struct world *w)
{
    return w->type->epoch_done(w);
}

enum status world_report(struct report *out, struct world *w, struct error *err)
{
    return participants_report(out, w->participants, err);
}

void world_counters(const struct world *w, struct world_counters *out)
{
    *out = w->counters;
}

size_t world_n_examples(const struct world *w)
{
    return participants_n_examples(w->participants);
}

size_t world_n_episodes(const struct world *w)
{
    return participants_n_episodes(w->participants);
}

size_t world_n_rows(const struct world *w)
{
    return w->type->n_rows(w);
}

void world_row(const struct world *w, size_t i, struct world_row *out)
{
    assert(i < world_n_rows(w));
    w->type->row(w, i, out);
}
