/* A batcher's state. Only batcher.c, requests.c and step.c include this. */
#ifndef BATCHING_STATE_H
#define BATCHING_STATE_H

#include "base/env.h"
#include "base/list.h"
#include "base/owner_thread.h"
#include "batching/adapters.h"
#include "batching/adaptive.h"
#include "batching/config.h"
#include "batching/deadlines.h"
#include "batching/length_buckets.h"
#include "batching/policy.h"
#include "batching/request.h"
#include "batching/retry.h"
#include "batching/step_time.h"
#include "batching/waiting.h"

struct batcher {
    struct owner_thread owner;
    struct batcher_config config;
    struct batch_agent agent;
    struct batch_compute compute;
    struct batch_timer timer;
    struct env env;
    const struct batch_policy_type *policy;
    struct batcher_config
        next; /* with is_changing: applied once all admitted requests have ended */
    size_t cap_rows, cap_waiting;

    struct waiting waiting;
    struct length_buckets length_buckets;
    struct deadlines deadlines; /* of requests that wait or are queued in their flow */
    struct list running;        /* the request scheduled longest ago first */
    struct list ending;
    struct list in_step; /* in the order of rows */
    struct list to_notify;
    size_t n_flow_queued, n_running, n_ending;
    size_t n_paused;        /* of the running requests, those that yield their rows */
    double heavy_us;        /* what the step may take, with rows of heavy tenants; 0: no bound */
    double row_cost;        /* of a decode row, in the last step without chunks */
    unsigned n_since_light; /* steps since light tenants' rows ran alone */
    size_t n_admitted;      /* how many of the queued requests the policy has admitted */
    uint64_t n_numbered;    /* requests that became the head of their flow */
    size_t waiting_cost;    /* sum over requests that wait or are queued in their flow */

    struct batch_step step;
    struct row **rows; /* [cap_rows]; owned by compute while is_stepping */
    size_t n_rows;
    struct step_time step_time;
    struct adaptive adaptive;       /* used by BATCH_ADAPTIVE */
    size_t decode_cost, chunk_cost; /* of the step, see step_time.h */
    uint64_t step_us;               /* when it began */
    bool is_stepping;
    bool is_scheduling; /* inside batcher_schedule, which arms the timer at its end */
    bool is_changing;
    bool is_closing;
    void (*closed)(void *arg);
    void *closed_arg;
    uint64_t armed_us; /* what the timer is armed for; 0: not armed */
    struct retry retry;
    struct batcher_stats stats;
};

static inline uint64_t now_of(const struct batcher *b)
{
    uint64_t now_us = env_now_us(&b->env);

    return now_us > 0 ? now_us : 1; /* 0 means "never" to the timer and in a request */
}

#endif
