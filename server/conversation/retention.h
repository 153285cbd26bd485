/* Deletes old conversations from the journal. Passes over all stored conversations close those
 * beyond the limits of age and size, and those whose client asked for a time to live and which have
 * left memory. No clock makes them old: time counts while the process runs. What a pass has deleted
 * is logged. Loop. */
#ifndef SERVER_CONVERSATION_RETENTION_H
#define SERVER_CONVERSATION_RETENTION_H

#include "server/conversation/ages.h"
#include "server/conversation/conversations.h"
#include "server/journal/journal.h"

struct alarm;

struct retention_config {
    uint64_t age_ms;     /* a conversation that had no turn for so long is deleted; 0: no bound */
    uint64_t bytes;      /* the idlest are deleted while the journal takes more; 0: no bound */
    struct alarm *alarm; /* rings retention_tick */
};

enum { RETENTION_IDLEST = 256 };

enum retention_why { RETENTION_AGE, RETENTION_TTL, RETENTION_SIZE, N_RETENTION_WHYS };

struct retention {
    struct conversations *all;
    struct retention_config config;
    struct journal_wait wait;
    uint64_t place;              /* of the pass */
    bool is_passing, is_waiting; /* for what is being closed */
    bool is_collecting;          /* the ages, before the pass looks */
    struct ages ages;
    uint64_t newest_ms; /* of earlier processes' records */
    uint64_t old_seq;   /* of earlier processes' records those up to here are too old */
    size_t n_deleted[N_RETENTION_WHYS]; /* by the pass */
    size_t n_closing;                   /* of what is not durable yet */
    struct idle_one {
        struct conversation_id id;
        uint64_t last_seq;
    } idlest[RETENTION_IDLEST]; /* [n_idlest] that the pass has seen, the idlest first */
    size_t n_idlest, next_idlest;
};

/* Makes the registry. Its first pass begins soon if the conversations are kept in a journal, and
 * never if they are not. */
void retention_init(struct retention *r, struct conversations *all,
                    const struct retention_config *config);
/* Sets the limits for the next pass, which begins soon. */
void retention_configure(struct retention *r, uint64_t age_ms, uint64_t bytes);
/* Begins a pass. */
void retention_tick(void *retention);
/* Ends the pass that is under way; no further pass begins. */
void retention_stop(struct retention *r);

/* Whether a pass is deleting the conversation. What was read of the conversation before that must
 * not be used. */
bool retention_is_closing(const struct conversations *all, const struct conversation_id *id);

#endif
