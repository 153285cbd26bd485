/* Attached workers are programs that compute custom agents (agents/remote/). A worker's offer names
 * a model, which is added and loaded if it does not exist. The model stays when its last worker is
 * lost, and is vacant until another worker attaches. All functions are called on the loop. */
#ifndef SERVER_MODEL_ATTACHED_H
#define SERVER_MODEL_ATTACHED_H

#include "agents/remote/remote.h"
#include "base/shared_limit.h"
#include "server/model/models.h"

struct alarm;

enum { ATTACHED_MAX_WORKERS = 256 };

struct attached_config {
    struct models *models;
    const struct env *env;
    uint64_t silence_us; /* a worker that lets an offer or an answer wait for so long is ended */
    bool is_allowed;     /* else every worker is refused */
    struct alarm *alarm; /* rings attached_tick */
    /* Called when a model has got its first worker, or lost its last one. */
    void (*on_change)(void *arg, struct model *m);
    void *arg;
};

struct attached {
    struct attached_config config;
    struct model_user user;
    struct peers peers;        /* of struct attached_worker */
    struct shared_limit limit; /* attached workers */
};

/* A worker, in the memory of its stream. It is attached from attached_open on, and joined to its
 * model from when its offer is accepted. An unload of the model, a worker that is silent or
 * flooded, and the server's end call its peer's ended. */
struct attached_worker {
    struct remote_worker remote; /* its peer must speak until the offer has come; the remote worker
                                    is open once it is joined */
    uint32_t principal;          /* the principal whose key the worker has */
    struct remote_offer offer;
    char version[REMOTE_MAX_VERSION + 1];
    char name[64];           /* the model's */
    struct model *model;     /* NULL: the worker is not joined */
    struct models_wait wait; /* for the model to be loaded */
    /* The stream sets joined. It is called when the offer is accepted, perhaps inside
     * attached_offer. */
    void (*joined)(struct attached_worker *w);
};

void attached_init(struct attached *a, const struct attached_config *config);
/* Ends all workers and takes no more, because the server stops. */
void attached_end(void *attached);
/* All workers must be closed. */
void attached_deinit(void *attached);
/* Ends workers that are silent or flooded, and steps of turns that are overdue. */
void attached_tick(void *attached);

/* Attaches a worker whose stream begins. w is zeroed but for joined, its principal, and what the
 * stream has set of its peer. DENIED, EXHAUSTED; then w was not used. */
enum status attached_open(struct attached_worker *w, struct attached *a,
                          struct error *err) MUST_CHECK;
/* Takes a worker's offer, which is copied. Then joined is called, or the peer's ended if the model
 * cannot be loaded or refuses the worker. On failure neither is called. */
enum status attached_offer(struct attached_worker *w, const char *name,
                           const struct remote_offer *offer, struct error *err) MUST_CHECK;
/* Detaches a worker. Does nothing if the worker is not attached. */
void attached_close(struct attached_worker *w);

/* Lets the model's batcher have as many rows in flight as its workers take, unless Act.Configure
 * says otherwise (is_gathered). */
void attached_follow_workers(struct model *m);

#endif
