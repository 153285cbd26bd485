#include "server/conversation/tool_results.h"

#include <stdio.h>
#include <string.h>

#include "agents/message_extras.h"
#include "server/conversation/completed_turn.h"
#include "server/conversation/turn.h"

enum { CALLS_LOOKED_AT = 32, EXTRAS_MAX_BYTES = 64 << 20 };

bool tool_call_may_be_of(const struct stored_request *r, const char *id, size_t len)
{
    char of_call[CALL_ID_CHARS];

    if (r->tool_use.tools.len == 0 || len != CALL_ID_CHARS - 1)
        return false;
    for (uint32_t i = 0; i < CALLS_LOOKED_AT; i++) {
        call_id_format(of_call, r->tool_use.seed, i);
        if (memcmp(of_call, id, len) == 0)
            return true;
    }
    return false;
}

/* The id of the call whose result m is; len 0: m is none, or names no call. */
static enum status result_id(struct text *out, const struct message *m, struct arena *arena)
{
    struct message_extras x;

    *out = (struct text){"", 0};
    if (m->role != ROLE_TOOL || m->more_len == 0)
        return STATUS_OK;
    if (message_extras_read(&x, m, arena) != STATUS_OK)
        return STATUS_EXHAUSTED;
    *out = x.call_id;
    return STATUS_OK;
}

static enum status gives_result(bool *out, const struct stored_request *r, struct text id,
                                struct arena *arena)
{
    struct text of;

    for (uint32_t i = 0; i < r->n_messages && !*out; i++) {
        const struct message *m = &r->messages[i];

        if (m->role != ROLE_TOOL || memmem(m->more, m->more_len, id.text, id.len) == NULL)
            continue;
        if (result_id(&of, m, arena) != STATUS_OK)
            return STATUS_EXHAUSTED;
        *out = of.len == id.len && memcmp(of.text, id.text, id.len) == 0;
    }
    return STATUS_OK;
}

/* Whether the model made this call in a complete turn. */
static bool is_of_model(const struct turn_host *host, struct text id)
{
    const struct completed_turn *t = host->newest;

    while (t != NULL && !tool_call_may_be_of(t->request, id.text, id.len))
        t = t->before;
    return t != NULL;
}

static enum status was_given(bool *out, const struct turn_host *host, struct text id,
                             struct arena *arena)
{
    enum status rc = STATUS_OK;

    for (struct link *at = list_first(&host->turns); at != NULL && rc == STATUS_OK && !*out;
         at = list_next(&host->turns, at))
        rc = gives_result(out, turn_request_of(container_of(at, struct turn, link)), id, arena);
    for (const struct completed_turn *t = host->newest; t != NULL && rc == STATUS_OK && !*out;
         t = t->before)
        rc = gives_result(out, t->request, id, arena);
    return rc;
}

static enum status result_check(const struct turn_host *host, const struct message *m, size_t i,
                                struct arena *arena, struct error *err)
{
    char field[sizeof(err->field)];
    bool is_given = false;
    struct text id;

    if (result_id(&id, m, arena) != STATUS_OK)
        return error_no_memory(err, m->more_len, "a message");
    if (id.len != CALL_ID_CHARS - 1 || !is_of_model(host, id))
        return STATUS_OK;
    if (was_given(&is_given, host, id, arena) != STATUS_OK)
        return error_no_memory(err, 0, "a message");
    if (!is_given)
        return STATUS_OK;
    (void)snprintf(field, sizeof(field), "messages[%zu].tool_call_id", i);
    return error_because(err, STATUS_EXISTS, REASON_TURN_BODY_DIFFERS, field,
                         "the call '%.*s' has its result from an earlier turn: each call gets one",
                         (int)id.len, id.text);
}

enum status tool_results_check(const struct turn_host *host, const struct turn_request *r,
                               struct error *err)
{
    enum status rc = STATUS_OK;
    struct arena arena;

    arena_init(&arena, EXTRAS_MAX_BYTES);
    for (size_t i = 0; i < r->n_messages && rc == STATUS_OK; i++)
        if (r->messages[i].role == ROLE_TOOL)
            rc = result_check(host, &r->messages[i], i, &arena, err);
    arena_deinit(&arena);
    return rc;
}
