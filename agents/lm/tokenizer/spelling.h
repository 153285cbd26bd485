/* How a file spells the bytes of its tokens: in the byte alphabet, or as text with U+2581 for a
 * space. */
#ifndef AGENTS_LM_TOKENIZER_SPELLING_H
#define AGENTS_LM_TOKENIZER_SPELLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ALPHABET_END = 324 };

struct spelling {
    bool is_alphabet;
    int16_t byte_of[ALPHABET_END]; /* of the alphabet's characters; -1: it is none */
};

void spelling_init(struct spelling *s, bool is_alphabet);

/* The bytes of text. False if a character is not in the alphabet. out has room for len. */
bool spelling_decode(const struct spelling *s, const char *text, size_t len, char *out,
                     size_t *ret_len);

/* Replaces each U+2581 by a space; returns the new length. out, which may be text, has room for
 * len. */
size_t spelling_unescape(const char *text, size_t len, char *out);

/* The same of one that text begins with and that is not all of it. */
size_t spelling_unescape_first(const char *text, size_t len, char *out);

/* The byte of a token that is spelled <0xHH>, -1 for another one. */
int spelling_byte(const char *text, size_t len);

#endif
