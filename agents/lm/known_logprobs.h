/* The log-probabilities of prompts' tokens, by the page of the prompt that they lie in: prompts
 * that begin alike compute them once, as they do keys and values. The least recently used are
 * forgotten. Loop. */
#ifndef AGENTS_LM_KNOWN_LOGPROBS_H
#define AGENTS_LM_KNOWN_LOGPROBS_H

#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/status.h"

struct env;
struct known_logprobs;
struct prompt_token;

/* Holds at most max_bytes. */
enum status known_logprobs_open(struct known_logprobs **out, size_t max_bytes,
                                const struct env *env, struct error *err) MUST_CHECK;
void known_logprobs_close(struct known_logprobs *k); /* NULL is fine */

/* Names a page by its ids [KV_PAGE_TOKENS], all before it (the name of the page before, NULL for
 * the first), and the salt of the tenant. */
struct digest known_logprobs_name(const struct known_logprobs *k, const struct digest *before,
                                  uint64_t salt, const int32_t *ids);

/* The page's tokens [KV_PAGE_TOKENS] with at least n_tops alternatives each, or NULL; valid until
 * the next call. */
const struct prompt_token *known_logprobs_find(struct known_logprobs *k, const struct digest *page,
                                               uint32_t n_tops);
/* Copies the page's tokens, which have n_tops alternatives each. Without memory nothing is kept. */
void known_logprobs_put(struct known_logprobs *k, const struct digest *page,
                        const struct prompt_token *tokens, uint32_t n_tops);

#endif
