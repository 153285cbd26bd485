/* The spaces of an environment: the shapes of its observations and actions. The functions may be
 * called on any thread. */
#ifndef SERVER_ENVIRONMENT_SPACES_H
#define SERVER_ENVIRONMENT_SPACES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum {
    HOST_NAME_SIZE = 64,             /* bytes of an environment's name, with the NUL */
    HOST_MAX_SPACES_BYTES = 1 << 18, /* of the description of an environment's spaces */
};

/* The shapes of an environment's observations and actions. An observation is n_observation numbers.
 * An action is one of n_actions choices, or n_action_numbers numbers; the other of the two is 0. */
struct environment_spaces {
    size_t n_observation, n_actions, n_action_numbers;
    const char *described; /* what they mean, as EnvOpenResponse.spaces; NULL: it is not known */
};

/* Copies spaces with their description, which is then to be freed. */
enum status environment_spaces_copy(struct environment_spaces *out,
                                    const struct environment_spaces *from,
                                    struct error *err) MUST_CHECK;
/* Returns whether two environments have the same spaces, described in the same words. */
bool environment_spaces_equal(const struct environment_spaces *a,
                              const struct environment_spaces *b);

#endif
