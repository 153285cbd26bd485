/* A worker that hosts environments: the orders that wait for it, and its answers. It is part of the
 * struct of its stream (parley.v1.Agents.Attach), which sends the orders one after another and
 * encodes them. Loop. */
#ifndef SERVER_ENVIRONMENT_HOST_H
#define SERVER_ENVIRONMENT_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/tensor.h"
#include "base/peer.h"
#include "base/status.h"

struct vector;
struct vector_request;
struct vectors;

enum {
    HOST_MAX_INSTANCES = 4096,
    HOST_MAX_ORDERS = 65536, /* for max_orders of the peers that are hosts */
    HOST_NAME_SIZE = 64,
};

/* An action is one of n_actions choices, or n_action_numbers numbers. */
struct environment_spaces {
    size_t n_observation, n_actions, n_action_numbers;
};

enum host_order_kind { HOST_RESET, HOST_STEP, HOST_CLOSE };

/* Resets, steps or closes n instances together; in one block with its arrays. */
struct host_order {
    struct peer_order base; /* awaited, but for CLOSE */
    uint64_t id;
    enum host_order_kind kind;
    size_t n;
    uint64_t *numbers;              /* [n] of the instances, on this stream */
    uint64_t *seeds;                /* [n] RESET: of the episodes that begin */
    int64_t *choices;               /* [n] STEP, or */
    float *action_numbers;          /* [n][n_action_numbers] */
    uint32_t *indices;              /* [n] in the vector */
    uint32_t *rows;                 /* [n] in the request */
    struct vector *vector;          /* which does not go before its orders; CLOSE: NULL */
    struct vector_request *request; /* NULL: nobody waits */
};

struct environment_host {
    struct peer peer; /* its orders are of struct host_order */
    char name[HOST_NAME_SIZE];
    struct environment_spaces spaces;
    size_t max_instances;
    struct list instances; /* of struct vector_instance */
    size_t n_instances;
    uint64_t n_numbered_orders, n_numbered;
    size_t n_rows[2];            /* while a request is divided: by kind */
    struct host_order *order[2]; /* likewise */
};

/* An answer to a reset (observation alone) or a step. */
struct host_answer {
    uint64_t order;
    struct tensor_view observation;                   /* f32 [n][n_observation] */
    struct tensor_view reward, terminated, truncated; /* f32, bool, bool [n] */
    /* [n_failures] instances that failed, by their place in the order; they are to be reset. */
    const struct host_failure {
        uint32_t place;
        const char *text;
    } * failures;
    size_t n_failures;
};

/* h is zeroed but for the callbacks of its peer. INVALID names the field; EXISTS for a name that is
 * built in; PRECONDITION where other hosts of the name have other spaces; DENIED, EXHAUSTED. */
enum status environment_host_open(struct environment_host *h, struct vectors *all, const char *name,
                                  const struct environment_spaces *spaces, size_t max_instances,
                                  struct error *err) MUST_CHECK;
/* Its instances are lost: their steps end UNAVAILABLE, and they can be reset on another host. Not
 * open is fine. */
void environment_host_close(struct environment_host *h);

/* The next order to send; NULL: none. It is valid until environment_host_taken. */
const struct host_order *environment_host_order(const struct environment_host *h);
void environment_host_taken(struct environment_host *h);
/* On failure the host is to be closed: nothing of the answer was used. */
enum status environment_host_answer(struct environment_host *h, const struct host_answer *answer,
                                    struct error *err) MUST_CHECK;

#endif
