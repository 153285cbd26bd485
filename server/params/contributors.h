/* The clients that have contributed to a set, the most recently seen first, and the last step of
 * each. All functions are called on the loop. */
#ifndef SERVER_PARAMS_CONTRIBUTORS_H
#define SERVER_PARAMS_CONTRIBUTORS_H

#include "server/params/checkpoint_body.h"
#include "server/params/set.h"

struct contributor {
    struct link link; /* in the set's contributors */
    struct params_client *client;
    uint64_t attempt; /* the last attempt at a round for which the client sent a gradient, counted
                         from 1 */
};

/* Finds a client by its id, and moves it to the front. NULL: the client is not known. */
struct contributor *contributor_find(struct params_set *set, const char *client);
/* The same, and makes a contributor of a new client. If there are too many, the least recently seen
 * one without a waiting update is forgotten. EXHAUSTED. */
enum status contributor_meet(struct contributor **out, struct params_set *set, const char *client,
                             struct error *err) MUST_CHECK;
/* Forgets a contributor, and frees it. */
void contributor_forget(struct params_set *set, struct contributor *t);

/* Sets the client's last step, and the version that counted it. EXHAUSTED. */
enum status contributors_remember(struct params_set *set, const char *client, uint64_t step,
                                  uint64_t version, struct error *err) MUST_CHECK;
/* Writes the steps that are remembered into a checkpoint's body. The caller frees out->clients,
 * whose ids are the set's. EXHAUSTED. */
enum status contributors_remembered(struct checkpoint_body *out, const struct params_set *set,
                                    struct error *err) MUST_CHECK;

#endif
