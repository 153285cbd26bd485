/* What was said in a conversation, as text: a chat template that is rendered whole needs it again
 * at each turn. Loop. */
#ifndef AGENTS_LM_HISTORY_H
#define AGENTS_LM_HISTORY_H

#include "agents/message.h"
#include "base/buf.h"
#include "base/status.h"

struct lm_history {
    struct message *messages; /* [n], with texts of their own */
    uint32_t n, cap;
    uint32_t *turn_ends; /* [n_turns] n after each turn */
    uint32_t n_turns, cap_turns;
};

void lm_history_deinit(struct lm_history *h); /* as zeroed after it */
/* A completed turn's messages and its reply, NULL: none. On failure nothing has changed. */
enum status lm_history_push(struct lm_history *h, const struct message *messages, size_t n,
                            const struct message *reply, struct error *err) MUST_CHECK;
/* Keeps the first n_turns. */
void lm_history_cut(struct lm_history *h, uint32_t n_turns);
/* Of the first n_turns, into a zeroed one. On failure out is as if zeroed. */
enum status lm_history_copy(struct lm_history *out, const struct lm_history *from, uint32_t n_turns,
                            struct error *err) MUST_CHECK;

/* To bytes and back, into a zeroed one; DATA_LOSS if they are not what was saved, and out is then
 * as if zeroed. */
enum status lm_history_save(const struct lm_history *h, struct buf *out,
                            struct error *err) MUST_CHECK;
enum status lm_history_restore(struct lm_history *out, const uint8_t *data, size_t size_bytes,
                               struct error *err) MUST_CHECK;

#endif
