/* echo: replies with the user's last message. No model, no tokens; its private state is the number
 * of completed turns. For tests, benchmarks and for trying out the protocols. */
#include <string.h>

#include "agents/agent.h"
#include "agents/turn.h"

extern const struct agent_type echo_agent;

enum { ECHO_MAX_ROWS = 256, ECHO_MAX_WAITING = 16384 };

struct echo_clone {
    struct clone base;
    uint32_t n_turns;
};

/* What save writes: a magic, the version, the count in little endian. */
enum { STATE_BYTES = 9 };
static const char state_magic[] = {'e', 'c', 'h', 'o', 1};

static struct echo_clone *echo_of(struct clone *c)
{
    return container_of(c, struct echo_clone, base);
}

static const struct echo_clone *const_echo_of(const struct clone *c)
{
    return container_of(c, const struct echo_clone, base);
}

static enum status echo_open(struct agent *a, const struct agent_config *config, struct error *err)
{
    (void)a;
    (void)config;
    (void)err;
    return STATUS_OK;
}

static void echo_close(struct agent *a)
{
    (void)a; /* the framework frees the rest */
}

static void echo_info(const struct agent *a, struct agent_info *out)
{
    *out = (struct agent_info){
        .name = a->name,
        .kind = a->type->name,
        .architecture = "",
        .backend = "",
        .version = "1",
        .is_light = true,
    };
    sampling_init(&out->defaults);
}

static void echo_batching(const struct agent *a, struct batcher_config *out)
{
    (void)a;
    *out = (struct batcher_config){
        .policy = BATCH_CONTINUOUS,
        .max_rows = ECHO_MAX_ROWS,
        .max_waiting = ECHO_MAX_WAITING,
    };
}

static enum status echo_clone_open(struct clone *c, const struct clone_config *config,
                                   struct error *err)
{
    (void)c;
    (void)config; /* the system prompt does not affect the reply */
    (void)err;
    return STATUS_OK;
}

static void echo_clone_close(struct clone *c)
{
    (void)c;
}

static void echo_clone_info(const struct clone *c, struct clone_info *out)
{
    (void)c;
    *out = (struct clone_info){.state_bytes = sizeof(struct echo_clone)};
}

static enum status echo_clone_check_turn(const struct echo_clone *e, uint32_t at_turn,
                                         struct error *err)
{
    if (at_turn > e->n_turns)
        return error_because(err, STATUS_RANGE, REASON_TURN_NOT_FOUND, NULL,
                             "turn %u does not exist, the conversation has %u turns", at_turn,
                             e->n_turns);
    return STATUS_OK;
}

static enum status echo_fork(struct clone *c, const struct clone *parent, uint32_t at_turn,
                             struct error *err)
{
    enum status rc = echo_clone_check_turn(const_echo_of(parent), at_turn, err);

    if (rc == STATUS_OK)
        echo_of(c)->n_turns = at_turn;
    return rc;
}

static enum status echo_rewind(struct clone *c, uint32_t at_turn, struct error *err)
{
    enum status rc = echo_clone_check_turn(echo_of(c), at_turn, err);

    if (rc == STATUS_OK)
        echo_of(c)->n_turns = at_turn;
    return rc;
}

static void echo_reset(struct clone *c)
{
    echo_of(c)->n_turns = 0;
}

static enum status echo_save(const struct clone *c, struct buf *out, struct error *err)
{
    uint32_t n = const_echo_of(c)->n_turns;
    unsigned char state[STATE_BYTES];

    memcpy(state, state_magic, sizeof state_magic);
    for (size_t i = 0; i < 4; i++)
        state[sizeof state_magic + i] = (unsigned char)(n >> 8 * i);
    if (buf_append(out, state, sizeof state) != STATUS_OK)
        return error_no_memory(err, sizeof state, "a saved state");
    return STATUS_OK;
}

static enum status echo_restore(struct clone *c, const void *data, size_t size_bytes,
                                struct error *err)
{
    const unsigned char *state = data;
    uint32_t n = 0;

    if (size_bytes != STATE_BYTES || memcmp(state, state_magic, sizeof state_magic) != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "the saved state is not one of an echo agent, version 1");
    for (size_t i = 0; i < 4; i++)
        n |= (uint32_t)state[sizeof state_magic + i] << 8 * i;
    echo_of(c)->n_turns = n;
    return STATUS_OK;
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
    (void)turn;
    echo_of(c)->n_turns++;
}

static void echo_drop(struct clone *c, struct agent_turn *turn)
{
    (void)c; /* a turn leaves no trace before self_observe */
    (void)turn;
}

/* max_tokens counts words here. */
static void echo_act(struct agent *a, struct row *row)
{
    struct agent_turn *turn = agent_turn_of(row);
    const struct message *said = last_said(&turn->seen);
    uint32_t max = turn->seen.sampling.max_tokens;
    size_t len = said->len;
    enum finish finish = FINISH_STOP;

    (void)a;
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
    .open = echo_open,
    .close = echo_close,
    .info = echo_info,
    .batching = echo_batching,
    .clone_open = echo_clone_open,
    .clone_close = echo_clone_close,
    .clone_info = echo_clone_info,
    .fork = echo_fork,
    .rewind = echo_rewind,
    .reset = echo_reset,
    .save = echo_save,
    .restore = echo_restore,
    .observe = echo_observe,
    .self_observe = echo_self_observe,
    .drop = echo_drop,
    .act = echo_act,
};
