/* Sampling parameters by their JSON names, as clients of other servers write them. */
#ifndef SERVER_JSON_SAMPLING_H
#define SERVER_JSON_SAMPLING_H

#include <jansson.h>

#include "base/arena.h"
#include "server/conversation/sampling.h"

/* Returns whether name is that of a row of proto/sampling_fields.h, or "stop". */
bool sampling_json_knows(const char *name);

/* Sets the parameter of such a name. A null counts as not given; "stop" is a text or a list of
 * texts. Texts are copied to the arena. INVALID naming the parameter for a value of another type;
 * values out of range are left to sampling_check. */
enum status sampling_json_set(struct sampling_overrides *p, const char *name, const json_t *value,
                              struct arena *arena, struct error *err) MUST_CHECK;

/* Sets the parameters that the object's members name. Other members are ignored. */
enum status sampling_json_set_all(struct sampling_overrides *p, const json_t *object,
                                  struct arena *arena, struct error *err) MUST_CHECK;

#endif
