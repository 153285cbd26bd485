/* Which fields an HTTP API knows, beside those of the field tables and of the samplers. A member of
 * a request that no reader knows is named to the client, so that none is dropped in silence.
 * docs/fields.md lists the fields of every API. */
#ifndef SERVER_API_KNOWN_FIELDS_H
#define SERVER_API_KNOWN_FIELDS_H

#include <jansson.h>

#include "base/arena.h"
#include "base/status.h"
#include "server/api/field_owner.h"
#include "server/json/field_table.h"

struct exchange;

/* An object of a request. */
struct known_object {
    const json_t *object; /* NULL: it was not given */
    const char *path;     /* before its members' names, with a point at the end; "": the body */
    bool has_sampling;    /* its members are also those of sampling */
    bool has_foreign;     /* and those of others' samplers */
    const struct field_table *tables[2]; /* NULL: none */
};

/* Makes of the members that the API does not know a list, as in X-Parley-Unenforced; "": it knows
 * all of them, but for those whose value is null. The list lies in the arena. */
enum status known_fields_list_others(const char **out, const struct known_object *objects, size_t n,
                                     enum field_owner api, struct arena *arena,
                                     struct error *err) MUST_CHECK;

/* Names the members of a body that the API of the exchange does not know in the answer's
 * X-Parley-Unenforced. table: beside which there is no other. */
enum status known_fields_name_others(struct exchange *x, const json_t *body,
                                     const struct field_table *table, enum field_owner api,
                                     struct error *err) MUST_CHECK;

#endif
