/* The members of a request's objects and lists: those of messages, tools, formats and choices. A
 * value of another kind is refused under the client's own path, and a member that the API does not
 * know is told. docs/fields.md has the rule. */
#ifndef SERVER_API_NESTED_FIELDS_H
#define SERVER_API_NESTED_FIELDS_H

#include <jansson.h>

#include "base/status.h"
#include "server/api/field_owner.h"

/* Takes the path of an object ("messages[].content[]") and the name of a member that the API does
 * not know. */
typedef enum status (*nested_unknown_fn)(void *arg, const char *path, const char *name,
                                         struct error *err);

/* Checks what is inside the members of the body. INVALID names the first value of a wrong kind by
 * its path; a failure of unknown is passed on. */
enum status nested_fields_check(const json_t *body, enum field_owner api, nested_unknown_fn unknown,
                                void *arg, struct error *err) MUST_CHECK;

#endif
