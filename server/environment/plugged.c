/* Resets and steps the instances of plug-ins. The rows of a request are gathered in two groups,
 * those to be reset and those to be stepped; the plug-in computes each group whole, and its results
 * go to their rows. */
#include "server/environment/plugged.h"

#include <math.h>
#include <string.h>

#include "agents/plugin/environment.h"

struct environment_spaces plugged_spaces(const struct plugin_environment *kind)
{
    return (struct environment_spaces){kind->type->n_observations, kind->type->n_actions,
                                       kind->type->n_action_numbers, NULL};
}

const struct plugin_environment *vectors_find_plugged(const struct vectors *all, const char *name)
{
    for (struct link *l = list_first(&all->plugged); l != NULL; l = list_next(&all->plugged, l)) {
        const struct plugin_environment *kind = container_of(l, struct plugin_environment, link);

        if (strcmp(kind->type->name, name) == 0)
            return kind;
    }
    return NULL;
}

enum status vectors_add_plugged(struct vectors *all, struct plugin_environment *kind,
                                struct error *err)
{
    const char *name = kind->type->name;

    if (environment_type_find(name) != NULL || vectors_find_plugged(all, name) != NULL) {
        (void)error_set(err, STATUS_EXISTS, "an environment is called '%s' already", name);
        plugin_environment_close(kind);
        return err->status;
    }
    list_push(&all->plugged, &kind->link);
    return STATUS_OK;
}

void vectors_unplug(struct vectors *all)
{
    struct link *l;

    while ((l = list_pop(&all->plugged)) != NULL)
        plugin_environment_close(container_of(l, struct plugin_environment, link));
}

enum status vector_make_plugged(struct vector *v, struct error *err)
{
    for (size_t i = 0; i < v->n; i++) {
        v->instances[i].plugged = v->plugged->type->make();
        if (v->instances[i].plugged == NULL)
            return error_set(err, STATUS_EXHAUSTED, "environment %zu of '%s' could not be made", i,
                             v->name);
    }
    return STATUS_OK;
}

/* Rows that go to the object together; its arrays are of all rows of the request. */
struct plugged_group {
    size_t n;
    size_t *rows;        /* [n] in the request */
    void **environments; /* [n] */
    uint64_t *seeds;     /* [n] a reset */
    uint32_t *episodes;  /* [n] a reset */
    int64_t *choices;    /* [n] a step, or */
    float *numbers;      /* [n][n_action_numbers] */
    struct parley_environment_results results;
};

static enum status plugged_group_make(struct plugged_group *g, const struct vector *v,
                                      const struct vector_request *r, struct error *err)
{
    struct arena *a = r->arena;
    size_t n_numbers = r->n * v->spaces.n_action_numbers;
    size_t n_seen = r->n * v->spaces.n_observation;

    *g =
        (struct plugged_group){.rows = arena_alloc(a, r->n, sizeof(g->rows[0])),
                               .environments = arena_alloc(a, r->n, sizeof(void *)),
                               .seeds = arena_alloc(a, r->n, sizeof(g->seeds[0])),
                               .episodes = arena_alloc(a, r->n, sizeof(g->episodes[0])),
                               .choices = arena_alloc(a, r->n, sizeof(g->choices[0])),
                               .numbers = arena_alloc(a, n_numbers, sizeof(g->numbers[0])),
                               .results = {.observations = arena_alloc(a, n_seen, sizeof(float)),
                                           .rewards = arena_alloc(a, r->n, sizeof(float)),
                                           .terminated = arena_alloc(a, r->n, sizeof(bool)),
                                           .truncated = arena_alloc(a, r->n, sizeof(bool)),
                                           .failures = arena_alloc(a, r->n, sizeof(const char *))}};
    if (g->rows == NULL || g->environments == NULL || g->seeds == NULL || g->episodes == NULL ||
        g->choices == NULL || g->numbers == NULL || g->results.observations == NULL ||
        g->results.rewards == NULL || g->results.terminated == NULL ||
        g->results.truncated == NULL || g->results.failures == NULL)
        return error_no_memory(err, n_seen * sizeof(float), "environments' steps");
    return STATUS_OK;
}

static void plugged_group_add(struct plugged_group *g, struct vector *v,
                              const struct vector_request *r, size_t row)
{
    struct vector_instance *i = &v->instances[vector_request_index(r, row)];
    size_t n_numbers = v->spaces.n_action_numbers;

    g->rows[g->n] = row;
    g->environments[g->n] = i->plugged;
    g->seeds[g->n] = i->seed;
    g->episodes[g->n] = i->n_episodes;
    if (!r->is_reset && v->spaces.n_actions > 0)
        g->choices[g->n] = r->choices[row];
    else if (!r->is_reset)
        memcpy(g->numbers + g->n * n_numbers, r->action_numbers + row * n_numbers,
               n_numbers * sizeof(g->numbers[0]));
    g->n++;
}

static bool plugged_is_finite(const struct plugged_group *g, size_t at, size_t n_seen)
{
    for (size_t k = 0; k < n_seen; k++)
        if (!isfinite(g->results.observations[at * n_seen + k]))
            return false;
    return isfinite(g->results.rewards[at]);
}

/* The result of one row. */
static void plugged_group_take(const struct plugged_group *g, size_t at, struct vector *v,
                               struct vector_request *r, bool is_reset)
{
    size_t n_seen = v->spaces.n_observation, row = g->rows[at];
    struct vector_instance *i = &v->instances[vector_request_index(r, row)];
    const struct parley_environment_results *got = &g->results;
    uint32_t max_steps = v->plugged->type->max_steps;
    struct error why = {0};

    if (got->failures[at] != NULL)
        (void)error_set(&why, STATUS_INTERNAL, "'%s': %.200s", v->name, got->failures[at]);
    else if (!plugged_is_finite(g, at, n_seen))
        (void)error_set(&why, STATUS_INTERNAL, "'%s' returned a number that is not finite",
                        v->name);
    if (why.status != STATUS_OK) {
        i->state = VECTOR_LOST;
        vector_request_fail(r, row, &why);
        return;
    }
    memcpy(r->observation + row * n_seen, got->observations + at * n_seen,
           n_seen * sizeof(r->observation[0]));
    if (is_reset) {
        i->state = VECTOR_RUNNING;
        i->n_steps = 0;
        return;
    }
    i->n_steps++;
    r->reward[row] = got->rewards[at];
    r->terminated[row] = got->terminated[at];
    r->truncated[row] = got->truncated[at] || (max_steps != 0 && i->n_steps >= max_steps);
    if (r->terminated[row] || r->truncated[row])
        i->state = VECTOR_OVER;
}

/* The row of an environment that has failed, and is not reset. */
static void vector_refuse_lost(struct vector_request *r, size_t row)
{
    struct error why;

    (void)error_set(&why, STATUS_INTERNAL, "environment %u has failed, reset it",
                    vector_request_index(r, row));
    vector_request_fail(r, row, &why);
}

enum status vector_step_plugged(struct vector *v, struct vector_request *r, struct error *err)
{
    const struct parley_environment *type = v->plugged->type;
    struct parley_environment_actions actions;
    struct plugged_group resets, steps;

    if (plugged_group_make(&resets, v, r, err) != STATUS_OK ||
        plugged_group_make(&steps, v, r, err) != STATUS_OK)
        return err->status;
    for (size_t row = 0; row < r->n; row++) {
        struct vector_instance *i = &v->instances[vector_request_index(r, row)];
        bool is_reset = vector_request_resets(r, i);

        if (!is_reset && i->state == VECTOR_LOST)
            vector_refuse_lost(r, row);
        else
            plugged_group_add(is_reset ? &resets : &steps, v, r, row);
        i->n_episodes += is_reset;
    }
    actions = (struct parley_environment_actions){steps.choices, steps.numbers};
    if (resets.n > 0)
        type->reset(resets.environments, resets.n, resets.seeds, resets.episodes, &resets.results);
    if (steps.n > 0)
        type->step(steps.environments, steps.n, &actions, &steps.results);
    for (size_t at = 0; at < resets.n; at++)
        plugged_group_take(&resets, at, v, r, true);
    for (size_t at = 0; at < steps.n; at++)
        plugged_group_take(&steps, at, v, r, false);
    return STATUS_OK;
}
