#include "worlds/participant/participant.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

void participant_init(struct participant *p, const struct participant_type *type)
{
    assert(type->act != NULL || type->batch_act != NULL || type->begin != NULL);
    assert((type->begin == NULL) == (type->finish == NULL));
    assert((type->begin == NULL) == (type->compute == NULL));
    p->type = type;
    atomic_init(&p->n_refs, 1);
}

struct participant *participant_ref(struct participant *p)
{
    atomic_fetch_add_explicit(&p->n_refs, 1, memory_order_relaxed); /* the caller has a reference */
    return p;
}

void participant_unref(struct participant *p)
{
    if (p != NULL && atomic_fetch_sub_explicit(&p->n_refs, 1, memory_order_acq_rel) == 1 &&
        p->type->close != NULL)
        p->type->close(p);
}

enum status participant_share(struct participant **out, struct participant *p, uint32_t thread,
                              struct error *err)
{
    if (p->type->share != NULL)
        return p->type->share(out, p, thread, err);
    *out = participant_ref(p);
    return STATUS_OK;
}

bool participant_has_batch_act(const struct participant *p)
{
    if (p->type->batch_act == NULL && p->type->begin == NULL)
        return false;
    return p->type->use_batch_act == NULL || p->type->use_batch_act(p);
}

size_t participant_clone_size(const struct participant *p)
{
    size_t least = sizeof(struct participant_clone);
    size_t size = p->type->clone_size > least ? p->type->clone_size : least;

    return (size + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
}

enum status participant_clone_init(struct participant_clone *c, struct participant *p,
                                   const struct participant_slot *place, struct error *err)
{
    memset(c, 0, participant_clone_size(p));
    c->original = p;
    return p->type->clone_init != NULL ? p->type->clone_init(c, place, err) : STATUS_OK;
}

void participant_clone_deinit(struct participant_clone *c)
{
    if (c->original != NULL && c->original->type->clone_deinit != NULL)
        c->original->type->clone_deinit(c);
    c->original = NULL;
}

void participant_clone_reset(struct participant_clone *c)
{
    if (c->original->type->reset != NULL)
        c->original->type->reset(c);
}

enum status participant_observe(struct participant_clone *c, const struct act *act,
                                const struct act **ret_observation, struct error *err)
{
    const struct participant_type *type = c->original->type;

    if (type->observe != NULL)
        return type->observe(c, act, ret_observation, err);
    *ret_observation = act;
    return STATUS_OK;
}

enum status participant_self_observe(struct participant_clone *c, const struct act *reply,
                                     struct error *err)
{
    const struct participant_type *type = c->original->type;

    return type->self_observe != NULL ? type->self_observe(c, reply, err) : STATUS_OK;
}
