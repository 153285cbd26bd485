#include "base/future.h"

#include <assert.h>
#include <stddef.h>

void future_init(struct future *f, future_then_fn then, void *arg)
{
    assert(then != NULL);
    *f = (struct future){.then = then, .arg = arg};
}

void future_settle(struct future *f, const struct error *err)
{
    assert(!f->is_settled);
    f->is_settled = true;
    f->then(f, err, f->arg);
}
