#include "server/conversation/observed.h"

#include <string.h>

static size_t n_waiting(const struct completed_turn *newest)
{
    return newest == NULL ? 0 : newest->n_waiting;
}

uint32_t observed_n_acted(const struct completed_turn *newest)
{
    return newest == NULL ? 0 : newest->n_acted;
}

enum status observed_keep(struct completed_turn **out, struct completed_turn *newest,
                          struct stored_request *request, struct error *err)
{
    static const struct reply nothing = {.finish = FINISH_OBSERVED};
    size_t n = n_waiting(newest) + request->n_messages;

    if (n > OBSERVED_MAX_MESSAGES)
        return error_because(
            err, STATUS_PRECONDITION, REASON_CONVERSATION_FULL, "messages",
            "%zu messages would wait for a turn that asks for a reply, at most %d may", n,
            OBSERVED_MAX_MESSAGES);
    return completed_turn_open(out, newest, request, &nothing, err);
}

enum status observed_gather(struct observation *seen, const struct completed_turn *newest,
                            const struct stored_request *request, struct arena *arena,
                            struct error *err)
{
    size_t at = n_waiting(newest), n = at + request->n_messages;
    struct message *messages;

    seen->messages = request->messages;
    seen->n_messages = request->n_messages;
    if (at == 0)
        return STATUS_OK;
    if (request->is_plain)
        return error_set(err, STATUS_PRECONDITION,
                         "messages wait for a reply, a raw prompt cannot follow them");
    messages = arena_alloc(arena, n, sizeof(messages[0]));
    if (messages == NULL)
        return error_no_memory(err, n * sizeof(messages[0]), "a turn's messages");
    memcpy(messages + at, request->messages, request->n_messages * sizeof(messages[0]));
    for (const struct completed_turn *r = newest; at > 0; r = r->before) {
        at -= r->request->n_messages;
        memcpy(messages + at, r->request->messages, r->request->n_messages * sizeof(messages[0]));
    }
    seen->messages = messages;
    seen->n_messages = n;
    return STATUS_OK;
}
