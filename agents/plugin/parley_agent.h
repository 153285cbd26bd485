/* An agent of one's own, as a shared object that parleyd loads with --plugin FILE.so:
 *
 *   cc -shared -fPIC -O2 my_agent.c $(pkg-config --cflags parley) -o my_agent.so
 *
 * The object defines one variable, parley_agent. Its functions run inside parleyd: if one of them
 * crashes, parleyd crashes.
 *
 * An agent has a state for each conversation, which create makes. A turn runs on a copy of the
 * state:
 *
 *   fork       copies the state; host->clone returns the copy
 *   observe    takes in the turn's messages, or refuses them
 *   batch_act  answers the rows of many conversations at once, each row once: it calls say, and
 *              then done, more (the row comes again in a later step, and the client gets the text
 *              so far) or fail
 *
 * When the turn is complete, the copy becomes the conversation's state. If the turn fails, or is
 * cancelled before it has said anything, parleyd frees the copy. The states after earlier turns
 * stay, for rewinds and forks: the last 32 of them and the first. So no function but observe and
 * batch_act may change a state, and these change only the turn's copy.
 *
 * Threads: parleyd calls batch_act on a thread of its own, for one step at a time (for a LIGHT
 * agent also on its main thread). It calls open once, before all other functions, on either thread,
 * and the others on its main thread. batch_act may run at the same time as any of these, but none
 * of them then gets the copies of the step's turns. What the agent shares between conversations it
 * must guard itself. A verb of parley that runs agents in several threads opens one agent for each
 * thread, so functions of different agents may run at the same time. */
#ifndef PARLEY_AGENT_H
#define PARLEY_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number rises if functions get other meanings. Otherwise members are only added, at the end of
 * structs; a struct's size_bytes says which of them it has. */
#define PARLEY_AGENT_ABI 1

struct parley_agent_row;  /* a turn of a conversation; valid during the call that gets it */
struct parley_agent_sink; /* where save writes its bytes */

/* What went wrong. It is zeroed when a function gets it. */
struct parley_agent_error {
    int status; /* one of gRPC's codes; 0 stands for FAILED_PRECONDITION from open, INVALID_ARGUMENT
                   from observe, and INTERNAL or DATA_LOSS from others */
    char text[200]; /* one line for the user */
};

struct parley_agent_message {
    const char *role; /* "system", "user", "assistant" */
    const char *text; /* [len] UTF-8, and a NUL behind it */
    size_t len;
};

/* The functions that parleyd offers to agents. They live as long as the agent. */
struct parley_agent_host {
    size_t size_bytes;
    /* Read the turn; call them in observe, cost and batch_act. message writes the turn's message i,
     * which is valid until the turn ends, and returns false if there are not so many. max_tokens
     * returns the most units of reply that the client wants, 0: no bound. */
    bool (*message)(const struct parley_agent_row *row, size_t i, struct parley_agent_message *out);
    uint64_t (*seed)(const struct parley_agent_row *row);
    float (*temperature)(const struct parley_agent_row *row);
    uint32_t (*max_tokens)(const struct parley_agent_row *row);
    /* Answer a row; call them in batch_act. clone returns the turn's copy of the state. say appends
     * text to the reply; at the end of the step the text so far must be UTF-8 with whole
     * characters. say returns false if the reply would be too long or there is no memory; the row
     * then fails whatever follows. done ends the reply; is_cut: max_tokens has cut it. more asks
     * for a further step. fail ends the turn with one of gRPC's codes (0: INTERNAL) and one line
     * for the user (NULL: none); both are copied. */
    void *(*clone)(const struct parley_agent_row *row);
    bool (*say)(struct parley_agent_row *row, const char *text, size_t len);
    void (*done)(struct parley_agent_row *row, bool is_cut);
    void (*more)(struct parley_agent_row *row);
    void (*fail)(struct parley_agent_row *row, int status, const char *text);
    /* Appends bytes to a saved state; call it in save. Returns false if there is no memory or the
     * state is too large. */
    bool (*write)(struct parley_agent_sink *sink, const void *data, size_t len);
    /* Writes label i of the turn, a right answer to learn from, which is valid until the turn ends;
     * returns false if there are not so many. Call it in batch_act. There are labels only while
     * `parley train -m plugin:FILE` trains, never in its validations, nor in parleyd. A host whose
     * size_bytes ends before this member has none. */
    bool (*label)(const struct parley_agent_row *row, size_t i, struct parley_agent_message *out);
};

enum {
    /* The same messages, state and sampling give the same bytes, whatever other rows are in the
     * step. Only turns of such an agent are computed again after a restart of parleyd. */
    PARLEY_AGENT_DETERMINISTIC = 1 << 0,
    /* A step takes microseconds, less than handing it to another thread would. */
    PARLEY_AGENT_LIGHT = 1 << 1,
};

struct parley_agent {
    uint32_t abi;          /* PARLEY_AGENT_ABI */
    uint32_t size_bytes;   /* sizeof(struct parley_agent) */
    const char *name;      /* 1 to 63 letters, digits, '.', '_' and '-' */
    const char *version;   /* 1 to 64 such characters; change it whenever replies or saved states
                              would differ */
    uint32_t flags;        /* a sum of PARLEY_AGENT_… */
    uint32_t max_rows;     /* the most rows of a step, at most 4096; 0: 256 */
    uint32_t max_cost;     /* the largest cost of a step, in units of cost; 0: no bound */
    const char *cost_unit; /* what cost counts: "words"; NULL: turns */

    /* open returns the agent: what all conversations share. The other functions get it as `agent`.
     * NULL: it failed, and *err says why. host is borrowed. */
    void *(*open)(const struct parley_agent_host *host, struct parley_agent_error *err);
    void (*close)(void *agent); /* called when no state is left */

    /* create returns the state of a new conversation, fork a copy of a state; NULL: it failed, and
     * *err says why. system is the system prompt, [system_len], or NULL. parleyd frees each state
     * once, by free. */
    void *(*create)(void *agent, const char *system, size_t system_len,
                    struct parley_agent_error *err);
    void *(*fork)(void *agent, const void *clone, struct parley_agent_error *err);
    void (*free)(void *agent, void *clone);

    /* Takes the turn's messages into clone, the turn's copy of the state. False: the turn is
     * refused, and *err says why. */
    bool (*observe)(void *agent, void *clone, const struct parley_agent_row *row,
                    struct parley_agent_error *err);
    /* Answers each of the n rows once. A row that gets no answer, or two, fails. */
    void (*batch_act)(void *agent, struct parley_agent_row *const *rows, size_t n);

    /* The following functions may be NULL; save and restore are both set, or neither. With parleyd
     * --data, save writes the state after each complete turn, and restore returns the state of a
     * conversation of an earlier process (NULL: it failed, and *err says why). Without the two, the
     * conversation's turns are observed again, and what batch_act did to the state is lost. */
    bool (*save)(void *agent, const void *clone, struct parley_agent_sink *sink,
                 struct parley_agent_error *err);
    void *(*restore)(void *agent, const void *data, size_t len, struct parley_agent_error *err);
    /* Returns the size of the turn's input in cost_unit; 0 counts as 1. A step's sum of costs is
     * bounded by max_cost; clients see the cost as the prompt's tokens. NULL: each turn costs 1. */
    uint32_t (*cost)(void *agent, const struct parley_agent_row *row);

    /* The chat template of the model whose replies these are, as text, or NULL: clients that offer
     * tools get calls and reasoning that are written as models with that template write them. */
    const char *chat_template;

    /* Of an agent that learns, in batch_act, from turns that have labels: `parley train` has it
     * save what it has learned, at the best validation and at the end, and begin with what it had
     * saved (--init-model). Both are called between steps. False: it failed, and *err says why.
     * save_model NULL: the agent does not learn. load_model may be NULL. */
    bool (*save_model)(void *agent, const char *path, struct parley_agent_error *err);
    bool (*load_model)(void *agent, const char *path, struct parley_agent_error *err);
};

#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
extern const struct parley_agent parley_agent;

#ifdef __cplusplus
}
#endif

#endif
