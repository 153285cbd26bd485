/* The tables that there are, and the time that waiting takes. Loop. */
#ifndef SERVER_REPLAY_REPLAYS_H
#define SERVER_REPLAY_REPLAYS_H

#include "server/replay/table.h"

enum { REPLAY_MAX_TABLES = 1024 };

struct alarm;
struct env;

struct replays_config {
    const struct env *env;
    size_t max_bytes;    /* of all tables' max_bytes together */
    struct alarm *alarm; /* rings replays_tick */
};

struct replays {
    struct replays_config config;
    struct shared_names tables;
    struct keeper keeper;
    struct shared_limit bytes; /* the max_bytes of all tables */
};

void replays_init(struct replays *r, const struct replays_config *config);
void replays_deinit(struct replays *r); /* no call uses a table */
/* Ends waits whose deadline has passed. */
void replays_tick(void *replays);

/* UNAVAILABLE while the tables that are kept are read; so too those below. */
enum status replays_ready(const struct replays *r, struct error *err) MUST_CHECK;
/* INVALID names the field; EXISTS; EXHAUSTED where the tables there are, or the owner's, leave too
 * little. A seed of 0 is drawn. owner is kept. */
enum status replays_make(struct table **out, struct replays *r, const struct principal *owner,
                         const char *name, const struct table_config *config,
                         const struct access_sharing *sharing, struct error *err) MUST_CHECK;
enum status replays_find(struct table **out, const struct replays *r, const struct principal *who,
                         enum access_right right, const char *name, struct error *err) MUST_CHECK;
/* Of a table by its name's link. */
struct table *replays_at(const struct link *l);
void replays_clear(struct replays *r, struct table *t);
/* A restart does not find it. UNAVAILABLE: it does. Before replays_delete. */
enum status replays_forget(struct replays *r, struct table *t, struct error *err) MUST_CHECK;
/* Tells its users why, and frees it. */
void replays_delete(struct replays *r, struct table *t, const struct error *why);

/* For this folder: the same of a table that is kept, or is_new. */
enum status replays_add(struct table **out, struct replays *r, const struct principal *owner,
                        const char *name, const struct table_config *config,
                        const struct access_sharing *sharing, bool is_new,
                        struct error *err) MUST_CHECK;
extern const struct keeper_type replays_keeper;

/* table_wait; ends with DEADLINE after timeout_ms, 0: never. */
void replays_wait(struct replays *r, struct table *t, struct table_wait *w, uint32_t timeout_ms,
                  future_then_fn then, void *arg);

#endif
