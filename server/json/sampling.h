/* Sampling parameters by their JSON names, as clients of other servers write them. */
#ifndef SERVER_JSON_SAMPLING_H
#define SERVER_JSON_SAMPLING_H

#include <jansson.h>

#include "base/arena.h"
#include "server/conversation/sampling.h"

/* Whether name is that of a row of proto/sampling_fields.h, or "stop" (a text or a list of them).
 */
bool sampling_json_knows(const char *name);

/* Sets the value of one of those names; null counts as not given. INVALID naming it for a wrong
 * type. Texts are copied to the arena. sampling_check reports values out of range. */
enum status sampling_json_set(struct sampling_overrides *p, const char *name, const json_t *value,
                              struct arena *arena, struct error *err) MUST_CHECK;

/* Sets all known members of an object; unknown names are ignored. */
enum status sampling_json_set_all(struct sampling_overrides *p, const json_t *object,
                                  struct arena *arena, struct error *err) MUST_CHECK;

#endif
