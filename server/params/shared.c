#include "server/params/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/reason.h"

static enum status shared_failed(struct error *err)
{
    return error_because(err, STATUS_EXHAUSTED, REASON_OUT_OF_MEMORY, NULL,
                         "cannot make memory to share: %s", strerror(errno));
}

/* Unmaps and closes what there is. */
static void shared_free(struct params_shared *s)
{
    if (s->gradient != NULL)
        (void)munmap(s->gradient, s->size_bytes); /* cannot fail for what was mapped */
    if (s->fd >= 0)
        (void)close(s->fd); /* nothing was written to it */
    params_budget_give(s->budget, s->size_bytes);
    free(s);
}

static enum status shared_map(struct params_shared *s, struct error *err)
{
    void *at;

    s->fd = fault_now() ? -1 : memfd_create(s->label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (s->fd < 0 || ftruncate(s->fd, (off_t)s->size_bytes) != 0 ||
        fcntl(s->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return shared_failed(err);
    at = mmap(NULL, s->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (at == MAP_FAILED)
        return shared_failed(err);
    s->gradient = at;
    s->values = s->gradient + s->n;
    return STATUS_OK;
}

enum status params_shared_open(struct params_shared **out, struct params_budget *budget, size_t n,
                               const struct env *env, struct error *err)
{
    const size_t size_bytes = 2 * n * sizeof(float);
    struct params_shared *s;
    uint64_t random[2];
    enum status rc;

    if (size_bytes < 2 * (size_t)PARAMS_SHARED_MIN_BYTES)
        return error_field(err, "name",
                           "is a set of %zu bytes, memory is shared for sets of at least %d: send "
                           "chunks",
                           n * sizeof(float), PARAMS_SHARED_MIN_BYTES);
    s = try_alloc(1, sizeof(*s));
    if (s == NULL)
        return error_no_memory(err, sizeof(*s), "memory to share");
    rc = params_budget_take(budget, size_bytes, err);
    if (rc != STATUS_OK) {
        free(s);
        return rc;
    }
    *s = (struct params_shared){
        .n_refs = 1, .budget = budget, .fd = -1, .n = n, .size_bytes = size_bytes};
    env->random(env->self, random, sizeof(random));
    (void)snprintf(s->label, sizeof(s->label), "parley-%016llx%016llx",
                   (unsigned long long)random[0], (unsigned long long)random[1]);
    rc = shared_map(s, err);
    if (rc == STATUS_OK)
        *out = s;
    else
        shared_free(s);
    return rc;
}

struct params_shared *params_shared_ref(struct params_shared *s)
{
    s->n_refs++;
    return s;
}

void params_shared_unref(struct params_shared *s)
{
    if (s != NULL && --s->n_refs == 0)
        shared_free(s);
}
