/* Sequences: requests that share an id and, with it, the state of one clone. A sequence is a
 * conversation where the model speaks, and a session where it acts; its requests run one after the
 * other in the order of their arrival. One that is idle for too long, counted from its last
 * completion, is closed, and who asks for it next is told so. Knows nothing of gRPC. Loop. */
#ifndef SERVER_SEQUENCES_H
#define SERVER_SEQUENCES_H

#include "server/conversation.h"
#include "server/session.h"

struct sequence;

/* Zero takes the default. */
struct sequences_config {
    size_t max_sequences; /* 65,536 */
    size_t max_queued;    /* of a sequence, behind the one that runs; 64 */
    uint64_t idle_ms;     /* 60 s */
    const struct env *env;
    struct conversations *conversations;
    struct sessions *sessions;
    /* The one timer: please call sequences_tick at at_us. */
    void (*arm)(void *self, uint64_t at_us);
    void *arm_self;
};

enum { SEQUENCES_REMEMBERED = 8192 };

struct sequences {
    struct sequences_config config;
    struct sequence **table; /* [n_buckets], chained */
    size_t n_buckets;        /* a power of two */
    uint64_t salt;
    size_t n;            /* those that are found */
    uint64_t n_runs;     /* begun since the start: numbers the sessions */
    struct list idle;    /* the longest first */
    struct list retired; /* not to be found, but with requests on their way */
    uint64_t *reaped;    /* [SEQUENCES_REMEMBERED] hashes of those closed for idleness, a ring */
    uint64_t n_reaped;
};

/* A request's place in a sequence: the caller's memory until sequence_leave. */
struct sequence_item {
    struct link link;
    struct sequence *sequence; /* NULL: in none */
    /* Its turn has come; not called for one that was the first when it entered. */
    void (*begin)(struct sequence_item *item);
};

enum status sequences_init(struct sequences *all, const struct sequences_config *config,
                           struct error *err) MUST_CHECK;
void sequences_deinit(struct sequences *all); /* none has a request; may be zeroed memory */

/* item stands at the end of the sequence key of the model. starts: of a new one; one there is ends
 * when those that wait in it are done. ends: the key is free again, and the sequence goes with its
 * last request. INVALID for one that is not there and does not start; ABORTED for one that was
 * closed because it was idle; EXHAUSTED. */
enum status sequences_enter(struct sequences *all, struct model *model, const char *key,
                            bool starts, bool ends, struct sequence_item *item,
                            struct error *err) MUST_CHECK;
bool sequence_item_is_first(const struct sequence_item *item);
/* Its request is over, or never was: the one behind it begins, inside. Does nothing for one that is
 * in none. */
void sequence_leave(struct sequence_item *item);

/* The first item's request. The sequence opens its conversation with the first one; ABORTED when
 * that was closed by somebody else since. UNAVAILABLE: the model is gone. Others as
 * conversation_open, conversation_turn and sessions_step. */
enum status sequence_turn(struct sequence_item *item, const struct turn_request *r, int priority,
                          struct reader *reader, struct error *err) MUST_CHECK;
/* r's model, env_id, run_id and seq are the sequence's to fill; the arena is taken as sessions_step
 * takes it. */
enum status sequence_step(struct sequence_item *item, struct step_request *r, struct arena *arena,
                          struct step_wait *w, struct error *err) MUST_CHECK;

/* Closes those that have been idle for too long. */
void sequences_tick(struct sequences *all);
/* None of the model's is found any more (NULL: of any); those without a request are gone. Requests
 * that wait in the others are UNAVAILABLE when their turn comes. */
void sequences_retire(struct sequences *all, const struct model *model);

#endif
