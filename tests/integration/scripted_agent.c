/* A plug-in that answers as a language model of a family would whose replies are known: the k-th
 * reply of a conversation is the k-th text in the file that PARLEY_SCRIPT names, whose texts a line
 * of "----" divides; after the last the last comes again. Coding agents are served by it in tests,
 * since the model of the tests is too small for their work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/plugin/parley_agent.h"

enum { SCRIPT_MAX_BYTES = 1 << 20, MAX_REPLIES = 64 };

static const struct parley_agent_host *host;
static char script[SCRIPT_MAX_BYTES];
static const char *replies[MAX_REPLIES]; /* [n_replies] */
static size_t n_replies;

static void *scripted_open(const struct parley_agent_host *its_host, struct parley_agent_error *err)
{
    const char *name = getenv("PARLEY_SCRIPT");
    FILE *f = name == NULL ? NULL : fopen(name, "r");
    char *at = script;

    host = its_host;
    if (f == NULL) {
        (void)snprintf(err->text, sizeof(err->text), "PARLEY_SCRIPT names no file");
        return NULL;
    }
    script[fread(script, 1, sizeof(script) - 1, f)] = '\0';
    (void)fclose(f);
    n_replies = 0;
    while (at != NULL && n_replies < MAX_REPLIES) {
        char *end = strstr(at, "\n----\n");

        replies[n_replies++] = at;
        if (end != NULL)
            *end = '\0';
        at = end == NULL ? NULL : end + 6;
    }
    return script;
}

static void scripted_close(void *agent)
{
}

static void *scripted_create(void *agent, const char *system, size_t system_len,
                             struct parley_agent_error *err)
{
    return agent;
}

static void *scripted_fork(void *agent, const void *clone, struct parley_agent_error *err)
{
    return agent;
}

static void scripted_free(void *agent, void *clone)
{
}

static bool scripted_observe(void *agent, void *clone, const struct parley_agent_row *row,
                             struct parley_agent_error *err)
{
    return true;
}

/* How many replies the turn's messages have. */
static size_t scripted_count(const struct parley_agent_row *row)
{
    struct parley_agent_message m;
    size_t n = 0;

    for (size_t i = 0; host->message(row, i, &m); i++)
        n += strcmp(m.role, "assistant") == 0;
    return n;
}

static void scripted_act(void *agent, struct parley_agent_row *const *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t k = scripted_count(rows[i]);
        const char *reply = replies[k < n_replies ? k : n_replies - 1];

        (void)host->say(rows[i], reply, strlen(reply)); /* what fails fails the row */
        host->done(rows[i], false);
    }
}

const struct parley_agent parley_agent = {
    .abi = PARLEY_AGENT_ABI,
    .size_bytes = sizeof(struct parley_agent),
    .name = "scripted",
    .version = "1",
    .flags = PARLEY_AGENT_DETERMINISTIC | PARLEY_AGENT_LIGHT,
    .open = scripted_open,
    .close = scripted_close,
    .create = scripted_create,
    .fork = scripted_fork,
    .free = scripted_free,
    .observe = scripted_observe,
    .batch_act = scripted_act,
    .chat_template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                     "{% endfor %}{% if tools %}<tool_call>{{ tools }}</tool_call>{% endif %}",
};
