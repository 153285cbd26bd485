/* Which tokens end a turn, and which ones divide a text with a gap. */
#ifndef AGENTS_LM_TOKENIZER_ENDS_H
#define AGENTS_LM_TOKENIZER_ENDS_H

#include <stdbool.h>
#include <stddef.h>

#include "agents/lm/tokenizer/table.h"
#include "base/status.h"
#include "compute/gguf/gguf.h"

/* Whether a token of this text, as the file spells it, ends a turn in some model. Such a token is a
 * control token whatever type the file gives it. */
bool ends_is_end_text(const char *text, size_t len);

/* Sets v->eos, v->is_stop_token, v->stop_tokens and v->fill_in. */
enum status ends_read(struct vocab *v, const struct gguf *g, struct error *err) MUST_CHECK;

/* The token of a key; if_absent where the file lacks it and has such a token. -1: none. */
enum status ends_read_id(const struct vocab *v, const struct gguf *g, const char *key,
                         int32_t if_absent, int32_t *ret_id, struct error *err) MUST_CHECK;

#endif
