#include "server/api/models_load.h"

#include "base/list.h"
#include "server/model/models.h"
#include "server/server.h"

struct models_load_wait {
    struct models_wait wait;
    struct call *call;
    struct server *server;
    const char *name;
    models_reply_fn reply;
    const ProtobufCMessage *message; /* then's */
    models_then_fn then;             /* NULL: reply */
};

static void done(struct models_wait *w, const struct error *err)
{
    struct models_load_wait *x = container_of(w, struct models_load_wait, wait);

    call_clear_handler(x->call); /* what follows may wait for something else */
    if (err->status == STATUS_OK && x->then != NULL)
        x->then(x->call, x->message, x->server);
    else if (err->status == STATUS_OK)
        x->reply(x->call, x->server, x->name);
    else
        call_finish(x->call, err);
}

static void models_load_on_close(struct call *call, void *state, enum status why)
{
    struct models_load_wait *x = state;

    (void)call;
    (void)why;
    models_leave(&x->wait);
}

typedef enum status (*begin_fn)(struct models *r, const char *name, struct models_wait *w,
                                bool *ret_done, struct error *err);

static void models_load_begin(struct call *call, struct server *server, const char *name,
                              models_reply_fn reply, begin_fn then)
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
    *x = (struct models_load_wait){
        .wait.done = done, .call = call, .server = server, .name = name, .reply = reply};
    if (then(server->models, name, &x->wait, &is_done, &err) != STATUS_OK)
        call_finish(call, &err);
    else if (is_done)
        reply(call, server, name);
    else
        call_set_handler(call, &handler, x);
}

void models_call_load(struct call *call, struct server *server, const char *name,
                      models_reply_fn reply)
{
    models_load_begin(call, server, name, reply, models_load);
}

void models_call_unload(struct call *call, struct server *server, const char *name,
                        models_reply_fn reply)
{
    models_load_begin(call, server, name, reply, models_unload);
}

void models_call_want(struct call *call, struct server *server, const char *name,
                      const ProtobufCMessage *message, models_then_fn then)
{
    static const struct call_handler handler = {.on_close = models_load_on_close};
    struct models_load_wait *x;
    struct error err;
    bool is_done;

    if (server->models->config.memory_bytes == 0) {
        then(call, message, server);
        return;
    }
    x = arena_alloc(call_arena(call), 1, sizeof(*x));
    if (x == NULL) {
        (void)error_no_memory(&err, sizeof(*x), "a call");
        call_finish(call, &err);
        return;
    }
    *x = (struct models_load_wait){
        .wait.done = done, .call = call, .server = server, .message = message, .then = then};
    if (models_want(server->models, name, &x->wait, &is_done, &err) != STATUS_OK)
        call_finish(call, &err);
    else if (is_done)
        then(call, message, server);
    else
        call_set_handler(call, &handler, x);
}
