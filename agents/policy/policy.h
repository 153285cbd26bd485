/* Policy networks: their specification, and files with fresh or copied parameters. The agent itself
 * is opened through the registry, as the kind "policy". */
#ifndef AGENTS_POLICY_POLICY_H
#define AGENTS_POLICY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum policy_kind {
    POLICY_MLP,  /* hidden layers, each of them linear, dropout, ReLU */
    POLICY_LSTM, /* one LSTM cell, whose state the clone holds */
};

/* What the outputs of a policy mean; see head.h. */
enum policy_head {
    POLICY_SOFTMAX,  /* an action is one of n_actions choices */
    POLICY_GAUSSIAN, /* an action is n_actions numbers */
    POLICY_DUELLING, /* an action is one of n_actions choices, by what each is worth (Q); needs a
                        value head */
};

/* Returns the head's name: "softmax", "gaussian", "duelling". */
const char *policy_head_name(enum policy_head head);

/* Returns the kind's name: "mlp", "lstm". */
const char *policy_kind_name(enum policy_kind kind);

enum { POLICY_MAX_LAYERS = 16, POLICY_MAX_WIDTH = 65536, POLICY_NAME_SIZE = 64 };

/* Maps n_observations numbers to a distribution over n_actions. */
struct policy_spec {
    enum policy_kind kind;
    enum policy_head head;
    size_t n_observations, n_actions, n_hidden; /* 1 … POLICY_MAX_WIDTH; choices are at least 2 */
    size_t n_layers;                    /* hidden layers, 1 … POLICY_MAX_LAYERS; 1 for an lstm */
    float dropout;                      /* [0, 1): dropout probability in training; 0 for an lstm */
    bool has_value;                     /* there is a value head, which estimates the return */
    uint64_t seed;                      /* by which the first parameters were drawn */
    char environment[POLICY_NAME_SIZE]; /* name of the environment that it acts in; may be "" */
};

/* Sets the spec of PyTorch's tutorial on batch RPC: 4 observations, one hidden layer of 128,
 * dropout 0.6, 2 actions. */
void policy_spec_cartpole(struct policy_spec *out);

/* Checks a spec. STATUS_INVALID names the member that is out of bounds. */
enum status policy_spec_check(const struct policy_spec *s, struct error *err) MUST_CHECK;

/* Writes a policy's file, by rename. Its parameters are drawn by seed (the spec's seed is ignored),
 * uniform within 1 / sqrt(inputs of the layer), for an lstm within 1 / sqrt(n_hidden), as PyTorch
 * does. INVALID for a bad spec; else the errors of the file. Any thread; it waits for the disk. */
enum status policy_file_create(const char *path, const struct policy_spec *spec, uint64_t seed,
                               struct error *err) MUST_CHECK;

/* Copies a policy's file, by rename, with all that learning needs to continue, and with `state`,
 * the caller's text, as the key "training.state" (NULL: without that key). Other keys are left out.
 * DATA_LOSS if the file `from` is damaged. Any thread; it waits for the disk. */
enum status policy_file_copy(const char *from, const char *to, const char *state,
                             struct error *err) MUST_CHECK;

#endif
