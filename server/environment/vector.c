#include "server/environment/vector.h"

#include <stdlib.h>
#include <string.h>

#include "agents/plugin/environment.h"
#include "base/alarm.h"

static const struct error no_memory_error = {.status = STATUS_EXHAUSTED,
                                             .reason = REASON_OUT_OF_MEMORY,
                                             .text = "out of memory for an environment's error"};

uint32_t vector_request_index(const struct vector_request *r, size_t row)
{
    return r->indices != NULL ? r->indices[row] : (uint32_t)row;
}

bool vector_request_resets(const struct vector_request *r, const struct vector_instance *i)
{
    return r->is_reset || (r->resets_ended && i->state != VECTOR_RUNNING);
}

void vector_request_fail(struct vector_request *r, size_t row, const struct error *why)
{
    struct error *kept = arena_alloc(r->arena, 1, sizeof(*kept));

    if (kept != NULL)
        *kept = *why;
    r->n_failed += r->failed[row] == NULL;
    r->failed[row] = kept != NULL ? kept : &no_memory_error;
}

void vector_request_note(struct vector_request *r, size_t row, const char *info)
{
    size_t size_bytes = strlen(info) + 1;
    char *kept = arena_alloc(r->arena, size_bytes, 1);

    if (kept == NULL) {
        vector_request_fail(r, row, &no_memory_error);
        return;
    }
    memcpy(kept, info, size_bytes);
    r->infos[row] = kept;
    r->n_infos++;
}

void vector_note_seen(struct vector *v, const struct vector_instance *i, const float *observation)
{
    size_t n = v->spaces.n_observation;

    memcpy(v->seen + (size_t)(i - v->instances) * n, observation, n * sizeof(observation[0]));
}

void vector_begin_idle(struct vector *v)
{
    v->idle_since_us = env_now_us(v->all->config.env);
    list_push(&v->all->idle, &v->idle);
    alarm_by(v->all->config.alarm, v->idle_since_us + (uint64_t)VECTOR_TTL_MS * 1000);
}

void vector_free(struct vector *v)
{
    for (size_t i = 0; i < v->n; i++)
        environment_close(v->instances[i].built_in);
    for (size_t i = 0; v->plugged != NULL && i < v->n; i++)
        if (v->instances[i].plugged != NULL)
            v->plugged->type->free(v->instances[i].plugged);
    free(v->seen);
    free((char *)v->spaces.described);
    free(v);
}

void vector_order_over(struct vector *v, struct vector_request *r)
{
    v->n_orders--;
    if (v->n_orders == 0 && !v->has_ended)
        vector_begin_idle(v);
    if (r != NULL && --r->n_pending == 0) {
        r->is_done = true;
        r->vector = NULL;
        r->done(r);
    }
    if (v->n_orders == 0 && v->has_ended)
        vector_free(v);
}
