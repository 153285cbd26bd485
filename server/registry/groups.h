/* A group of processes has members, entries that the members hold, and barriers at which members
 * wait for each other. A member stays until it leaves or is lost; its entries are deleted with it.
 * A group ends with its last member and its last listener. Each listener has a queue of events of
 * its own, so that a slow listener delays no other. All functions are called on the loop. */
#ifndef SERVER_REGISTRY_GROUPS_H
#define SERVER_REGISTRY_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/future.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/shared_limit.h"
#include "base/status.h"

enum {
    GROUP_NAME_MAX_BYTES = 128, /* the name of a group, a member or a barrier, and a key */
    GROUP_VALUE_MAX_BYTES = 64 << 10,
    GROUPS_MAX = 4096,
    GROUP_MAX_MEMBERS = 1024,
    GROUP_MAX_ENTRIES = 4096,
    GROUP_MAX_BARRIERS = 256,   /* barriers of a group; a further one takes the place of the barrier
                                   that was not used for the longest time */
    GROUP_MAX_EVENTS = 16384,   /* events in a listener's queue */
    GROUP_MAX_BYTES = 64 << 20, /* the values of all groups */
    GROUP_LEASE_MIN_MS = 100,
    GROUP_LEASE_MAX_MS = 24 * 60 * 60 * 1000,
};

struct buf;
struct alarm;
struct env;

struct groups {
    const struct env *env;
    struct hash by_name;  /* of struct group, by principal and name */
    struct hash by_lease; /* of struct group_member */
    struct list leased;   /* of struct group_member: those that must renew their leases */
    struct shared_limit limit, value_bytes;
    struct alarm *alarm; /* rings groups_tick */
    size_t n_waiting;    /* members at barriers */
    uint64_t n_lost;     /* members */
};

enum group_entry_kind { GROUP_VALUE, GROUP_SERVICE };

enum group_event_kind {
    GROUP_JOINED,
    GROUP_LEFT,
    GROUP_LOST,
    GROUP_PUT,
    GROUP_DELETED,
    GROUP_SYNCED,
};

/* An event: something that happened in a group. The queues of all listeners share it. */
struct group_event {
    size_t n_refs;
    enum group_event_kind what;
    enum group_entry_kind entry_kind; /* of GROUP_PUT and GROUP_DELETED */
    const char *member, *key;         /* "": the event has none */
    const unsigned char *value;       /* [value_bytes] of GROUP_PUT */
    size_t value_bytes;
};

/* A listener: a call that is told of a group's events. */
struct group_listener {
    struct link link;
    struct group *group;         /* NULL: the listener has stopped */
    struct group_event **events; /* [room] the queue: n_events events, from first on */
    size_t first, n_events, room;
    bool is_over;  /* an event is missing: the queue was full, or there was no memory */
    bool is_moved; /* the groups are at another daemon now, and the listener has stopped */
    void (*notify)(struct group_listener *l); /* an event came, or is_over was set */
};

/* A member, in the memory of the call that has joined. */
struct group_member {
    struct link link;          /* in the group's members */
    struct hash_node by_lease; /* its hash is the lease, by which other calls name the member */
    struct group *group;       /* NULL: the member has ended */
    struct list entries;       /* of struct group_entry */
    struct group_listener listener;
    struct list waits;  /* of struct group_wait */
    struct link leased; /* in the groups' leased */
    uint32_t lease_ms;  /* the member must renew its lease within this time; 0: it need not */
    uint64_t due_us;    /* when the lease ends */
    bool is_expired;    /* the member did not renew its lease, and has ended */
    char name[GROUP_NAME_MAX_BYTES + 1];
};

/* A member that waits at a barrier. The future is settled at most once: with OK when enough members
 * wait, with CANCELLED when the member ends, with ABORTED when another member's end makes the
 * barrier impossible. */
struct group_wait {
    struct link link, by_member; /* in the barrier's waits; in the member's waits */
    struct future future;
    struct group_member *member;
    struct group_barrier *barrier; /* NULL: the wait is over */
};

/* An entry: a value or a service under a key, which a member holds. */
struct group_entry {
    struct link link;     /* in the member's entries */
    struct link of_group; /* in the group's entries */
    struct group_member *member;
    enum group_entry_kind kind;
    struct group_event *put; /* the event GROUP_PUT of the entry, which has its key and value */
};

struct group {
    struct hash_node by_name;
    struct groups *groups;
    uint32_t principal;
    struct list members, listeners, entries, barriers;
    size_t n_members, n_entries, n_barriers;
    char name[GROUP_NAME_MAX_BYTES + 1];
};

void groups_init(struct groups *g, const struct env *env, struct alarm *alarm);
/* No member and no listener may be left. */
void groups_deinit(void *groups);
/* Ends, as lost, the members that did not renew their leases in time, and notifies them. */
void groups_tick(void *groups);

/* Ends all groups, since another daemon has them from now on: members are lost, listeners stop, and
 * each is notified. */
void groups_leave(void *groups, const struct error *why);

/* Finds a group of the principal. NOT_FOUND. */
enum status groups_find(struct group **out, const struct groups *g, uint32_t principal,
                        const char *name, struct error *err) MUST_CHECK;

/* Joins a group, and makes the group if it does not exist. Fills *out, whose queue begins with the
 * group's members and entries, as events, and GROUP_SYNCED. EXISTS if the group has a member of
 * this name; EXHAUSTED; INVALID names the field. */
enum status group_join(struct group_member *out, struct groups *g, uint32_t principal,
                       const char *group, const char *name, uint32_t lease_ms,
                       void (*notify)(struct group_listener *l), struct error *err) MUST_CHECK;
/* Ends a member: deletes its entries, ends its waits, and tells the listeners. Aborts the waits of
 * others at barriers: at all barriers if the member is lost, else at those where all members were
 * wanted. */
void group_member_end(struct group_member *m, bool is_lost);
/* Renews a member's lease. */
void group_member_renew(struct group_member *m);
/* Finds a member by its lease. NOT_FOUND if the member has ended, or is another principal's. */
enum status groups_member(struct group_member **out, const struct groups *g, uint32_t principal,
                          uint64_t lease, struct error *err) MUST_CHECK;
static inline uint64_t group_member_lease(const struct group_member *m)
{
    return m->by_lease.hash;
}

/* Listens to a group without being a member. The queue begins as that of a member. EXHAUSTED. */
enum status group_listen(struct group_listener *out, struct group *g,
                         void (*notify)(struct group_listener *l), struct error *err) MUST_CHECK;
/* Stops listening. Does nothing if l, zeroed, never listened. */
void group_unlisten(struct group_listener *l);
/* Takes the next event of a queue, whose reference the caller gets; NULL: the queue is empty. */
struct group_event *group_next_event(struct group_listener *l);
void group_event_unref(struct group_event *e);

/* Puts an entry, or replaces the value of one that the member holds. EXISTS names the member that
 * holds the key; EXHAUSTED; INVALID names the field. */
enum status group_put(struct group_member *m, enum group_entry_kind kind, const char *key,
                      const void *value, size_t value_bytes, struct error *err) MUST_CHECK;
/* Deletes an entry of the member. NOT_FOUND; PRECONDITION if another member holds it. */
enum status group_delete(struct group_member *m, enum group_entry_kind kind, const char *key,
                         struct error *err) MUST_CHECK;
/* Finds an entry, valid until the group changes. NOT_FOUND. */
enum status group_get(const struct group_entry **out, const struct group *g,
                      enum group_entry_kind kind, const char *key, struct error *err) MUST_CHECK;

/* Has a member wait at a barrier. then is called, perhaps inside, when n members wait there, or
 * with the failure that struct group_wait tells of. n is 0: as many members are wanted as the group
 * has when the first of them comes. epoch counts the barrier's rounds, from 1; a round that is over
 * settles at once. INVALID names the field; EXISTS if the member waits at this barrier already. */
enum status group_wait(struct group_wait *w, struct group_member *m, const char *name,
                       uint64_t epoch, uint32_t n, future_then_fn then, void *arg,
                       struct error *err) MUST_CHECK;
/* Ends a wait without settling its future. Does nothing if the wait is over. */
void group_wait_cancel(struct group_wait *w);

/* Appends the lines of the groups' metrics. */
void groups_metrics(const struct groups *g, struct buf *out);

#endif
