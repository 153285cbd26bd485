#include "server/repository_call.h"

#include "server/daemon.h"

struct waiting {
    struct repository_wait wait;
    struct call *call;
    struct daemon *daemon;
    const char *name;
    repository_reply_fn reply;
};

static void done(struct repository_wait *w, const struct error *err)
{
    struct waiting *x = container_of(w, struct waiting, wait);

    if (err->status == STATUS_OK)
        x->reply(x->call, x->daemon, x->name);
    else
        call_finish(x->call, err);
}

static void gone(struct call *call, void *state, enum status why)
{
    struct waiting *x = state;

    (void)call;
    (void)why;
    repository_leave(&x->wait);
}

typedef enum status (*begin_fn)(struct repository *r, const char *name, struct repository_wait *w,
                                bool *ret_done, struct error *err);

static void begin(struct call *call, struct daemon *d, const char *name, repository_reply_fn reply,
                  begin_fn then)
{
    static const struct call_handler handler = {.gone = gone};
    struct waiting *x = arena_alloc(call_arena(call), 1, sizeof(*x));
    struct error err;
    bool is_done;

    if (x == NULL) {
        (void)error_no_memory(&err, sizeof(*x), "a call");
        call_finish(call, &err);
        return;
    }
    *x = (struct waiting){
        .wait.done = done, .call = call, .daemon = d, .name = name, .reply = reply};
    if (then(&d->repository, name, &x->wait, &is_done, &err) != STATUS_OK)
        call_finish(call, &err);
    else if (is_done)
        reply(call, d, name);
    else
        call_set_handler(call, &handler, x);
}

void repository_call_load(struct call *call, struct daemon *d, const char *name,
                          repository_reply_fn reply)
{
    begin(call, d, name, reply, repository_load);
}

void repository_call_unload(struct call *call, struct daemon *d, const char *name,
                            repository_reply_fn reply)
{
    begin(call, d, name, reply, repository_unload);
}
