/* Policy networks: their specification, and creating a file with fresh parameters. The agent itself
 * is opened through the registry, as kind "policy". */
#ifndef AGENTS_POLICY_POLICY_H
#define AGENTS_POLICY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum policy_kind {
    POLICY_MLP,  /* hidden layers, each linear, dropout, ReLU */
    POLICY_LSTM, /* one LSTM cell; the clone holds its state */
};

/* What the outputs mean; see head.h. */
enum policy_head {
    POLICY_SOFTMAX,  /* one of n_actions */
    POLICY_GAUSSIAN, /* an action is n_actions numbers */
    POLICY_DUELLING, /* one of n_actions, by what each is worth (Q); with a value head */
};

/* "softmax", "gaussian", "duelling". */
const char *policy_head_name(enum policy_head head);

/* "mlp", "lstm". */
const char *policy_kind_name(enum policy_kind kind);

enum { POLICY_MAX_LAYERS = 16, POLICY_MAX_WIDTH = 65536, POLICY_NAME_SIZE = 64 };

/* Maps n_observations numbers to a distribution over n_actions. */
struct policy_spec {
    enum policy_kind kind;
    enum policy_head head;
    size_t n_observations, n_actions, n_hidden; /* 1 … POLICY_MAX_WIDTH; choices: 2 … */
    size_t n_layers;                    /* hidden layers, 1 … POLICY_MAX_LAYERS; 1 for an lstm */
    float dropout;                      /* [0, 1): dropout probability in training; 0 for an lstm */
    bool has_value;                     /* a second head, which estimates the return */
    uint64_t seed;                      /* of the draw of the parameters */
    char environment[POLICY_NAME_SIZE]; /* its name; may be "" */
};

/* The tutorial's: 4 numbers in, one hidden layer of 128, dropout 0.6, 2 actions. */
void policy_spec_cartpole(struct policy_spec *out);

/* STATUS_INVALID names the member that is out of bounds. */
enum status policy_spec_check(const struct policy_spec *s, struct error *err) MUST_CHECK;

/* Writes a policy with parameters drawn by seed (spec's seed is ignored): uniform within 1 /
 * sqrt(inputs of the layer), for an lstm within 1 / sqrt(n_hidden). Any thread; reads and writes
 * files. */
enum status policy_file_create(const char *path, const struct policy_spec *spec, uint64_t seed,
                               struct error *err) MUST_CHECK;

/* Copies a policy's file with all that learning goes on from, by rename, and `state`, the caller's
 * text, as the key "training.state"; NULL: without. Other keys are left out. DATA_LOSS: what is at
 * `from` is damaged. Any thread; reads and writes files. */
enum status policy_file_copy(const char *from, const char *to, const char *state,
                             struct error *err) MUST_CHECK;

#endif
