/* All conversations of a daemon: found by id, listed newest first, closed after too long an idle
 * time. Knows nothing of gRPC. Loop. */
#ifndef SERVER_CONVERSATION_CONVERSATIONS_H
#define SERVER_CONVERSATION_CONVERSATIONS_H

#include "base/env.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/shared_limit.h"
#include "base/status.h"
#include "server/conversation/expiry.h"
#include "server/conversation/metadata.h"
#include "server/conversation/opened_requests.h"
#include "server/conversation/turn.h"
#include "server/conversation/watch.h"
#include "server/model/absent.h"
#include "server/model/models.h"

struct alarm;
struct clone;
struct journal;
struct model;
struct access_quota;
struct models;

/* What conversations are kept by: see keeping.h. */
struct keeping_config {
    struct journal *journal; /* NULL: none is kept */
    struct models *models;   /* to find the model of one that is read again */
    const char *binding;     /* what computes, beside the model; stays */
    bool is_inexact;         /* it does not compute the same again */
    const char *(*principal_name)(void *self, uint32_t principal); /* NULL: "" */
    void *self;
};

/* A turn that an earlier process had accepted and not ended. It is run again when a turn is next
 * asked for. */
struct unended_turn {
    struct stored_request *request;      /* NULL: there is none */
    struct sampling_overrides *resolved; /* all of its sampling parameters */
    bool is_changed;                     /* it would not be computed as it was */
};

/* The open conversations of a principal; made with its first one, and kept. */
struct conversation_owner {
    struct hash_node by_principal;
    uint32_t principal;
    size_t n;
    struct list newest_first;
    struct list unkept;         /* those of them that are in memory alone, newest first */
    struct access_quota *quota; /* NULL: none */
};

/* One clone of an agent, its completed turns, and its queued ones. Turns run one after the other;
 * at most one is in flight. */
struct conversation {
    struct turn_host host; /* what its turns need and change */
    struct conversation_id id;
    struct hash_node by_id;
    struct link link;     /* in newest_first of all */
    struct link of_owner; /* in newest_first of its owner */
    struct link unkept;   /* in its owner's unkept, on unless it is kept */
    struct conversation_owner *owner;
    uint32_t principal;         /* its owner; calls of other principals do not find it */
    struct expiry_entry expiry; /* its time is at or before the conversation's expiry */
    struct conversations *all;
    struct metadata *metadata;     /* NULL: none */
    struct opened_request *opened; /* that opened it; NULL: one without an id */
    uint64_t serial;               /* grows with the order of opening */
    uint64_t opened_unix_ms;
    uint64_t registered_us; /* when it came into memory */
    struct unended_turn unended;
    uint32_t rewound_to; /* the last rewind's turn */
    struct conversation_id parent;
    bool has_parent;
    bool is_inexact; /* a part of its past was computed by something else than computes now */
    bool is_closed;  /* not found by id any more; freed with its last turn */
};

/* Zero takes the default. */
struct conversations_config {
    size_t max_conversations;    /* 1,000,000 */
    size_t max_queued_turns;     /* of a conversation, behind the one in flight; 16 */
    size_t max_turns;            /* of a conversation; 1,000,000 */
    size_t max_transcript_bytes; /* of a conversation; 64 MiB */
    size_t max_reply_bytes;      /* 4 MiB */
    size_t max_arena_bytes;      /* what an agent may take for one turn; 64 MiB */
    uint64_t ttl_ms;             /* of those that ask for none and are in memory alone; a day */
    /* How long a turn that can be asked for again goes on without a reader; 0: not at all. */
    uint64_t linger_us;
    uint64_t unload_us; /* idle for so long, one that is kept leaves memory; 0: never */
    uint64_t unix_ms;   /* the wall clock at conversations_init */
    /* Of a principal, valid as long as all; NULL, and NULL from it: none. */
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
    size_t n_peak;    /* the most since memory was last trimmed */
    uint64_t trim_us; /* when to trim memory; 0: no need */
    struct list newest_first;
    struct expiry expiry;
    struct watch_ring watch;
    uint64_t start_us;
    uint64_t n_opened;     /* since the start: numbers them */
    uint64_t n_turns;      /* completed since the start */
    size_t n_live;         /* turns in flight or queued */
    size_t n_closing;      /* closed ones whose last turn is still in a step */
    struct list lingering; /* turns, the one that ends first at the front */
    bool is_draining;
    void (*on_idle)(void *arg); /* no turn is in flight or queued; may be NULL */
    void *idle_arg;
    struct model_user user;
    struct absent_models absent; /* of kept ones whose models are not served */
    struct keeping_config keeping;
    struct list closing; /* in the journal, by a pass: see retention.h */
    uint64_t stored_ms;  /* of the newest record of earlier processes; 0: not known yet */
    size_t n_expired;    /* kept ones, closed by their own ttl since the last pass */
};

void conversations_init(struct conversations *all, const struct conversations_config *config);
/* For conversations opened and turns left from now on. Zero takes the default, but for linger_us.
 */
void conversations_configure(struct conversations *all, size_t max_conversations, uint64_t ttl_ms,
                             uint64_t linger_us);
/* All conversations must be closed; all may be zeroed memory. */
void conversations_deinit(void *conversations);

/* STATUS_NOT_FOUND unless it is the id of an open conversation of the principal. */
enum status conversations_find(struct conversation **out, const struct conversations *all,
                               uint32_t principal, const char *id, struct error *err) MUST_CHECK;
/* NULL: the principal has no such open conversation. */
struct conversation *conversations_get_of(const struct conversations *all, uint32_t principal,
                                          const struct conversation_id *id);
/* Whoever's it is: for ids that no caller gave. */
struct conversation *conversations_get(const struct conversations *all,
                                       const struct conversation_id *id);

/* Closes the expired conversations, has those leave memory that may, and ends the turns that have
 * lingered long enough. A second after most were closed, also returns their memory to the system.
 */
void conversations_tick(void *conversations);

/* Every later open or turn fails with STATUS_UNAVAILABLE. Turns that linger end, or are left to the
 * next process. */
void conversations_drain(void *conversations);
/* Cancels every turn, or leaves it to the next process; on_idle is called once they have all ended.
 */
void conversations_cancel_all(void *conversations);
/* Closes all conversations of a model (NULL: of any); those that are kept only leave memory. One
 * whose turn is still in a step is freed when the step is done. reason is static. */
void conversations_close_all(struct conversations *all, const struct model *model,
                             const char *reason);

/* The idle time after which c is closed; 0: none, since it is kept, and its client asked for none.
 */
uint64_t conversation_ttl_ms(const struct conversation *c);
/* That time is another one. */
void conversations_expiry_changed(struct conversation *c);

uint64_t conversations_unix_ms(const struct conversations *all);
/* The time by which stored keys are over: that of the newest record of earlier processes, and what
 * this one has run since. A clock that is ahead does not count. 0: it is not known yet. */
uint64_t conversations_stored_ms(const struct conversations *all);

void conversation_id_format(const struct conversation_id *id, char out[CONVERSATION_ID_CHARS]);
/* False if text is not an id: 32 lower-case hex digits. */
bool conversation_id_parse(struct conversation_id *out, const char *text);

/* Iterates newest first: conversations_newest is the first, conversations_older the one after c;
 * NULL at the end. */
struct conversation *conversations_newest(const struct conversations *all);
struct conversation *conversations_older(const struct conversations *all,
                                         const struct conversation *c);

/* The same for a principal's. */
struct conversation *conversations_newest_of(const struct conversations *all, uint32_t principal);
struct conversation *conversations_older_of(const struct conversation *c);
/* The same for those that are in memory alone; its steps do not depend on how many are kept. */
struct conversation *conversations_newest_unkept(const struct conversations *all,
                                                 uint32_t principal);
struct conversation *conversations_older_unkept(const struct conversation *c);
/* c is kept from now on. */
void conversation_is_kept(struct conversation *c);
/* How many the principal has, of the model only unless that is NULL. */
size_t conversations_count_of(const struct conversations *all, uint32_t principal,
                              const struct model *model);

/* Notifies watchers of what the agent did to a clone. reason is static. */
void conversations_clone_event(const struct clone *clone, enum watch_what what, const char *reason);

/* Ends the turn in flight and those behind it as cancelled; returns how many there were. */
size_t conversation_cancel(struct conversation *c);

/* Cancels its turns and removes it; it is freed when its last turn has ended. reason is static. */
void conversation_close(struct conversation *c, enum watch_what what, const char *reason);

/* Its turns fail, and it leaves memory without being closed: the journal has what is true of it. */
void conversation_unload(struct conversation *c);
/* It leaves memory without being closed, and its turns are cancelled. reason is static. */
void conversation_put_away(struct conversation *c, const char *reason);
/* As conversation_unload, because the server stops: what was accepted is computed again by the next
 * process. False, and nothing is done, where that could not be. */
bool conversation_suspend(struct conversation *c);
/* As conversation_unload, of one that has no turn any more and may be closed already. */
void conversation_lose(struct conversation *c);

/* Gives a conversation with options and a model its clone. */
enum status conversation_open_clone(struct conversation *c, struct error *err) MUST_CHECK;

/* Registers a conversation that had been open before, with its id, idle for so long. */
enum status conversations_add_again(struct conversations *all, struct conversation *c,
                                    uint64_t idle_ms, struct error *err) MUST_CHECK;
/* Registers a new conversation of the model and notifies watchers. Draws the id. On success c
 * belongs to the registry. */
enum status conversations_add(struct conversations *all, struct conversation *c,
                              enum watch_what what, struct error *err) MUST_CHECK;
/* Frees a conversation that was never added. */
void conversation_release(struct conversation *c);

#endif
