#include "worlds/verbs/attached_session.h"

#include <poll.h>
#include <string.h>

#include "base/clock.h"

enum status attached_connect(struct parley_channel **out,
                             const struct connection_options *connection, struct error *err)
{
    static const char text[] = "no server is connected";
    enum exit_code code;

    *out = connection_open(connection, &code);
    if (*out != NULL)
        return STATUS_OK;
    if (code == EXIT_MISUSE)
        return error_because(err, STATUS_INVALID, REASON_NONE, "--server", "%s", text);
    return error_set(err, STATUS_UNAVAILABLE, "%s", text);
}

static enum status attached_session_failed(const struct parley_error *why, struct error *err)
{
    return error_set(err, (enum status)why->status, "%.300s", why->text);
}

enum status attached_session_begin(struct attached_session *s, const char *model,
                                   const char *system, struct error *err)
{
    const struct parley_open what = {.model = model, .system = system};
    struct parley_opened opened;
    struct parley_error why;

    if (parley_conversation_open(s->channel, &what, &opened, &why) != PARLEY_OK)
        return attached_session_failed(&why, err);
    memcpy(s->conversation, opened.conversation, sizeof(s->conversation));
    s->n_turns = 0;
    s->n_bytes = 0;
    return STATUS_OK;
}

/* A message that is too large comes without a reason, and never becomes smaller. */
static bool attached_session_may_retry(const struct parley_result *result)
{
    return result->err.status == PARLEY_UNAVAILABLE ||
           (result->err.status == PARLEY_RESOURCE_EXHAUSTED && result->err.reason[0] != '\0');
}

enum status attached_session_ask(struct attached_session *s, const char *message,
                                 const struct parley_result **out, struct error *err)
{
    const struct parley_message one = {"user", message};
    const struct parley_sampling bound = {.set = PARLEY_MAX_TOKENS, .max_tokens = s->max_tokens};
    const struct parley_turn turn = {.conversation = s->conversation,
                                     .turn = s->n_turns + 1,
                                     .messages = &one,
                                     .n_messages = 1,
                                     .sampling = s->max_tokens != 0 ? &bound : NULL};
    const uint64_t end_ms = clock_ms() + ATTACHED_LOST_MS;
    const struct parley_result *result;

    for (;;) {
        parley_future_unref(s->reply);
        s->reply = parley_ask_start(s->channel, &turn);
        if (s->reply == NULL)
            return error_no_memory(err, sizeof(turn), "a turn");
        (void)parley_wait_all(&s->reply, 1, PARLEY_FOREVER);
        result = parley_future_result(s->reply);
        if (!attached_session_may_retry(result) || clock_ms() > end_ms)
            break;
        /* A signal may end the wait early, which is harmless. */
        (void)poll(NULL, 0, ATTACHED_RETRY_MS);
    }
    if (result->err.status != PARLEY_OK)
        return attached_session_failed(&result->err, err);
    if (strcmp(result->done.finish_reason, "stop") != 0)
        return error_set(err, STATUS_DATA_LOSS, "a reply was cut short (%s)",
                         result->done.finish_reason);
    s->n_turns++;
    s->n_bytes += strlen(message) + result->len;
    *out = result;
    return STATUS_OK;
}

void attached_session_leave(struct attached_session *s)
{
    struct parley_error ignored; /* the conversation expires at the server anyway */

    parley_future_unref(s->reply);
    s->reply = NULL;
    if (s->conversation[0] != '\0')
        (void)parley_close(s->channel, s->conversation, &ignored);
    s->conversation[0] = '\0';
}
