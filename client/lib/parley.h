/* libparley: the C client of parleyd.
 *
 * A channel is thread-safe and cheap to share. Every call is asynchronous: it returns at once. Its
 * callbacks run on the channel's own thread, or in parley_channel_dispatch if the channel is
 * polled, one at a time for each call. Callbacks must not block. The blocking calls below do the
 * same and wait for the end; do not use them in a callback. Strings that the caller passes are
 * copied. A callback's arguments are valid until it returns. */
#ifndef PARLEY_H
#define PARLEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* other symbols are hidden in the library */
#endif

/* gRPC's status codes. */
enum parley_status {
    PARLEY_OK = 0,
    PARLEY_CANCELLED = 1,
    PARLEY_UNKNOWN = 2,
    PARLEY_INVALID_ARGUMENT = 3,
    PARLEY_DEADLINE_EXCEEDED = 4,
    PARLEY_NOT_FOUND = 5,
    PARLEY_ALREADY_EXISTS = 6,
    PARLEY_PERMISSION_DENIED = 7,
    PARLEY_RESOURCE_EXHAUSTED = 8,
    PARLEY_FAILED_PRECONDITION = 9,
    PARLEY_ABORTED = 10,
    PARLEY_OUT_OF_RANGE = 11,
    PARLEY_UNIMPLEMENTED = 12,
    PARLEY_INTERNAL = 13,
    PARLEY_UNAVAILABLE = 14,
    PARLEY_DATA_LOSS = 15,
    PARLEY_UNAUTHENTICATED = 16,
};

const char *parley_status_name(enum parley_status status);

struct parley_error {
    enum parley_status status;
    uint32_t retry_after_ms; /* 0: no hint */
    char field[48];          /* the request's field that is wrong; "" for none */
    char text[400];
    char reason[48]; /* a stable word such as "QUEUE_FULL"; "" if parleyd sent none. If no server
                        answered, the cause: NOTHING_LISTENS, HOST_UNKNOWN, UNREACHABLE,
                        NOTHING_BEHIND (a proxy), NOT_GRPC, TLS_WANTED, TLS_NOT_WANTED,
                        AUTHORITY_UNKNOWN, AUTHORITIES_MISSING, NAME_DIFFERS, CERTIFICATE_WANTED,
                        SILENT, ADDRESS_MALFORMED, PEM_MALFORMED; CONNECTION_LOST if it was reached
                        before */
};

struct parley_channel;
struct parley_call; /* in flight */

/* address: "HOST:PORT", "[IPV6]:PORT", a host without a port (8001), or "unix:/path". Connects
 * lazily; each call on a channel whose address or PEM is malformed fails with INVALID_ARGUMENT. Its
 * threads block all signals. gRPC's own log is off, unless the environment has GRPC_VERBOSITY. NULL
 * only if out of memory. */
struct parley_channel *parley_channel_open(const char *address);

/* If all but address is zero, the same as parley_channel_open. Strings are copied. */
struct parley_channel_options {
    const char *address;
    const char *key; /* sent with each call, as Authorization: Bearer KEY; NULL: none */
    bool is_tls;     /* if false, the rest is ignored, and the key is sent unencrypted */
    const char *ca;  /* PEM: authorities of the server's certificate; NULL: the system's */
    const char *certificate, *private_key; /* PEM: the client's, both or none */
    bool is_polled; /* callbacks run in parley_channel_dispatch, not on the channel's own thread */
};

/* NULL if out of memory, if the key has bytes that a header must not have, or if a polled channel
 * gets no file descriptor. */
struct parley_channel *parley_channel_open_with(const struct parley_channel_options *options);
/* How long a call is sent again that fails because the server, or the connection to it, is gone or
 * full, once the channel has reached a server; counted from the failure, or since the last piece
 * before it. This concerns what may be sent twice: numbered turns (parley_turn_start, parley_turn,
 * parley_ask_start), opens, forks, rewinds, cancels and closes. A turn goes on
 * behind the last piece that came: its events are as if nothing had happened. 0: never. Any
 * thread; it holds for later failures. */
#define PARLEY_PATIENCE_MS 30000 /* of a new channel */
void parley_channel_set_patience(struct parley_channel *channel, uint32_t patience_ms);
/* Cancels the calls in flight, waits for their callbacks, and frees the channel. Not in a callback.
 */
void parley_channel_close(struct parley_channel *channel);
/* Waits until the server answers its health check, or until timeout_ms, and up to a second more for
 * a host that does not answer at all. DEADLINE_EXCEEDED says in a sentence what prevented it.
 * FAILED_PRECONDITION, at once, if waiting cannot change the cause (the port is not gRPC's, or TLS
 * or a certificate does not fit); INVALID_ARGUMENT for a malformed address or PEM. */
enum parley_status parley_channel_wait(struct parley_channel *channel, uint32_t timeout_ms,
                                       struct parley_error *err);

/* For event loops (poll, libuv, GLib): the file descriptor of a polled channel, which is readable
 * while there is something to dispatch; -1 for other channels. The channel owns it. */
int parley_channel_fd(const struct parley_channel *channel);
/* Runs the pending callbacks of a polled channel, and returns. Not in a callback. Only one thread
 * may dispatch, and only it may use blocking calls, which dispatch while they wait. Calls may be
 * started and cancelled on any thread. */
void parley_channel_dispatch(struct parley_channel *channel);

/* How to sample. A field counts only if its bit in `set` is set; else the server's default is used.
 */
enum parley_sampling_set {
    PARLEY_TEMPERATURE = 1 << 0,
    PARLEY_TOP_K = 1 << 1,
    PARLEY_TOP_P = 1 << 2,
    PARLEY_MIN_P = 1 << 3,
    PARLEY_REPETITION_PENALTY = 1 << 4,
    PARLEY_PRESENCE_PENALTY = 1 << 5,
    PARLEY_FREQUENCY_PENALTY = 1 << 6,
    PARLEY_SEED = 1 << 7,
    PARLEY_MAX_TOKENS = 1 << 8,
    PARLEY_MIN_TOKENS = 1 << 9,
    PARLEY_IGNORE_EOS = 1 << 10,
};

struct parley_sampling {
    unsigned set;
    float temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    uint32_t top_k, max_tokens, min_tokens;
    uint64_t seed;
    bool ignore_eos;
    const char *const *stops; /* [n_stops] */
    size_t n_stops;
    const int32_t *bias_ids; /* [n_biases] */
    const float *biases;     /* [n_biases] */
    size_t n_biases;
};

struct parley_message {
    const char *role; /* "system", "user", "assistant" */
    const char *text;
};

struct parley_open {
    const char *model;                      /* NULL: the server's default */
    const char *system;                     /* NULL: the model's own */
    const struct parley_sampling *sampling; /* NULL: the model's */
    uint64_t ttl_ms;                        /* 0: the server's */
    int priority;
    /* 1 to 128 bytes: the same request with the same id returns the conversation that it opened.
     * NULL: libparley draws a random id. "": the request has no id, and is sent only once. */
    const char *request_id;
};

struct parley_opened {
    char conversation[33];
    char model[128];
    char version[65];
};

enum parley_status parley_conversation_open(struct parley_channel *channel,
                                            const struct parley_open *what,
                                            struct parley_opened *out, struct parley_error *err);

struct parley_turn {
    const char *conversation;
    uint32_t
        turn; /* 0: the next one, once; a number: sent again as parley_channel_set_patience says */
    const struct parley_message *messages; /* [n_messages] */
    size_t n_messages;
    const struct parley_sampling *sampling; /* NULL: the conversation's */
    int want_logprobs;                      /* 0: none; 1 … 20: each token and the N likeliest */
    uint32_t deadline_ms;                   /* 0: none; with all that is sent again */
    const char *json_schema;                /* the reply must match it; NULL: none */
};

struct parley_token {
    int32_t id;
    float logprob; /* with want_logprobs */
    const struct parley_top {
        int32_t id;
        float logprob;
    } * top; /* [n_top] */
    size_t n_top;
};

struct parley_usage {
    uint32_t prompt_tokens, cached_tokens, completion_tokens;
};

struct parley_timings {
    uint64_t queue_us, prefill_us, decode_us, total_us;
    uint32_t steps;
};

struct parley_done {
    uint32_t turn;
    const char *finish_reason;
    struct parley_usage usage;
    struct parley_timings timings;
};

/* All but end may be NULL. end is always called exactly once, last. */
struct parley_turn_events {
    void (*accepted)(void *arg, uint32_t turn, uint32_t prompt_tokens, uint32_t cached_tokens);
    void (*progress)(void *arg, uint32_t done, uint32_t total);
    void (*piece)(void *arg, const char *text, size_t len, const struct parley_token *tokens,
                  size_t n_tokens);
    void (*done)(void *arg, const struct parley_done *done);
    void (*end)(void *arg, const struct parley_error *err); /* err->status may be PARLEY_OK */
    void *arg;
};

/* NULL only if out of memory; end reports any other failure. */
struct parley_call *parley_turn_start(struct parley_channel *channel,
                                      const struct parley_turn *turn,
                                      const struct parley_turn_events *events);
/* Requests cancellation; end is still called. Any thread, also after the end, until
 * parley_call_unref. */
void parley_call_cancel(struct parley_call *call);
/* Whether the call's connection or server is gone, and the call is sent again until it is back:
 * true from the failure until the server answers. Any thread, until parley_call_unref. */
bool parley_call_is_lost(const struct parley_call *call);
void parley_call_unref(struct parley_call *call);

/* Runs a turn to its end; its events are called on another thread. */
enum parley_status parley_turn(struct parley_channel *channel, const struct parley_turn *turn,
                               const struct parley_turn_events *events, struct parley_error *err);

/* Turns of any number of conversations over one stream, which is cheaper than a call per turn. end
 * is called exactly once, last, after the end of each turn. NULL only if out of memory. */
struct parley_call *parley_chat_start(struct parley_channel *channel,
                                      void (*end)(void *arg, const struct parley_error *err),
                                      void *arg);
/* Sends a turn; its events are those of parley_turn_start, and its deadline_ms is ignored. ret_tag
 * (may be NULL) is for parley_chat_cancel. Any thread, also in callbacks. False: nothing was sent
 * and no event follows, because the stream has ended or memory is exhausted. */
bool parley_chat_turn(struct parley_call *stream, const struct parley_turn *turn,
                      const struct parley_turn_events *events, uint64_t *ret_tag);
/* Cancels the turn; no effect if it has ended. Any thread. */
void parley_chat_cancel(struct parley_call *stream, uint64_t tag);

/* at_turn: how many turns the fork keeps; 0: none. */
#define PARLEY_ALL_TURNS UINT32_MAX
enum parley_status parley_fork(struct parley_channel *channel, const char *conversation,
                               uint32_t at_turn, char out[33], struct parley_error *err);
enum parley_status parley_rewind(struct parley_channel *channel, const char *conversation,
                                 uint32_t to_turn, uint32_t *ret_turns, struct parley_error *err);
enum parley_status parley_cancel(struct parley_channel *channel, const char *conversation,
                                 uint32_t *ret_cancelled, struct parley_error *err);
/* Cancels this turn and those behind it; 0: all. */
enum parley_status parley_cancel_turn(struct parley_channel *channel, const char *conversation,
                                      uint32_t turn, uint32_t *ret_cancelled,
                                      struct parley_error *err);
enum parley_status parley_close(struct parley_channel *channel, const char *conversation,
                                struct parley_error *err);

/* --- the same without blocking: futures --- */

/* The result of a call: first pending, then settled, exactly once. */
struct parley_future;

struct parley_result {
    struct parley_error err;     /* the rest is valid only if its status is PARLEY_OK */
    struct parley_opened opened; /* of open; of fork, only its conversation */
    uint32_t turns;              /* of rewind: the remaining turns */
    const char *text;            /* of ask: the reply, [len] and a NUL */
    size_t len;
    struct parley_done done; /* of ask */
};

/* NULL only if out of memory; the result reports any other failure. */
struct parley_future *parley_conversation_open_start(struct parley_channel *channel,
                                                     const struct parley_open *what);
struct parley_future *parley_fork_start(struct parley_channel *channel, const char *conversation,
                                        uint32_t at_turn);
struct parley_future *parley_rewind_start(struct parley_channel *channel, const char *conversation,
                                          uint32_t to_turn);
struct parley_future *parley_close_start(struct parley_channel *channel, const char *conversation);
/* A turn that gets its whole reply at once. */
struct parley_future *parley_ask_start(struct parley_channel *channel,
                                       const struct parley_turn *turn);

/* NULL while it is pending. Valid until parley_future_unref. Any thread. */
const struct parley_result *parley_future_result(const struct parley_future *future);

/* Registers a continuation. It is called once, when the future settles, where the channel's
 * callbacks run; several are called in the order of their registration. If the future has settled
 * already, it is called inside parley_future_then. False if out of memory: then is not called. The
 * result is valid until it returns. */
typedef void (*parley_then_fn)(void *arg, const struct parley_result *result);
bool parley_future_then(struct parley_future *future, parley_then_fn then, void *arg);

/* Wait for futures of one channel, at most timeout_ms. Not in a callback. parley_wait_all returns
 * whether all have settled; parley_wait_any the index of the first one that has, or n if none has.
 */
#define PARLEY_FOREVER UINT32_MAX
bool parley_wait_all(struct parley_future *const *futures, size_t n, uint32_t timeout_ms);
size_t parley_wait_any(struct parley_future *const *futures, size_t n, uint32_t timeout_ms);

/* Requests cancellation; the future still settles. Any thread. */
void parley_future_cancel(struct parley_future *future);
/* Its call continues, and its continuations are still called. NULL is accepted. */
void parley_future_unref(struct parley_future *future);

/* --- any method --- */

/* The result of a unary call. data was allocated by malloc, and the callback must free it; it is
 * NULL unless err->status is PARLEY_OK. */
typedef void (*parley_unary_fn)(void *arg, void *data, size_t len, const struct parley_error *err);

/* Any unary method: protobuf bytes in, protobuf bytes out. method: "/parley.v1.Models/List". then
 * is called exactly once. NULL only if out of memory: then is not called. */
struct parley_call *parley_unary_start(struct parley_channel *channel, const char *method,
                                       const void *request, size_t request_len,
                                       uint32_t deadline_ms, parley_unary_fn then, void *arg);

/* The same, but blocks until the end. The caller frees *ret_data. */
enum parley_status parley_unary(struct parley_channel *channel, const char *method,
                                const void *request, size_t request_len, uint32_t deadline_ms,
                                void **ret_data, size_t *ret_len, struct parley_error *err);

/* Called for each message of a response stream, on the channel's thread. A status other than
 * PARLEY_OK ends the call with *err, which the function has filled. */
typedef enum parley_status (*parley_message_fn)(void *arg, const void *data, size_t len,
                                                struct parley_error *err);

/* Any method with one request and a response stream. Returns when the stream ends. */
enum parley_status parley_server_stream(struct parley_channel *channel, const char *method,
                                        const void *request, size_t request_len,
                                        parley_message_fn message, void *arg,
                                        struct parley_error *err);

/* --- Act: observations in, actions out --- */

enum parley_dtype {
    PARLEY_F32 = 0,
    PARLEY_F64 = 1,
    PARLEY_I32 = 2,
    PARLEY_I64 = 3,
    PARLEY_U8 = 4,
    PARLEY_BOOL = 5,
};

/* Numbers, row-major, little endian. */
struct parley_tensor {
    const char *name;
    enum parley_dtype dtype;
    const int64_t *shape; /* [n_dims]; none: a scalar */
    size_t n_dims;
    const void *data; /* [size_bytes], aligned for its dtype */
    size_t size_bytes;
};

/* One observation of one environment. The session is (env_id, run_id): another run_id starts a new
 * one. seq counts its steps: 1, 2, …. Repeating the last step returns the same answer. */
struct parley_step {
    const char *model; /* NULL: the server's default */
    const char *env_id;
    uint64_t run_id, seq;
    const struct parley_tensor *observation; /* [n_observation] */
    size_t n_observation;
    float reward;         /* of the previous action */
    bool done;            /* the episode ended before this observation */
    uint32_t row;         /* lock-step: the participant's index */
    uint64_t tag;         /* on a stream: returned with the action */
    uint32_t deadline_ms; /* 0: none; not on a stream */
};

struct parley_action {
    uint64_t seq;
    const struct parley_tensor *output; /* [n_output] action, logp, value */
    size_t n_output;
    uint64_t params_version;
    uint32_t batch_size; /* number of observations in the step */
    uint32_t queue_us;
};

/* action is NULL unless err->status is PARLEY_OK. */
typedef void (*parley_action_fn)(void *arg, const struct parley_action *action,
                                 const struct parley_error *err);

/* then is called exactly once. NULL only if out of memory: then is not called. */
struct parley_call *parley_step_start(struct parley_channel *channel,
                                      const struct parley_step *step, parley_action_fn then,
                                      void *arg);
/* The same, but blocks: then (may be NULL) is called before it returns, on the channel's thread. */
enum parley_status parley_step(struct parley_channel *channel, const struct parley_step *step,
                               parley_action_fn then, void *arg, struct parley_error *err);

/* Steps of any number of sessions over one stream. Each step sent gets an action or an error,
 * unless the stream ends first; end is called exactly once, last. */
struct parley_act_events {
    void (*action)(void *arg, uint64_t tag, const struct parley_action *action,
                   const struct parley_error *err);
    void (*end)(void *arg, const struct parley_error *err);
    void *arg;
};

/* NULL only if out of memory. */
struct parley_call *parley_act_start(struct parley_channel *channel,
                                     const struct parley_act_events *events);
/* Sends a step after the previous ones. Any thread, also in callbacks. False if nothing was sent:
 * the stream has ended (end was or will be called), or memory is exhausted. */
bool parley_act_send(struct parley_call *stream, const struct parley_step *step);

/* An observer that attaches to a server which trains a model. */
struct parley_attach {
    const char *model; /* NULL: the server's default */
    const char *env_id;
    uint64_t run_id;
    const char *environment; /* "CartPole-v1" */
};

struct parley_run_episode {
    uint64_t episode; /* returned in the result */
    uint32_t n_steps;
    float gamma;
    uint64_t seed;
};

struct parley_episode_result {
    uint64_t episode;
    const float *returns; /* [n_returns] rewards-to-go within each sub-episode */
    size_t n_returns;
    float reward;                     /* of the first sub-episode */
    const struct parley_error *error; /* NULL: the episode was finished */
};

/* run requests an episode: the observer plays it and then sends its result. end is called exactly
 * once, last; accepted may be NULL. */
struct parley_attach_events {
    void (*accepted)(void *arg, uint32_t row);
    void (*run)(void *arg, const struct parley_run_episode *episode);
    void (*end)(void *arg, const struct parley_error *err);
    void *arg;
};

/* NULL only if out of memory. */
struct parley_call *parley_attach_start(struct parley_channel *channel,
                                        const struct parley_attach *offer,
                                        const struct parley_attach_events *events);
/* As parley_act_send. */
bool parley_attach_send(struct parley_call *attached, const struct parley_episode_result *result);

/* How a server batches the waiting observations of a model. */
enum parley_act_mode {
    PARLEY_ACT_AUTO = 0,     /* chosen by the model's step times: one by one, or in batches */
    PARLEY_ACT_NONE = 1,     /* each observation alone */
    PARLEY_ACT_LOCKSTEP = 2, /* exactly n, one from each observer */
    PARLEY_ACT_DYNAMIC = 3,  /* when min wait, or the oldest has waited delay_us */
};

struct parley_act_configure {
    const char *model; /* NULL: the server's default */
    enum parley_act_mode mode;
    uint32_t n, timeout_ms;      /* lock-step; timeout_ms from the oldest arrival, 0: none */
    bool is_partial;             /* lock-step: answer a smaller batch after timeout_ms */
    uint32_t min, max, delay_us; /* dynamic */
};

enum parley_status parley_act_configure(struct parley_channel *channel,
                                        const struct parley_act_configure *how,
                                        struct parley_error *err);

/* Runs episodes on attached observers, and trains the policy after each. */
struct parley_train {
    const char *model;    /* NULL: the server's default */
    uint32_t n_observers; /* waits until this many are attached */
    uint32_t n_episodes, n_steps;
    float gamma, learning_rate; /* 0 is 0, and not a default */
    uint64_t seed;              /* of the environments */
    bool is_tutorial_loss;      /* PyTorch's tutorial: weighed by every observer's return */
    bool normalise;             /* scale returns to mean 0 and deviation 1 */
    const char *save_path; /* on the server's machine, beside the model's file; NULL: nowhere */
    uint32_t timeout_ms;   /* how long to wait for observers; 0: a minute */
    float until;           /* running reward at which training ends; 0: none */
    float value_weight;    /* of the error of the value head (the baseline); 0: none */
    float entropy_weight;  /* of the entropy of the actions; 0: none */
};

struct parley_trained {
    uint32_t episode; /* 1, 2, … */
    float mean_reward, running_reward;
    uint64_t rollout_us, train_us;
    uint64_t n_actions, n_forwards; /* since the start */
    uint32_t n_observers;           /* number that completed this episode */
    uint64_t params_version;
};

/* Blocks until the end. trained is called after each episode, on the channel's thread; if it
 * returns false, the training run ends. */
typedef bool (*parley_trained_fn)(void *arg, const struct parley_trained *event);
enum parley_status parley_train(struct parley_channel *channel, const struct parley_train *what,
                                parley_trained_fn trained, void *arg, struct parley_error *err);

/* Half-closes such a stream. end follows, with PARLEY_OK, when everything that was sent is
 * answered. Any thread, until parley_call_unref. */
void parley_call_half_close(struct parley_call *stream);

/* --- custom agents: a worker computes an agent for parleyd ---
 *
 * parleyd serves a model of the offered name while a worker is attached. The worker creates a clone
 * for each conversation, and answers steps. A step has the pending turns of many conversations.
 * Several workers of the same name share the conversations. */

struct parley_worker_offer {
    const char *name;      /* of the model */
    const char *version;   /* of the agent and its saved states; NULL: "1" */
    uint32_t max_rows;     /* the most rows of a step; 0: 64; at most 1024 */
    uint32_t slots;        /* the most unanswered steps; 0: 1; at most 16 */
    uint32_t save_every;   /* turns of a clone between two saves; 0: 8 */
    uint32_t max_cost;     /* of a step with more than one row; 0: no limit */
    bool is_cost_in_bytes; /* a row costs its text's bytes; else a row costs 1 */
    /* The same messages and sampling always give the same reply, so a turn of which a part was sent
     * may be run again on another worker. */
    bool is_deterministic;
    /* For a policy, which has no clones; 0 observations: not a policy. An action is one of
     * n_actions choices, or n_action_numbers numbers. */
    uint32_t n_observations, n_actions, n_action_numbers;
    bool has_logp, has_value; /* further outputs beside the action */
};

struct parley_worker_open {
    const char *system; /* the system prompt; "": none */
    const void *state;  /* [state_len] from save, of this or another worker; NULL: none */
    size_t state_len;
    uint32_t turn; /* the number of turns in the state */
};

struct parley_worker_row {
    void *clone;       /* NULL for a worker without clones */
    uint32_t turn;     /* 1, 2, … */
    bool is_continued; /* it was answered with PARLEY_ROW_MORE: continue the reply */
    const struct parley_message *messages; /* [n_messages]; none if is_continued */
    size_t n_messages;
    const struct parley_sampling *sampling;
    /* For a worker without clones, which gets the messages even if is_continued: */
    const char *system;
    const struct parley_message *history; /* [n_history] of earlier turns, with replies */
    size_t n_history;
    const char *reply; /* the reply so far */
    /* For a policy: */
    const float *observation; /* [n_observations] */
    float reward;             /* of the previous action */
    bool is_first;            /* the first of an episode */
};

struct parley_worker_step {
    uint64_t id;
    const struct parley_worker_row *rows; /* [n_rows] */
    size_t n_rows;
};

enum parley_row_outcome {
    PARLEY_ROW_DONE = 0,   /* the reply is complete */
    PARLEY_ROW_MORE = 1,   /* the row is in a later step again */
    PARLEY_ROW_FAILED = 2, /* the turn fails; the clone must be as it was before the turn */
};

struct parley_row_answer {
    const char *text; /* the next piece of the reply, at most 64 KiB; NULL: nothing */
    enum parley_row_outcome outcome;
    bool is_cut;                      /* DONE: the reply was cut by max_tokens */
    uint32_t prompt_tokens;           /* for the usage; 0: unknown */
    const struct parley_error *error; /* FAILED: its status and text; NULL: PARLEY_INTERNAL */
    /* For a policy: "action", an I64 or F32 [n_action_numbers], then "logp" and "value" as offered.
     */
    const struct parley_tensor *output; /* [n_output] */
    size_t n_output;
    uint64_t params_version;
};

/* The callbacks of a worker. step and end must not be NULL. Without open the worker has no clones:
 * each row has its whole conversation, and only step, cancel, accepted and end are called. With
 * open, replay and close must be set too. fork, rewind and save may each be NULL: parleyd then
 * opens a new clone and replays its turns.
 *
 * open and fork return the clone. NULL, or false from a callback, means out of memory and ends the
 * stream. A turn begins with its row's first step, and is part of the clone once the row is
 * answered with PARLEY_ROW_DONE. Until then rewind and fork apply to the clone without that turn.
 */
struct parley_worker_events {
    void (*accepted)(void *arg);
    void *(*open)(void *arg, const struct parley_worker_open *what);
    /* An earlier turn: afterwards the clone must be as if it had given this reply. */
    bool (*replay)(void *arg, void *clone, uint32_t turn, const struct parley_message *messages,
                   size_t n_messages, const char *reply);
    void *(*fork)(void *arg, void *parent, uint32_t at_turn); /* keeps at_turn turns */
    bool (*rewind)(void *arg, void *clone, uint32_t to_turn);
    /* Returns its state, at most 1 MiB, allocated by malloc; the caller frees it. */
    void *(*save)(void *arg, void *clone, size_t *ret_len);
    /* The clone is not used again. At the end of the stream it is called for each remaining clone,
     * even if one of its steps is unanswered. */
    void (*close)(void *arg, void *clone);
    /* Answer it by parley_worker_answer, in this callback or later. */
    void (*step)(void *arg, struct parley_call *worker, const struct parley_worker_step *step);
    void (*cancel)(void *arg, uint64_t step, uint32_t row); /* the answer is no longer needed */
    void (*end)(void *arg, const struct parley_error *err); /* exactly once, last */
    void *arg;
};

/* Attaches a worker; waits for the server if it is not reachable yet. parley_call_half_close
 * detaches the worker. NULL only if out of memory. */
struct parley_call *parley_worker_start(struct parley_channel *channel,
                                        const struct parley_worker_offer *offer,
                                        const struct parley_worker_events *events);
/* Answers all rows of the step, in order. Any thread, also in callbacks. False if nothing was sent:
 * the stream has ended, or memory is exhausted. */
bool parley_worker_answer(struct parley_call *worker, uint64_t step,
                          const struct parley_row_answer *answers, size_t n_rows);
/* Attaches a worker, and attaches it again whenever the connection was lost. Returns when the
 * server refuses the worker, with the reason, or with PARLEY_OK when one of its callbacks detached
 * it. end may be NULL; else it is called each time. */
enum parley_status parley_worker_run(struct parley_channel *channel,
                                     const struct parley_worker_offer *offer,
                                     const struct parley_worker_events *events,
                                     struct parley_error *err);

/* --- custom environments: a host steps them for parleyd ---
 *
 * parleyd serves environments of the offered name through parley.v1.Env while a host is attached.
 * The host creates each opened environment, and each reset begins an episode. Several hosts of the
 * same name share the environments. If a host is lost, its environments fail until a reset creates
 * them again on another host. */

struct parley_host_offer {
    const char *name;          /* 1 to 63 letters, digits, '.', '_', '/' and '-' */
    uint32_t n_observations;   /* numbers of an observation, 1 to 524288 */
    uint32_t n_actions;        /* an action is one of this many choices, or */
    uint32_t n_action_numbers; /* this many numbers, at most 524288; exactly one is set */
    uint32_t max_instances;    /* the most hosted at once; 0: 4096, the maximum */
};

/* A reset or a step of n environments. */
struct parley_host_order {
    uint64_t id;
    void *const *environments; /* [n] from make, no duplicates */
    size_t n;
    const uint64_t *seeds; /* [n] of a reset: seeds of the new episodes; of a step: NULL */
    /* A step's actions: */
    const int64_t *choices; /* [n] each from 0 to n_actions - 1; or */
    const float *numbers;   /* [n][n_action_numbers], finite */
};

/* The results, in the sequence of the order's environments. */
struct parley_host_results {
    size_t n;
    const float *observations; /* [n][n_observations] */
    /* For a step; NULL for a reset: */
    const float *rewards;   /* [n] */
    const bool *terminated; /* [n] the episode ended by its own rules */
    const bool *truncated;  /* [n] the episode was cut off */
    /* [n] A line that says why this environment failed, or NULL. A failed environment must be
     * reset, and its numbers are ignored. NULL: none has failed. An environment whose observation
     * or reward is not finite also counts as failed. */
    const char *const *failures;
};

/* The callbacks of a host. Only accepted and end may be NULL. */
struct parley_host_events {
    void (*accepted)(void *arg);
    /* Creates an environment, not reset yet. NULL means out of memory and ends the stream. */
    void *(*make)(void *arg);
    /* The environment is not used again. At the end of the stream it is called for each remaining
     * environment, even if an order with it is unanswered. */
    void (*free)(void *arg, void *environment);
    /* Answer them by parley_host_answer, in this callback or later, in the sequence of the orders.
     * parleyd never steps an environment whose episode is over, and never has two unanswered orders
     * with the same environment. */
    void (*reset)(void *arg, struct parley_call *host, const struct parley_host_order *order);
    void (*step)(void *arg, struct parley_call *host, const struct parley_host_order *order);
    void (*end)(void *arg, const struct parley_error *err); /* exactly once, last */
    void *arg;
};

/* As parley_worker_start; end must not be NULL. */
struct parley_call *parley_host_start(struct parley_channel *channel,
                                      const struct parley_host_offer *offer,
                                      const struct parley_host_events *events);
/* Any thread, also in callbacks. False if nothing was sent: the stream has ended, or memory is
 * exhausted. */
bool parley_host_answer(struct parley_call *host, uint64_t order,
                        const struct parley_host_results *results);
/* As parley_worker_run. */
enum parley_status parley_host_run(struct parley_channel *channel,
                                   const struct parley_host_offer *offer,
                                   const struct parley_host_events *events,
                                   struct parley_error *err);

/* --- parameters: the parley.v1.Params service ---
 * These calls block. An upload of n numbers is the set's tensors, concatenated. */

struct parley_tensor_spec {
    const char *name;
    const int64_t *shape; /* [n_dims] */
    size_t n_dims;
};

enum parley_optimiser { PARLEY_SGD = 0, PARLEY_ADAM = 1, PARLEY_ADAMW = 2 };

/* In a member for which 0 is the default: the number 0 itself. */
#define PARLEY_ZERO (-0.0)

enum parley_schedule { PARLEY_CONSTANT = 0, PARLEY_STEP_DOWN = 1, PARLEY_COSINE = 2 };

struct parley_params_config {
    const char *name;
    const struct parley_tensor_spec *specs; /* [n_specs] f32 */
    size_t n_specs;
    enum parley_optimiser optimiser;
    double learning_rate, momentum, dampening, weight_decay;
    bool nesterov;
    double beta1, beta2, epsilon; /* 0: 0.9, 0.999, 1e-8; PARLEY_ZERO: 0 */
    bool is_sum;                  /* sum of the gradients; else their mean */
    uint32_t round_size;
    bool dedupe;         /* a client's step counts once */
    bool may_be_partial; /* after the timeout a round runs with quorum_min; else it is aborted */
    uint32_t quorum_min, quorum_timeout_ms;
    uint32_t max_staleness, fan_in, max_queue;
    bool allow_non_finite; /* gradients may have NaN and Inf */
    /* The learning rate grows for warm_up rounds. Then it is multiplied by factor every step_size
     * rounds, or follows a cosine down to minimum, which it reaches at round total. */
    enum parley_schedule schedule;
    uint64_t warm_up, step_size, total;
    double factor, minimum;
};

/* values: [n], NULL for zeros. */
enum parley_status parley_params_create(struct parley_channel *channel,
                                        const struct parley_params_config *config,
                                        const float *values, size_t n, struct parley_error *err);

struct parley_gradient {
    const char *params, *client_id;
    uint64_t step_id, base_version;
    const float *values; /* [n] */
    size_t n;
};

struct parley_version {
    uint64_t version;
    uint64_t counted_in; /* updates: the version that includes the gradient */
    uint64_t round_wait_us;
    uint32_t n_contributors;
    bool has_values;    /* the parameters were returned */
    uint8_t sha256[32]; /* of the parameters */
};

/* Called during a transfer; if it returns false, the transfer ends with PARLEY_CANCELLED. */
typedef bool (*parley_progress_fn)(void *arg, size_t sent_bytes, size_t received_bytes);

/* A stream of updates, one after another. After a failure the stream cannot be used: close it. NULL
 * if out of memory. The channel must outlive it. */
struct parley_trainer;
struct parley_trainer *parley_trainer_open(struct parley_channel *channel);
void parley_trainer_close(struct parley_trainer *trainer);
/* Sends a gradient, waits for its round, and receives the new parameters. values: [n], or NULL to
 * receive none. progress may be NULL. */
enum parley_status parley_update_and_fetch(struct parley_trainer *trainer,
                                           const struct parley_gradient *gradient, float *values,
                                           struct parley_version *out, parley_progress_fn progress,
                                           void *arg, struct parley_error *err);

struct parley_pushed {
    uint64_t version;
    uint32_t depth; /* waiting gradients */
    uint64_t dropped;
};

/* Sends a gradient without waiting for its round. */
enum parley_status parley_params_push(struct parley_channel *channel,
                                      const struct parley_gradient *gradient,
                                      struct parley_pushed *out, struct parley_error *err);
/* Fetches the newest version, if it is newer than *if_newer_than (which may be NULL). */
enum parley_status parley_params_pull(struct parley_channel *channel, const char *params,
                                      const uint64_t *if_newer_than, float *values, size_t n,
                                      struct parley_version *out, struct parley_error *err);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
