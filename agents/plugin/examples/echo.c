/* Repeats the user's last message, as the agent echo does that is built into parleyd.
 *
 *   cc -shared -fPIC -O2 echo.c $(pkg-config --cflags parley) -o echo.so
 *   parleyd --plugin repeat=./echo.so */
#include <parley_agent.h>
#include <string.h>

static const struct parley_agent_host *parleyd;

static void *repeat_open(const struct parley_agent_host *host, struct parley_agent_error *err)
{
    (void)err;
    parleyd = host;
    return &parleyd; /* nothing is shared, but NULL would be a failure */
}

static void repeat_close(void *agent)
{
    (void)agent;
}

static void *repeat_create(void *agent, const char *system, size_t system_len,
                           struct parley_agent_error *err)
{
    (void)system;
    (void)system_len;
    (void)err;
    return agent; /* an echo has no state of its own */
}

static void *repeat_fork(void *agent, const void *clone, struct parley_agent_error *err)
{
    (void)clone;
    (void)err;
    return agent;
}

static void repeat_free(void *agent, void *clone)
{
    (void)agent;
    (void)clone;
}

static bool last_of_user(const struct parley_agent_row *row, struct parley_agent_message *out)
{
    struct parley_agent_message m;
    bool is_found = false;

    for (size_t i = 0; parleyd->message(row, i, &m); i++) {
        if (strcmp(m.role, "user") == 0) {
            *out = m;
            is_found = true;
        }
    }
    return is_found;
}

static bool repeat_observe(void *agent, void *clone, const struct parley_agent_row *row,
                           struct parley_agent_error *err)
{
    struct parley_agent_message m;

    (void)agent;
    (void)clone;
    if (!last_of_user(row, &m)) {
        memcpy(err->text, "there is nothing to echo", sizeof("there is nothing to echo"));
        return false;
    }
    return true;
}

static void repeat_batch_act(void *agent, struct parley_agent_row *const *rows, size_t n)
{
    (void)agent;
    for (size_t i = 0; i < n; i++) {
        struct parley_agent_message m;

        if (last_of_user(rows[i], &m)) /* true: observe has checked it */
            (void)parleyd->say(rows[i], m.text, m.len);
        parleyd->done(rows[i], false);
    }
}

const struct parley_agent parley_agent = {
    .abi = PARLEY_AGENT_ABI,
    .size_bytes = sizeof(struct parley_agent),
    .name = "echo",
    .version = "1",
    .flags = PARLEY_AGENT_DETERMINISTIC | PARLEY_AGENT_LIGHT,
    .open = repeat_open,
    .close = repeat_close,
    .create = repeat_create,
    .fork = repeat_fork,
    .free = repeat_free,
    .observe = repeat_observe,
    .batch_act = repeat_batch_act,
};
