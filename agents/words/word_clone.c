#include "agents/words/word_clone.h"

#include "base/list.h"

struct word_clone *word_clone_of(struct clone *c)
{
    return container_of(c, struct word_clone, base);
}

const struct word_clone *const_word_clone_of(const struct clone *c)
{
    return container_of(c, const struct word_clone, base);
}

enum status word_clone_open(struct clone *c, const struct clone_config *config, struct error *err)
{
    word_history_init(&word_clone_of(c)->past);
    return STATUS_OK;
}

void word_clone_close(struct clone *c)
{
    word_history_deinit(&word_clone_of(c)->past);
}

void word_clone_info(const struct clone *base, struct clone_info *out)
{
    const struct word_clone *c = const_word_clone_of(base);

    out->n_tokens = word_history_n_words(&c->past);
    out->state_bytes += word_history_size_bytes(&c->past);
}

enum status word_clone_fork(struct clone *c, const struct clone *parent, uint32_t at_turn,
                            struct error *err)
{
    word_history_init(&word_clone_of(c)->past);
    return word_history_fork(&word_clone_of(c)->past, &const_word_clone_of(parent)->past, at_turn,
                             err);
}

enum status word_clone_rewind(struct clone *c, uint32_t at_turn, struct error *err)
{
    return word_history_rewind(&word_clone_of(c)->past, at_turn, err);
}

void word_clone_reset(struct clone *c)
{
    word_history_clear(&word_clone_of(c)->past);
}
