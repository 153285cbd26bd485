/* Attached workers: programs that compute custom agents (agents/remote/). A worker's offer adds a
 * model of its name and loads it. The model stays when its last worker is lost, and is vacant until
 * another attaches. Loop. */
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
    uint64_t silence_us; /* for an offer, and for the answer to a step */
    bool is_allowed;     /* else every worker is refused */
    struct alarm *alarm; /* rings attached_tick */
    /* The model has its first worker, or none any more. */
    void (*on_change)(void *arg, struct model *m);
    void *arg;
};

struct attached {
    struct attached_config config;
    struct model_user user;
    struct peers peers;        /* of struct attached_worker */
    struct shared_limit limit; /* workers */
};

/* A worker's stream, in its own memory. */
struct attached_worker {
    struct remote_worker remote; /* its peer must speak until the offer has come; the worker is open
                                    once joined */
    uint32_t principal;          /* whose */
    struct remote_offer offer;
    char version[REMOTE_MAX_VERSION + 1];
    char name[64];       /* of its model */
    struct model *model; /* once joined */
    struct models_wait wait;
    /* The stream sets joined. It is called when the offer is accepted, perhaps inside
     * attached_offer. */
    void (*joined)(struct attached_worker *w);
};

void attached_init(struct attached *a, const struct attached_config *config);
/* Ends all workers, for the daemon's end. */
void attached_end(struct attached *a);
void attached_deinit(struct attached *a); /* all workers are closed */
void attached_tick(void *attached);

/* A stream begins. w is zeroed but for joined, its principal, and the callbacks of its peer.
 * DENIED, EXHAUSTED: w is not used. */
enum status attached_open(struct attached_worker *w, struct attached *a,
                          struct error *err) MUST_CHECK;
/* Its offer: joined is called soon, or the peer's ended. offer is copied. */
enum status attached_offer(struct attached_worker *w, const char *name,
                           const struct remote_offer *offer, struct error *err) MUST_CHECK;
/* The worker goes, or is at fault. Calling it again is fine, also after ended. */
void attached_close(struct attached_worker *w);

#endif
