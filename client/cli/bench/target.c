#include "client/cli/bench/target.h"

#include <string.h>

#include "base/env.h"

const struct target_type *target_type_of(const char *address, const char **ret_rest)
{
    static const struct target_type *const types[] = {&parley_target,     &openai_target,
                                                      &openai_tls_target, &kserve_target,
                                                      &act_target,        &grpc_target};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        size_t len = strlen(types[i]->scheme);

        if (strncmp(address, types[i]->scheme, len) == 0 && address[len] != '\0') {
            *ret_rest = address + len;
            return types[i];
        }
    }
    return NULL;
}

void session_begin(struct target_session *s)
{
    s->begun_us = s->sent_us = env_now_us(&env_real);
    s->first_us = s->last_us = 0;
    s->prompt_tokens = s->cached_tokens = s->completion_tokens = 0;
}

void session_chunk(struct target_session *s)
{
    uint64_t now_us = env_now_us(&env_real);
    bool is_first = s->first_us == 0;
    uint64_t gap_us = is_first ? 0 : now_us - s->last_us;

    if (is_first)
        s->first_us = now_us;
    s->last_us = now_us;
    s->events->chunk(s, is_first, gap_us);
}
