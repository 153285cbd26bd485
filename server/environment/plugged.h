/* Vectors of kinds that are plugged in (agents/plugin/environment.h); private to the folder. */
#ifndef SERVER_ENVIRONMENT_PLUGGED_H
#define SERVER_ENVIRONMENT_PLUGGED_H

#include "server/environment/vectors.h"

struct environment_spaces plugged_spaces(const struct plugin_environment *kind);
/* EXHAUSTED: some were not made, vector_unmake_plugged frees the others. */
enum status vector_make_plugged(struct vector *v, struct error *err) MUST_CHECK;
void vector_unmake_plugged(struct vector *v);
/* All rows of a request that was checked. EXHAUSTED: nothing was done. */
enum status vector_step_plugged(struct vector *v, struct vector_request *r,
                                struct error *err) MUST_CHECK;
void vectors_unplug(struct vectors *all);

#endif
