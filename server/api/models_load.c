#include "server/api/models_load.h"

#include "base/list.h"
#include "server/model/models.h"
#include "server/server.h"

struct models_load_wait {
    struct models_wait wait;
    struct call *call;
    void (*then)(struct call *call);
};

static void done(struct models_wait *w, const struct error *err)
{
    struct models_load_wait *x = container_of(w, struct models_load_wait, wait);

    call_clear_handler(x->call); /* what follows may wait for something else */
    if (err->status == STATUS_OK)
        x->then(x->call);
    else
        call_finish(x->call, err);
}

static void models_load_on_close(struct call *call, void *state, enum status why)
{
    struct models_load_wait *x = state;

    models_leave(&x->wait);
}

typedef enum status (*begin_fn)(struct models *r, const char *name, struct models_wait *w,
                                bool *ret_done, struct error *err);

static void models_load_begin(struct call *call, const char *name, begin_fn begin,
                              void (*then)(struct call *call))
{
    static const struct call_handler handler = {.on_close = models_load_on_close};
    struct models_load_wait *x = arena_alloc(call_arena(call), 1, sizeof(*x));
    struct error err;
    bool is_done;

    if (x == NULL) {
        (void)error_no_memory(&err, sizeof(*x), "a call");
        call_finish(call, &err);
        return;
    }
    *x = (struct models_load_wait){.wait.done = done, .call = call, .then = then};
    if (begin(call_server(call)->models, name, &x->wait, &is_done, &err) != STATUS_OK)
        call_finish(call, &err);
    else if (is_done)
        then(call);
    else
        call_set_handler(call, &handler, x);
}

void models_call_load(struct call *call, const char *name, void (*then)(struct call *call))
{
    models_load_begin(call, name, models_load, then);
}

void models_call_unload(struct call *call, const char *name, void (*then)(struct call *call))
{
    models_load_begin(call, name, models_unload, then);
}

void models_call_want(struct call *call, const char *name, void (*then)(struct call *call))
{
    if (call_server(call)->models->config.memory_bytes == 0)
        then(call);
    else
        models_load_begin(call, name, models_want, then);
}
