/* libparley: the C client of parleyd.
 *
 * A channel is thread-safe and cheap to share. Every call is asynchronous: it returns at once, and
 * its callbacks come on the channel's own thread, or in parley_channel_dispatch if the channel is
 * polled, one at a time for one call; they must not block.
 * The blocking calls further below do the same and wait for the end; they may not be used in a
 * callback. Texts that the caller passes are copied; a callback's arguments are valid until it
 * returns. */
#ifndef PARLEY_H
#define PARLEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* all else is hidden in the library */
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
    char reason[48]; /* why, in a stable word, "QUEUE_FULL"; "" when parleyd sent none */
};

struct parley_channel;
struct parley_call; /* in flight */

/* address: "HOST:PORT" or "unix:/path". Connects lazily. The threads that it starts block signals.
 * NULL only without memory. */
struct parley_channel *parley_channel_open(const char *address);

/* Zeroed but for address: as parley_channel_open. The texts are copied. */
struct parley_channel_options {
    const char *address;
    const char *key; /* sent with each call, as Authorization: Bearer KEY; NULL: none */
    bool is_tls;     /* else the rest is not used, and the key can be read on the way */
    const char *ca;  /* PEM: whom the server's certificate must be of; NULL: the system's */
    const char *certificate, *private_key; /* PEM: our own, both or none */
    bool
        is_polled; /* callbacks come in parley_channel_dispatch, not on a thread of the channel's */
};

/* NULL without memory or, if it is polled, descriptors, or if the key has bytes that no header may
 * have. */
struct parley_channel *parley_channel_open_with(const struct parley_channel_options *options);
/* Cancels the calls in flight, waits for their callbacks, frees. Not from a callback. */
void parley_channel_close(struct parley_channel *channel);
/* Waits until the server answers its health check, or until timeout_ms. */
enum parley_status parley_channel_wait(struct parley_channel *channel, uint32_t timeout_ms,
                                       struct parley_error *err);

/* For loops of others (poll, libuv, GLib): the descriptor of a channel that is polled, readable
 * while there is something to dispatch; -1 for other channels. It is the channel's. */
int parley_channel_fd(const struct parley_channel *channel);
/* Runs the callbacks of what has come, and returns. Of a channel that is polled; not in a callback.
 * One thread dispatches, and only it may call what waits, which dispatches meanwhile; calls may be
 * started and cancelled on any thread. */
void parley_channel_dispatch(struct parley_channel *channel);

/* How to sample. A bit of `set` says that a field holds; the rest is the server's default. */
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
    /* 1 to 128 bytes: sent again with the same request, it returns the conversation that it opened.
     * NULL: none. */
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
    uint32_t turn; /* 0: the next; else the number that makes a retry safe */
    const struct parley_message *messages; /* [n_messages] */
    size_t n_messages;
    const struct parley_sampling *sampling; /* NULL: the conversation's */
    int want_logprobs;       /* 0: none; 1 … 20: each token and that many alternatives */
    uint32_t deadline_ms;    /* 0: none */
    const char *json_schema; /* what the reply must match; NULL: anything */
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

/* Any may be NULL but end, which is always called exactly once, last. */
struct parley_turn_events {
    void (*accepted)(void *arg, uint32_t turn, uint32_t prompt_tokens, uint32_t cached_tokens);
    void (*progress)(void *arg, uint32_t done, uint32_t total);
    void (*piece)(void *arg, const char *text, size_t len, const struct parley_token *tokens,
                  size_t n_tokens);
    void (*done)(void *arg, const struct parley_done *done);
    void (*end)(void *arg, const struct parley_error *err); /* err->status may be PARLEY_OK */
    void *arg;
};

/* Returns NULL only without memory; end reports any other failure. */
struct parley_call *parley_turn_start(struct parley_channel *channel,
                                      const struct parley_turn *turn,
                                      const struct parley_turn_events *events);
/* Requests the end; end is still called. Any thread, also after the end, until parley_call_unref.
 */
void parley_call_cancel(struct parley_call *call);
void parley_call_unref(struct parley_call *call);

/* Runs a turn to its end; its events are called on another thread. */
enum parley_status parley_turn(struct parley_channel *channel, const struct parley_turn *turn,
                               const struct parley_turn_events *events, struct parley_error *err);

/* Turns of any number of conversations over one stream, which costs a turn less than a call of its
 * own. end is called exactly once, last, after the ends of all its turns. NULL only without memory.
 */
struct parley_call *parley_chat_start(struct parley_channel *channel,
                                      void (*end)(void *arg, const struct parley_error *err),
                                      void *arg);
/* Sends a turn, whose events come as those of parley_turn_start; its deadline_ms is not used.
 * ret_tag (may be NULL) is for parley_chat_cancel. Any thread, callbacks too. False: nothing is
 * sent and no event comes, since the stream is over or no memory is left. */
bool parley_chat_turn(struct parley_call *stream, const struct parley_turn *turn,
                      const struct parley_turn_events *events, uint64_t *ret_tag);
/* Ends the turn, as cancelled; one that has ended is none. Any thread. */
void parley_chat_cancel(struct parley_call *stream, uint64_t tag);

/* at_turn: how many turns the fork keeps; 0 is the beginning. */
#define PARLEY_ALL_TURNS UINT32_MAX
enum parley_status parley_fork(struct parley_channel *channel, const char *conversation,
                               uint32_t at_turn, char out[33], struct parley_error *err);
enum parley_status parley_rewind(struct parley_channel *channel, const char *conversation,
                                 uint32_t to_turn, uint32_t *ret_turns, struct parley_error *err);
enum parley_status parley_cancel(struct parley_channel *channel, const char *conversation,
                                 uint32_t *ret_cancelled, struct parley_error *err);
/* This turn and those behind it; 0: all. */
enum parley_status parley_cancel_turn(struct parley_channel *channel, const char *conversation,
                                      uint32_t turn, uint32_t *ret_cancelled,
                                      struct parley_error *err);
enum parley_status parley_close(struct parley_channel *channel, const char *conversation,
                                struct parley_error *err);

/* --- the same without waiting: futures --- */

/* What comes of a call later: it is pending, then settled once and for all. */
struct parley_future;

struct parley_result {
    struct parley_error err;     /* the rest is of use if its status is PARLEY_OK */
    struct parley_opened opened; /* of open; of fork, its conversation alone */
    uint32_t turns;              /* of rewind: that are left */
    const char *text;            /* of ask: the reply, [len] and a NUL */
    size_t len;
    struct parley_done done; /* of ask */
};

/* NULL only without memory; the result reports any other failure. */
struct parley_future *parley_conversation_open_start(struct parley_channel *channel,
                                                     const struct parley_open *what);
struct parley_future *parley_fork_start(struct parley_channel *channel, const char *conversation,
                                        uint32_t at_turn);
struct parley_future *parley_rewind_start(struct parley_channel *channel, const char *conversation,
                                          uint32_t to_turn);
struct parley_future *parley_close_start(struct parley_channel *channel, const char *conversation);
/* A turn whose reply comes as a whole. */
struct parley_future *parley_ask_start(struct parley_channel *channel,
                                       const struct parley_turn *turn);

/* NULL while it is pending. Valid until parley_future_unref. Any thread. */
const struct parley_result *parley_future_result(const struct parley_future *future);

/* Called once, when the future settles, in the order in which they were given, where callbacks of
 * the channel come; of a future that has settled already, at once, inside parley_future_then. False
 * without memory: then is not called. The result is valid until it returns. */
typedef void (*parley_then_fn)(void *arg, const struct parley_result *result);
bool parley_future_then(struct parley_future *future, parley_then_fn then, void *arg);

/* Wait for futures of one channel, at most timeout_ms; not in a callback. all: whether all have
 * settled. any: the index of the first one that has; n when none has. */
#define PARLEY_FOREVER UINT32_MAX
bool parley_wait_all(struct parley_future *const *futures, size_t n, uint32_t timeout_ms);
size_t parley_wait_any(struct parley_future *const *futures, size_t n, uint32_t timeout_ms);

/* Requests the end; the future still settles. Any thread. */
void parley_future_cancel(struct parley_future *future);
/* Its call goes on, and its thens are still called. NULL is fine. */
void parley_future_unref(struct parley_future *future);

/* --- any method --- */

/* The result of a unary call. data is from malloc and the callee frees it; NULL unless err->status
 * is PARLEY_OK. */
typedef void (*parley_unary_fn)(void *arg, void *data, size_t len, const struct parley_error *err);

/* Any unary method: protobuf bytes in, protobuf bytes out. method: "/parley.v1.Models/List". then
 * is called exactly once. NULL only without memory: then is not called. */
struct parley_call *parley_unary_start(struct parley_channel *channel, const char *method,
                                       const void *request, size_t request_len,
                                       uint32_t deadline_ms, parley_unary_fn then, void *arg);

/* The same, and waits for its end. The caller frees *ret_data. */
enum parley_status parley_unary(struct parley_channel *channel, const char *method,
                                const void *request, size_t request_len, uint32_t deadline_ms,
                                void **ret_data, size_t *ret_len, struct parley_error *err);

/* A message of a call whose response is a stream; on the channel's thread. A status other than
 * PARLEY_OK ends the call with *err, whose text the function has filled. */
typedef enum parley_status (*parley_message_fn)(void *arg, const void *data, size_t len,
                                                struct parley_error *err);

/* Any method that answers one request with a stream of messages: returns when the stream ends. */
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
    const void *data; /* [size_bytes], aligned to its numbers */
    size_t size_bytes;
};

/* One observation of one environment. The session is (env_id, run_id): another run_id starts a new
 * one. seq counts its steps, 1, 2, …; a repeated last step gets the same answer. */
struct parley_step {
    const char *model; /* NULL: the server's default */
    const char *env_id;
    uint64_t run_id, seq;
    const struct parley_tensor *observation; /* [n_observation] */
    size_t n_observation;
    float reward;         /* of the action before */
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
    uint32_t batch_size; /* observations of the step that answered */
    uint32_t queue_us;
};

/* action is NULL unless err->status is PARLEY_OK. */
typedef void (*parley_action_fn)(void *arg, const struct parley_action *action,
                                 const struct parley_error *err);

/* then is called exactly once. NULL only without memory: then is not called. */
struct parley_call *parley_step_start(struct parley_channel *channel,
                                      const struct parley_step *step, parley_action_fn then,
                                      void *arg);
/* The same, and waits: then (may be NULL) is called before it returns, on the channel's thread. */
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

/* NULL only without memory. */
struct parley_call *parley_act_start(struct parley_channel *channel,
                                     const struct parley_act_events *events);
/* Sends a step after those sent before. Any thread, callbacks too. False when nothing is sent: the
 * stream is over (end has been or will be called), or no memory is left. */
bool parley_act_send(struct parley_call *stream, const struct parley_step *step);

/* An observer offers itself to a server that trains a model. */
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

/* run requests an episode: the observer steps through it and then sends its result. end is called
 * exactly once, last; accepted may be NULL. */
struct parley_attach_events {
    void (*accepted)(void *arg, uint32_t row);
    void (*run)(void *arg, const struct parley_run_episode *episode);
    void (*end)(void *arg, const struct parley_error *err);
    void *arg;
};

/* NULL only without memory. */
struct parley_call *parley_attach_start(struct parley_channel *channel,
                                        const struct parley_attach *offer,
                                        const struct parley_attach_events *events);
/* As parley_act_send. */
bool parley_attach_send(struct parley_call *attached, const struct parley_episode_result *result);

/* How a server batches the observations that wait for a model. */
enum parley_act_mode {
    PARLEY_ACT_AUTO = 0,     /* by the times of the model's steps: one by one, or in batches */
    PARLEY_ACT_NONE = 1,     /* each observation alone */
    PARLEY_ACT_LOCKSTEP = 2, /* exactly n, one of each observer */
    PARLEY_ACT_DYNAMIC = 3,  /* when min wait, or the oldest has waited delay_us */
};

struct parley_act_configure {
    const char *model; /* NULL: the server's default */
    enum parley_act_mode mode;
    uint32_t n, timeout_ms;      /* lock-step; timeout_ms from the oldest arrival, 0: none */
    bool is_partial;             /* lock-step: after timeout_ms a smaller batch is answered */
    uint32_t min, max, delay_us; /* dynamic */
};

enum parley_status parley_act_configure(struct parley_channel *channel,
                                        const struct parley_act_configure *how,
                                        struct parley_error *err);

/* Has attached observers run episodes, and the policy learn from each. */
struct parley_train {
    const char *model;    /* NULL: the server's default */
    uint32_t n_observers; /* waits until so many are attached */
    uint32_t n_episodes, n_steps;
    float gamma, learning_rate;
    uint64_t seed;         /* of the environments */
    bool is_tutorial_loss; /* the known fault: weighed by every observer's return */
    bool normalise;        /* returns, to mean 0 and deviation 1 */
    const char *save_path; /* on the server's machine, beside the model's file; NULL: nowhere */
    uint32_t timeout_ms;   /* to wait for observers; 0: a minute */
    float until;           /* running reward at which training ends; 0: none */
    float value_weight;    /* of a value head: the baseline, whose error has that weight; 0: none */
    float entropy_weight;  /* of the entropy of actions; 0: none */
};

struct parley_trained {
    uint32_t episode; /* 1, 2, … */
    float mean_reward, running_reward;
    uint64_t rollout_us, train_us;
    uint64_t n_actions, n_forwards; /* since the start */
    uint32_t n_observers;           /* that ran this episode to its end */
    uint64_t params_version;
};

/* Waits for the end. trained is called after each episode, on the channel's thread; false from it
 * ends the training run. */
typedef bool (*parley_trained_fn)(void *arg, const struct parley_trained *event);
enum parley_status parley_train(struct parley_channel *channel, const struct parley_train *what,
                                parley_trained_fn trained, void *arg, struct parley_error *err);

/* Ends sending on such a stream; end follows, with PARLEY_OK, once everything that was sent is
 * answered. Any thread, until parley_call_unref. */
void parley_call_half_close(struct parley_call *stream);

/* --- agents of one's own: a worker computes one for parleyd ---
 *
 * parleyd serves a model of the name that is offered, for as long as a worker is attached. The
 * worker has a clone for each conversation, which it makes itself, and answers steps: the pending
 * turns of many conversations at once. Several workers of one name share the conversations. */

struct parley_worker_offer {
    const char *name;      /* of the model */
    const char *version;   /* of the agent and of its saved states; NULL: "1" */
    uint32_t max_rows;     /* of a step; 0: 64; at most 1024 */
    uint32_t slots;        /* steps that may be unanswered at once; 0: 1; at most 16 */
    uint32_t save_every;   /* turns of a clone from one save to the next; 0: 8 */
    uint32_t max_cost;     /* of a step that has more than one row; 0: no bound */
    bool is_cost_in_bytes; /* of the rows' text; else a row costs 1 */
    /* The same messages and sampling always give the same reply: a turn of which a part was sent
     * may be run again at another worker. */
    bool is_deterministic;
    /* A policy, which has no clones; 0 observations: it is none. An action is one of n_actions, or
     * n_action_numbers numbers. */
    uint32_t n_observations, n_actions, n_action_numbers;
    bool has_logp, has_value; /* beside the action */
};

struct parley_worker_open {
    const char *system; /* the system prompt; "": none */
    const void *state;  /* [state_len] what save gave, here or at another worker; NULL: none */
    size_t state_len;
    uint32_t turn; /* the turns that the state has seen */
};

struct parley_worker_row {
    void *clone;       /* NULL of a worker without clones */
    uint32_t turn;     /* 1, 2, … */
    bool is_continued; /* it was answered with PARLEY_ROW_MORE: the reply goes on */
    const struct parley_message *messages; /* [n_messages]; none if is_continued */
    size_t n_messages;
    const struct parley_sampling *sampling;
    /* Of a worker without clones, whose messages are there whether it is_continued or not: */
    const char *system;
    const struct parley_message *history; /* [n_history] of the turns before, with their replies */
    size_t n_history;
    const char *reply; /* what was said so far */
    /* Of a policy: */
    const float *observation; /* [n_observations] */
    float reward;             /* of the action before */
    bool is_first;            /* of an episode */
};

struct parley_worker_step {
    uint64_t id;
    const struct parley_worker_row *rows; /* [n_rows] */
    size_t n_rows;
};

enum parley_row_outcome {
    PARLEY_ROW_DONE = 0,   /* the reply is complete */
    PARLEY_ROW_MORE = 1,   /* the row comes again in a later step */
    PARLEY_ROW_FAILED = 2, /* the turn fails; the clone is to be as it was before the turn */
};

struct parley_row_answer {
    const char *text; /* the next piece of the reply, at most 64 KiB; NULL: nothing */
    enum parley_row_outcome outcome;
    bool is_cut;                      /* DONE: more would have followed but for max_tokens */
    uint32_t prompt_tokens;           /* for the usage; 0: not counted */
    const struct parley_error *error; /* FAILED: its status and text; NULL: PARLEY_INTERNAL */
    /* Of a policy: "action", an I64 or F32 [n_action_numbers], then "logp" and "value" as offered.
     */
    const struct parley_tensor *output; /* [n_output] */
    size_t n_output;
    uint64_t params_version;
};

/* What parleyd asks for. step and end are never NULL. Without open there are no clones: each row
 * brings its whole conversation, and of the others only step, cancel, accepted and end come. With
 * open there are replay and close; each of fork, rewind and save may be NULL: parleyd then opens a
 * clone anew and has it replay its turns.
 *
 * open and fork return the clone, never NULL; NULL and false say that there is no memory, and end
 * the stream. A turn begins with its row's first step, and is part of the clone once the row is
 * answered with PARLEY_ROW_DONE; until then rewind and fork mean the clone without it. */
struct parley_worker_events {
    void (*accepted)(void *arg);
    void *(*open)(void *arg, const struct parley_worker_open *what);
    /* A turn that the clone has had: it is to be as if it had given this reply. */
    bool (*replay)(void *arg, void *clone, uint32_t turn, const struct parley_message *messages,
                   size_t n_messages, const char *reply);
    void *(*fork)(void *arg, void *parent, uint32_t at_turn); /* with that many of its turns */
    bool (*rewind)(void *arg, void *clone, uint32_t to_turn);
    /* Its state, of at most 1 MiB, from malloc; the caller frees it. */
    void *(*save)(void *arg, void *clone, size_t *ret_len);
    /* The clone is not used again. At the stream's end it comes for each that is left, also where a
     * step of it is not answered. */
    void (*close)(void *arg, void *clone);
    /* To be answered by parley_worker_answer, in this call or later. */
    void (*step)(void *arg, struct parley_call *worker, const struct parley_worker_step *step);
    void (*cancel)(void *arg, uint64_t step, uint32_t row); /* its answer is of no use any more */
    void (*end)(void *arg, const struct parley_error *err); /* exactly once, last */
    void *arg;
};

/* Attaches a worker; a server that is not there yet is waited for. parley_call_half_close detaches
 * it. NULL only without memory. */
struct parley_call *parley_worker_start(struct parley_channel *channel,
                                        const struct parley_worker_offer *offer,
                                        const struct parley_worker_events *events);
/* All rows of the step, in its order. Any thread, callbacks too. False when nothing is sent: the
 * stream is over, or no memory is left. */
bool parley_worker_answer(struct parley_call *worker, uint64_t step,
                          const struct parley_row_answer *answers, size_t n_rows);
/* Attaches a worker, again whenever the server was lost, until the server wants it no more, and
 * returns why; PARLEY_OK: one of its callbacks detached it. end may be NULL, else it comes each
 * time. */
enum parley_status parley_worker_run(struct parley_channel *channel,
                                     const struct parley_worker_offer *offer,
                                     const struct parley_worker_events *events,
                                     struct parley_error *err);

/* --- environments of one's own: a host steps them for parleyd ---
 *
 * parleyd serves environments of the name that is offered through parley.v1.Env, for as long as a
 * host is attached. Each that somebody opens is made here, and begins an episode with each reset;
 * several hosts of one name share them. Those of a host that goes away are lost for their users,
 * until a reset makes them anew at another. */

struct parley_host_offer {
    const char *name;          /* 1 to 63 letters, digits, '.', '_', '/' and '-' */
    uint32_t n_observations;   /* numbers of an observation, 1 to 524288 */
    uint32_t n_actions;        /* an action is one of so many choices, or */
    uint32_t n_action_numbers; /* it is so many numbers, at most 524288; one of both is set */
    uint32_t max_instances;    /* hosted at once; 0: 4096, the most */
};

/* A reset or a step of n environments together. */
struct parley_host_order {
    uint64_t id;
    void *const *environments; /* [n] what make gave, each once */
    size_t n;
    const uint64_t *seeds; /* [n] a reset: of the episodes that begin; a step: NULL */
    /* A step's actions: */
    const int64_t *choices; /* [n] each from 0 to n_actions - 1; or */
    const float *numbers;   /* [n][n_action_numbers], finite */
};

/* What became of them, in the order's order. */
struct parley_host_results {
    size_t n;
    const float *observations; /* [n][n_observations] */
    /* Of a step; NULL of a reset: */
    const float *rewards;   /* [n] */
    const bool *terminated; /* [n] the episode ended by its own rules */
    const bool *truncated;  /* [n] it was cut */
    /* [n] A line that says why this one failed, or NULL; it is to be reset, and its numbers are not
     * used. NULL: none has failed. One whose observation or reward is not finite has, too. */
    const char *const *failures;
};

/* What parleyd asks for. Of these only accepted and end may be NULL. */
struct parley_host_events {
    void (*accepted)(void *arg);
    /* An environment, not reset yet; NULL: there is no memory, which ends the stream. */
    void *(*make)(void *arg);
    /* It is not used again. At the stream's end it comes for each that is left, also where an order
     * of it is not answered. */
    void (*free)(void *arg, void *environment);
    /* To be answered by parley_host_answer, in this call or later, orders in the order in which
     * they came. parleyd steps no environment whose episode is over, and has only one order of an
     * environment under way. */
    void (*reset)(void *arg, struct parley_call *host, const struct parley_host_order *order);
    void (*step)(void *arg, struct parley_call *host, const struct parley_host_order *order);
    void (*end)(void *arg, const struct parley_error *err); /* exactly once, last */
    void *arg;
};

/* As parley_worker_start; end is not NULL. */
struct parley_call *parley_host_start(struct parley_channel *channel,
                                      const struct parley_host_offer *offer,
                                      const struct parley_host_events *events);
/* Any thread, callbacks too. False when nothing is sent: the stream is over, or no memory is left.
 */
bool parley_host_answer(struct parley_call *host, uint64_t order,
                        const struct parley_host_results *results);
/* As parley_worker_run. */
enum parley_status parley_host_run(struct parley_channel *channel,
                                   const struct parley_host_offer *offer,
                                   const struct parley_host_events *events,
                                   struct parley_error *err);

/* --- parameters: the parley.v1.Params service ---
 * These calls wait; an upload of n numbers is the concatenated tensors of the set. */

struct parley_tensor_spec {
    const char *name;
    const int64_t *shape; /* [n_dims] */
    size_t n_dims;
};

enum parley_optimiser { PARLEY_SGD = 0, PARLEY_ADAM = 1, PARLEY_ADAMW = 2 };

enum parley_schedule { PARLEY_CONSTANT = 0, PARLEY_STEP_DOWN = 1, PARLEY_COSINE = 2 };

struct parley_params_config {
    const char *name;
    const struct parley_tensor_spec *specs; /* [n_specs] f32 */
    size_t n_specs;
    enum parley_optimiser optimiser;
    double learning_rate, momentum, dampening, weight_decay;
    bool nesterov;
    double beta1, beta2, epsilon; /* 0: 0.9, 0.999, 1e-8 */
    bool is_sum;                  /* else the mean */
    uint32_t round_size;
    bool dedupe;         /* a client's step counts once */
    bool may_be_partial; /* a late round runs with quorum_min, else it is aborted */
    uint32_t quorum_min, quorum_timeout_ms;
    uint32_t max_staleness, fan_in, max_queue;
    bool allow_non_finite; /* gradients may hold NaN and Inf */
    /* The learning rate over rounds: it grows for warm_up of them, then steps down by factor every
     * step_size rounds, or falls along a cosine to minimum, which it reaches at round total. */
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
    bool has_values;    /* values were returned */
    uint8_t sha256[32]; /* theirs */
};

/* Called as bytes are transferred; false ends the transfer with PARLEY_CANCELLED. */
typedef bool (*parley_progress_fn)(void *arg, size_t sent_bytes, size_t received_bytes);

/* A stream of updates, one after another. A failure stays: after one, close it. NULL without
 * memory. The channel outlives it. */
struct parley_trainer;
struct parley_trainer *parley_trainer_open(struct parley_channel *channel);
void parley_trainer_close(struct parley_trainer *trainer);
/* Sends a gradient, waits for its round, and receives the new parameters; values: [n], or NULL when
 * they are not wanted. progress may be NULL. */
enum parley_status parley_update_and_fetch(struct parley_trainer *trainer,
                                           const struct parley_gradient *gradient, float *values,
                                           struct parley_version *out, parley_progress_fn progress,
                                           void *arg, struct parley_error *err);

struct parley_pushed {
    uint64_t version;
    uint32_t depth; /* gradients that wait */
    uint64_t dropped;
};

/* Sends a gradient and does not wait for its round. */
enum parley_status parley_params_push(struct parley_channel *channel,
                                      const struct parley_gradient *gradient,
                                      struct parley_pushed *out, struct parley_error *err);
/* The newest, if it is newer than if_newer_than, which may be NULL. */
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
