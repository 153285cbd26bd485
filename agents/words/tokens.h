/* Texts cut into words, as ParlAI's tokenizer `re` does. A token is a run of word characters
 * (Unicode letters, numbers, underscore), any other single character that is not white space, or a
 * newline. Any thread. */
#ifndef AGENTS_WORDS_TOKENS_H
#define AGENTS_WORDS_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h"

/* Of a character, as Python's str.isspace() and str.isalnum(). */
bool is_white_space(uint32_t c);
bool is_alphanumeric(uint32_t c);

/* The next token of text from offset *at, which moves past it; text NULL at the end. */
struct text token_next(struct text text, size_t *at);

#endif
