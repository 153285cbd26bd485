#include "server/api/openai/instructions.h"

#include "server/conversation/conversation.h"

struct text instructions_head(const struct message *messages, size_t n)
{
    if (n == 0 || messages[0].role != ROLE_SYSTEM)
        return (struct text){0};
    return (struct text){messages[0].text, messages[0].len};
}

struct text instructions_behind(const struct conversation *c, const struct completed_turn *newest,
                                bool is_of_named)
{
    const struct conversation_options *options = c->host.options;

    for (const struct completed_turn *t = newest; t != NULL; t = t->before) {
        const struct text said = instructions_head(t->request->messages, t->request->n_messages);

        if (said.len > 0 && !t->request->is_observed && (t->before != NULL || is_of_named))
            return said;
    }
    return (struct text){options->system, options->system_len};
}
