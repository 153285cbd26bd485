/* What agents and clones say of themselves: descriptions, sizes and counters. */
#ifndef AGENTS_INFO_H
#define AGENTS_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"
#include "agents/options.h"
#include "compute/backend/backend.h"
#include "compute/kv/traces.h"

struct reply_format;

/* Of kinds with a vocabulary; all 0 for others. Pointers are valid as long as the agent. */
struct text_info {
    size_t context, n_vocab;   /* 0: it has none */
    int32_t bos, eos;          /* the tokens that begin and end a text; -1: none */
    bool adds_bos;             /* a text begins with bos */
    const char *chat_template; /* [chat_template_len] NULL: none */
    size_t chat_template_len;
    size_t n_embedding;   /* values of an embedding; 0: it gives none */
    enum pooling pooling; /* of embeddings; POOLING_NONE: it gives none */
    bool is_embedder;     /* it was made for embeddings: its file says how to pool */
    bool is_encoder;      /* it gives no replies */
    bool ranks;           /* it has a head that scores a query with a document (POOLING_RANK) */
    uint64_t drafted_tokens, accepted_tokens; /* draft tokens computed, accepted */
    const struct reply_format *reply_format;  /* of a language model; NULL: replies are text */
};

/* Of kinds that act on observations; all 0 for others. */
struct acting_info {
    size_t n_observations, n_actions; /* inputs, choices */
    size_t n_action_numbers;          /* of an action that is no choice; else 0 */
    size_t n_state;                   /* numbers of its recurrent state; 0: it has none */
    bool has_logp;                    /* its reply holds the action's log-probability */
    bool has_value;                   /* its reply holds an estimate of the return */
};

/* Of kinds with KV pages; all 0 for others. */
struct cache_info {
    size_t page_bytes, pages, pages_free, pages_shared;
    size_t pages_cached;                  /* found by their prefix; held by clones, or free */
    uint64_t copies;                      /* pages copied on write */
    uint64_t pages_evicted;               /* free cached pages reused for other content */
    uint64_t evictions, recomputes;       /* how often CLONE_EVICTED, CLONE_RECOMPUTED happened */
    size_t host_pages, host_pages_used;   /* host pages */
    uint64_t offloads, reloads;           /* pages copied to the host, and back */
    size_t slot_bytes, slots, slots_free; /* of recurrent state; 0: the model has none */
    size_t snapshots;                     /* slots that cached pages have */
    uint64_t snapshots_made, snapshots_evicted, snapshots_used;
    uint64_t lookup_tokens, hit_tokens;        /* tokens of prompts: looked up, and found */
    uint64_t hit_host_tokens, hit_disk_tokens; /* of those found: on host pages, and on disk */
    /* On disk: pages that fit, that are there, that were removed at the start; pages since then. */
    size_t disk_pages, disk_pages_used, disk_pages_dropped;
    uint64_t disk_written, disk_read, disk_evicted, disk_failed, disk_broken, disk_skipped;
    size_t disk_unread;        /* files that could not be read at the start, and take room */
    char disk_unread_why[128]; /* of the first of them; else "" */
    uint64_t missed_tokens[N_KV_MISSES]; /* of prompts; with pages on disk alone */
    double saved_s; /* what computing hit_disk_tokens would have taken, at the rate of prompts so
                       far */
};

struct agent_info {
    const char *name, *kind;             /* "smollm2", "lm" */
    const char *architecture;            /* "gemma2", "" */
    const char *backend;                 /* "", "cpu", … */
    char products[BACKEND_PRODUCTS_MAX]; /* how a device multiplies; else "" */
    char version[65]; /* content hash, hex: sha256 of the file; "1" without a file */
    size_t weight_bytes;
    uint64_t device_losses; /* how often a device failure lost all pages */
    size_t device_graphs;   /* steps that a device launches as one graph */
    /* A step of few rows takes microseconds, less than a switch to another thread and back. Such
     * steps may run on the loop while the compute thread has no job of this agent. */
    bool is_light;
    bool is_inexact; /* the same turn, computed again, may have another reply */
    /* What steps did to a clone's state is lost where the clone is made again from its turns. */
    bool is_state_volatile;
    struct sampling defaults;
    struct text_info text;
    struct acting_info acting;
    struct cache_info cache;
};

/* A clone's sizes. */
struct clone_info {
    size_t n_tokens; /* context in use */
    size_t n_pages, n_pages_shared;
    size_t state_bytes; /* host memory of the private state */
    size_t n_recorded;  /* steps in its record */
};

#endif
