/* An agent of one's own, as a shared object that parleyd loads with --plugin FILE.so:
 *
 *   cc -shared -fPIC -O2 my_agent.c $(pkg-config --cflags parley) -o my_agent.so
 *
 * The object defines one variable, parley_agent. Its functions run inside parleyd: one that crashes
 * takes parleyd with it.
 *
 * An agent has a state for each conversation, made by create. A turn runs on a copy of it:
 *
 *   fork       copies the state; the copy is what the row's clone is
 *   observe    takes in the messages, or refuses them
 *   batch_act  answers the rows of many conversations at once, each once: say and then done, more
 *              (the row comes again, and what was said goes out meanwhile) or fail
 *
 * When the turn is complete the copy is the conversation's state; a turn that fails or is
 * cancelled before it said anything is forgotten with its copy. States of turns before stay as they
 * are, for rewinds and forks: nothing changes a state but observe and batch_act.
 *
 * Threads: batch_act is called on another thread than all else, one step at a time, unless the
 * agent is LIGHT. It may run beside every other function, but no other function gets the copies of
 * the step meanwhile; what the agent itself has is for it to guard. */
#ifndef PARLEY_AGENT_H
#define PARLEY_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Another number: functions have other meanings. Members are only added, at the end of structs;
 * size_bytes says which of them are there. */
#define PARLEY_AGENT_ABI 1

struct parley_agent_row;  /* a conversation's turn; valid in the call that was given it */
struct parley_agent_sink; /* where save writes */

/* What went wrong. Zeroed when a function gets it. */
struct parley_agent_error {
    int status;     /* of gRPC's; 0: INVALID_ARGUMENT from observe, INTERNAL from others */
    char text[200]; /* one line for the user */
};

struct parley_agent_message {
    const char *role; /* "system", "user", "assistant" */
    const char *text; /* [len] UTF-8, and a NUL behind it */
    size_t len;
};

/* What parleyd offers to agents. */
struct parley_agent_host {
    size_t size_bytes;
    /* The turn; in observe, cost and batch_act. message: false behind the last. */
    bool (*message)(const struct parley_agent_row *row, size_t i, struct parley_agent_message *out);
    uint64_t (*seed)(const struct parley_agent_row *row);
    float (*temperature)(const struct parley_agent_row *row);
    uint32_t (*max_tokens)(const struct parley_agent_row *row); /* 0: no bound */
    /* In batch_act: the state, and the answer. say appends UTF-8 text, whole characters by the end
     * of the step; false: the reply would be too long, or there is no memory, and the row fails
     * whatever follows. is_cut: more would have followed but for max_tokens. */
    void *(*clone)(const struct parley_agent_row *row);
    bool (*say)(struct parley_agent_row *row, const char *text, size_t len);
    void (*done)(struct parley_agent_row *row, bool is_cut);
    void (*more)(struct parley_agent_row *row);
    void (*fail)(struct parley_agent_row *row, int status, const char *text);
    /* In save. False: no memory, or the state is too large. */
    bool (*write)(struct parley_agent_sink *sink, const void *data, size_t len);
};

enum {
    /* The same messages, states and sampling give the same bytes, whatever else is in the step. A
     * turn that an earlier process accepted is computed again only then. */
    PARLEY_AGENT_DETERMINISTIC = 1 << 0,
    /* A step takes microseconds: less than to hand it to another thread. */
    PARLEY_AGENT_LIGHT = 1 << 1,
};

struct parley_agent {
    uint32_t abi;          /* PARLEY_AGENT_ABI */
    uint32_t size_bytes;   /* sizeof(struct parley_agent) */
    const char *name;      /* 1 to 63 letters, digits, '.', '_' and '-' */
    const char *version;   /* of what replies and saved states depend on; 1 to 64 such characters */
    uint32_t flags;        /* PARLEY_AGENT_… */
    uint32_t max_rows;     /* of a step, at most 4096; 0: 256 */
    uint32_t max_cost;     /* of a step, in units of cost; 0: no bound */
    const char *cost_unit; /* what cost counts: "words"; NULL: turns */

    /* The agent: what all conversations share. NULL from open: it failed, *err says why. What it
     * returns is handed to the others. */
    void *(*open)(const struct parley_agent_host *host, struct parley_agent_error *err);
    void (*close)(void *agent); /* no state is left */

    /* A conversation's state. NULL: failed. system: [system_len], NULL if there is none. */
    void *(*create)(void *agent, const char *system, size_t system_len,
                    struct parley_agent_error *err);
    void *(*fork)(void *agent, const void *clone, struct parley_agent_error *err);
    void (*free)(void *agent, void *clone);

    /* False: the turn is refused. */
    bool (*observe)(void *agent, void *clone, const struct parley_agent_row *row,
                    struct parley_agent_error *err);
    /* Answers each of the rows once. A row without an answer, or with two, fails. */
    void (*batch_act)(void *agent, struct parley_agent_row *const *rows, size_t n);

    /* The rest may be NULL; save and restore both or neither. With parleyd --data each complete
     * turn is saved, and a conversation of an earlier process restored; without the two its turns
     * are observed again there, and what batch_act did to the state is lost. */
    bool (*save)(void *agent, const void *clone, struct parley_agent_sink *sink,
                 struct parley_agent_error *err);
    void *(*restore)(void *agent, const void *data, size_t len, struct parley_agent_error *err);
    /* The turn's input in cost_unit, at least 1: what a step is bounded by, and what is shown as
     * the prompt's tokens. NULL: 1. */
    uint32_t (*cost)(void *agent, const struct parley_agent_row *row);
};

#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
extern const struct parley_agent parley_agent;

#ifdef __cplusplus
}
#endif

#endif
