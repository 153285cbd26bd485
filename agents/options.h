/* An agent's options: what the operator may choose about its computing and batching. The struct is
 * passed whole from the command line to the agent. A new option is a member here, a row in the
 * table of flags, and its use. Zero is the default of all but kv_host_bytes. */
#ifndef AGENTS_OPTIONS_H
#define AGENTS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/numerics/kv_type.h"

enum { OPTIONS_MAX_TEMPLATES = 16, OPTIONS_MAX_REPLIES = 16 };

/* Whether a step computes speculative tokens, for speed alone. */
enum speculate {
    SPECULATE_AUTO, /* where they are likely enough to pay */
    SPECULATE_ON,   /* wherever there is room */
    SPECULATE_OFF,
};

/* How the hidden states of a text's positions become its embedding: by their mean, or the last or
 * the first one; or how those of a query with a document become their score. */
enum pooling { POOLING_NONE, POOLING_MEAN, POOLING_LAST, POOLING_CLS, POOLING_RANK };

/* kv_host_bytes: the size that KV pages would default to on the host; 0 if the device is the host.
 */
#define KV_HOST_DEFAULT SIZE_MAX

struct agent_options {
    const char *backend; /* "cpu", "ref", "cuda" */
    bool fast_math;      /* as backend_config's; of language models */
    size_t n_threads;    /* 0: the physical cores */
    size_t kv_bytes;     /* ceiling of the KV pages; 0: an eighth of the memory, at most 4 GiB */
    /* Host pages behind a device's memory, for pages that no clone holds. */
    size_t kv_host_bytes;
    size_t kv_disk_bytes;       /* KV pages on disk, of each model; 0: none */
    const char *kv_disk_folder; /* where, a folder for each model's name in it; NULL: none */
    bool kv_disk_is_in_data;    /* in its folder kv, since it has other files */
    enum kv_type kv_type;
    bool no_prefix_cache; /* clones do not find pages that others computed */
    enum speculate speculate;
    enum pooling pooling; /* of embeddings; POOLING_NONE: what the file says, else the mean */
    /* "[MODEL=]FILE|NAME" in place of the file's: for the model of that name, or for all. */
    const char *chat_templates[OPTIONS_MAX_TEMPLATES]; /* [n_chat_templates] */
    size_t n_chat_templates;
    /* "[MODEL=]N": the most tokens of a reply whose request sets no bound; N 0: until the context
     * is full, which is the default. */
    const char *max_replies[OPTIONS_MAX_REPLIES]; /* [n_max_replies] */
    size_t n_max_replies;
    /* Of its batcher. */
    size_t max_waiting;  /* requests; 0: the agent's default */
    uint64_t max_itl_us; /* of a step; 0: the agent's default */
};

#endif
