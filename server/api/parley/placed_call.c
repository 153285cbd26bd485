/* Happy path: where the place is, is known, and the call begins here or is passed on. Else the
 * journal is asked first.
 *
 * Failure: the daemon that was believed to have the place refuses the call, or is gone. Then the
 * journal is asked again; if it still names that daemon, the question waits until the lease of that
 * daemon is over. A call that was passed on to a daemon without the place is refused, and not
 * passed on again. */
#include "server/api/parley/placed_call.h"

#include <string.h>

#include "server/api/parley/passed_call.h"
#include "server/call/transport.h"
#include "server/cluster/places.h"
#include "server/server.h"

struct placed_call {
    struct place_ask ask;
    struct call *call;
    enum journal_place place;
    void (*here)(struct call *call);
    struct journal_peer refused; /* the last daemon that did not take it */
};

static void placed_call_ask(struct placed_call *p, bool is_patient);

static void placed_call_refused(struct call *call, void *arg)
{
    struct placed_call *p = arg;

    placed_call_ask(p, false);
}

static void placed_call_pass(struct placed_call *p, const struct journal_peer *owner)
{
    const struct journal_peer to = *owner;
    struct error err;

    if (call_is_passed_on(p->call)) {
        (void)error_because(&err, STATUS_ABORTED, REASON_SERVER_DRAINING, NULL,
                            "another parleyd has what the call is for");
        call_finish(p->call, &err);
    } else if (strcmp(p->refused.id, to.id) == 0) {
        placed_call_ask(p, true);
    } else {
        p->refused = to;
        if (!passed_call_begin(p->call, &to, p->call->method->kind != CALL_UNARY,
                               placed_call_refused, p))
            placed_call_ask(p, true); /* it cannot be passed on */
    }
}

static void on_placed(struct place_ask *a, const struct journal_peer *owner,
                      const struct error *err)
{
    struct placed_call *p = container_of(a, struct placed_call, ask);

    call_clear_handler(p->call);
    if (err->status != STATUS_OK)
        call_finish(p->call, err);
    else if (owner == NULL)
        p->here(p->call);
    else
        placed_call_pass(p, owner);
}

static void placed_call_on_close(struct call *call, void *state, enum status why)
{
    places_leave(&((struct placed_call *)state)->ask);
}

static void placed_call_ask(struct placed_call *p, bool is_patient)
{
    static const struct call_handler handler = {.on_close = placed_call_on_close};

    call_set_handler(p->call, &handler, p);
    places_ask(call_server(p->call)->places, p->place, is_patient, &p->ask, on_placed);
}

void placed_call_start(struct call *call, enum journal_place place, void (*here)(struct call *call))
{
    const struct journal_peer *owner = NULL;
    const enum place_state state = places_look(call_server(call)->places, place, &owner);
    struct placed_call *p;
    struct error err;

    if (state == PLACE_HERE) {
        here(call);
        return;
    }
    p = arena_alloc(call_arena(call), 1, sizeof(*p));
    if (p == NULL) {
        (void)error_no_memory(&err, sizeof(*p), "a call");
        call_finish(call, &err);
        return;
    }
    *p = (struct placed_call){.call = call, .place = place, .here = here};
    /* Who passed it on may know better. What a client streams can be passed on only once. */
    if (state == PLACE_THERE && !call_is_passed_on(call) &&
        !call_method_is_client_stream(call->method))
        placed_call_pass(p, owner);
    else
        placed_call_ask(p, false);
}
