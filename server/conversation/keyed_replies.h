/* Keyed replies are kept under the keys of their requests. So a request that is sent again does not
 * generate again: it joins the reply's turns while they run, and gets the stored reply afterwards.
 * Replies are bounded in number, bytes and time. When there are too many, the oldest complete ones
 * are removed; a principal that holds half of all loses its own. All functions are called on the
 * loop. */
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

enum { KEYED_KEY_MAX = 255, KEYED_ID_CHARS = 64 };

enum keyed_state {
    KEYED_RUNNING,   /* at least one turn is not completed */
    KEYED_COMPLETE,  /* all turns are completed */
    KEYED_FORGOTTEN, /* cannot be found any more; freed when the last join has ended */
};

/* One of the turns of a reply. */
struct keyed_turn {
    struct keyed_reply *reply;
    /* The reply's own reader. It keeps the turn running, and then holds the completed turn. Its
     * events are never read. */
    struct turn_reader reader;
    struct conversation_id conversation;
    uint32_t number, generation; /* the turn's, when it was accepted */
    bool is_ephemeral; /* the turn's conversation is closed when the turn has ended, or, if the
                          conversation is kept, when the reply is removed */
    bool is_kept;      /* the conversation is kept */
};

/* A reply. keyed_reply_open makes it RUNNING, joined by the request that was first with its key.
 * That request adds each turn once it is accepted; from then on the reply's own reader keeps the
 * turn running. Later requests with the key find the reply, join it, attach readers of their own to
 * its turns, and leave. While at least one request has joined, the reply is in the list attended.
 * When the last one has left, the reply is lingering: it goes on for linger_us, and then its turns
 * are cancelled, except those that other readers follow.
 *
 * When all turns are completed, the reply is COMPLETE: it is in the list complete, counts with its
 * bytes, and stays for ttl_us, or until it must make room. If the journal has all its turns, it is
 * in the list stored instead, and leaves memory once the conversations' unload_us has passed, or
 * must make room; the journal still has it, and keyed_reply_restore makes it again. If a turn
 * fails, the reply is FORGOTTEN at once, so that the next request with its key generates again. The
 * end of a turn is noted inside the turn's call (ended) and handled by the next tick or find. A
 * FORGOTTEN reply is freed when no request is joined to it any more. */
struct keyed_reply {
    struct keyed_replies *all;
    enum keyed_state state;
    struct hash_node by_key;
    struct link link;             /* in attended, lingering, complete or stored */
    struct link of_owner;         /* in the complete replies of its principal */
    struct link ended;            /* in ended, while the end of a turn is not handled */
    uint8_t digest[SHA256_BYTES]; /* the request's */
    uint32_t principal;           /* the principal whose key it is */
    size_t n_joined;              /* requests that have joined and not left */
    bool is_stored;               /* complete: the journal has all turns */
    uint64_t due_us; /* lingering: when the turns are cancelled; complete: when it is forgotten, or,
                        if it is stored, leaves memory */
    size_t size_bytes;        /* of a complete reply */
    char id[KEYED_ID_CHARS];  /* the id of the HTTP response, NUL-ended */
    uint64_t created_s;       /* the time of the HTTP response */
    char *instructions;       /* the instructions of the HTTP response; NULL: none */
    char *model, *version;    /* the model that generates the reply */
    struct keyed_turn *turns; /* [n_turns] */
    size_t n_turns;
    char key[];
};

/* A member that is zero stands for the default that its comment names. */
struct keyed_replies_config {
    size_t max_replies; /* 100,000 */
    size_t max_bytes;   /* of complete replies; 1 GiB */
    uint64_t ttl_us;    /* how long a complete reply stays; a day */
    uint64_t linger_us; /* how long a reply goes on when the last request has left; 0: no time */
    struct conversations *conversations;
    const struct env *env;
    struct alarm *alarm; /* rings keyed_replies_tick */
};

struct keyed_replies {
    struct keyed_replies_config config;
    struct hash by_key;
    struct list attended, lingering, complete, stored; /* of struct keyed_reply; in the last three
                                                          the earliest due comes first */
    struct list ended;                                 /* of struct keyed_reply */
    struct owner_lists complete_of;                    /* the complete replies of each principal */
    struct shared_limit limit;                         /* replies */
    struct shared_limit bytes;                         /* of complete replies */
    bool is_draining, is_stopped;
};

void keyed_replies_init(struct keyed_replies *k, const struct keyed_replies_config *config);
/* Frees all replies. No request may be joined, and no turn may be in flight. */
void keyed_replies_deinit(void *replies);

/* Finds the principal's reply under a key to the request of this digest. *out is NULL if there is
 * no such reply, or if it has failed. EXISTS if the key was given with another request; INVALID if
 * key cannot be a key. */
enum status keyed_replies_find(struct keyed_reply **out, struct keyed_replies *k,
                               uint32_t principal, const char *key,
                               const uint8_t digest[SHA256_BYTES], struct error *err) MUST_CHECK;
/* Returns whether key can be a key and no reply is in memory under it. */
bool keyed_replies_lack(const struct keyed_replies *k, uint32_t principal, const char *key);
/* Completes replies whose turns have ended, cancels those that have lingered long enough, removes
 * complete ones that are too old, and takes stored ones out of memory. */
void keyed_replies_tick(void *replies);
/* Cancels the turns of replies to which no request is joined, now and from now on. */
void keyed_replies_drain(void *replies);

/* Makes a reply of n_turns turns under a key under which keyed_replies_find found no reply. The
 * caller has joined it, and adds each turn. EXHAUSTED if there is no room and no complete reply
 * that could be removed. */
enum status keyed_reply_open(struct keyed_reply **out, struct keyed_replies *k, uint32_t principal,
                             const char *key, const uint8_t digest[SHA256_BYTES],
                             const struct model *model, const char *instructions, size_t n_turns,
                             struct error *err) MUST_CHECK;
/* Fills out with what the journal keeps of the reply with turn i of c, which is kept. The body of
 * out lies in body, which is empty before. The reply must have been named. EXHAUSTED. */
enum status keyed_reply_key(const struct keyed_reply *r, size_t i, const struct conversation *c,
                            bool is_ephemeral, struct turn_key *out, struct buf *body,
                            struct error *err) MUST_CHECK;
/* Adds turn i, which was accepted and which reader reads: from now on the turn runs without reader,
 * too. */
void keyed_reply_add(struct keyed_reply *r, size_t i, const struct conversation *c,
                     bool is_ephemeral, const struct turn_reader *reader);
/* Makes a reply of the turns that the journal has of it. parts are the journal's records of kind
 * JOURNAL_KEYED; the turns' conversations are in memory, or is_gone: one is not stored any more.
 * The caller has joined the reply, which is FORGOTTEN if it was completed in this process and
 * ttl_us has passed since. *out is NULL if a turn is missing. PRECONDITION if a turn was rewound;
 * UNAVAILABLE if a conversation has left memory. */
enum status keyed_reply_restore(struct keyed_reply **out, struct keyed_replies *k,
                                uint32_t principal, const char *key, const struct list *parts,
                                bool is_gone, struct error *err) MUST_CHECK;
/* Gives the reply the id, shorter than KEYED_ID_CHARS, and the time of its HTTP response. */
void keyed_reply_name(struct keyed_reply *r, const char *id, uint64_t created_s);
/* Joins a further request to the reply. */
void keyed_reply_join(struct keyed_reply *r);
/* Attaches reader to turn i, from the turn's start. */
void keyed_reply_attach(const struct keyed_reply *r, size_t i, struct turn_reader *reader);
/* Ends a join. The reply may be freed inside. */
void keyed_reply_leave(struct keyed_reply *r);
/* Forgets a reply whose request was refused: its turns are cancelled, and its key may be used
 * again. */
void keyed_reply_forget(struct keyed_reply *r);

#endif
