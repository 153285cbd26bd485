#include "server/conversation/import.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "server/conversation/body.h"
#include "server/conversation/keeping.h"
#include "server/conversation/observed.h"
#include "server/conversation/recall.h"
#include "server/model/model.h"

#define IMPORT_MAX_BYTES ((size_t)256 << 20)

static enum status import_check(const struct conversation *c, const struct imported_turn *t,
                                struct error *err)
{
    const uint32_t number = t->request.number, next = c->host.n_turns + 1;
    size_t n_bytes = t->reply_len;

    if (conversation_check_model(c, err) != STATUS_OK)
        return err->status;
    if (c->host.n_live > 0 || c->unended.request != NULL)
        return error_because(err, STATUS_PRECONDITION, REASON_CONVERSATION_BUSY, NULL,
                             "a turn is in flight: cancel it, or wait for its end");
    if (number != 0 && number < next)
        return error_because(err, STATUS_EXISTS, REASON_TURN_BODY_DIFFERS, "turn",
                             "turn is %u, there are %u turns already", number, c->host.n_turns);
    if (number > next)
        return error_because(err, STATUS_PRECONDITION, REASON_TURN_GAP, "turn",
                             "turn is %u, the next one is %u", number, next);
    if (t->request.is_observed && t->reply_len > 0)
        return error_field(err, "reply", "stands in a turn that asked for none");
    if (t->reply_len > c->all->config.max_reply_bytes)
        return error_because(err, STATUS_INVALID, REASON_REPLY_TOO_LONG, "reply",
                             "reply has %zu bytes, at most %zu are kept", t->reply_len,
                             c->all->config.max_reply_bytes);
    for (size_t i = 0; i < t->request.n_messages; i++)
        n_bytes += t->request.messages[i].len;
    return conversation_check_room(c, &t->request, n_bytes, err);
}

/* The reply as the model would have it: its tokens are those of the text, which comes with the
 * first one. */
static enum status import_reply(struct body_finish *out, const struct conversation *c,
                                const struct imported_turn *t, struct arena *arena,
                                struct error *err)
{
    const struct agent *a = c->host.model->agent;
    const int32_t *ids;
    enum status rc = STATUS_OK;

    *out = (struct body_finish){.reply = {.finish = t->finish,
                                          .n_prompt = t->usage.n_prompt,
                                          .n_cached = t->usage.n_cached},
                                .timings = t->timings};
    out->reply.text.data = (char *)t->reply; /* only read */
    out->reply.text.len = t->reply_len;
    if (a->type->recall == NULL)
        return STATUS_OK;
    if (a->type->text == NULL) {
        out->trace = t->reply;
        out->trace_size = t->reply_len;
        return STATUS_OK;
    }
    rc = recall_retrace(out, a, arena, err);
    if (rc != STATUS_OK)
        return rc;
    ids = out->trace;
    out->reply.n_tokens = out->trace_size / sizeof(ids[0]);
    out->reply.tokens = arena_alloc(arena, out->reply.n_tokens + 1, sizeof(out->reply.tokens[0]));
    if (out->reply.tokens == NULL)
        return error_no_memory(err, out->trace_size, "a reply's tokens");
    for (size_t i = 0; i < out->reply.n_tokens; i++)
        out->reply.tokens[i] =
            (struct reply_token){.id = ids[i], .text_end = (uint32_t)t->reply_len};
    return STATUS_OK;
}

/* Takes request on success. Where the agent does not take the turn, nothing has changed. */
static enum status import_acted(struct completed_turn **out, struct conversation *c,
                                struct stored_request **request, const struct body_finish *finish,
                                struct error *err)
{
    struct completed_turn *newest = c->host.newest, *completed;
    enum status rc = completed_turn_open(&completed, newest, *request, &finish->reply, err);

    if (rc != STATUS_OK)
        return rc;
    completed->timings = finish->timings;
    *request = NULL; /* given away, with newest */
    if (newest != NULL)
        (void)completed_turn_ref(newest);
    rc = recall_turn(&c->host, completed->request, finish, err);
    completed_turn_unref(rc == STATUS_OK ? newest : completed);
    *out = rc == STATUS_OK ? completed : NULL;
    return rc;
}

enum status conversation_import(struct conversation *c, const struct imported_turn *t,
                                struct error *err)
{
    struct completed_turn *completed = NULL;
    struct stored_request *request = NULL;
    struct body_finish finish = {0};
    struct arena arena;
    enum status rc = import_check(c, t, err);

    arena_init(&arena, IMPORT_MAX_BYTES);
    if (rc == STATUS_OK)
        rc = stored_request_open(&request, &t->request, err);
    if (rc == STATUS_OK && t->request.is_observed)
        rc = observed_keep(&completed, c->host.newest, request, err);
    else if (rc == STATUS_OK && (rc = import_reply(&finish, c, t, &arena, err)) == STATUS_OK)
        rc = import_acted(&completed, c, &request, &finish, err);
    if (rc == STATUS_OK) {
        request = NULL; /* given away */
        completed->origin =
            t->origin.generation != 0 ? t->origin : (struct turn_origin){c->id, c->host.generation};
        c->host.newest = completed;
        c->host.n_turns = completed->number;
        c->is_inexact = c->is_inexact || !t->request.is_observed;
        conversation_used(c);
        rc = keeping_import(c, completed, finish.trace, finish.trace_size, err);
    }
    stored_request_close(request);
    arena_deinit(&arena);
    return rc;
}
