/* Replies that are kept under the keys of their requests, so that a request that is sent again does
 * not generate again: it joins the turns while they run, and has the stored reply afterwards.
 * Bounded in number, bytes and time: the oldest complete ones go, of a principal that has half its
 * own. Loop. */
#ifndef SERVER_CONVERSATION_KEYED_REPLIES_H
#define SERVER_CONVERSATION_KEYED_REPLIES_H

#include "base/checksum.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/shared_limit.h"
#include "server/access/owner_lists.h"
#include "server/conversation/conversation.h"
#include "server/conversation/reader.h"

struct alarm;
struct buf;
struct env;

enum { KEYED_KEY_MAX = 255, KEYED_ID_CHARS = 48 };

enum keyed_state {
    KEYED_RUNNING,
    KEYED_COMPLETE,
    KEYED_FORGOTTEN, /* not found any more; freed when the last has left */
};

/* One of the turns of a reply. */
struct keyed_turn {
    struct keyed_reply *reply;
    /* Keeps the turn running and then holds the completed turn; its events are never read. */
    struct turn_reader reader;
    struct conversation_id conversation;
    uint32_t number, generation; /* of the turn, when it was accepted */
    bool is_ephemeral;           /* its conversation is closed with the turn, or, if it is kept, */
    bool is_kept;                /* with the reply */
};

struct keyed_reply {
    struct keyed_replies *all;
    enum keyed_state state;
    struct hash_node by_key;
    struct link link;     /* of attended, lingering or complete */
    struct link of_owner; /* once complete */
    struct link ended;    /* while the end of a turn is not handled */
    uint8_t digest[SHA256_BYTES];
    uint32_t principal;       /* whose key it is */
    size_t n_joined;          /* who reads it */
    uint64_t due_us;          /* lingering: it is cancelled then; complete: forgotten */
    size_t size_bytes;        /* once complete */
    char id[KEYED_ID_CHARS];  /* of the response, NUL-ended */
    uint64_t created_s;       /* of the response */
    char *instructions;       /* of the response; NULL: none */
    char *model, *version;    /* that generates it */
    struct keyed_turn *turns; /* [n_turns] */
    size_t n_turns;
    char key[];
};

/* Zero takes the default that is named. */
struct keyed_replies_config {
    size_t max_replies; /* 100,000 */
    size_t max_bytes;   /* of complete ones; 1 GiB */
    uint64_t ttl_us;    /* from the completion; a day */
    uint64_t linger_us; /* running on after the last has left; 0: no time */
    struct conversations *conversations;
    const struct env *env;
    struct alarm *alarm; /* rings keyed_replies_tick */
};

struct keyed_replies {
    struct keyed_replies_config config;
    struct hash by_key;
    struct list attended, lingering, complete; /* the last two: the earliest due first */
    struct list ended;
    struct owner_lists complete_of; /* complete, of each principal */
    struct shared_limit limit;
    struct shared_limit bytes; /* of complete ones */
    bool is_draining, is_stopped;
};

void keyed_replies_init(struct keyed_replies *k, const struct keyed_replies_config *config);
/* Nobody reads a reply, and no turn is in flight. */
void keyed_replies_deinit(struct keyed_replies *k);

/* The principal's reply under this key to the request with this digest. NULL: there is none.
 * STATUS_EXISTS: the key was given with another request; INVALID: it is no key. A reply that failed
 * is forgotten. */
enum status keyed_replies_find(struct keyed_reply **out, struct keyed_replies *k,
                               uint32_t principal, const char *key,
                               const uint8_t digest[SHA256_BYTES], struct error *err) MUST_CHECK;
/* Whether nothing is in memory under it, and it is a key. */
bool keyed_replies_lack(const struct keyed_replies *k, uint32_t principal, const char *key);
/* Stores the replies whose turns have ended, ends those that lingered long enough, and drops the
 * expired ones. */
void keyed_replies_tick(void *replies);
/* Cancels what nobody reads, now and later. */
void keyed_replies_drain(struct keyed_replies *k);

/* A reply of n_turns turns under a key that find has not found, joined by its caller, who then adds
 * each turn. EXHAUSTED if only running replies are left. */
enum status keyed_reply_open(struct keyed_reply **out, struct keyed_replies *k, uint32_t principal,
                             const char *key, const uint8_t digest[SHA256_BYTES],
                             const struct model *model, const char *instructions, size_t n_turns,
                             struct error *err) MUST_CHECK;
/* The key of the turn i that c is asked for, where c is kept; its body is in out, which is empty.
 * The reply has its name. */
enum status keyed_reply_key(const struct keyed_reply *r, size_t i, const struct conversation *c,
                            bool is_ephemeral, struct turn_key *out, struct buf *body,
                            struct error *err) MUST_CHECK;
/* The turn i was accepted: from now on it runs also without its reader, which is attached. */
void keyed_reply_add(struct keyed_reply *r, size_t i, const struct conversation *c,
                     bool is_ephemeral, const struct turn_reader *reader);
/* The reply with the turns that the journal has of it, joined by its caller, whose conversations
 * are in memory; parts are JOURNAL_KEYED. *out is NULL if not all of them are there. PRECONDITION
 * if a turn was rewound. */
enum status keyed_reply_restore(struct keyed_reply **out, struct keyed_replies *k,
                                uint32_t principal, const char *key, const struct list *parts,
                                struct error *err) MUST_CHECK;
/* id is shorter than KEYED_ID_CHARS. */
void keyed_reply_name(struct keyed_reply *r, const char *id, uint64_t created_s);
/* A further reader of the reply. */
void keyed_reply_join(struct keyed_reply *r);
/* Attaches reader to turn i, from its start. */
void keyed_reply_attach(const struct keyed_reply *r, size_t i, struct turn_reader *reader);
/* Ends a join. The reply may be freed. */
void keyed_reply_leave(struct keyed_reply *r);
/* The request was refused: its turns are cancelled, and the key may be used again. */
void keyed_reply_forget(struct keyed_reply *r);

#endif
