/* A small vocabulary of characters, in the bytes of a GGUF file: SPM, or BPE of characters. */
#ifndef TESTS_SUPPORT_TINY_SPM_H
#define TESTS_SUPPORT_TINY_SPM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/tiny_vocab.h"

/* Ids: these, the 256 byte tokens by value, then those of the configuration, in order. */
enum { TS_UNKNOWN, TS_BOS, TS_EOS, TS_BYTE, TS_TOKEN = TS_BYTE + 256 };

struct tiny_spm_token {
    const char *text; /* as the file has it: with U+2581 for a space */
    float score;
    int32_t type; /* 0: normal */
};

struct tiny_spm_config {
    const struct tiny_spm_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    const char *const *merges; /* [n_merges] for gemma4 and text-bpe */
    size_t n_merges;
    const char *model;      /* NULL: llama */
    const char *name;       /* general.name, NULL: none */
    const char *first_byte; /* NULL: <0x00> */
    const char *bool_key;   /* one more key, NULL: none */
    bool bool_value;
    const char *id_key; /* one more key, NULL: none */
    uint32_t id;
    size_t n_scores_less;
};

/* tiny_vocab_close frees the bytes. */
void tiny_spm_open(struct tiny_vocab *out, const struct tiny_spm_config *config);

#endif
