/* Kinds of environments that plug-ins compute (agents/plugin/environment.h), and vectors of them.
 * All functions are called on the loop. */
#ifndef SERVER_ENVIRONMENT_PLUGGED_H
#define SERVER_ENVIRONMENT_PLUGGED_H

#include "server/environment/vector.h"

/* Adds a plug-in's kind of environment, which it takes. EXISTS if there is a kind of this name. */
enum status vectors_add_plugged(struct vectors *all, struct plugin_environment *kind,
                                struct error *err) MUST_CHECK;
/* Returns the plugged-in kind of a name; NULL: there is none. */
const struct plugin_environment *vectors_find_plugged(const struct vectors *all, const char *name);

/* For this folder. */

/* Returns the spaces of a kind. They are valid as long as the kind. */
struct environment_spaces plugged_spaces(const struct plugin_environment *kind);
/* Makes the plug-in's instances of a vector. EXHAUSTED if some of them could not be made; then
 * vector_free frees the others. */
enum status vector_make_plugged(struct vector *v, struct error *err) MUST_CHECK;
/* Computes all rows of a checked request. EXHAUSTED; then nothing was done. */
enum status vector_step_plugged(struct vector *v, struct vector_request *r,
                                struct error *err) MUST_CHECK;
/* Closes all plug-ins. */
void vectors_unplug(struct vectors *all);

#endif
