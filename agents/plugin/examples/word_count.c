/* Counts the words that the user said in a conversation. "fail" as a message fails that turn alone.
 *
 *   cc -shared -fPIC -O2 word_count.c $(pkg-config --cflags parley) -o word_count.so
 *   parleyd --plugin word_count.so */
#include <ctype.h>
#include <parley_agent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What all conversations share. */
struct counter {
    const struct parley_agent_host *host;
};

/* A conversation's own. */
struct count {
    uint64_t n_words, n_turns;
};

static void *counter_open(const struct parley_agent_host *host, struct parley_agent_error *err)
{
    struct counter *c = calloc(1, sizeof(*c));

    (void)err; /* if err is not set, the daemon makes up a text */
    if (c != NULL)
        c->host = host;
    return c;
}

static void counter_close(void *agent)
{
    free(agent);
}

static void *counter_create(void *agent, const char *system, size_t system_len,
                            struct parley_agent_error *err)
{
    (void)agent;
    (void)system;
    (void)system_len;
    (void)err;
    return calloc(1, sizeof(struct count));
}

static void *counter_fork(void *agent, const void *clone, struct parley_agent_error *err)
{
    struct count *copy = counter_create(agent, NULL, 0, err);

    if (copy != NULL)
        memcpy(copy, clone, sizeof(*copy));
    return copy;
}

static void counter_free(void *agent, void *clone)
{
    (void)agent;
    free(clone);
}

static uint32_t words_of(const struct parley_agent_message *m)
{
    uint32_t n = 0;

    for (size_t i = 0; i < m->len; i++)
        n += !isspace((unsigned char)m->text[i]) &&
             (i == 0 || isspace((unsigned char)m->text[i - 1]));
    return n;
}

/* The words of all messages of the user; *last is the last of them. */
static uint32_t counter_words(const struct counter *c, const struct parley_agent_row *row,
                              struct parley_agent_message *last)
{
    struct parley_agent_message m;
    uint32_t n = 0;

    *last = (struct parley_agent_message){"user", "", 0};
    for (size_t i = 0; c->host->message(row, i, &m); i++) {
        if (strcmp(m.role, "user") == 0) {
            n += words_of(&m);
            *last = m;
        }
    }
    return n;
}

static bool counter_observe(void *agent, void *clone, const struct parley_agent_row *row,
                            struct parley_agent_error *err)
{
    struct parley_agent_message last;
    struct count *count = clone;
    uint32_t n = counter_words(agent, row, &last);

    if (n == 0) {
        (void)snprintf(err->text, sizeof(err->text), "there are no words to count");
        return false;
    }
    count->n_words += n;
    count->n_turns++;
    return true;
}

static uint32_t counter_cost(void *agent, const struct parley_agent_row *row)
{
    struct parley_agent_message last;

    return counter_words(agent, row, &last);
}

static void counter_batch_act(void *agent, struct parley_agent_row *const *rows, size_t n)
{
    const struct counter *c = agent;

    for (size_t i = 0; i < n; i++) {
        const struct count *count = c->host->clone(rows[i]);
        struct parley_agent_message last;
        char text[100];

        (void)counter_words(c, rows[i], &last);
        if (strcmp(last.text, "fail") == 0) {
            c->host->fail(rows[i], 9, "it was told to fail"); /* FAILED_PRECONDITION */
            continue;
        }
        (void)snprintf(text, sizeof(text), "%llu words in %llu turns",
                       (unsigned long long)count->n_words, (unsigned long long)count->n_turns);
        (void)c->host->say(rows[i], text, strlen(text));
        c->host->done(rows[i], false);
    }
}

/* Both numbers, of this machine's byte order: states do not travel. */
static bool counter_save(void *agent, const void *clone, struct parley_agent_sink *sink,
                         struct parley_agent_error *err)
{
    const struct counter *c = agent;

    (void)err;
    return c->host->write(sink, clone, sizeof(struct count));
}

static void *counter_restore(void *agent, const void *data, size_t len,
                             struct parley_agent_error *err)
{
    struct count *count;

    if (len != sizeof(*count)) {
        (void)snprintf(err->text, sizeof(err->text), "a state has %zu bytes", sizeof(*count));
        return NULL;
    }
    count = counter_create(agent, NULL, 0, err);
    if (count != NULL)
        memcpy(count, data, len);
    return count;
}

const struct parley_agent parley_agent = {
    .abi = PARLEY_AGENT_ABI,
    .size_bytes = sizeof(struct parley_agent),
    .name = "word_count",
    .version = "1",
    .flags = PARLEY_AGENT_DETERMINISTIC,
    .cost_unit = "words",
    .open = counter_open,
    .close = counter_close,
    .create = counter_create,
    .fork = counter_fork,
    .free = counter_free,
    .observe = counter_observe,
    .batch_act = counter_batch_act,
    .save = counter_save,
    .restore = counter_restore,
    .cost = counter_cost,
};
