/* The daemon's tables by name: who may use them, how many bytes all of them may have, and how long
 * a call waits for a table's limiter. All functions are called on the loop. */
#ifndef SERVER_REPLAY_REPLAYS_H
#define SERVER_REPLAY_REPLAYS_H

#include "server/replay/table.h"

enum { REPLAY_MAX_TABLES = 1024 };

struct alarm;
struct env;

struct replays_config {
    const struct env *env;
    size_t max_bytes;                  /* the bound of the sum of all tables' max_bytes */
    const struct keeper_type *keeping; /* how tables are written: &replays_keeper; borrowed */
    struct alarm *alarm;               /* rings replays_tick */
};

struct replays {
    struct replays_config config;
    struct shared_names tables;
    struct keeper keeper;
    struct shared_limit bytes; /* the sum of all tables' max_bytes */
};

void replays_init(struct replays *r, const struct replays_config *config);
/* Deletes all tables from memory because of why, since another daemon has them. */
void replays_leave(void *replays, const struct error *why);
/* Deletes all tables. No call may wait for a table. */
void replays_deinit(void *replays);
/* Ends, with DEADLINE, the waits whose deadline has passed. */
void replays_tick(void *replays);

/* UNAVAILABLE while the stored tables are being read; so do replays_make and replays_find. */
enum status replays_ready(const struct replays *r, struct error *err) MUST_CHECK;
/* Makes a table of the owner, who must outlive it. A seed of 0 is replaced by a random one. INVALID
 * names the field of the config that is at fault; EXISTS if the name is taken; EXHAUSTED if the
 * tables that exist, or those of the owner, leave too few bytes or names. */
enum status replays_make(struct table **out, struct replays *r, const struct principal *owner,
                         const char *name, const struct table_config *config,
                         const struct access_sharing *sharing, struct error *err) MUST_CHECK;
/* Finds a table for which who has the right. NOT_FOUND, DENIED. */
enum status replays_find(struct table **out, const struct replays *r, const struct principal *who,
                         enum access_right right, const char *name, struct error *err) MUST_CHECK;
/* Returns the table of a link in the list of all names. */
struct table *replays_at(const struct link *l);
/* Removes all items of a table and gives it a new epoch. */
void replays_clear(struct replays *r, struct table *t);
/* Removes a table from the journal; the caller then calls replays_delete. UNAVAILABLE if the
 * journal could not do so: a restart would find the table again. */
enum status replays_forget(struct replays *r, struct table *t, struct error *err) MUST_CHECK;
/* Calls closing of all users of a table with why, and frees the table. */
void replays_delete(struct replays *r, struct table *t, const struct error *why);

/* For this folder. The same as replays_make; is_new is false for a table that was read from the
 * journal, which counts against no principal's part. */
enum status replays_add(struct table **out, struct replays *r, const struct principal *owner,
                        const char *name, const struct table_config *config,
                        const struct access_sharing *sharing, bool is_new,
                        struct error *err) MUST_CHECK;
/* How a table is written to the journal and read again. */
extern const struct keeper_type replays_keeper;

/* The same as table_wait. The wait also ends, with DEADLINE, after timeout_ms; 0: never. */
void replays_wait(struct replays *r, struct table *t, struct table_wait *w, uint32_t timeout_ms,
                  future_then_fn then, void *arg);

#endif
