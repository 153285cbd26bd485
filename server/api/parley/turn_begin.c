#include "server/api/parley/turn_begin.h"

#include "base/env.h"
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/wire.h"
#include "server/call/call.h"
#include "server/server.h"

/* Of an unnumbered turn the call's deadline is the turn's too: nobody can ask for it again. */
static void take_deadline(struct turn_request *r, uint64_t deadline_ms, uint64_t now_us,
                          uint64_t call_deadline_us)
{
    uint64_t own_us = deadline_ms > (UINT64_MAX - now_us) / 1000 ? 0 : now_us + deadline_ms * 1000;

    if (deadline_ms == 0)
        own_us = 0;
    r->is_reply_deadline = own_us != 0;
    r->deadline_us = own_us;
    if (r->number == 0 && call_deadline_us != 0 && (own_us == 0 || call_deadline_us < own_us)) {
        r->deadline_us = call_deadline_us;
        r->is_reply_deadline = false;
    }
}

/* A turn that is complete is read again without the model, unless it has tools or reasoning: what
 * is asked of them depends on the model. */
static bool asks_again(const struct conversation *c, const Parley__V1__TurnRequest *request)
{
    return request->n_tools == 0 && request->reasoning == NULL &&
           (request->resume_from != NULL ||
            (request->turn != 0 && request->turn <= c->host.n_turns));
}

enum status turn_begin(struct conversation **out, struct call *call,
                       const Parley__V1__TurnRequest *request, struct arena *arena,
                       struct turn_reader *reader, struct turn_parts *parts, struct error *err)
{
    struct server *server = call_server(call);
    struct turn_request r;
    struct conversation *c;
    enum status rc;

    rc = conversation_call_find(&c, call, request->conversation, err);
    if (rc == STATUS_OK && model_is_absent(c->host.model) && !asks_again(c, request))
        rc = conversation_check_model(c, err); /* the request cannot be read without it */
    if (rc == STATUS_OK)
        rc = wire_turn(&r, request, c->host.model->info.text.reply_format, arena, err);
    if (rc != STATUS_OK)
        return rc;
    take_deadline(&r, request->deadline_ms, env_now_us(server->env), call_deadline_us(call));
    rc = conversation_turn(c, &r, reader, err);
    if (rc == STATUS_OK) {
        *out = c;
        turn_parts_init(parts, c->host.model->info.text.reply_format, request->reasoning != NULL);
    }
    return rc;
}
