/* The prompts of a load: texts of a given number of tokens, from words of one token each, drawn
 * by a seed; or the lines of a file, in turn. The same seed gives the same texts. */
#ifndef CLIENT_CLI_BENCH_PROMPTS_H
#define CLIENT_CLI_BENCH_PROMPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

struct prompts {
    uint64_t seed;
    const char **words; /* [n_words] */
    size_t n_words;
    size_t n_system;    /* words of a system prompt behind the first */
    bool shares_system; /* conversations have the same one */
    double shared;      /* this share of them; the others have their own */
    /* Tokens that the server counts for a first and a later turn beyond the drawn words: system
     * prompt, template, and the word that begins each text. */
    uint32_t overhead[2];
    /* Instead of words, where n_lines is not 0. */
    char **lines;
    size_t n_lines;
};

/* With all words that may be one token, and no overhead. */
void prompts_init(struct prompts *p, uint64_t seed);
/* Takes the lines of a file; empty ones are left out. */
enum status prompts_read(struct prompts *p, const char *path, struct error *err) MUST_CHECK;
void prompts_deinit(struct prompts *p);

/* Writes into out, cleared before: the word that every text begins with, then these.
 * STATUS_EXHAUSTED. */
enum status prompts_join(struct buf *out, const char *const *words, size_t n) MUST_CHECK;

/* The system prompt of conversation number c (empty: the model's own), and its text in a turn of
 * n_tokens, or as near to that as the overhead permits. STATUS_EXHAUSTED. */
enum status prompts_system(const struct prompts *p, uint32_t c, struct buf *out) MUST_CHECK;
enum status prompts_text(const struct prompts *p, uint32_t c, uint32_t turn, uint32_t n_tokens,
                         struct buf *out) MUST_CHECK;

#endif
