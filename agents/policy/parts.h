/* Shared by the files of the policy agent; no other file includes this.
 *
 * A turn is one step of an environment: observe prepares the row and copies nothing, batch_act
 * computes all rows in one pass, self_observe counts the step and writes it into the record. The
 * compute thread owns the network, the optimiser and the staging arrays.
 *
 * When a device fails, the running rows or lesson end INTERNAL. The device is opened again at once
 * with the parameters and Adam's moments of the last completed step, which the host keeps. The
 * clones' state is in the host's memory. So a repeated request gets the reply that it would have
 * got. */
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
    size_t max_rows;
    bool trains; /* loop */
    /* Owned by the compute thread. */
    uint64_t params_version; /* 1, plus one for each step of the optimiser */
    struct row **rows;       /* [max_rows], in the order of their keys */
    float *in;               /* [max_rows][n_observations] */
    float *h, *c;            /* [max_rows][n_hidden] for an lstm, in and out */
    float *outputs, *values; /* [max_rows][n_outputs], [max_rows] */
    struct net_draw *draws;  /* [max_rows] */
    bool is_down;            /* the device failed and is not open again */
    bool is_stale;           /* the device's numbers may differ from net.kept */
    uint64_t n_losses;       /* how often the device failed */
    struct network target;   /* of a duelling head that learns: earlier parameters; else closed */
    float *target_numbers;   /* [n_numbers] the host's copy of them; NULL: there are none */
    /* Owned by the loop. */
    uint64_t n_losses_seen;
};

/* What learning needs of a clone's steps. */
struct trajectory_record {
    size_t n, cap;          /* steps */
    float *observations;    /* [cap][n_observations] */
    float *state;           /* [2][n_hidden] for an lstm, before the first step: h, c */
    struct net_draw *draws; /* [cap] */
    int32_t *actions;       /* [cap] */
    bool *are_first;        /* [cap] whether each is the first step of an episode */
};

struct policy_clone {
    struct clone base;
    uint32_t n_steps;
    float *state;                     /* [2][n_hidden] for an lstm: h, c; else NULL */
    struct trajectory_record *record; /* NULL: none is kept */
};

/* A turn's private state, in its arena. */
struct policy_turn {
    const float *observation;
    const float *state; /* the clone's before the step; NULL: zeros */
    struct net_draw draw;
    bool is_first, is_greedy;
    float epsilon;
    /* Results of the step. */
    float *state_after;
    int64_t action;
    float *numbers; /* [n_actions] the action of a gaussian head */
    float logp, value;
    uint64_t params_version;
    uint64_t n_losses;
    uint32_t batch_rows;
    struct tensor_view outputs[3];
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

/* agent.c */
/* Before a step or a lesson: makes sure that the device is open and holds the kept numbers. */
enum status policy_ready(struct policy *p, struct error *err) MUST_CHECK;
enum status policy_sync(struct policy *p, struct error *err) MUST_CHECK;
/* After a step or a lesson, once it has closed all it opened on the device: opens a failed device
 * again. If that fails, the next policy_ready tries again. */
void policy_recover(struct policy *p);

/* clone.c */
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
/* Writes the completed turn into the record, if there is one. The record must have room. */
void policy_clone_note(struct policy_clone *c, const struct policy_turn *t);
/* Empties the record: the next step is its first. */
void policy_clone_forget(struct policy_clone *c);

/* step.c */
enum status policy_observe(struct clone *c, struct agent_turn *turn, struct error *err);
void policy_self_observe(struct clone *c, struct agent_turn *turn);
void policy_drop(struct clone *c, struct agent_turn *turn);
void policy_batch_act(struct agent *a, struct row *const *rows, size_t n);
bool policy_groups_with(const struct agent *a, const struct agent *b);
void policy_group_act(const struct agent_step *steps, size_t n);
void policy_stepped(struct agent *a, struct row *row);

/* file.c: reads the spec of a file, then its parameters into the opened network. DATA_LOSS if the
 * file is inconsistent. */
enum status policy_file_spec(const struct gguf *g, struct policy_spec *out,
                             struct error *err) MUST_CHECK;
enum status policy_file_read(const struct gguf *g, struct network *net,
                             struct error *err) MUST_CHECK;
enum status policy_file_save(const char *path, struct network *net, struct error *err) MUST_CHECK;

/* learn_rows.c */
enum status policy_learn_trajectories(struct agent *a, const struct learn_trajectories *from,
                                      const struct learn_config *config, struct learn_report *out,
                                      struct error *err);
enum status policy_learn_transitions(struct agent *a, const struct learn_transitions *from,
                                     const struct learn_config *config, struct learn_report *out,
                                     struct error *err);

/* learn.c */
enum status learn_check_config(const struct policy *p, const struct learn_config *c,
                               struct error *err) MUST_CHECK;
/* How many rows a pass of a lesson has at most. */
size_t learn_pass_rows(const struct policy *p);
/* After the backward passes: one step of the optimiser, and what the report says of it. */
enum status learn_step(struct policy *p, const struct learn_config *config,
                       struct learn_report *report, struct error *err) MUST_CHECK;
/* A lesson has ended with rc, and has closed all that it opened; returns what it ended with. */
enum status learn_end(struct policy *p, enum status rc, struct error *err);
/* To mean 0 and deviation 1. */
void learn_normalise(float *x, size_t n);
enum status policy_learn(struct agent *a, struct clone *const *clones, size_t n,
                         const float *returns, size_t n_steps, const struct learn_config *config,
                         struct learn_report *out, struct error *err);

#endif
