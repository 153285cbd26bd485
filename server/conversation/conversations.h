/* All conversations of a daemon. A conversation is found by its id, listed newest first, and closed
 * when it has been idle for too long. This module knows nothing of gRPC. All functions are called
 * on the loop. */
#ifndef SERVER_CONVERSATION_CONVERSATIONS_H
#define SERVER_CONVERSATION_CONVERSATIONS_H

#include "base/env.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/shared_limit.h"
#include "base/status.h"
#include "server/conversation/expiry.h"
#include "server/conversation/idle.h"
#include "server/conversation/metadata.h"
#include "server/conversation/opened_requests.h"
#include "server/conversation/turn.h"
#include "server/conversation/watch.h"
#include "server/model/absent.h"
#include "server/model/models.h"

struct alarm;
struct clone;
struct journal;
struct journal_orphan;
struct model;
struct access_quota;
struct models;

/* How conversations are kept: see keeping.h. */
struct keeping_config {
    struct journal *journal; /* NULL: no conversation is kept */
    struct models *models;   /* where the model of a conversation from the journal is found */
    const char *binding;     /* the daemon's arithmetic, see keeping_binding; borrowed for ever */
    bool is_inexact;         /* the arithmetic does not compute the same bits again */
    /* Returns a principal's name. NULL: every name is "". */
    const char *(*principal_name)(void *self, uint32_t principal);
    /* Finds the id of the principal of this name. Returns false if there is none. */
    bool (*find_principal)(void *self, const char *name, uint32_t *out);
    /* The orphan of struct journal_sharing; NULL where one daemon alone uses the journal. */
    void (*orphan)(void *conversations, const struct journal_orphan *orphan);
    void *self;
};

/* A turn that an earlier process had accepted and not ended. The turn runs again when a client next
 * asks for a turn of the conversation. */
struct unended_turn {
    struct stored_request *request;      /* NULL: there is no such turn */
    struct sampling_overrides *resolved; /* all sampling parameters of the turn */
    bool is_changed;                     /* the bits would now be others than before */
};

/* The open conversations of a principal. An owner is made with the principal's first conversation,
 * and stays until the end. */
struct conversation_owner {
    struct hash_node by_principal;
    uint32_t principal;
    size_t n;
    struct list newest_first;
    struct list unkept;         /* the conversations that only memory has, newest first */
    struct access_quota *quota; /* NULL: the principal has no quota */
};

/* A conversation has a clone of an agent, its completed turns, and a queue of turns. Turns run one
 * after the other; at most one is in flight. conversations_add gives a new conversation its id and
 * puts it into the tables. If the conversation is kept, its records are in the journal, and it may
 * leave memory and come back by conversations_add_again. A closed conversation leaves the tables at
 * once, and is freed when its last turn has ended. */
struct conversation {
    struct turn_host host; /* the part that the conversation's turns need and change */
    struct conversation_id id;
    struct hash_node by_id;
    struct link link;     /* in newest_first of all conversations */
    struct link of_owner; /* in newest_first of the owner */
    struct link unkept;   /* in the owner's unkept, unless the conversation is kept */
    struct conversation_owner *owner;
    uint32_t principal;         /* the owner; calls of other principals do not find it */
    struct expiry_entry expiry; /* when the expiry is looked at, at the latest when it is due */
    struct conversations *all;
    struct metadata *metadata;     /* NULL: the conversation has none */
    struct opened_request *opened; /* the request that opened it; NULL: a request without an id */
    uint64_t serial;               /* grows with the order of opening */
    uint64_t opened_unix_ms;
    struct idle_entry idle; /* while the conversation is kept and has no turn */
    uint64_t registered_us; /* when the conversation came into memory */
    bool is_idle_known;     /* its idle time before it came into memory counts, too: its last record
                               is younger than this process. Of daemons that share a journal, another
                               one may have written it: their clocks must agree to within a ttl. */
    struct unended_turn unended;
    uint32_t rewound_to; /* the turn to which the last rewind went */
    struct conversation_id parent;
    bool has_parent;
    uint64_t owner_epoch; /* of its row in the journal, when it was opened or read */
    bool is_inexact;      /* another arithmetic or model has computed a part of the past */
    bool is_pinned;       /* it does not leave memory for being idle: its user, a room, does not
                             read it again */
    bool is_closed;       /* the conversation is not found by id any more */
};

enum conversation_pin { PIN_NONE, PIN_HELD, PIN_UNKNOWN };

/* A member that is zero stands for the default that its comment names. */
struct conversations_config {
    size_t max_conversations;    /* 1,000,000 */
    size_t max_queued_turns;     /* of a conversation, behind the turn in flight; 16 */
    size_t max_turns;            /* of a conversation; 1,000,000 */
    size_t max_transcript_bytes; /* of a conversation; 64 MiB */
    size_t max_reply_bytes;      /* 4 MiB */
    size_t max_arena_bytes;      /* what an agent may take for one turn; 64 MiB */
    uint64_t ttl_ms; /* idle time of conversations that only memory has, unless the client asks for
                        another; a day */
    /* How long a turn that can be asked for again goes on without a reader; 0: no time. */
    uint64_t linger_us;
    uint64_t unload_us;    /* a kept conversation leaves memory after this idle time; 0: never */
    uint64_t unload_bytes; /* kept conversations without a turn take at most about this much memory;
                              0: no bound */
    uint64_t unix_ms;      /* the wall clock at conversations_init */
    /* Returns the quota of a principal, valid as long as the conversations; NULL: the principal has
     * none. quota_of may be NULL. */
    struct access_quota *(*quota_of)(void *arg, uint32_t principal);
    void *quota_arg;
    const struct env *env;
    struct alarm *alarm; /* rings conversations_tick */
};

struct conversations {
    struct conversations_config config;
    struct turn_config turns;
    struct hash by_id;
    struct hash owners; /* by principal */
    struct opened_requests opened;
    size_t n;
    struct shared_limit limit;
    struct shared_limit verified; /* bytes of records that calls hold to verify them */
    size_t n_peak;                /* the most conversations since memory was last trimmed */
    uint64_t trim_us;             /* when memory is trimmed next; 0: there is no need */
    struct list newest_first;
    struct expiry expiry;
    struct idle_list idle; /* kept conversations that have no turn */
    struct watch_ring watch;
    uint64_t start_us;
    uint64_t n_opened;     /* how many were opened since the start; gives the serials */
    uint64_t n_turns;      /* how many turns were completed since the start */
    size_t n_live;         /* how many turns are in flight or queued */
    size_t n_closing;      /* closed conversations whose last turn is still in a step */
    struct list lingering; /* turns without readers; the turn that ends first comes first */
    bool is_draining;
    void (*on_idle)(void *arg); /* called when no turn is in flight or queued; may be NULL */
    void *idle_arg;
    struct model_user user;
    struct absent_models absent; /* models of kept conversations that are not served */
    struct keeping_config keeping;
    /* Whether something that is kept needs this conversation, so that it is neither closed nor
     * rewound. NULL: nothing does. */
    enum conversation_pin (*pin)(const void *self, const struct conversation_id *id);
    const void *pin_self;
    struct list orphans; /* lookups of turns that no daemon goes on with: see orphans.h */
    struct list closing; /* what a pass closes in the journal: see retention.h */
    uint64_t stored_ms;  /* the time of the newest record of earlier processes; 0: unknown yet */
    size_t n_expired; /* kept conversations whose own idle time closed them since the last pass */
};

void conversations_init(struct conversations *all, const struct conversations_config *config);
/* Changes limits for conversations that are opened, and turns whose last reader leaves, from now
 * on. Zero stands for the default, except in linger_us. */
void conversations_configure(struct conversations *all, size_t max_conversations, uint64_t ttl_ms,
                             uint64_t linger_us);
/* Changes when kept conversations leave memory: see struct conversations_config. */
void conversations_configure_unload(struct conversations *all, uint64_t unload_us,
                                    uint64_t unload_bytes);
/* PRECONDITION where something that is kept needs the conversation; UNAVAILABLE while that is not
 * known. */
enum status conversation_check_pins(const struct conversation *c, struct error *err) MUST_CHECK;
/* Whether something that is kept needs the conversation, as far as that is known, or may. */
bool conversations_is_pinned(const struct conversations *all, const struct conversation_id *id);
/* Frees what the conversations share. Every conversation must be closed. conversations may be
 * zeroed memory. */
void conversations_deinit(void *conversations);

/* Finds the principal's open conversation with this id. NOT_FOUND if there is none. */
enum status conversations_find(struct conversation **out, const struct conversations *all,
                               uint32_t principal, const char *id, struct error *err) MUST_CHECK;
/* Returns the principal's open conversation with this id; NULL: there is none. */
struct conversation *conversations_get_of(const struct conversations *all, uint32_t principal,
                                          const struct conversation_id *id);
/* Returns the open conversation with this id, whoever owns it. For ids that no caller gave. */
struct conversation *conversations_get(const struct conversations *all,
                                       const struct conversation_id *id);

/* Closes expired conversations, takes idle kept conversations out of memory (see
 * conversation_may_leave), and ends turns that have lingered long enough. A second after most
 * conversations were closed, also returns their memory to the system. */
void conversations_tick(void *conversations);

/* Makes every later open or turn fail with UNAVAILABLE. Turns that linger end, or are left to the
 * next process. */
void conversations_drain(void *conversations);
/* Cancels every turn, or leaves the turn to the next process. on_idle is called once all turns have
 * ended. */
void conversations_cancel_all(void *conversations);
/* Closes all conversations of a model; NULL stands for all models. Kept conversations only leave
 * memory. A conversation whose turn is still in a step is freed when the step is done. reason is
 * static. */
void conversations_close_all(struct conversations *all, const struct model *model,
                             const char *reason);

/* Returns the idle time after which c is closed; 0: never, since c is kept and its client asked for
 * no idle time. */
uint64_t conversation_ttl_ms(const struct conversation *c);
/* Says that this idle time has changed. */
void conversations_expiry_changed(struct conversation *c);
/* Closes c if that idle time has passed. Returns whether it has. */
bool conversation_expire(struct conversation *c);

/* Returns whether c is as before when it has left memory and is read again: c is kept and not
 * pinned, has no turn, nobody watches c alone, and its agent computes the state of its clone from
 * the records. */
bool conversation_may_leave(const struct conversation *c);
/* Says that c, which has no turn, was used, or has grown: others leave memory before c. */
void conversation_used(struct conversation *c);

/* Returns the wall clock: the time at conversations_init and the time since then. */
uint64_t conversations_unix_ms(const struct conversations *all);
/* Returns the time by which stored keys are over: the time of the newest record of earlier
 * processes and the time that this process has run. So a clock that is ahead ends no key. 0: the
 * time is not known yet. */
uint64_t conversations_stored_ms(const struct conversations *all);

void conversation_id_format(const struct conversation_id *id, char out[CONVERSATION_ID_CHARS]);
/* Reads an id. Returns false unless text is 32 lower-case hexadecimal digits. */
bool conversation_id_parse(struct conversation_id *out, const char *text);

/* Iterate over all conversations, newest first. conversations_older returns the conversation after
 * c; NULL at the end. */
struct conversation *conversations_newest(const struct conversations *all);
struct conversation *conversations_older(const struct conversations *all,
                                         const struct conversation *c);

/* Iterate in the same way over the conversations of a principal. */
struct conversation *conversations_newest_of(const struct conversations *all, uint32_t principal);
struct conversation *conversations_older_of(const struct conversation *c);
/* Iterate in the same way over the principal's conversations that only memory has. The time does
 * not depend on how many others are kept. */
struct conversation *conversations_newest_unkept(const struct conversations *all,
                                                 uint32_t principal);
struct conversation *conversations_older_unkept(const struct conversation *c);
/* Says that c is kept from now on. */
void conversation_is_kept(struct conversation *c);
/* Returns how many conversations the principal has of this model; model NULL stands for all models.
 */
size_t conversations_count_of(const struct conversations *all, uint32_t principal,
                              const struct model *model);

/* Tells watchers what the agent did to a clone. reason is static. */
void conversations_clone_event(const struct clone *clone, enum watch_what what, const char *reason);

/* Ends the turn in flight and the turns behind it as cancelled. Returns how many turns that were.
 */
size_t conversation_cancel(struct conversation *c);

/* Closes c: its turns are cancelled, and it is freed when its last turn has ended. The journal is
 * told that a kept conversation was closed, so that it is not found after a restart. reason is
 * static. */
void conversation_close(struct conversation *c, enum watch_what what, const char *reason);

/* Tells the journal that a conversation was closed that is not in memory. */
void conversations_forget(struct conversations *all, const struct conversation_id *id);
/* Closes the conversation of this id, whether it is in memory or only in the journal. reason is
 * static. */
void conversations_close_by_id(struct conversations *all, const struct conversation_id *id,
                               const char *reason);

/* Takes c out of memory without closing it. Its turns fail. What the journal has of c holds. */
void conversation_unload(struct conversation *c);
/* Takes c out of memory without closing it. Its turns are cancelled. reason is static. */
void conversation_put_away(struct conversation *c, const char *reason);
/* Takes c out of memory because the server stops: the next process computes the accepted turn
 * again. Returns false, and does nothing, if the next process could not do so. */
bool conversation_suspend(struct conversation *c);
/* The same where other daemons share the journal: one of them goes on with the turn at once, and
 * readers are told to ask again. */
bool conversation_hand_over(struct conversation *c);
/* Takes c, which has no turn any more and may be closed already, out of memory. */
void conversation_lose(struct conversation *c);

/* Gives c, which has options and a model, its clone. */
enum status conversation_open_clone(struct conversation *c, struct error *err) MUST_CHECK;

/* Registers a conversation that was open before, with its id. It has been idle for idle_ms. Where
 * there is no room for it, idle kept conversations leave memory. */
enum status conversations_add_again(struct conversations *all, struct conversation *c,
                                    uint64_t idle_ms, struct error *err) MUST_CHECK;
/* Registers a new conversation, draws its id, and tells watchers. On success the registry owns c.
 */
enum status conversations_add(struct conversations *all, struct conversation *c,
                              enum watch_what what, struct error *err) MUST_CHECK;
/* Frees a conversation that was never added. */
void conversation_release(struct conversation *c);

#endif
