/* What a Watch of all conversations tells of the other daemons that share the journal: each is
 * watched, too, and its events come as they are. All functions are called on the loop. */
#ifndef SERVER_API_PARLEY_WATCH_PEERS_H
#define SERVER_API_PARLEY_WATCH_PEERS_H

#include <stdbool.h>

#include "parley/v1/conversations.pb-c.h"

#include "base/buf.h"
#include "server/cluster/cluster.h"

struct watch_peer;

/* In its owner's struct, zeroed. */
struct watch_peers {
    struct cluster *cluster;
    struct cluster_watcher looks;
    struct watch_peer *rows; /* [n] */
    size_t n, turn;          /* turn: whose event is looked for first */
    bool is_over;            /* no more comes, err says why: who watches has to begin anew */
    struct error err;
    void (*notify)(void *arg); /* an event has come, or it is over; never called inside */
    void *arg;
};

/* The reason of SYNCED where a peer begins with that, since it goes on behind the resume token. */
#define WATCH_PEERS_RESUMED "resumed"

/* Begins to watch the daemons that live and can be reached, for the principal, which is borrowed;
 * token is "", or the resume tokens of all. */
void watch_peers_begin(struct watch_peers *p, struct cluster *cluster, const char *principal,
                       const char *token, void (*notify)(void *arg), void *arg);
/* Does nothing if p was not begun. It may be begun again. */
void watch_peers_leave(struct watch_peers *p);
/* Whether each has answered. Then *ret_is_resumed: each goes on behind the token. */
bool watch_peers_have_begun(const struct watch_peers *p, bool *ret_is_resumed);
/* Whether each has told what it alone has. Only events come then. */
bool watch_peers_are_synced(const struct watch_peers *p);
/* Returns the next message, which lives until watch_peers_next or watch_peers_leave is called; NULL
 * if none has come. */
Parley__V1__ConversationEvent *watch_peers_next(struct watch_peers *p);
/* Appends ",TOKEN" of each: it goes on behind what watch_peers_next has returned. EXHAUSTED. */
enum status watch_peers_tokens(const struct watch_peers *p, struct buf *out) MUST_CHECK;

#endif
