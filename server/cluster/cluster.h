/* The daemons that share a journal, and the calls that they pass on to each other. A call for a
 * conversation that another daemon has goes to that daemon, once, for the same principal. All
 * functions are called on the loop. */
#ifndef SERVER_CLUSTER_CLUSTER_H
#define SERVER_CLUSTER_CLUSTER_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/list.h"
#include "server/access/access.h"
#include "server/journal/journal.h"
#include "server/rpc/outgoing.h"

struct alarm;
struct env;

struct cluster_figures {
    uint64_t n_passed_on; /* calls that were begun at other daemons */
    uint64_t n_unreached; /* of those, ended because the daemon could not be reached, or ended */
    uint64_t n_taken;     /* calls that other daemons passed on to this one */
    uint64_t n_refused;   /* of those, without a valid pass */
};

/* Who wants to see which other daemons live: a member of its owner's struct. */
struct cluster_watcher {
    struct link link;
    void (*look)(void *arg);
    void *arg;
};

struct cluster {
    struct journal *journal; /* NULL: it has no other daemons */
    const struct access *access;
    const struct env *env;
    struct alarm *alarm;
    struct outgoing_port *outgoing; /* NULL: nothing is passed on */
    struct list calls, watchers;
    struct cluster_figures figures;
    bool is_draining, is_stopping;
    void (*stopped)(void *arg);
    void *stopped_arg;
};

/* Begins to know the other daemons of a journal that is shared. EXHAUSTED. */
enum status cluster_open(struct cluster *c, struct uv_loop_s *loop, struct journal *journal,
                         const struct outgoing_config *config, struct error *err) MUST_CHECK;
/* Says where the others reach this daemon, once it serves; "": they cannot. Turns of daemons that
 * have ended go on here from now on. Does nothing if c was not opened. */
void cluster_join(struct cluster *c, const char *address);
/* Takes no more calls of others, and no turns. Calls that were passed on go on. */
void cluster_drain(void *cluster);
/* Ends calls whose daemon has no lease any more, and has the watchers look. */
void cluster_tick(void *cluster);
/* Ends the calls that were passed on, with UNAVAILABLE. Returns whether all is over; if not,
 * stopped is called once it is. */
bool cluster_stop(struct cluster *c, void (*stopped)(void *arg), void *arg);
/* Appends the lines of the metrics; no lines if nothing is shared. c may be NULL. */
void cluster_metrics(const struct cluster *c, struct buf *out);

/* Whether a call may be passed on: LOOKUP_ANYWHERE makes sense. c may be NULL. */
bool cluster_can_pass_on(const struct cluster *c);

/* Returns how many other daemons live and can be reached. */
size_t cluster_n_peers(const struct cluster *c);
/* Returns one of them, until the loop's next iteration; NULL if there is no i-th one. */
const struct journal_peer *cluster_peer(const struct cluster *c, size_t i);
/* Has look be called now and again, never inside, until cluster_unwatch. look may do anything but
 * unwatch others. */
void cluster_watch(struct cluster *c, struct cluster_watcher *w, void (*look)(void *arg),
                   void *arg);
/* Does nothing if w does not watch. */
void cluster_unwatch(struct cluster_watcher *w);

/* Of the end of a call at another daemon. It has not begun there: it may be begun anywhere. */
bool cluster_has_refused(const struct error *err, bool is_unsent);
/* The daemon went away with it: it may be begun anywhere if it may be begun twice. */
bool cluster_has_lost(const struct error *err);

/* A call at another daemon: as struct outgoing_call. */
struct cluster_call;

struct cluster_call_start {
    const struct journal_peer *to;
    const char *principal; /* its name */
    const char *method;
    uint64_t deadline_us;            /* env's monotonic clock; 0: none */
    const struct call_piece *pieces; /* [n_pieces] the only message; NULL: messages follow */
    size_t n_pieces;
};

/* Passes a call on. NULL: this daemon stops, or the names are too long. start is borrowed until it
 * returns; handler is called as outgoing_begin says. */
struct cluster_call *cluster_pass_on(struct cluster *c, const struct cluster_call_start *start,
                                     const struct outgoing_handler *handler, void *arg);
/* As outgoing_read, outgoing_send, outgoing_half_close and outgoing_cancel. */
void cluster_call_read(struct cluster_call *call);
void cluster_call_send(struct cluster_call *call, const struct call_piece *pieces, size_t n_pieces);
void cluster_call_half_close(struct cluster_call *call);
void cluster_call_cancel(struct cluster_call *call);

/* The admit_passed of struct port_config. cluster is a struct cluster. */
enum status cluster_admit(void *cluster, const char *pass, size_t len, enum access_level level,
                          const struct access_key **out, struct error *err) MUST_CHECK;

#endif
