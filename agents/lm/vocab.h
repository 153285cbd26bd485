/* A vocabulary: byte-level BPE as GGUF files carry it (tokenizer.ggml.model = "gpt2"), pre-split by
 * the pattern that tokenizer.ggml.pre names: gpt-2, smollm, llama-bpe, qwen2. Immutable once open;
 * any thread. */
#ifndef AGENTS_LM_VOCAB_H
#define AGENTS_LM_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "compute/gguf.h"

struct vocab;

/* Keeps nothing of g. A tokenizer we do not know is UNIMPLEMENTED, by name; a vocabulary that
 * contradicts itself is DATA_LOSS. */
enum status vocab_open(struct vocab **out, struct gguf *g, struct error *err) MUST_CHECK;
void vocab_close(struct vocab *v);

size_t vocab_n_tokens(const struct vocab *v);
int32_t vocab_bos(const struct vocab *v); /* -1: none */
int32_t vocab_eos(const struct vocab *v); /* -1: none */
bool vocab_adds_bos(const struct vocab *v);
/* True for tokens that end a turn: eos, eot, and the control tokens known to do so
 * (<|im_end|>, <|eot_id|>, <|endoftext|>, …). */
bool vocab_is_end(const struct vocab *v, int32_t id);
/* All of them, in order; valid as long as the vocabulary. */
const int32_t *vocab_ends(const struct vocab *v, size_t *ret_n);
bool vocab_is_control(const struct vocab *v, int32_t id);

/* The id of a control token by its exact text, -1 if there is none. */
int32_t vocab_control(const struct vocab *v, const char *text);

/* Appends the ids (int32_t) of text to ids. Control tokens in text stay plain text; tokens that the
 * file calls user-defined are found whole. A byte that the vocabulary has no token for is left out,
 * as llama.cpp does; all others come back from vocab_bytes. Time is O(len log len) whatever the
 * text. Text that is not UTF-8 is STATUS_INVALID. On failure ids is as before. */
enum status vocab_encode(const struct vocab *v, const char *text, size_t len, struct buf *ids,
                         struct error *err) MUST_CHECK;

/* The bytes of a token, not NUL-ended and perhaps part of a character; control tokens have none
 * unless with_control. Valid as long as the vocabulary. STATUS_INVALID for an id out of range. */
enum status vocab_bytes(const struct vocab *v, int32_t id, bool with_control,
                        const char **ret_bytes, size_t *ret_len, struct error *err) MUST_CHECK;

#endif
