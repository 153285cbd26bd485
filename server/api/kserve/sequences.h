/* Sequences: requests that share an id and, with it, the state of one clone. A sequence is a
 * conversation where the model speaks, and a session where it acts. Its requests run one after the
 * other in the order of their arrival. One that is idle for too long, counted from its last
 * completion, is closed; the next request for it fails with that reason. Knows nothing of gRPC.
 * Loop. */
#ifndef SERVER_API_KSERVE_SEQUENCES_H
#define SERVER_API_KSERVE_SEQUENCES_H

#include "agents/turn.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/shared_limit.h"
#include "server/act/session.h"
#include "server/conversation/conversation.h"

struct alarm;
struct sequence;

/* Zero takes the default. */
struct sequences_config {
    size_t max_sequences; /* 65,536 */
    size_t max_queued;    /* of a sequence, behind the running one; 64 */
    uint64_t idle_ms;     /* 60 s */
    const struct env *env;
    struct conversations *conversations;
    struct sessions *sessions;
    struct alarm *alarm; /* rings sequences_tick */
};

enum { SEQUENCES_REMEMBERED = 8192 };

struct sequences {
    struct sequences_config config;
    struct hash by_key;                    /* open sequences, by model and key */
    struct shared_limit limit;             /* open sequences */
    uint64_t n_runs;                       /* started so far: numbers the sessions */
    uint64_t n_inferences;                 /* steps outside sequences: numbers them */
    struct list idle;                      /* the longest idle first */
    struct list retired;                   /* closed to new requests, with requests in flight */
    uint64_t reaped[SEQUENCES_REMEMBERED]; /* a ring of hashes of sequences closed as idle */
    uint64_t n_reaped;
    struct model_user user;
};

/* The place of a request in a sequence. It lies in the memory of the request, until
 * sequence_leave. */
struct sequence_slot {
    struct link link;
    struct sequence *sequence; /* NULL: the request is in no sequence */
    /* The request has become the first of its sequence. It is not called for a request that entered
     * an empty sequence. */
    void (*begin)(struct sequence_slot *item);
};

void sequences_init(struct sequences *all, const struct sequences_config *config);
/* Frees the registry. All sequences must be retired, and no request may be left. */
void sequences_deinit(void *sequences);

/* Appends item to the sequence that the principal has of the model under key. With starts a new
 * sequence begins; one that exists under the key ends after its queued requests. With ends the key
 * is free again, and the sequence ends with its last request. Fails with INVALID if there is no
 * such sequence and starts is false, with ABORTED if the sequence was closed because it was idle,
 * and with EXHAUSTED at the limits. */
enum status sequences_enter(struct sequences *all, uint32_t principal, struct model *model,
                            const char *key, bool starts, bool ends, struct sequence_slot *item,
                            struct error *err) MUST_CHECK;
bool sequence_slot_is_first(const struct sequence_slot *item);
/* Removes item, whose request is over or was never started. begin of the next item is called
 * inside. An item in no sequence is fine. */
void sequence_leave(struct sequence_slot *item);

/* Runs a turn for item, which is the first of its sequence. The first turn of a sequence opens the
 * sequence's conversation. Fails with ABORTED if that conversation was closed elsewhere, with
 * UNAVAILABLE if the model was unloaded, else as conversation_open and conversation_turn do. */
enum status sequence_turn(struct sequence_slot *item, const struct turn_request *r, int priority,
                          struct turn_reader *reader, struct error *err) MUST_CHECK;
/* Runs a step for item, which is the first of its sequence. Sets r's model, env_id, run_id and seq,
 * takes the arena as sessions_step does, and fails as that does. */
enum status sequence_step(struct sequence_slot *item, struct step_request *r, struct arena *arena,
                          struct step_wait *w, struct error *err) MUST_CHECK;

/* Closes the sequences that have been idle for too long. */
void sequences_tick(void *sequences);
/* Retires all sequences of the model (NULL: of any): no new request finds them, and those without a
 * request are freed. Queued requests in the others fail with UNAVAILABLE when they become the
 * first. */
void sequences_retire(struct sequences *all, const struct model *model);

#endif
