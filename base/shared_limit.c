#include "base/shared_limit.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/reason.h"

void shared_limit_init(struct shared_limit *l, const struct limit_kind *kind, uint64_t max)
{
    *l = (struct shared_limit){.kind = kind, .max = max};
}

void shared_limit_deinit(struct shared_limit *l)
{
    free(l->by_principal);
    l->by_principal = NULL;
    l->n_principals = 0;
}

uint64_t shared_limit_part(const struct shared_limit *l, uint32_t principal)
{
    if (principal == 0 || l->max <= 1)
        return l->max;
    return l->max / 2;
}

uint64_t shared_limit_held_by(const struct shared_limit *l, uint32_t principal)
{
    return principal < l->n_principals ? l->by_principal[principal] : 0;
}

bool shared_limit_is_full_for(const struct shared_limit *l, uint32_t principal)
{
    return shared_limit_held_by(l, principal) >= shared_limit_part(l, principal);
}

static uint64_t limit_left(uint64_t max, uint64_t held)
{
    return max > held ? max - held : 0;
}

uint64_t shared_limit_room(const struct shared_limit *l, uint32_t principal)
{
    uint64_t of_all = limit_left(l->max, l->held);
    uint64_t own = limit_left(shared_limit_part(l, principal), shared_limit_held_by(l, principal));

    return own < of_all ? own : of_all;
}

static const char *limit_option(const struct shared_limit *l)
{
    return l->kind->option != NULL ? l->kind->option : "built in";
}

static enum status shared_limit_refuse(const struct shared_limit *l, uint64_t n, struct error *err)
{
    return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, l->kind->field,
                         "the limit of %" PRIu64 " %s (%s) is reached: there are %" PRIu64
                         ", %" PRIu64 " more are asked for",
                         l->max, l->kind->noun, limit_option(l), l->held, n);
}

enum status shared_limit_check(const struct shared_limit *l, uint32_t principal, uint64_t n,
                               struct error *err)
{
    const struct limit_kind *kind = l->kind;
    const uint64_t held = shared_limit_held_by(l, principal);

    if (n <= shared_limit_room(l, principal))
        return STATUS_OK;
    if (n > limit_left(l->max, l->held))
        return shared_limit_refuse(l, n, err);
    return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, kind->field,
                         "the principal's half of the limit of %" PRIu64
                         " %s (%s) is reached: it has %" PRIu64 ", %" PRIu64 " more are asked for",
                         l->max, kind->noun, limit_option(l), held, n);
}

enum status shared_limit_take(struct shared_limit *l, uint32_t principal, uint64_t n,
                              struct error *err)
{
    if (shared_limit_check(l, principal, n, err) != STATUS_OK)
        return err->status;
    shared_limit_hold(l, principal, n);
    return STATUS_OK;
}

/* Principals are few, and numbered from 1. */
void shared_limit_hold(struct shared_limit *l, uint32_t principal, uint64_t n)
{
    const size_t size = (size_t)principal + 1;

    if (size > l->n_principals) {
        l->by_principal = xrealloc(l->by_principal, size * sizeof(l->by_principal[0]));
        memset(l->by_principal + l->n_principals, 0,
               (size - l->n_principals) * sizeof(l->by_principal[0]));
        l->n_principals = size;
    }
    l->by_principal[principal] += n;
    l->held += n;
}

void shared_limit_give(struct shared_limit *l, uint32_t principal, uint64_t n)
{
    assert(n <= shared_limit_held_by(l, principal));
    if (n == 0)
        return;
    l->by_principal[principal] -= n;
    l->held -= n;
}
