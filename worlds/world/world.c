#include "worlds/world/world.h"

#include <assert.h>
#include <stdlib.h>

#include "worlds/world/participants.h"

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
