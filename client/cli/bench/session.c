/* Notes when a session's turn begins, and when its chunks arrive. */
#include "base/env.h"
#include "client/cli/bench/target.h"

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
