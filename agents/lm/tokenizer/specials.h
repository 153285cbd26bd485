/* Tokens that are found in text before it is encoded: user-defined ones, and control tokens where
 * the text is trusted. */
#ifndef AGENTS_LM_TOKENIZER_SPECIALS_H
#define AGENTS_LM_TOKENIZER_SPECIALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/lm/tokenizer/table.h"
#include "base/status.h"

/* Takes the tokens of v whose type is_member accepts. A zeroed struct is a closed one. */
enum status specials_open(struct specials *out, const struct vocab *v, bool (*is_member)(int type),
                          struct error *err) MUST_CHECK;
void specials_close(struct specials *s);

/* The first place of text [len] at or after `from` where one of the tokens stands, the longest one
 * there in *ret_id; len if there is none. */
size_t specials_find(const struct specials *s, const struct vocab *v, const char *text, size_t len,
                     size_t from, int32_t *ret_id);

/* Whether one of them is these bytes. */
bool specials_has(const struct specials *s, const struct vocab *v, const char *bytes, size_t len);

#endif
