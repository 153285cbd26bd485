/* The structs and functions that the files of the policy agent have in common. No other file
 * includes this.
 *
 * A turn is one step of an environment: observe prepares the row and copies nothing, batch_act
 * computes all rows in one pass, self_observe counts the step and writes it into the record. The
 * compute thread owns the network, the optimiser and the staging arrays. A *lesson* is one call of
 * a learn function.
 *
 * When a device fails, the rows or the lesson that it computes end with INTERNAL. The device is
 * opened again at once, with the parameters and Adam's moments of the last completed step, which
 * the host keeps. The clones' state is in the host's memory. So a repeated request gets the reply
 * that it would have got without the failure. */
#ifndef AGENTS_POLICY_PARTS_H
#define AGENTS_POLICY_PARTS_H

#include "agents/agent.h"
#include "agents/policy/network.h"
#include "agents/turn.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/hash.h"

struct policy {
    struct agent base;
    struct backend *backend;
    struct backend_config backend_config;
    struct network net;
    char version[MODEL_HASH_SIZE]; /* hash of the file */
    size_t max_rows;               /* rows of a step */
    bool trains;                   /* turns are observed in training mode; owned by the loop */
    /* Owned by the compute thread. */
    uint64_t params_version; /* 1, plus one for each step of the optimiser */
    struct row **rows;       /* [max_rows] the rows of a step, in the order of their keys */
    float *in;               /* [max_rows][n_observations] */
    float *h, *c;            /* [max_rows][n_hidden] for an lstm, states before and after a step */
    float *outputs, *values; /* [max_rows][n_outputs], [max_rows] */
    struct net_draw *draws;  /* [max_rows] */
    bool is_down;            /* the device failed and is not open again */
    bool is_stale;           /* the device's numbers may differ from net.kept */
    uint64_t n_losses;       /* how often the device failed */
    struct network target;   /* the target parameters of a duelling head that learns; else closed */
    float *target_numbers;   /* [n_numbers] the host's copy of the target parameters; NULL: none */
    /* Owned by the loop. */
    uint64_t n_losses_seen; /* n_losses, as the last step reported it */
};

/* What learning needs of a clone's completed steps. record makes it; the clone owns it; a lesson
 * empties it. */
struct trajectory_record {
    size_t n, cap;       /* steps that it has, and has room for */
    float *observations; /* [cap][n_observations] */
    float *state;        /* [2][n_hidden] for an lstm: h and c before the first step; else NULL */
    struct net_draw *draws; /* [cap] */
    int32_t *actions;       /* [cap] */
    bool *are_first;        /* [cap] whether each step is the first of an episode */
};

struct policy_clone {
    struct clone base;
    uint32_t n_steps;                 /* completed steps */
    float *state;                     /* [2][n_hidden] for an lstm: h and c; else NULL */
    struct trajectory_record *record; /* NULL: no record is kept */
};

/* A turn's private state, in the turn's arena. observe makes it; a step fills in the results. */
struct policy_turn {
    const float *observation; /* [n_observations], borrowed from the request */
    const float *state;       /* the clone's state before the step; NULL: zeros */
    struct net_draw draw;     /* the key of the turn's random numbers */
    bool is_first, is_greedy; /* first step of an episode; the likeliest action is taken */
    float epsilon;            /* probability of a random action */
    /* Results of the step. */
    float *state_after; /* [2][n_hidden] for an lstm; else NULL */
    int64_t action;     /* the action, if it is a choice */
    float *numbers;     /* [n_actions] the action, if the head is a gaussian */
    float logp, value;
    uint64_t params_version;
    uint64_t n_losses;
    uint32_t batch_rows;
    struct tensor_view outputs[3]; /* [n_outputs] the reply's tensors; views of the results */
    size_t n_outputs;
};

static inline struct policy *policy_of(const struct policy_clone *c)
{
    return container_of(c->base.agent, struct policy, base);
}

static inline const struct policy_spec *spec_of(const struct policy_clone *c)
{
    return &policy_of(c)->net.spec;
}

/* --- agent.c; compute thread --- */

/* Called before a step or a lesson: makes sure that the device is open and holds the kept numbers.
 * Errors are those of opening the device. */
enum status policy_ready(struct policy *p, struct error *err) MUST_CHECK;
/* Calls the backend's sync, and notes that the device is down if it returns INTERNAL. */
enum status policy_sync(struct policy *p, struct error *err) MUST_CHECK;
/* Called after a step or a lesson, when it has closed all that it opened on the device: opens a
 * failed device again. If that fails, the next policy_ready tries again. */
void policy_recover(struct policy *p);

/* --- clone.c: the table's functions, and the record --- */

enum status policy_clone_open(struct clone *c, const struct clone_config *config,
                              struct error *err);
void policy_clone_close(struct clone *c);
void policy_clone_info(const struct clone *c, struct clone_info *out);
enum status policy_clone_fork(struct clone *c, const struct clone *parent, uint32_t at_turn,
                              struct error *err);
enum status policy_clone_rewind(struct clone *c, uint32_t at_turn, struct error *err);
void policy_clone_reset(struct clone *c);
enum status policy_clone_save(const struct clone *c, struct buf *out, struct error *err);
enum status policy_clone_restore(struct clone *c, const void *data, size_t size_bytes,
                                 struct error *err);
enum status policy_clone_record(struct clone *c, size_t max_steps, struct error *err);
/* Adds the completed turn to the record, if there is one; the record must have room. */
void policy_clone_note(struct policy_clone *c, const struct policy_turn *t);
/* Empties the record, if there is one: the next step is its first. */
void policy_clone_forget(struct policy_clone *c);
void policy_clone_get_state(const struct clone *c, float *out);
void policy_clone_set_state(struct clone *c, const float *state);

/* --- step.c: the table's functions of a turn --- */

enum status policy_observe(struct clone *c, struct agent_turn *turn, struct error *err);
void policy_self_observe(struct clone *c, struct agent_turn *turn);
void policy_batch_act(struct agent *a, struct row *const *rows, size_t n);
bool policy_groups_with(const struct agent *a, const struct agent *b);
void policy_group_act(const struct agent_step *steps, size_t n);
void policy_stepped(struct agent *a, struct row *row);

/* --- file.c --- */

/* Reads the spec of a policy's file and checks the file's tensors against it. DATA_LOSS if they do
 * not agree or a member is missing or out of bounds. */
enum status policy_file_spec(const struct gguf *g, struct policy_spec *out,
                             struct error *err) MUST_CHECK;
/* Reads the parameters of a file that policy_file_spec has passed into an opened network, with
 * Adam's moments and the count of steps if the file has them. */
enum status policy_file_read(const struct gguf *g, struct network *net,
                             struct error *err) MUST_CHECK;
/* Writes the network's spec, parameters and moments to a file, by rename. Compute thread. */
enum status policy_file_save(const char *path, struct network *net, struct error *err) MUST_CHECK;

/* --- tape.c: the states of an LSTM at several times, for going back through time --- */

/* Slots of pairs h and c, [n_slots] of [n_rows][n_hidden], in the backend's memory. */
struct tape {
    struct policy *policy; /* borrowed */
    size_t n_slots;
    struct buffer **h, **c;
    uint32_t *same; /* [n_rows] 0, 1, …: the rows of a copy between buffers */
};

/* Opens a tape; after a failure, too, tape_close is due. tape_close may be called for a zeroed one.
 */
enum status tape_open(struct tape *t, struct policy *p, size_t n_rows, size_t n_slots,
                      struct error *err) MUST_CHECK;
void tape_close(struct tape *t);
/* Write the first n rows of a slot, from the host's memory or from buffers; read them. */
void tape_upload(struct tape *t, size_t slot, const float *h, const float *c, size_t n);
void tape_keep(struct tape *t, size_t slot, const struct buffer *h, const struct buffer *c,
               size_t n);
void tape_load(const struct tape *t, size_t slot, struct buffer *h, struct buffer *c, size_t n);
/* Zeroes the rows of h and c where an episode begins, so that neither states nor gradients cross
 * episodes: those where keep [n] is false. */
void tape_cut(struct policy *p, const bool *keep, size_t n, struct buffer *h, struct buffer *c);

/* --- learn_time.c: trajectories of an LSTM --- */

/* n trajectories of n_steps steps, each a row of n_steps + 1 observations. The caller sets the
 * members before keep; all are borrowed. */
struct time_rows {
    struct policy *policy;
    size_t n, n_steps;
    const float *observations;       /* [n][n_steps + 1][n_observations] */
    const float *states;             /* [n][2][n_hidden] before the first ones; NULL: zeros */
    const bool *terminated, *resets; /* [n][n_steps] */
    bool *keep;                      /* [max_rows] the pass's rows that begin no episode */
    struct tape *tapes;              /* [n_tapes] one for each pass of a time */
    size_t n_tapes;
};

/* Opens the tapes; after a failure, too, time_rows_close is due, which may be called for a zeroed
 * one. */
enum status time_rows_open(struct time_rows *r, struct error *err) MUST_CHECK;
void time_rows_close(struct time_rows *r);
/* Computes outputs [n][n_steps + 1][n_outputs] and values [n][n_steps + 1]. INTERNAL: the device
 * has failed. */
enum status time_rows_forward(struct time_rows *r, float *outputs, float *values,
                              struct error *err) MUST_CHECK;
/* Adds the parameters' gradients, from those by outputs and values; after time_rows_forward. */
void time_rows_backward(struct time_rows *r, const float *doutputs, const float *dvalues);

/* --- learn_rows.c: the table's learn_trajectories and learn_transitions --- */

enum status policy_learn_trajectories(struct agent *a, const struct learn_trajectories *from,
                                      const struct learn_config *config, struct learn_report *out,
                                      struct error *err);
enum status policy_learn_transitions(struct agent *a, const struct learn_transitions *from,
                                     const struct learn_config *config, struct learn_report *out,
                                     struct error *err);

/* --- learn.c: the table's learn, and parts of all lessons --- */

/* Checks a learn_config. INVALID names the member that is out of bounds; PRECONDITION if it needs a
 * value head that the policy lacks. */
enum status learn_check_config(const struct policy *p, const struct learn_config *c,
                               struct error *err) MUST_CHECK;
/* Returns the most rows of a pass of a lesson. */
size_t learn_pass_rows(const struct policy *p);
/* Called after the backward passes: takes one step of the optimiser, and writes the gradient's norm
 * and the new version into the report. INTERNAL if the device fails. */
enum status learn_step(struct policy *p, const struct learn_config *config,
                       struct learn_report *report, struct error *err) MUST_CHECK;
/* Called at the end of a lesson with its status rc, when the lesson has closed all that it opened.
 * After a failure it has the kept numbers loaded before the next step, and opens a failed device
 * again. Returns rc, or INTERNAL if rc is EXHAUSTED because the device has failed. */
enum status learn_end(struct policy *p, enum status rc, struct error *err);
/* Shifts and scales n numbers to mean 0 and standard deviation 1. */
void learn_normalise(float *x, size_t n);
enum status policy_learn(struct agent *a, struct clone *const *clones, size_t n,
                         const float *returns, size_t n_steps, const struct learn_config *config,
                         struct learn_report *out, struct error *err);

#endif
