/* Opens a world of the kind that its configuration asks for. */
#include <stdlib.h>

#include "base/alloc.h"
#include "worlds/world/kinds.h"
#include "worlds/world/participants.h"
#include "worlds/world/world.h"

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
    if (c->script != NULL && c->graph == NULL)
        return error_field(err, "graph", "is missing, a script needs the names of members");
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
    if (config->script != NULL)
        return scripted_open(out, participants, config->script,
                             config->batch_size > 1 ? config->batch_size : 1, err);
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
