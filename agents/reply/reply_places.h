/* Finds where a token stands in a reply's text, by the lengths that the text had behind each token.
 */
#ifndef AGENTS_REPLY_REPLY_PLACES_H
#define AGENTS_REPLY_REPLY_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct token_place {
    int32_t id;
    uint32_t text_end; /* the length of the reply's text up to and including the token's */
};

/* A reply's tokens, as whoever has them keeps them. */
struct reply_tokens {
    struct token_place (*at)(const void *tokens, size_t i);
    const void *tokens; /* borrowed */
    size_t n;
};

/* Whether the text of this token, [len] bytes, begins at this byte. Text that was held back, since
 * a stop text might have begun in it, came with a later token: then the token may stand a little
 * earlier. */
bool reply_tokens_have(const struct reply_tokens *t, int32_t id, size_t at, size_t len);

#endif
