#include "server/http/request_id.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/env.h"

/* It stands in a header and in a line of the log, so it has no quotes. */
static bool request_id_is_fine(const struct request_id *id)
{
    for (size_t i = 0; i < id->len; i++) {
        if (id->text[i] <= ' ' || id->text[i] > '~' || id->text[i] == '"' || id->text[i] == '\\')
            return false;
    }
    return id->len > 0 && id->len <= REQUEST_ID_MAX_BYTES;
}

void request_id_settle(struct request_id *id, const struct env *env)
{
    uint64_t drawn[2];

    if (request_id_is_fine(id)) {
        id->text[id->len] = '\0';
        return;
    }
    env->random(env->self, drawn, sizeof(drawn));
    id->len = (size_t)snprintf(id->text, sizeof(id->text), "req_%016llx%016llx",
                               (unsigned long long)drawn[0], (unsigned long long)drawn[1]);
}
