/* Cuts texts into words, as ParlAI's tokenizer `re` does. A token is a run of word characters
 * (Unicode letters, numbers, underscore), any other single character that is not white space, or a
 * newline. Any thread. */
#ifndef AGENTS_WORDS_TOKENS_H
#define AGENTS_WORDS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"

/* Return whether a code point is white space, or a letter or number, as Python's str.isspace() and
 * str.isalnum() do. */
bool is_white_space(uint32_t c);
bool is_alphanumeric(uint32_t c);

/* Returns the next token of text from offset *at on, borrowed from text, and sets *at behind the
 * token. At the end of text it returns {NULL, 0}. */
struct text token_next(struct text text, size_t *at);

#endif
