/* echo: replies with the user's last message. No model, no tokens; its private state is the number
 * of completed turns. For tests, benchmarks and for trying out the protocols. */
#include <string.h>

#include "agents/agent.h"
#include "agents/turn.h"

extern const struct agent_type echo_agent;

struct echo_clone {
    struct clone base;
    uint32_t n_turns;
};

static struct echo_clone *echo_of(struct clone *c)
{
    return container_of(c, struct echo_clone, base);
}

static void echo_info(const struct agent *a, struct agent_info *out)
{
    out->is_light = true;
}

/* Gives c the first at_turn turns of from, which may be c. */
static enum status echo_take(struct clone *c, const struct clone *from, uint32_t at_turn,
                             struct error *err)
{
    const uint32_t n = container_of(from, const struct echo_clone, base)->n_turns;

    if (at_turn > n)
        return error_because(err, STATUS_RANGE, REASON_TURN_NOT_FOUND, NULL,
                             "turn %u does not exist, the conversation has %u turns", at_turn, n);
    echo_of(c)->n_turns = at_turn;
    return STATUS_OK;
}

static enum status echo_rewind(struct clone *c, uint32_t at_turn, struct error *err)
{
    return echo_take(c, c, at_turn, err);
}

static void echo_reset(struct clone *c)
{
    echo_of(c)->n_turns = 0;
}

static bool echo_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Words in text, but at most max; *ret_len is where the last of them ends. */
static uint32_t echo_count_words(const char *text, size_t len, uint32_t max, size_t *ret_len)
{
    uint32_t n = 0;
    size_t at = 0;

    *ret_len = 0;
    while (n < max) {
        while (at < len && echo_is_space(text[at]))
            at++;
        if (at == len)
            break;
        while (at < len && !echo_is_space(text[at]))
            at++;
        *ret_len = at;
        n++;
    }
    return n;
}

/* The user's last message, NULL if there is none. */
static const struct message *last_said(const struct observation *seen)
{
    for (size_t i = seen->n_messages; i > 0; i--)
        if (seen->messages[i - 1].role == ROLE_USER)
            return &seen->messages[i - 1];
    return NULL;
}

static enum status echo_observe(struct clone *c, struct agent_turn *turn, struct error *err)
{
    enum status rc;

    if (last_said(&turn->seen) == NULL)
        return error_field(err, "messages",
                           "has no message from the user, so there is nothing to echo");
    rc = sampling_check(&turn->seen.sampling, 0, err);
    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < turn->seen.n_messages; i++) {
        const struct message *m = &turn->seen.messages[i];
        size_t ignored;

        turn->reply.n_prompt += echo_count_words(m->text, m->len, UINT32_MAX, &ignored);
    }
    turn->row.clone = c;
    return STATUS_OK;
}

static void echo_self_observe(struct clone *c, struct agent_turn *turn)
{
    echo_of(c)->n_turns++;
}

/* max_tokens counts words here. */
static void echo_act(struct agent *a, struct row *row)
{
    struct agent_turn *turn = agent_turn_of(row);
    const struct message *said = last_said(&turn->seen);
    uint32_t max = turn->seen.sampling.max_tokens;
    size_t len = said->len;
    enum finish finish = FINISH_STOP;

    if (max != 0) {
        size_t end, ignored;

        if (echo_count_words(said->text, said->len, max, &end) == max &&
            echo_count_words(said->text + end, said->len - end, 1, &ignored) > 0) {
            len = end;
            finish = FINISH_LENGTH;
        }
    }
    if (buf_append(&turn->reply.text, said->text, len) != STATUS_OK) {
        if (turn->reply.text.is_full)
            (void)error_because(&row->err, STATUS_RANGE, REASON_REPLY_TOO_LONG, NULL,
                                "the reply would be longer than %zu bytes",
                                turn->reply.text.limit_bytes);
        else
            (void)error_no_memory(&row->err, len, "a reply");
        row->outcome = ROW_FAILED;
        return;
    }
    turn->reply.finish = finish;
    turn->reply.n_prefilled = turn->reply.n_prompt;
    row->outcome = ROW_DONE;
}

const struct agent_type echo_agent = {
    .name = "echo",
    .agent_size = sizeof(struct agent),
    .clone_size = sizeof(struct echo_clone),
    .info = echo_info,
    .fork = echo_take,
    .rewind = echo_rewind,
    .reset = echo_reset,
    .observe = echo_observe,
    .self_observe = echo_self_observe,
    .act = echo_act,
};
