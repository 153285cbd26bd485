/* A vocabulary as GGUF files carry it, by tokenizer.ggml.model: byte-level BPE (gpt2), pre-split by
 * the patterns that tokenizer.ggml.pre names (families.c), SentencePiece's BPE (llama) and unigram
 * model (t5), BERT's WordPiece (bert), and BPE of characters (gemma4, and text-bpe for folders of
 * safetensors). Immutable once open; any thread. */
#ifndef AGENTS_LM_TOKENIZER_VOCAB_H
#define AGENTS_LM_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/lm/tokenizer/fill_in.h"
#include "base/buf.h"
#include "base/status.h"
#include "compute/gguf/gguf.h"

struct vocab;

/* Keeps no reference to g. An unknown tokenizer is UNIMPLEMENTED, and the error names it; an
 * inconsistent vocabulary is DATA_LOSS. */
enum status vocab_open(struct vocab **out, struct gguf *g, struct error *err) MUST_CHECK;
void vocab_close(struct vocab *v);

size_t vocab_n_tokens(const struct vocab *v);
int32_t vocab_bos(const struct vocab *v); /* -1: none */
int32_t vocab_eos(const struct vocab *v); /* -1: none */
bool vocab_adds_bos(const struct vocab *v);
/* Whether the file says that eos ends each text; false where it does not say. */
bool vocab_adds_eos(const struct vocab *v);

/* Encodes a text, or two, as an encoder reads it: bos, the text, the separator or else eos; and
 * then the second text (NULL: there is none) and the separator again. Of a unigram model two
 * separators stand between the texts. *ret_n_first is the number of ids before the second text. As
 * vocab_encode. */
enum status vocab_encode_pair(const struct vocab *v, const char *text, size_t len,
                              const char *second, size_t second_len, struct buf *ids,
                              size_t *ret_n_first, struct error *err) MUST_CHECK;
/* True for tokens that end a turn: eos, eot, eom, those that end code to be filled in, and the
 * control tokens known to do so (<|im_end|>, <|eot_id|>, <|endoftext|>, …). */
bool vocab_is_stop_token(const struct vocab *v, int32_t id);
/* All of them, in order; valid as long as the vocabulary. */
const int32_t *vocab_stop_tokens(const struct vocab *v, size_t *ret_n);
/* The ids that the file reserves without giving them a text, in order; valid as long as the
 * vocabulary. Models may have logits for them, and for more ids than vocab_n_tokens. */
const int32_t *vocab_unused(const struct vocab *v, size_t *ret_n);
bool vocab_is_control(const struct vocab *v, int32_t id);

/* The tokens of texts with a gap. False: the vocabulary lacks one of the first three. */
bool vocab_fill_in(const struct vocab *v, struct fill_in_tokens *out);

/* The id of a control token by its exact text, -1 if there is none. */
int32_t vocab_control(const struct vocab *v, const char *text);

/* A run of text of one origin. */
struct text_span {
    size_t end;      /* byte offset after it; spans are contiguous and cover the text */
    bool is_trusted; /* control tokens written in it are recognised */
};

/* Appends the ids (int32_t) of text to ids. A control token is recognised only where it lies wholly
 * in trusted text; user-defined tokens are found in all text, but not across a border between
 * trusted and untrusted text, nor does a merge cross one. Of several that begin at one place the
 * longest is taken. at_start: the text begins a prompt; there and behind special tokens SPM and
 * text-bpe may put a space before text. All but gpt2 take U+2581 for a space. A special token may
 * take the white space beside it that has its trust. Spans must end between characters. A
 * byte without a token is left out, as in llama.cpp; vocab_bytes gives all others back. Where a
 * tokenizer.json asks for NFC, text between special tokens is composed. Time is O(len log len) for
 * any text. Text that is not UTF-8 is STATUS_INVALID. On failure ids is as before. */
enum status vocab_encode_spans(const struct vocab *v, const char *text, size_t len,
                               const struct text_span *spans, size_t n_spans, bool at_start,
                               struct buf *ids, struct error *err) MUST_CHECK;

/* The first place of text [len] at or after from where a control token or a user-defined one
 * stands, with the white space that it takes; *ret_end is where that ends. len where there is none.
 * text is UTF-8. */
size_t vocab_find_special(const struct vocab *v, const char *text, size_t len, size_t from,
                          size_t *ret_end);

/* The same for untrusted text alone, at the start of a prompt. */
enum status vocab_encode(const struct vocab *v, const char *text, size_t len, struct buf *ids,
                         struct error *err) MUST_CHECK;

/* The bytes of a token, not NUL-ended and perhaps part of a character; control tokens have none
 * unless with_control. Valid as long as the vocabulary. STATUS_INVALID for an id out of range. */
enum status vocab_bytes(const struct vocab *v, int32_t id, bool with_control,
                        const char **ret_bytes, size_t *ret_len, struct error *err) MUST_CHECK;

/* Appends the text of ids [n], with that of control tokens. A space that the text begins with is
 * left out where vocab_encode puts one before a text, so that text comes back as it was. On failure
 * text may have a part. */
enum status vocab_decode(const struct vocab *v, const int32_t *ids, size_t n, struct buf *text,
                         struct error *err) MUST_CHECK;

#endif
