/* Retention deletes old conversations from the journal. A pass looks at all stored conversations.
 * It closes the conversations beyond the limits of age and size. It also closes conversations whose
 * client asked for a time to live and that have left memory. A clock that jumps makes nothing old,
 * since time counts only while the process runs. A log line says what a pass has deleted. All
 * functions are called on the loop. */
#ifndef SERVER_CONVERSATION_RETENTION_H
#define SERVER_CONVERSATION_RETENTION_H

#include "server/conversation/ages.h"
#include "server/conversation/conversations.h"
#include "server/journal/journal.h"

struct alarm;

struct retention_config {
    uint64_t age_ms;     /* a conversation without a turn for so long is deleted; 0: no bound */
    uint64_t bytes;      /* while the journal takes more, the conversations that are idle longest
                            are deleted; 0: no bound */
    struct alarm *alarm; /* rings retention_tick */
};

enum { RETENTION_IDLEST = 256 };

enum retention_why { RETENTION_AGE, RETENTION_TTL, RETENTION_SIZE, N_RETENTION_WHYS };

struct retention {
    struct conversations *all;
    struct retention_config config;
    struct journal_wait wait;
    uint64_t place;     /* how far the pass has come */
    bool is_passing;    /* a pass is under way */
    bool is_waiting;    /* the pass waits until closings are durable */
    bool is_collecting; /* the pass collects ages before it looks at conversations */
    bool is_resting;    /* the pass goes on when the alarm rings */
    bool is_pressed;    /* the journal is larger than it may be: the pass does not rest */
    uint64_t asked_us;  /* when the pass asked the journal last */
    struct ages ages;
    uint64_t newest_ms; /* the time of the newest record of earlier processes */
    uint64_t old_seq;   /* records of earlier processes up to this seq are too old */
    size_t n_deleted[N_RETENTION_WHYS]; /* how many conversations the pass has deleted */
    size_t n_closing;                   /* how many closings are not durable yet */
    struct idle_one {
        struct conversation_id id;
        uint64_t last_seq;
    } idlest[RETENTION_IDLEST]; /* [n_idlest] conversations that the pass has seen, those that are
                                   idle longest first */
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
