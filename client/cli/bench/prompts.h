/* What a load says: texts of a given number of tokens, made of words that are one token each, drawn
 * by a seed; or the lines of a file, in turn. The same seed, the same texts. */
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
    bool shares_system; /* all conversations have the same one */
    /* What the server counts of a first turn and of a later one beyond the words that are drawn for
     * its text: the system prompt, the template, the word that each text begins with. */
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

/* Into out, cleared before: the word that every text begins with, and these. STATUS_EXHAUSTED. */
enum status prompts_join(struct buf *out, const char *const *words, size_t n) MUST_CHECK;

/* What conversation number c is opened with, and what it says in a turn of n_tokens, or as near as
 * the overhead lets it. Empty: the model's own system prompt. STATUS_EXHAUSTED. */
enum status prompts_system(const struct prompts *p, uint32_t c, struct buf *out) MUST_CHECK;
enum status prompts_text(const struct prompts *p, uint32_t c, uint32_t turn, uint32_t n_tokens,
                         struct buf *out) MUST_CHECK;

#endif
