/* A host is a worker that computes environments: the orders that wait for it, and its answers. A
 * host lies in the memory of its stream (parley.v1.Agents.Attach), which encodes the orders and
 * sends them one after another. All functions are called on the loop. */
#ifndef SERVER_ENVIRONMENT_HOST_H
#define SERVER_ENVIRONMENT_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/tensor.h"
#include "base/peer.h"
#include "base/status.h"
#include "server/environment/spaces.h"
#include "server/environment/vector.h"

enum {
    HOST_MAX_INSTANCES = 4096, /* instances of one host */
    HOST_MAX_ORDERS = 65536,   /* for max_orders of the peers that are hosts */
};

enum host_order_kind { HOST_RESET, HOST_STEP, HOST_CLOSE };

/* An order resets, steps or closes n instances together. The order and its arrays are one block. A
 * request makes at most one order of each kind for each host. An order of kind RESET or STEP lives
 * until the host answers it or is closed; an order of kind CLOSE until the stream has taken it. */
struct host_order {
    struct peer_order base; /* awaited if the order is a reset or a step */
    uint64_t id;
    enum host_order_kind kind;
    size_t n;
    uint64_t *numbers;     /* [n] the instances' numbers at the host */
    uint64_t *seeds;       /* [n] RESET: the seeds of the episodes that begin */
    int64_t *choices;      /* [n] STEP: the actions, if they are choices */
    float *action_numbers; /* [n][n_action_numbers] STEP: the actions, if they are numbers */
    uint32_t *indices;     /* [n] the instances' places in the vector */
    uint32_t *rows;        /* [n] the instances' rows in the request */
    struct vector *vector; /* the vector, which lives as long as its orders; CLOSE: NULL */
    struct vector_request *request; /* the request; NULL: no call waits for the answer */
};

struct environment_host {
    struct peer peer; /* its orders are of struct host_order */
    char name[HOST_NAME_SIZE];
    struct environment_spaces spaces; /* described is the host's */
    size_t max_instances;
    struct list instances; /* of struct vector_instance */
    size_t n_instances;
    uint64_t n_numbered_orders,
        n_numbered;              /* the newest order's id; the newest instance's number */
    size_t n_rows[2];            /* while a request is divided: the host's rows of each kind */
    struct host_order *order[2]; /* while a request is divided: the host's order of each kind */
};

/* A host's answer to a reset, which has only the observation, or to a step. All is borrowed. */
struct host_answer {
    uint64_t order;                                   /* the order's id */
    struct tensor_view observation;                   /* f32 [n][n_observation] */
    struct tensor_view reward, terminated, truncated; /* f32, bool, bool [n] */
    /* [n_failures] the instances that failed, in the order of their places in the order. They must
     * be reset before the next step. */
    const struct host_failure {
        uint32_t place;
        const char *text;
    } * failures;
    size_t n_failures;
    /* [n_infos] what instances say beside their observations, in the order of their places. */
    const struct host_info {
        uint32_t place;
        const char *json;
    } * infos;
    size_t n_infos;
};

/* Attaches a host, which is zeroed but for what the stream has set of its peer. INVALID names the
 * field of the offer that is at fault; EXISTS if an environment of this name is built in or plugged
 * in; PRECONDITION if other hosts of this name have other spaces; UNAVAILABLE while the server
 * stops. */
enum status environment_host_open(struct environment_host *h, struct vectors *all, const char *name,
                                  const struct environment_spaces *spaces, size_t max_instances,
                                  struct error *err) MUST_CHECK;
/* Detaches a host. Its instances are lost: the rows of its orders fail with UNAVAILABLE, and the
 * instances can be reset at another host. Does nothing if the host is not open. */
void environment_host_close(struct environment_host *h);

/* Returns the order that the stream sends next; NULL: there is none. The order is valid until
 * environment_host_taken. */
const struct host_order *environment_host_order(const struct environment_host *h);
/* Tells that the order of environment_host_order was sent. There must be one. */
void environment_host_taken(struct environment_host *h);
/* Takes a host's answer to its oldest order. INVALID names the field that is at fault. Then nothing
 * of the answer was used, and the caller must end the host. */
enum status environment_host_answer(struct environment_host *h, const struct host_answer *answer,
                                    struct error *err) MUST_CHECK;

/* --- for this folder --- */

/* Finds the spaces that the attached hosts of a name have. NOT_FOUND if there is no such host. */
enum status hosts_find_spaces(struct environment_spaces *out, const struct vectors *all,
                              const char *name, struct error *err) MUST_CHECK;
/* Divides a checked request into orders for the hosts of its instances. An instance that is reset
 * and has no host gets one; rows whose instances have no host fail. EXHAUSTED if there is no memory
 * for the orders; then nothing was done. */
enum status vector_order(struct vector *v, struct vector_request *r, struct error *err) MUST_CHECK;
/* Has the instances of a vector that ends closed at their hosts. */
void vector_leave_hosts(struct vector *v);
/* Makes the orders of a request go on without the request. */
void hosts_forget(struct vectors *all, const struct vector_request *r);
/* Sets err to the reason why a silent host is ended. */
void host_say_silent(const struct peer *p, struct error *err);

#endif
