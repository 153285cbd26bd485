/* Sets of parameters on a loop of their own, with real compute threads and no transport. */
#ifndef TESTS_SUPPORT_PARAMS_RIG_H
#define TESTS_SUPPORT_PARAMS_RIG_H

#include <check.h>
#include <string.h>
#include <uv.h>

#include "server/access/access.h"
#include "server/params/params.h"
#include "server/params/round.h"

struct params_rig {
    uv_loop_t loop;
    struct params_sets sets;
    bool is_told;
    struct error err; /* of the last notification */
    struct update_outcome end;
    struct update_waiter waiter;
};

static const struct principal rig_owner = {.name = ""};
static const struct access_sharing rig_sharing = {0};

static inline void rig_on_idle(void *arg)
{
}

static inline void rig_open(struct params_rig *r, size_t max_bytes)
{
    *r = (struct params_rig){0};
    ck_assert_int_eq(uv_loop_init(&r->loop), 0);
    params_sets_init(&r->sets, &params_keeper, &r->loop, &env_real, max_bytes);
    r->sets.on_idle = rig_on_idle;
}

static inline void rig_close(struct params_rig *r)
{
    params_sets_stop(&r->sets);
    ck_assert_int_eq(uv_run(&r->loop, UV_RUN_DEFAULT), 0);
    ck_assert_uint_eq(r->sets.names.limit.held, 0);
    ck_assert_uint_eq(r->sets.budget.held_bytes, 0);
    params_sets_deinit(&r->sets);
    ck_assert_int_eq(uv_loop_close(&r->loop), 0);
}

/* Polls without blocking: a timer may already have notified, and a blocking run would then wait for
 * ever. */
static inline void rig_until_told(struct params_rig *r)
{
    while (!r->is_told)
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
    r->is_told = false;
}

static inline void rig_made(void *arg, const struct error *err)
{
    struct params_rig *r = arg;

    r->is_told = true;
    r->err = *err;
}

static inline void rig_settled(struct update_waiter *w, const struct update_outcome *end)
{
    struct params_rig *r = container_of(w, struct params_rig, waiter);

    r->is_told = true;
    r->end = *end;
}

/* A set of one number with value 0; NULL, with r->err, on failure. One that is described is kept.
 */
static inline struct params_set *rig_make_described(struct params_rig *r, struct params_spec spec,
                                                    const char *config)
{
    static const struct tensor_view one = {
        .name = "w", .n_dims = 1, .dims = {1}, .size_bytes = sizeof(float)};
    struct params_set *set;
    float *values;

    spec.name = "p";
    spec.tensors = &one;
    spec.n_tensors = 1;
    if (params_make(&set, &r->sets, &rig_owner, &spec, &rig_sharing, true, &r->err) != STATUS_OK)
        return NULL;
    if ((config != NULL && params_describe(set, config, strlen(config), &r->err) != STATUS_OK) ||
        params_memory_take(&values, set->memory, &r->err) != STATUS_OK) {
        params_close(set, &r->err);
        return NULL;
    }
    *values = 0.0f;
    params_fill(set, values, rig_made, r);
    rig_until_told(r);
    return r->err.status == STATUS_OK ? set : NULL;
}

static inline struct params_set *rig_make(struct params_rig *r, struct params_spec spec)
{
    return rig_make_described(r, spec, NULL);
}

/* A gradient of one number. NULL, with r->err, without memory. */
static inline struct params_gradient *rig_gradient(struct params_rig *r, struct params_set *set,
                                                   const char *client, uint64_t step, float value)
{
    struct params_gradient *g;
    float *values;

    if (params_memory_take(&values, set->memory, &r->err) != STATUS_OK)
        return NULL;
    *values = value;
    if (gradient_make(&g, client, step, 0, values, &r->err) == STATUS_OK)
        return g;
    params_memory_give(set->memory, values);
    return NULL;
}

/* Contributes it and waits for the result. */
static inline enum status rig_contribute(struct params_rig *r, struct params_set *set,
                                         const char *client, uint64_t step, float value)
{
    struct params_gradient *g = rig_gradient(r, set, client, step, value);

    r->waiter = (struct update_waiter){.settled = rig_settled};
    if (g == NULL || params_submit(set, g, 0, &r->waiter, &r->err) != STATUS_OK)
        return r->err.status;
    rig_until_told(r);
    r->err = r->end.err;
    return r->end.err.status;
}

#endif
