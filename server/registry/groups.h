/* Groups of processes: members, entries that they hold, and barriers. A member is there until it
 * leaves or is lost, and its entries go with it; a group ends with its last member and watcher.
 * Each listener has its own queue of events, so that a slow one delays nobody. Loop. */
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
    GROUP_NAME_MAX_BYTES = 128, /* of a group, a member, a key, a barrier */
    GROUP_VALUE_MAX_BYTES = 64 << 10,
    GROUPS_MAX = 4096,
    GROUP_MAX_MEMBERS = 1024,
    GROUP_MAX_ENTRIES = 4096,
    GROUP_MAX_BARRIERS = 256,   /* names; one more has the one unused for longest forgotten */
    GROUP_MAX_EVENTS = 16384,   /* that wait for a listener */
    GROUP_MAX_BYTES = 64 << 20, /* of the values of all groups */
    GROUP_LEASE_MIN_MS = 100,
    GROUP_LEASE_MAX_MS = 24 * 60 * 60 * 1000,
};

struct alarm;
struct env;

struct groups {
    const struct env *env;
    struct hash by_name;  /* of struct group, by principal and name */
    struct hash by_lease; /* of struct group_member */
    struct list leased;   /* of struct group_member: those that must renew */
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

/* What happened. Shared by the listeners' queues. */
struct group_event {
    size_t n_refs;
    enum group_event_kind what;
    enum group_entry_kind entry_kind;
    const char *member, *key;   /* "" where there is none */
    const unsigned char *value; /* [value_bytes] of GROUP_PUT */
    size_t value_bytes;
};

/* Who is told. */
struct group_listener {
    struct link link;
    struct group *group;         /* NULL: it listens no more */
    struct group_event **events; /* [n_events] from first on */
    size_t first, n_events, room;
    bool is_over; /* it had more events than GROUP_MAX_EVENTS, or there was no memory */
    void (*notify)(struct group_listener *l); /* there is something to take, or it is over */
};

struct group_member {
    struct link link;
    struct hash_node by_lease; /* its hash is the lease */
    struct group *group;
    struct list entries; /* of struct group_entry */
    struct group_listener listener;
    struct list waits; /* of struct group_wait */
    struct link leased;
    uint32_t lease_ms; /* 0: it need not renew */
    uint64_t due_us;
    bool is_expired; /* it did not renew, and has ended */
    char name[GROUP_NAME_MAX_BYTES + 1];
};

/* A member at a barrier. */
struct group_wait {
    struct link link, by_member;
    struct future future; /* ABORTED, CANCELLED; settled at most once */
    struct group_member *member;
    struct group_barrier *barrier; /* NULL: it waits no more */
};

/* An entry. */
struct group_entry {
    struct link link; /* of its member */
    struct link of_group;
    struct group_member *member;
    enum group_entry_kind kind;
    struct group_event *put; /* its event, which has its key and value */
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
void groups_deinit(struct groups *g); /* nobody is a member or listens */
/* Ends, as lost, the members that did not renew in time; their listeners are notified. */
void groups_tick(void *groups);

enum status groups_find(struct group **out, const struct groups *g, uint32_t principal,
                        const char *name, struct error *err) MUST_CHECK;

/* Fills *out, whose queue has the group as it is, up to GROUP_SYNCED. The group is made where it is
 * not there. EXISTS; EXHAUSTED; INVALID names the field. */
enum status group_join(struct group_member *out, struct groups *g, uint32_t principal,
                       const char *group, const char *name, uint32_t lease_ms,
                       void (*notify)(struct group_listener *l), struct error *err) MUST_CHECK;
/* Deletes its entries, ends its waits, and tells the others. Barriers that cannot be complete
 * without it are aborted: all where it is lost, else those for all members. */
void group_member_end(struct group_member *m, bool is_lost);
void group_member_renew(struct group_member *m);
/* NOT_FOUND: it was lost, or another principal's. */
enum status groups_member(struct group_member **out, const struct groups *g, uint32_t principal,
                          uint64_t lease, struct error *err) MUST_CHECK;
static inline uint64_t group_member_lease(const struct group_member *m)
{
    return m->by_lease.hash;
}

/* The same queue for a listener that is no member. */
enum status group_listen(struct group_listener *out, struct group *g,
                         void (*notify)(struct group_listener *l), struct error *err) MUST_CHECK;
void group_unlisten(struct group_listener *l); /* also one that never listened */
/* The next event, which the caller unrefs; NULL: none is there. */
struct group_event *group_next_event(struct group_listener *l);
void group_event_unref(struct group_event *e);

/* EXISTS names the holder; EXHAUSTED; INVALID names the field. */
enum status group_put(struct group_member *m, enum group_entry_kind kind, const char *key,
                      const void *value, size_t value_bytes, struct error *err) MUST_CHECK;
enum status group_delete(struct group_member *m, enum group_entry_kind kind, const char *key,
                         struct error *err) MUST_CHECK;
enum status group_get(const struct group_entry **out, const struct group *g,
                      enum group_entry_kind kind, const char *key, struct error *err) MUST_CHECK;

/* then is called when n members wait at this barrier, perhaps inside; n 0: as many as there are
 * when the first comes. INVALID names the field; EXISTS: the member waits there already. */
enum status group_wait(struct group_wait *w, struct group_member *m, const char *name,
                       uint64_t epoch, uint32_t n, future_then_fn then, void *arg,
                       struct error *err) MUST_CHECK;
void group_wait_cancel(struct group_wait *w); /* it is not settled; also one that waits no more */

#endif
