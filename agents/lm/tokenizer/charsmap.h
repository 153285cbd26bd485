/* A table of characters, as SentencePiece compiles its rules of normalisation: texts, and what
 * takes their place. Immutable once open; any thread. */
#ifndef AGENTS_LM_TOKENIZER_CHARSMAP_H
#define AGENTS_LM_TOKENIZER_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

/* The table of characters: a double array, as Darts has it, and the texts that replace what it
 * finds. */
struct charsmap {
    uint32_t *units; /* [n_units] */
    size_t n_units;
    char *texts; /* [n_bytes] each ends with NUL, and so does the last */
    size_t n_bytes;
};

/* Takes a copy of a table as SentencePiece writes it. INVALID where it is none. */
enum status charsmap_open(struct charsmap *out, const uint8_t *data, size_t size_bytes,
                          struct error *err) MUST_CHECK;
void charsmap_close(struct charsmap *m); /* a zeroed struct is a closed one */

/* Appends text, which is UTF-8, as the table rewrites it: at each place the longest text that it
 * knows. by_grapheme: as PyPI's tokenizers do it instead, by clusters of characters; one of less
 * than six bytes becomes what the shortest text at its begin does. */
enum status charsmap_rewrite(const struct charsmap *m, const char *text, size_t len,
                             bool by_grapheme, struct buf *out, struct error *err) MUST_CHECK;

#endif
