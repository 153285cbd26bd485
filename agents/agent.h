/* An agent observes and acts. The original opens what is shared and immutable (weights,
 * vocabulary); a clone is a pointer to the original and a private state, one for each conversation.
 * Kinds of agents are const tables; the framework allocates.
 *
 * A turn on a clone (agents/turn.h), all on the loop but for batch_act: observe (fills the row),
 * one or more steps of batch_act on the compute thread, self_observe (the clone takes in its own
 * reply; the turn is complete). A turn that is dropped before self_observe leaves the clone as it
 * was before observe. */
#ifndef AGENTS_AGENT_H
#define AGENTS_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/background.h"
#include "agents/compiler.h"
#include "agents/message.h"
#include "agents/options.h"
#include "base/buf.h"
#include "base/env.h"
#include "base/status.h"
#include "batching/batcher.h"
#include "compute/backend/backend.h"

struct agent;
struct reply_format;
struct clone;
struct agent_turn;

/* Raised when any bit of what agents compute changes: a reply that an earlier process had begun is
 * then not gone on with. */
enum { AGENT_ENGINE_REVISION = 1 };
/* The same for what constraints and calls of tools admit: their compiler, and the masks. */
enum { AGENT_COMPILER_REVISION = 1 };

struct agent_config {
    const char *name; /* the name it is served under */
    const char *path; /* its file; NULL for kinds without one */
    const void *spec; /* a kind's own settings, e.g. params_open; NULL for kinds without */
    struct agent_options options;
    const struct backend_type *backend_type; /* instead of a name; NULL: by name */
    size_t max_context;                      /* 0: the model's */
    size_t max_step_rows, max_step_tokens;   /* 0: the agent's own */
    size_t max_step_logits;                  /* 0: enough for replies. More makes scoring faster */
    /* An open agent of the same kind, file and backend, whose weights this one shares instead of
     * preparing its own; it must outlive this one. For kinds that can share; may be NULL. */
    const struct agent *weights_of;
    /* For work around compiling constraints; outlives the agent. NULL: they are compiled where they
     * are asked for. */
    const struct agent_background *background;
    /* What compiles them elsewhere; outlives the agent. NULL: this process does. */
    const struct agent_compiler *compiler;
    const struct env *env;
};

struct clone_config {
    const char *system; /* the system prompt; NULL: the model's own default */
    size_t system_len;
    int64_t opened_s; /* Unix time, the date that a template shows; 0: now */
    uint64_t salt;    /* of the principal: clones share state only with clones of the same salt */
    struct tenant *tenant; /* of the batcher, who pays; outlives the clone. NULL: the batcher's own.
                              Forks inherit it */
};

/* An agent's description and counters. */
struct agent_info {
    const char *name, *kind;             /* "smollm2", "lm" */
    const char *architecture;            /* "llama", "" */
    const char *backend;                 /* "", "cpu", … */
    char products[BACKEND_PRODUCTS_MAX]; /* how a device multiplies; else "" */
    char version[65];        /* content hash, hex: sha256 of the file; "1" without a file */
    size_t context, n_vocab; /* 0 if it has none */
    /* Of kinds that tokenize: tokens of the beginning and the end, -1: none, and the chat
     * template's text [chat_template_len], NULL: none; valid as long as the agent. */
    int32_t bos, eos;
    bool adds_bos; /* a text begins with bos */
    const char *chat_template;
    size_t chat_template_len;
    size_t n_embedding;   /* values of an embedding; 0: it gives none */
    enum pooling pooling; /* of embeddings; POOLING_NONE: it gives none */
    bool is_embedder;     /* it was made for embeddings: its file says how to pool */
    size_t weight_bytes;
    size_t n_observations, n_actions; /* inputs, choices; 0 for kinds that do not act */
    size_t n_action_numbers;          /* of an action that is no choice; else 0 */
    bool has_logp;                    /* its reply holds the action's log-probability */
    bool has_value;                   /* its reply holds an estimate of the return */
    size_t kv_page_bytes, kv_pages, kv_pages_free, kv_pages_shared;
    size_t kv_pages_cached;    /* found by their prefix; held by clones, or free */
    uint64_t kv_copies;        /* pages copied on write */
    uint64_t kv_pages_evicted; /* free cached pages that were reused for other content */
    size_t kv_host_pages, kv_host_pages_used; /* host pages */
    uint64_t kv_offloads, kv_reloads;         /* pages copied to the host, and back */
    uint64_t device_losses;                   /* how often a device failure lost all pages */
    size_t device_graphs;                     /* steps that a device launches as one graph */
    /* How often CLONE_EVICTED and CLONE_RECOMPUTED happened. */
    uint64_t kv_evictions, kv_recomputes;
    uint64_t drafted_tokens, accepted_tokens;         /* draft tokens computed, accepted */
    uint64_t prefix_lookup_tokens, prefix_hit_tokens; /* tokens of prompts: looked up, and found */
    /* A step of few rows takes microseconds, less than a switch to another thread and back. Such
     * steps may run on the loop while the compute thread has no job of this agent. */
    bool is_light;
    bool is_inexact; /* the same turn, computed again, may have another reply */
    const struct reply_format *reply_format; /* of a language model; NULL: replies are text */
    struct sampling defaults;
};

/* A clone's sizes. */
struct clone_info {
    size_t n_tokens; /* context in use */
    size_t n_pages, n_pages_shared;
    size_t state_bytes; /* host memory of the private state */
    size_t n_recorded;  /* steps in its record */
};

/* How an original learns from the records of n clones of T steps each. The loss is the sum over
 * clones and steps of -logp * weight, divided by n. */
enum learn_loss {
    LEARN_FIXED,    /* weight: the clone's own return of the step */
    LEARN_TUTORIAL, /* weight: the sum of all clones' returns of the step, a known fault */
};

struct learn_config {
    enum learn_loss loss;
    float learning_rate; /* of Adam, beta 0.9 and 0.999, epsilon 1e-8; above 0 */
    bool normalise;      /* scales returns to mean 0 and deviation 1 before they become weights */
    /* 0: none. value_weight needs a value head: the value is subtracted from the weight, and
     * value_weight * (value - return)^2 / 2 is added to the loss. entropy_weight * entropy is
     * subtracted. */
    float value_weight, entropy_weight;
    float max_gradient_norm; /* a longer gradient is shortened to this; 0: none is */
};

/* Steps to learn from that the caller has, by V-trace (agents/policy/vtrace.h): n trajectories of
 * n_steps steps. */
struct learn_trajectories {
    size_t n, n_steps;
    const float *observations; /* [n][n_steps + 1][n_observations] */
    const int64_t *choices;    /* [n][n_steps], or */
    const float *numbers;      /* [n][n_steps][n_action_numbers] */
    const float *logp;         /* [n][n_steps] when they acted; NULL: importance weights are 1 */
    const float *rewards;      /* [n][n_steps] */
    const bool *terminated;    /* [n][n_steps] */
    const bool *resets;        /* [n][n_steps] steps that do not count: an environment was reset */
    float gamma, lambda, rho_max, c_max;
    /* PPO's clip: an action whose importance weight is already beyond 1 ± this, on the side to
     * which its advantage would move it, has no gradient; 0: every action has. */
    float clip;
};

/* Steps to learn what actions are worth from, by double Q-learning: the target of Q is reward +
 * discount * the target parameters' Q of the next observation's best action, the loss Huber's. */
struct learn_transitions {
    size_t n;
    const float *observations, *next; /* [n][n_observations]; next: after the rewards */
    const int64_t *choices;           /* [n] */
    const float *rewards, *discounts; /* [n]; a discount is 0 where the episode ended */
    const float *weights;             /* [n] of importance; NULL: 1 */
    bool moves_target;                /* the target parameters become those after this step */
    float *errors;                    /* [n] out: Q - its target, before the step */
};

struct learn_report {
    uint64_t params_version; /* of the parameters after the step */
    double loss;             /* before the step */
    double gradient_norm;    /* of all parameters together */
    double entropy;          /* of the action, mean over all steps; nats */
};

/* A step of one of several originals that are computed together. */
struct agent_step {
    struct agent *agent;
    struct row *const *rows; /* [n_rows] */
    size_t n_rows;
};

struct agent_type {
    const char *name; /* "echo", "lm" */
    size_t agent_size, clone_size;

    /* Original: loads what is shared. On any one thread, before the first clone. */
    enum status (*open)(struct agent *a, const struct agent_config *config, struct error *err);
    void (*close)(struct agent *a); /* no clone lives, no step runs */
    void (*info)(const struct agent *a, struct agent_info *out);
    /* Fills the batcher's config: policy, bounds. */
    void (*batching)(const struct agent *a, struct batcher_config *out);

    /* Clone: O(1). */
    enum status (*clone_open)(struct clone *c, const struct clone_config *config,
                              struct error *err);
    void (*clone_close)(struct clone *c);
    void (*clone_info)(const struct clone *c, struct clone_info *out);
    /* c is not opened yet. at_turn: how many completed turns to keep. O(1) in KV. */
    enum status (*fork)(struct clone *c, const struct clone *parent, uint32_t at_turn,
                        struct error *err);
    /* Keeps the first at_turn turns. */
    enum status (*rewind)(struct clone *c, uint32_t at_turn, struct error *err);
    void (*reset)(struct clone *c); /* back to the state after clone_open; touches nothing shared */
    /* Private state to bytes and back, bound to the agent's version. */
    enum status (*save)(const struct clone *c, struct buf *out, struct error *err);
    enum status (*restore)(struct clone *c, const void *data, size_t size_bytes, struct error *err);

    /* A turn. observe checks everything that can be invalid in it; on failure nothing has changed.
     */
    enum status (*observe)(struct clone *c, struct agent_turn *turn, struct error *err);
    void (*self_observe)(struct clone *c, struct agent_turn *turn);
    /* Optional: gets what the turn needs besides a place in a step, for turns with a constraint,
     * which other kinds refuse. Not ready at once: sets turn->is_preparing, and calls
     * agent_turn_prepared once, later, unless unprepare was called. */
    enum status (*prepare)(struct clone *c, struct agent_turn *turn, struct error *err);
    void (*unprepare)(struct clone *c, struct agent_turn *turn);
    void (*drop)(struct clone *c, struct agent_turn *turn);
    /* Optional, both or none: a turn of an earlier process is gone through again without computing
     * it. trace appends what self_observe needs beside the observation and the finish reason; it is
     * called when the turn has ended, before that. recall gives it to an observed turn, which is
     * kept then. Without them self_observe needs no more. DATA_LOSS if it is no trace of the turn.
     */
    enum status (*trace)(const struct clone *c, const struct agent_turn *turn, struct buf *out,
                         struct error *err);
    enum status (*recall)(struct clone *c, struct agent_turn *turn, const void *trace,
                          size_t size_bytes, struct error *err);

    /* Batching, as in struct batch_agent. One of act and batch_act may be NULL; use_batch_act =
     * false has the framework call act row by row though there is a batch_act. Both set the outcome
     * of each row. Compute thread. */
    size_t (*cost)(const struct agent *a, const struct row *row);
    size_t (*min_chunk)(const struct agent *a, const struct row *row);
    enum status (*reserve)(struct agent *a, struct row *row, struct error *err);
    void (*release)(struct agent *a, struct row *row);
    void (*act)(struct agent *a, struct row *row);
    void (*batch_act)(struct agent *a, struct row *const *rows, size_t n);
    void (*stepped)(struct agent *a,
                    struct row *row); /* merges the step into the reply; optional */
    bool use_batch_act;
    /* Optional, both or none: steps of several originals computed as one, each row as batch_act of
     * its own original would. groups_with: whether these two can be, both of this kind; all that
     * group with one also group with one another. Where no step of any of them runs. */
    bool (*groups_with)(const struct agent *a, const struct agent *b);
    void (*group_act)(const struct agent_step *steps, size_t n);
    bool gives_prompt_results; /* embeddings and log-probabilities of prompts */
    /* Instead of both, for kinds whose steps are computed elsewhere, e.g. by another process; NULL
     * otherwise. Loop. begin starts to compute the step; step->done(step) is called once when the
     * step ends, on the loop. abort ends the running step early: done is called soon, with the
     * outcomes so far. interrupt is optional: a turn of the step was cancelled, so the step may end
     * soon, with ROW_MORE for rows that are not finished. done may be called inside all three. Such
     * a kind has no learn, which would need the compute thread to be free of steps. */
    void (*step_begin)(struct agent *a, struct batch_step *step);
    void (*step_interrupt)(struct agent *a, struct batch_step *step);
    void (*step_abort)(struct agent *a, struct batch_step *step);

    /* Optional: does a little work ahead for later steps, see base/prefault.h. Runs on a thread of
     * its own. */
    bool (*work_ahead)(struct agent *a, bool is_busy);

    /* Learning, for kinds that support it; all NULL otherwise. train: whether turns observed from
     * now on run in training mode (dropout); off at first. Loop.
     * record: starts an empty record, in which the clone keeps what learning needs of each
     * completed turn, at most max_steps: one more is PRECONDITION at observe. 0: drops the record
     * and keeps none. INVALID above 2^20, EXHAUSTED without memory. Loop, while no turn of c is
     * under way. learn: one step of the optimiser from the records of n clones, which are then
     * emptied. returns [n][n_steps], in the order of clones. PRECONDITION if a record has not
     * n_steps, INVALID if a number is not finite; on these and without memory nothing has changed.
     * Compute thread, so that no step runs; the clones must not be used until it returns.
     * save_original: writes the parameters to a file that open reads, by rename. Compute thread. */
    void (*train)(struct agent *a, bool on);
    enum status (*record)(struct clone *c, size_t max_steps, struct error *err);
    enum status (*learn)(struct agent *a, struct clone *const *clones, size_t n,
                         const float *returns, size_t n_steps, const struct learn_config *config,
                         struct learn_report *out, struct error *err);
    enum status (*save_original)(struct agent *a, const char *path, struct error *err);
    /* Optional, as learn, from steps that the caller has; losses and weights are means over the
     * steps that count. */
    enum status (*learn_trajectories)(struct agent *a, const struct learn_trajectories *from,
                                      const struct learn_config *config, struct learn_report *out,
                                      struct error *err);
    enum status (*learn_transitions)(struct agent *a, const struct learn_transitions *from,
                                     const struct learn_config *config, struct learn_report *out,
                                     struct error *err);

    /* Text to tokens and back, for kinds with a vocabulary; NULL otherwise. tokenize appends
     * int32_t; control tokens written in text are recognised only if it is trusted. */
    enum status (*tokenize)(const struct agent *a, const char *text, size_t len, bool is_trusted,
                            struct buf *ids, struct error *err);
    enum status (*detokenize)(const struct agent *a, const int32_t *ids, size_t n, struct buf *text,
                              struct error *err);
    /* The prompt of a new conversation's first turn with these messages, n > 0, tools, as in a
     * tool_use, and variables, as in template_variables; with the start of a reply only if
     * is_replied. Appends int32_t. */
    enum status (*render)(const struct agent *a, const struct message *messages, size_t n,
                          struct text tools, struct text variables, bool is_replied,
                          struct buf *ids, struct error *err);
};

/* Events of a clone that no request caused. EVICTED: it lost its KV pages while idle, waiting or
 * preempted, or because the device failed. RECOMPUTED: at least a page of what was lost is computed
 * again, by the clone or a fork of it; reported when a turn gets its place in a step. */
enum clone_event { CLONE_EVICTED, CLONE_RECOMPUTED };

typedef void (*clone_event_fn)(void *arg, struct clone *c, enum clone_event what,
                               const char *reason);

struct agent {
    const struct agent_type *type;
    clone_event_fn on_event; /* called on the loop; may be NULL */
    void *on_event_arg;
    char *name;
    /* Set by a step that found that this process cannot compute the agent again; read between two
     * steps. */
    struct error lost;
    size_t n_refs; /* the opener's, and one for each clone; loop */
    size_t n_clones;
    const struct env *env;
};

struct clone {
    struct agent *agent;
    struct flow flow;
    void *owner; /* set by its owner, for on_event; may be NULL */
};

/* Opens the kind named by type ("echo", "lm"; NULL: the one that serves config->path). An unknown
 * type is NOT_FOUND, and the error names the known ones. When a table's open, clone_open or fork
 * fails, its close or clone_close is called on the partly built struct, which is zeroed at the
 * start. */
enum status agent_open(struct agent **out, const char *type, const struct agent_config *config,
                       struct error *err) MUST_CHECK;
/* Opens an agent by its table, for kinds that are not in the registry. */
enum status agent_open_type(struct agent **out, const struct agent_type *type,
                            const struct agent_config *config, struct error *err) MUST_CHECK;
/* share: takes a reference to the original; the last agent_unref closes it. Loop. */
struct agent *agent_ref(struct agent *a);
void agent_unref(struct agent *a);

/* Fills the batcher's adapter with the table's cost (1 if it has none), reserve, … Borrows a. */
void agent_batch_adapter(struct agent *a, struct batch_agent *out);

/* Computes a step synchronously by the table's act or batch_act; for kinds without step_begin.
 * Compute thread. */
void agent_compute(struct agent *a, struct row *const *rows, size_t n);

enum status clone_open(struct clone **out, struct agent *a, const struct clone_config *config,
                       struct error *err) MUST_CHECK;
/* UNIMPLEMENTED where the kind has no fork. */
enum status clone_fork(struct clone **out, const struct clone *parent, uint32_t at_turn,
                       struct error *err) MUST_CHECK;
void clone_close(struct clone *c); /* NULL is fine; no request of it may be under way */

/* The i-th kind in the registry; NULL after the last. */
const struct agent_type *agent_type_at(size_t i);

/* The kind that serves a model's file, by its general.architecture: "policy", "starspace",
 * "seq2seq", else "lm"; "echo" for no file. *out is a string constant. Errors are gguf_open's. */
enum status agent_kind_of_file(const char **out, const char *path, struct error *err) MUST_CHECK;

#endif
