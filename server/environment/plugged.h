/* Vectors of environments that a plug-in computes (agents/plugin/environment.h). No file outside
 * this folder includes this. Loop. */
#ifndef SERVER_ENVIRONMENT_PLUGGED_H
#define SERVER_ENVIRONMENT_PLUGGED_H

#include "server/environment/vectors.h"

struct environment_spaces plugged_spaces(const struct plugin_environment *kind);
/* Makes the plug-in's instances of a vector. EXHAUSTED if some of them could not be made; then
 * vector_unmake_plugged frees the others. */
enum status vector_make_plugged(struct vector *v, struct error *err) MUST_CHECK;
void vector_unmake_plugged(struct vector *v);
/* Computes all rows of a checked request. EXHAUSTED; then nothing was done. */
enum status vector_step_plugged(struct vector *v, struct vector_request *r,
                                struct error *err) MUST_CHECK;
/* Closes all plug-ins. */
void vectors_unplug(struct vectors *all);

#endif
