/* The server that a load is sent to, by the protocol that its address names. Kinds are const
 * tables: parleyd's conversations and policies over gRPC, servers with OpenAI's API over HTTP,
 * KServe v2 over gRPC, and any unary method over gRPC.
 *
 * A target has one thread of its own, which calls all events; any thread may send and leave. */
#ifndef CLIENT_CLI_BENCH_TARGET_H
#define CLIENT_CLI_BENCH_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "client/cli/connection.h"

struct target_session;

/* On the target's thread; must not block. */
struct session_events {
    /* A chunk of the reply came; gap_us since the one before it. */
    void (*chunk)(struct target_session *s, bool is_first, uint64_t gap_us);
    /* The turn is over; err->status may be STATUS_OK. Called once for each turn that was sent; it
     * may send the next one. */
    void (*end)(struct target_session *s, const struct error *err);
};

/* A conversation at a server; the first member of the kind's own struct. */
struct target_session {
    const struct session_events *events;
    void *owner; /* the caller's, for its events */

    /* Filled by the caller before each turn; the texts must not change until its end. */
    uint32_t turn;      /* 1, 2, …; 1 begins a new conversation */
    const char *system; /* of the conversation, read with turn 1 */
    const char *text;
    uint32_t max_tokens;
    const char *json_schema; /* what the reply must match; NULL: anything. If can_constrain */
    bool is_fork;            /* a later turn: on a fork of its conversation, if can_fork */
    uint64_t due_us;         /* when the load's schedule begins this turn, monotonic; 0: at once */

    /* Results of the turn, valid at its end. us: monotonic. */
    uint64_t begun_us;          /* before anything was sent, an opening included */
    uint64_t sent_us;           /* the turn itself */
    uint64_t first_us, last_us; /* its chunks; 0: there was none */
    uint32_t prompt_tokens, cached_tokens, completion_tokens; /* as the server counts */
};

struct target_config {
    const char *model; /* NULL: the server's default */
    /* Key, certificates, and how long to wait for the server; not its address. */
    struct connection_options connection;
    float temperature;
    bool ignore_eos;
    bool is_chat;        /* OpenAI: chat completions instead of completions */
    bool is_responses;   /* OpenAI: responses instead of completions; not both */
    bool is_multiplexed; /* parleyd: all turns on one stream */
    const char *data;    /* gRPC: the request as JSON, or @ and a file's name; NULL: {} */
};

struct target {
    const struct target_type *type;
};

struct target_type {
    const char *scheme; /* "parley://" */
    bool can_constrain, can_fork;
    bool counts_no_tokens; /* it does not say how many tokens a prompt and a reply have */
    size_t session_size;   /* bytes; zeroed, it is one */
    /* Waits for the server. NULL: it was not ready in time, or, with EXIT_MISUSE, the options are
     * at fault; stderr says so. *ret_code is EXIT_FAILED before. */
    struct target *(*open)(const char *address, const struct target_config *config,
                           enum exit_code *ret_code);
    /* Ends turns in flight as failed, and waits for their ends. */
    void (*close)(struct target *t);
    /* STATUS_OK: end will be called, never inside this call. */
    enum status (*send)(struct target *t, struct target_session *s, struct error *err);
    /* Ends the conversation at the server; a turn in flight ends as failed. Without one in flight
     * the session may begin another conversation at once. */
    void (*leave)(struct target *t, struct target_session *s);
    void (*session_deinit)(struct target_session *s); /* no turn is in flight */
};

extern const struct target_type parley_target, openai_target, openai_tls_target, kserve_target,
    act_target, grpc_target;

/* The kind whose scheme the address begins with; *ret_rest is what follows it. NULL: none. */
const struct target_type *target_type_of(const char *address, const char **ret_rest);

/* For the kinds: a turn begins; a chunk has arrived. */
void session_begin(struct target_session *s);
void session_chunk(struct target_session *s);

#endif
