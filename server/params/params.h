/* The served sets of parameters: how they are created, found, subscribed to and deleted. Each set
 * is an agent with a compute thread and a batcher of its own. params_make starts them; params_fill
 * gives the set its first values, which it then serves; rounds of gradients (round.h) change them;
 * params_close ends the set. All functions are called on the loop. */
#ifndef SERVER_PARAMS_PARAMS_H
#define SERVER_PARAMS_PARAMS_H

#include "server/params/set.h"

/* keeping says how sets are written: &params_keeper. It is borrowed. All sets together have at most
 * max_bytes. */
void params_sets_init(struct params_sets *s, const struct keeper_type *keeping, uv_loop_t *loop,
                      const struct env *env, size_t max_bytes);
/* All sets must be gone, with their memory. */
void params_sets_deinit(struct params_sets *s);
/* Closes all sets because of why, since another daemon has them. */
void params_sets_leave(void *sets, const struct error *why);
/* Closes all sets. on_idle is called for each. No further set can be made. */
void params_sets_stop(struct params_sets *s);
/* Returns whether the journal has the newest version of each set that can be kept. Begins the
 * checkpoints that are missing; on_idle is called when they are written. For the end, when no call
 * updates a set any more. */
bool params_sets_are_kept(struct params_sets *s);

/* Finds the set of this name that belongs to who, or the set "OWNER/NAME" that another principal
 * shares. NOT_FOUND names the sets that who may use; DENIED if the set is shared without the right;
 * UNAVAILABLE, with a hint when to retry, while the set waits for its first values. */
enum status params_find(struct params_set **out, const struct params_sets *s,
                        const struct principal *who, enum access_right right, const char *name,
                        struct error *err) MUST_CHECK;

/* Returns the set of a link of names.all. */
struct params_set *params_at(const struct link *l);
/* Returns whether the set serves and who may read it. */
bool params_is_listed(const struct params_set *set, const struct principal *who);

/* Makes a set of the owner, who must outlive it. The first values may be given at once. is_new is
 * false for a set that is read from the journal. EXISTS if the owner has a set of this name;
 * EXHAUSTED; else what is wrong with spec or sharing. */
enum status params_make(struct params_set **out, struct params_sets *s,
                        const struct principal *owner, const struct params_spec *spec,
                        const struct access_sharing *sharing, bool is_new,
                        struct error *err) MUST_CHECK;
/* Gives the set the description from which read_config makes it again, before its first values. The
 * description is copied. A set without a description is not kept. EXHAUSTED. */
enum status params_describe(struct params_set *set, const void *config, size_t size_bytes,
                            struct error *err) MUST_CHECK;
/* Gives the set its first values, which it takes: a block of params_memory_take. made is called
 * once: with OK when the set serves them, else when the set closes. */
void params_fill(struct params_set *set, float *values,
                 void (*made)(void *arg, const struct error *err), void *arg);
/* Closes a set: tells its subscribers why, settles its waiting updates, and frees it later. The
 * name is free at once. */
void params_close(struct params_set *set, const struct error *why);

void params_subscribe(struct params_set *set, struct params_subscriber *subscriber);
/* Ends the subscription. Does nothing if closing was called. */
void params_unsubscribe(struct params_subscriber *subscriber);

/* Returns the bytes of memory that the set has in blocks and moments. */
size_t params_held(const struct params_set *set);
/* Returns how many updates wait or are being computed. */
size_t params_n_waiting(const struct params_set *set);

/* Counts a gradient of who as a request of its quota, before the gradient's values have come.
 * EXHAUSTED. */
enum status params_count_request(const struct params_sets *s, const struct principal *who,
                                 struct error *err) MUST_CHECK;

/* How a set is written to the journal and made again. */
extern const struct keeper_type params_keeper;

#endif
