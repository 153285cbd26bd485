/* Fields of other servers, most of their samplers'. */
#ifndef SERVER_JSON_FOREIGN_FIELDS_H
#define SERVER_JSON_FOREIGN_FIELDS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/arena.h"
#include "server/conversation/sampling.h"

/* Whether name is that of such a field. */
bool foreign_fields_know(const char *name);

/* Takes the members of object, which is a body or its options, that are known elsewhere under
 * another name, into p. STATUS_INVALID names the first one that is not served and would change the
 * reply. */
enum status foreign_fields_take(struct sampling_overrides *p, const json_t *object,
                                struct arena *arena, struct error *err) MUST_CHECK;

#endif
