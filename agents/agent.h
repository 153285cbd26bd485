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
#include "agents/elsewhere.h"
#include "agents/info.h"
#include "agents/learning.h"
#include "agents/message.h"
#include "agents/options.h"
#include "agents/text.h"
#include "base/buf.h"
#include "base/env.h"
#include "base/status.h"
#include "batching/batcher.h"
#include "compute/backend/backend.h"

struct agent;
struct clone;
struct agent_turn;

/* Raised when any bit of what agents compute changes: a reply that an earlier process had begun is
 * then not gone on with. */
enum { AGENT_ENGINE_REVISION = 3 };
/* The same for what constraints and calls of tools admit: their compiler, and the masks. */
enum { AGENT_COMPILER_REVISION = 9 };

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
    /* Has the loop call woken; any thread. NULL where nobody does so. Outlives the agent. */
    void (*wake)(void *arg);
    void *wake_arg;
    /* The name of the principal with this salt, valid during the call; NULL: it has none. For what
     * outlives the process; loop. NULL: all clones are one principal's, whose salt is 0. */
    const char *(*owner_name)(void *arg, uint64_t salt);
    void *owner_arg;
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

/* A step of one of several originals that are computed together. */
struct agent_step {
    struct agent *agent;
    struct row *const *rows; /* [n_rows] */
    size_t n_rows;
};

/* A kind of agent. What is not marked optional every kind has. */
struct agent_type {
    const char *name; /* "echo", "lm" */
    size_t agent_size, clone_size;
    bool has_own_files; /* a file whose general.architecture is name belongs to this kind */
    /* Optional: further architectures whose files belong to this kind. */
    bool (*serves)(const char *architecture, size_t len);

    /* Facets: NULL for kinds that lack them. */
    const struct agent_text *text;           /* agents/text.h: has a vocabulary */
    const struct agent_learning *learning;   /* agents/learning.h: learns */
    const struct agent_elsewhere *elsewhere; /* agents/elsewhere.h: its steps run elsewhere */

    /* The original. open loads what is shared, on any one thread, before the first clone. close is
     * called when no clone lives and no step runs. Both optional. */
    enum status (*open)(struct agent *a, const struct agent_config *config, struct error *err);
    void (*close)(struct agent *a);
    /* Optional: what close would wait for, such as the disk. Called once before it, on any one
     * thread, when nothing of the agent is called meanwhile; without it close does the same. */
    void (*settle)(struct agent *a);
    /* Optional: changes what agent_describe has filled in. */
    void (*info)(const struct agent *a, struct agent_info *out);
    /* Optional: changes what agent_batching has filled in: policy, bounds. */
    void (*batching)(const struct agent *a, struct batcher_config *out);
    /* Optional: does a little work ahead for later steps, see base/prefault.h. Runs on a thread of
     * its own. */
    bool (*work_ahead)(struct agent *a, bool is_busy);
    /* Optional: config->wake was called. Loop. */
    void (*woken)(struct agent *a);

    /* The clone: O(1). clone_open, clone_close and clone_info are optional. */
    enum status (*clone_open)(struct clone *c, const struct clone_config *config,
                              struct error *err);
    void (*clone_close)(struct clone *c);
    void (*clone_info)(const struct clone *c, struct clone_info *out);
    /* Optional: makes c, which is not opened yet, a copy of parent with its first at_turn completed
     * turns. O(1) in KV. */
    enum status (*fork)(struct clone *c, const struct clone *parent, uint32_t at_turn,
                        struct error *err);
    /* Keeps the first at_turn turns. */
    enum status (*rewind)(struct clone *c, uint32_t at_turn, struct error *err);
    void (*reset)(struct clone *c); /* back to the state after clone_open; touches nothing shared */
    /* Optional: private state to bytes and back, bound to the agent's version. */
    enum status (*save)(const struct clone *c, struct buf *out, struct error *err);
    enum status (*restore)(struct clone *c, const void *data, size_t size_bytes, struct error *err);

    /* A turn. observe checks everything that can be invalid in it; on failure nothing has changed.
     * drop is optional: not needed where observe changes nothing. */
    enum status (*observe)(struct clone *c, struct agent_turn *turn, struct error *err);
    void (*self_observe)(struct clone *c, struct agent_turn *turn);
    void (*drop)(struct clone *c, struct agent_turn *turn);
    /* Optional, both or none: a turn of an earlier process is gone through again without computing
     * it. trace appends what self_observe needs beside the observation and the finish reason; it is
     * called when the turn has ended, before self_observe. recall gives the trace to an observed
     * turn, which is kept then. Without the two, self_observe needs no more. DATA_LOSS if the bytes
     * are no trace of the turn. */
    enum status (*trace)(const struct clone *c, const struct agent_turn *turn, struct buf *out,
                         struct error *err);
    enum status (*recall)(struct clone *c, struct agent_turn *turn, const void *trace,
                          size_t size_bytes, struct error *err);

    /* A step. The first four and stepped are as in struct batch_agent, each optional; stepped
     * merges the step into the reply. Then either act, for one row, or batch_act, for all of them:
     * they set the outcome of each row, on the compute thread. Neither where elsewhere is set. */
    size_t (*cost)(const struct agent *a, const struct row *row);
    size_t (*min_chunk)(const struct agent *a, const struct row *row);
    enum status (*reserve)(struct agent *a, struct row *row, struct error *err);
    void (*release)(struct agent *a, struct row *row);
    void (*act)(struct agent *a, struct row *row);
    void (*batch_act)(struct agent *a, struct row *const *rows, size_t n);
    void (*stepped)(struct agent *a, struct row *row);
    /* Optional, both or none: steps of several originals computed as one, each row as batch_act of
     * its own original would. groups_with: whether these two can be, both of this kind; all that
     * group with one also group with one another. Where no step of any of them runs. */
    bool (*groups_with)(const struct agent *a, const struct agent *b);
    void (*group_act)(const struct agent_step *steps, size_t n);
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

/* Fills in a's description: by default its names, version "1", and the default sampling. */
void agent_describe(const struct agent *a, struct agent_info *out);
/* Fills in how a's batcher works: by default continuous, with up to 256 rows and 16,384 that wait.
 */
void agent_batching(const struct agent *a, struct batcher_config *out);
/* Fills the batcher's adapter with the table's cost (1 if it has none), reserve, … Borrows a. */
void agent_batch_adapter(struct agent *a, struct batch_agent *out);

/* Computes a step synchronously by the table's act or batch_act; not for kinds of elsewhere.h.
 * Compute thread. */
void agent_compute(struct agent *a, struct row *const *rows, size_t n);

enum status clone_open(struct clone **out, struct agent *a, const struct clone_config *config,
                       struct error *err) MUST_CHECK;
/* UNIMPLEMENTED where the kind has no fork. */
enum status clone_fork(struct clone **out, const struct clone *parent, uint32_t at_turn,
                       struct error *err) MUST_CHECK;
/* Fills in c's sizes: by default its state's. */
void clone_describe(const struct clone *c, struct clone_info *out);
void clone_close(struct clone *c); /* NULL is fine; no request of it may be under way */

/* The i-th kind in the registry; NULL after the last. */
const struct agent_type *agent_type_at(size_t i);

/* The kind that serves a model's file, by its general.architecture: one that has_own_files, else
 * "lm"; "echo" for no file. *out is a string constant. Errors are gguf_open's. */
enum status agent_kind_of_file(const char **out, const char *path, struct error *err) MUST_CHECK;

#endif
