/* What a vocabulary is made of: for the file that reads one and the file that uses it. */
#ifndef AGENTS_LM_VOCAB_PARTS_H
#define AGENTS_LM_VOCAB_PARTS_H

#include "agents/lm/merges.h"
#include "agents/lm/presplit.h"
#include "agents/lm/vocab.h"

/* GGUF's tokenizer.ggml.token_type. */
enum token_type {
    TOKEN_NORMAL = 1, /* written in the byte alphabet; all others are plain text */
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

enum { VOCAB_BYTES = 256 };

struct vocab {
    size_t n;
    char *bytes;      /* of all tokens, one after another */
    uint32_t *starts; /* [n + 1] into bytes */
    uint8_t *types;   /* [n] enum token_type */
    bool *is_end;     /* [n] */
    int32_t *ends;    /* [n_ends] */
    size_t n_ends;
    int32_t *defined; /* [n_defined] the user-defined ones, longest first */
    size_t n_defined;
    bool begins_defined[VOCAB_BYTES];
    int32_t *lookup; /* [lookup_mask + 1] normal tokens by their bytes: id + 1, 0 is empty */
    size_t lookup_mask;
    int32_t byte_ids[VOCAB_BYTES]; /* -1: the vocabulary lacks that byte */
    struct merges merges;
    struct presplit *presplit;
    int32_t bos, eos;
    bool adds_bos;
};

/* The bytes of a token that there is. */
const char *vocab_token_bytes(const struct vocab *v, int32_t id, size_t *ret_len);

/* Where the token of these bytes is in the lookup, or belongs. */
int32_t *vocab_slot(const struct vocab *v, const char *bytes, size_t len);

/* The normal token of these bytes, -1 if there is none. */
int32_t vocab_find(const struct vocab *v, const char *bytes, size_t len);

/* Fills a zeroed vocabulary from the file; what a failure leaves is vocab_close's. */
enum status vocab_read(struct vocab *v, struct gguf *g, struct error *err) MUST_CHECK;

#endif
