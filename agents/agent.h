/* An agent observes and acts. The original opens what is shared and immutable (weights,
 * vocabulary); a clone is a pointer to the original and a private state, one for each conversation.
 * Kinds of agents are const tables; the framework allocates.
 *
 * A turn on a clone, all on the loop but for batch_act: observe (fills the row), one or more steps
 * of batch_act on the compute thread, self_observe (the clone learns what it said: the turn
 * counts). A turn that is dropped before self_observe leaves the clone as it was before observe. */
#ifndef AGENTS_AGENT_H
#define AGENTS_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "agents/tensor.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/env.h"
#include "base/status.h"
#include "batching/batcher.h"
#include "compute/backend.h"

struct agent;
struct clone;

/* Whether a step computes guesses at a reply's next tokens, for speed alone. */
enum speculate {
    SPECULATE_AUTO, /* where they are likely enough to be worth their time */
    SPECULATE_ON,   /* wherever there is room */
    SPECULATE_OFF,
};

/* kv_host_bytes: as much as KV pages would have on the host; none where the device is the host. */
#define KV_HOST_DEFAULT SIZE_MAX

struct agent_config {
    const char *name;    /* under which it is served */
    const char *path;    /* its file; NULL for agents without */
    const void *spec;    /* of kinds that a call makes, as params_open; else NULL */
    const char *backend; /* "cpu", "ref", "cuda" */
    const struct backend_type *backend_type; /* instead of a name; NULL: by name */
    bool fast_math;                          /* as backend_config's; of language models */
    size_t n_threads;                        /* 0: the physical cores */
    size_t kv_bytes; /* ceiling of the KV pages; 0: an eighth of the memory, at most 4 GiB */
    /* Of the host's memory behind the device's, for pages that nobody holds. */
    size_t kv_host_bytes;
    size_t max_context;                    /* 0: the model's */
    size_t max_step_rows, max_step_tokens; /* 0: the agent's own */
    size_t max_step_logits; /* 0: enough for replies. Texts are scored faster with more */
    enum kv_type kv_type;
    enum speculate speculate;
    bool no_prefix_cache; /* nothing that one clone computed is found by another */
    /* An open agent of the same kind, file and backend, whose weights this one takes instead of
     * preparing its own; it outlives this one. For kinds that can; NULL: none. */
    const struct agent *weights_of;
    const struct env *env;
};

struct clone_config {
    const char *system; /* the system prompt; NULL: the model's own default */
    size_t system_len;
    uint64_t salt; /* of the tenant: state is shared only among equals */
};

/* A text to be scored as a reply, or its ids where they are given: those as they stand, while a
 * text among messages with roles is followed by the end of the turn. */
struct to_score {
    struct text text;
    const int32_t *ids; /* [n_ids] NULL: the text's */
    size_t n_ids;
};

/* What a turn brings: messages for agents that speak, tensors for those that act or are trained.
 * Borrowed until the turn's end: it lies in the turn's arena. */
struct observation {
    const struct message *messages; /* [n_messages] */
    size_t n_messages;
    const struct tensor_view *tensors; /* [n_tensors] */
    size_t n_tensors;
    float reward;  /* of the action before; policies */
    bool is_first; /* of its episode: the one before ended; a recurrent state begins afresh */
    /* The participant's index under lock-step: orders the rows of a batch. A policy draws by
     * (sampling.seed, row_key, the clone's step), whatever the order of arrival. */
    uint32_t row_key;
    struct sampling sampling; /* complete: defaults laid under */
    uint32_t turn;            /* 1, 2, … */
    /* Texts that are scored, each as the whole reply, before there is one. Kinds that give no
     * probabilities leave the reply's scores empty. */
    const struct to_score *scored; /* [n_scored] none empty */
    size_t n_scored;
    bool no_reply; /* the scores are all that is wanted; such a turn leaves no trace in the clone */
    /* Messages, and behind them these ids, are plain text that the reply goes on: no roles, no chat
     * template. */
    bool is_plain;
    const int32_t *plain_ids; /* [n_plain_ids] */
    size_t n_plain_ids;
};

/* How likely an agent holds a text for its reply. In the turn's arena. */
struct text_score {
    const float *logprobs; /* [n_tokens] natural, each given all that stands before it */
    uint32_t n_tokens;     /* of the text; where messages have roles also the end of the turn */
    uint32_t n_top;        /* of them, those that nothing was likelier than */
    double logprob;        /* of the text: the sum, in order */
};

/* What came of it so far. The loop's alone: what batch_act makes is kept in the row's private state
 * until stepped (or act's framework, for agents whose rows are DONE at once) merges it. */
struct reply {
    const struct tensor_view *tensors; /* [n_tensors], in the turn's arena */
    size_t n_tensors;
    uint64_t params_version;
    uint32_t batch_rows;        /* rows of the step that answered */
    struct buf text;            /* UTF-8; never ends inside a character */
    struct reply_token *tokens; /* [n_tokens] */
    size_t n_tokens, cap_tokens;
    enum finish finish;
    uint32_t n_prompt, n_cached;     /* tokens of the whole prompt; of those, not computed again */
    uint32_t n_prefilled;            /* of the prompt, in the pages so far */
    const struct text_score *scores; /* [n_scores], as many as are complete, in order */
    size_t n_scores;
};

/* A turn, as the agent knows it: what it was asked, its row, its reply. A member of the server's
 * turn; zeroed before observe. */
struct agent_turn {
    struct observation seen;
    struct row row;
    struct reply reply;
    struct arena *arena;
};

static inline struct agent_turn *agent_turn_of(struct row *row)
{
    return container_of(row, struct agent_turn, row);
}

/* What an agent says of itself. */
struct agent_info {
    const char *name, *kind;             /* "smollm2", "lm" */
    const char *architecture;            /* "llama", "" */
    const char *backend;                 /* "", "cpu", … */
    char products[BACKEND_PRODUCTS_MAX]; /* of a device: how it multiplies; else "" */
    char version[65];        /* content hash, hex: sha256 of the file; "1" for agents without */
    size_t context, n_vocab; /* 0 where there is none */
    size_t weight_bytes;
    size_t n_observations, n_actions; /* numbers in, choices; 0 for those that do not act */
    bool has_value;                   /* its reply holds what return is to come */
    size_t kv_page_bytes, kv_pages, kv_pages_free, kv_pages_shared;
    size_t kv_pages_cached;         /* found by who begins alike; held by clones, or free */
    uint64_t kv_copies;             /* pages copied on write */
    uint64_t kv_pages_evicted;      /* cached pages that were free and went to somebody else */
    size_t kv_slots, kv_slots_full; /* pages of the host's memory behind them */
    uint64_t kv_spills, kv_fills;   /* pages that moved there, and back */
    uint64_t device_losses;         /* times that all pages were lost: the device failed */
    size_t device_graphs;           /* steps that a device launches as one */
    uint64_t kv_evictions;          /* idle clones that lost their pages */
    uint64_t kv_recomputes;         /* of those and of preempted rows, that computed theirs again */
    uint64_t drafted_tokens, accepted_tokens; /* guesses computed, and those that were right */
    uint64_t prefix_lookup_tokens, prefix_hit_tokens; /* of prompts: looked for, and found */
    /* A step of few rows takes microseconds: less than a hop to another thread and back. Such steps
     * may run on the loop while the compute thread has no job of the agent's. */
    bool is_light;
    struct sampling defaults;
};

/* What a clone says of itself. */
struct clone_info {
    size_t n_tokens; /* context in use */
    size_t n_pages, n_pages_shared;
    size_t state_bytes; /* host memory of the private state */
    size_t n_recorded;  /* steps in its record */
};

/* How an original learns from the records of n clones of T steps each: the loss is the sum over
 * clones and steps of -logp * weight, over n. */
enum learn_loss {
    LEARN_FIXED,    /* weight: the clone's own return of the step */
    LEARN_TUTORIAL, /* weight: the sum of all clones' returns of the step, a known fault */
};

struct learn_config {
    enum learn_loss loss;
    float learning_rate; /* of Adam, beta 0.9 and 0.999, epsilon 1e-8; above 0 */
    bool normalise;      /* returns to mean 0 and deviation 1, before they weigh */
    /* 0: none. With a value head: the return less the value weighs, and the loss gains
     * value_weight * (value - return)^2 / 2; and loses entropy_weight * the entropy. */
    float value_weight, entropy_weight;
};

struct learn_report {
    uint64_t params_version; /* of the parameters there are now */
    double loss;             /* before the step */
    double gradient_norm;    /* of all parameters together */
    double entropy;          /* of the action, mean over all steps; nats */
};

struct agent_type {
    const char *name; /* "echo", "lm" */
    size_t agent_size, clone_size;

    /* Original: loads what is shared. progress (may be NULL) is called with 0 … 1. Any one thread,
     * before the first clone. */
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
    /* c is fresh (not opened). at_turn counts completed turns to keep; O(1) in KV. */
    enum status (*fork)(struct clone *c, const struct clone *parent, uint32_t at_turn,
                        struct error *err);
    /* Keeps the first at_turn turns. */
    enum status (*rewind)(struct clone *c, uint32_t at_turn, struct error *err);
    void (*reset)(struct clone *c); /* as freshly opened; touches nothing shared */
    /* Private state to bytes and back, bound to the agent's version. */
    enum status (*save)(const struct clone *c, struct buf *out, struct error *err);
    enum status (*restore)(struct clone *c, const void *data, size_t size_bytes, struct error *err);

    /* A turn. observe checks everything that can be wrong with it; on failure nothing has changed.
     */
    enum status (*observe)(struct clone *c, struct agent_turn *turn, struct error *err);
    void (*self_observe)(struct clone *c, struct agent_turn *turn);
    void (*drop)(struct clone *c, struct agent_turn *turn);

    /* Batching, as in struct batch_agent. One of act and batch_act may be NULL; use_batch_act =
     * false has the framework call act row by row though there is a batch_act. */
    size_t (*cost)(const struct agent *a, const struct row *row);
    size_t (*min_grant)(const struct agent *a, const struct row *row);
    enum status (*reserve)(struct agent *a, struct row *row, struct error *err);
    void (*release)(struct agent *a, struct row *row);
    void (*act)(struct agent *a, struct row *row);
    void (*batch_act)(struct agent *a, struct row *const *rows, size_t n);
    void (*stepped)(struct agent *a,
                    struct row *row); /* merges the step into the reply; optional */
    bool use_batch_act;

    /* Optional: does a little of what steps to come would have to do, see compute/ahead.h. A thread
     * of its own, beside all others. */
    bool (*work_ahead)(struct agent *a, bool is_busy);

    /* Learning, for kinds that do; all NULL otherwise.
     * train: whether steps asked for from now on are practice (dropout) or not, as at first. Loop.
     * record: the clone keeps what learning needs of each completed turn, from a fresh start, at
     * most max_steps: one more is EXHAUSTED at observe. 0: no more, and forgets. EXHAUSTED without
     * memory or above a million. Loop, no turn of c under way.
     * learn: one step of the optimiser by the records of n clones, which then start afresh.
     * returns [n][n_steps], in the order of clones; PRECONDITION when a record has not n_steps,
     * INVALID when a number is none; then, and without memory, nothing has changed. Compute thread,
     * so that no step runs; the clones are let alone until it is back.
     * save_original: the parameters to a file that open reads, by rename. Compute thread. */
    void (*train)(struct agent *a, bool on);
    enum status (*record)(struct clone *c, size_t max_steps, struct error *err);
    enum status (*learn)(struct agent *a, struct clone *const *clones, size_t n,
                         const float *returns, size_t n_steps, const struct learn_config *config,
                         struct learn_report *out, struct error *err);
    enum status (*save_original)(struct agent *a, const char *path, struct error *err);

    /* Text to tokens and back, for those that have a vocabulary; NULL otherwise. */
    enum status (*tokenize)(const struct agent *a, const char *text, size_t len, struct buf *ids,
                            struct error *err); /* appends int32_t */
    enum status (*detokenize)(const struct agent *a, const int32_t *ids, size_t n, struct buf *text,
                              struct error *err);
    /* The prompt of a fresh conversation's first turn that brings these messages, n > 0; without
     * the start of a reply if nothing is to be replied. Appends int32_t. */
    enum status (*render)(const struct agent *a, const struct message *messages, size_t n,
                          bool is_replied, struct buf *ids, struct error *err);
};

/* What the original does to a clone that nobody asked for. */
enum clone_event { CLONE_EVICTED, CLONE_RECOMPUTED };

typedef void (*clone_event_fn)(void *arg, struct clone *c, enum clone_event what,
                               const char *reason);

struct agent {
    const struct agent_type *type;
    clone_event_fn on_event; /* NULL: nobody listens. Loop */
    void *on_event_arg;
    char *name;
    size_t n_refs; /* the registry's and one a clone; loop */
    size_t n_clones;
    const struct env *env;
};

struct clone {
    struct agent *agent;
    struct asker asker;
};

/* Opens the kind named by type ("echo", "lm"; NULL: the one that serves config->path). An unknown
 * one is NOT_FOUND and names those there are. When a table's open, clone_open or fork fails, its
 * close or clone_close is called with what is built so far; all of it is zeroed at the start. */
enum status agent_open(struct agent **out, const char *type, const struct agent_config *config,
                       struct error *err) MUST_CHECK;
/* The same by its table, for kinds that the registry does not know. */
enum status agent_open_type(struct agent **out, const struct agent_type *type,
                            const struct agent_config *config, struct error *err) MUST_CHECK;
/* share: one more holder of the original; agent_unref by the last closes it. Loop. */
struct agent *agent_ref(struct agent *a);
void agent_unref(struct agent *a);

/* The adapter to the batcher: cost (1 where the table has none), reserve, act or batch_act of the
 * table. Borrows a. */
void agent_batch_adapter(struct agent *a, struct batch_agent *out);

enum status clone_open(struct clone **out, struct agent *a, const struct clone_config *config,
                       struct error *err) MUST_CHECK;
/* UNIMPLEMENTED where the kind has no fork. */
enum status clone_fork(struct clone **out, const struct clone *parent, uint32_t at_turn,
                       struct error *err) MUST_CHECK;
void clone_close(struct clone *c); /* NULL is fine; none of its asks may be under way */

/* NULL after the last. */
const struct agent_type *agent_type_at(size_t i);

/* The kind that serves a model's file, by its general.architecture: "policy", and "lm" for all
 * others; "echo" for no file. A const text. Errors are gguf_open's. */
enum status agent_kind_of_file(const char **out, const char *path, struct error *err) MUST_CHECK;

void agent_turn_init(struct agent_turn *t, struct arena *arena, size_t reply_limit_bytes);
void agent_turn_deinit(struct agent_turn *t); /* observed turns: after self_observe or drop */

#endif
