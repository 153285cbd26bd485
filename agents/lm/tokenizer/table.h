/* The tokens of a vocabulary and the lookup of a token by its bytes: for read.c and ends.c, which
 * fill them, and the files that encode. */
#ifndef AGENTS_LM_TOKENIZER_TABLE_H
#define AGENTS_LM_TOKENIZER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/lm/tokenizer/charsmap.h"
#include "agents/lm/tokenizer/fill_in.h"
#include "agents/lm/tokenizer/merges.h"
#include "agents/lm/tokenizer/pretokenizer.h"
#include "base/buf.h"
#include "base/status.h"

/* GGUF's tokenizer.ggml.token_type. */
enum token_type {
    TOKEN_NORMAL = 1, /* written in the byte alphabet; other types are plain text */
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* White space beside a special token that is a part of it, so that it gives no token. */
enum token_trim { TRIM_NONE = 0, TRIM_BEFORE = 1, TRIM_BEHIND = 2 };

enum { VOCAB_BYTES = 256 };

/* The tokens that specials.h finds in a text. */
struct specials {
    int32_t *ids; /* [n] in the order of their bytes, of equal ones the lowest id first */
    size_t n;
    bool begins[VOCAB_BYTES]; /* one of them begins with this byte */
};

enum vocab_kind {
    VOCAB_BYTES_BPE, /* gpt2: merges of bytes, within words */
    VOCAB_TEXT_BPE,  /* text-bpe: merges of characters, within words or within the whole text */
    VOCAB_GEMMA4,    /* gemma4: the same within lines; line ends that are a token stay whole */
    VOCAB_SPM,       /* llama: merges of characters, by the score of what they make */
    VOCAB_WPM,       /* bert: the longest tokens of words (wpm.h) */
    VOCAB_UGM,       /* t5: the tokens with the greatest sum of scores (ugm.h) */
};

struct vocab {
    enum vocab_kind kind;
    size_t n;
    char *bytes;                   /* of all tokens, one after another */
    uint32_t *starts;              /* [n + 1] into bytes */
    uint8_t *types;                /* [n] enum token_type */
    bool *is_stop_token;           /* [n] */
    struct fill_in_tokens fill_in; /* -1: none */
    int32_t *stop_tokens;          /* [n_stop_tokens] */
    size_t n_stop_tokens;
    int32_t *unused; /* [n_unused] ids of TOKEN_UNUSED */
    size_t n_unused;
    struct specials defined;  /* the user-defined ones */
    struct specials specials; /* those and the control tokens */
    int32_t *lookup; /* [lookup_mask + 1] normal tokens by their bytes: id + 1, 0 is empty */
    size_t lookup_mask;
    int32_t byte_ids[VOCAB_BYTES];   /* -1: the vocabulary lacks that byte */
    uint32_t *ranks;                 /* SPM: [n], the lowest merges first */
    float *scores;                   /* UGM: [n] */
    double least_score;              /* of them */
    struct charsmap charsmap;        /* UGM */
    bool removes_spaces;             /* UGM: of runs of spaces all but one, */
    bool trims_left, trims_right;    /* and those at the ends */
    bool cuts_at_white_space;        /* UGM: white space of all kinds is a space */
    bool maps_graphemes;             /* UGM: the table is used as PyPI's tokenizers do */
    bool folds_case, strips_accents; /* WPM */
    size_t longest;                  /* bytes of the longest token in lookup */
    bool is_nfc;                     /* text is composed before it is split */
    /* Kinds of characters: text that begins a prompt or follows a special token gets a space. */
    bool has_space_prefix;
    bool prefixes_once;    /* only text that begins a prompt does */
    bool prefixes_missing; /* only text that does not begin with a space does */
    bool prefers_whole;    /* BPE: a word that is a token is that token, whatever merges say */
    uint8_t *trims;        /* [n] enum token_trim, of special tokens; NULL: none trims */
    struct merges merges;  /* BPE */
    struct pretokenizer *pretokenizer; /* BPE */
    int32_t bos, eos, unknown;         /* -1: none */
    int32_t separator;                 /* of two texts: -1: none */
    bool adds_bos, adds_eos;
};

/* The bytes of a token; id must be valid. */
const char *vocab_token_bytes(const struct vocab *v, int32_t id, size_t *ret_len);

/* The lookup's entry of the token of these bytes, or the empty entry for it. */
int32_t *vocab_slot(const struct vocab *v, const char *bytes, size_t len);

/* The normal token of these bytes, -1 if there is none. */
int32_t vocab_find(const struct vocab *v, const char *bytes, size_t len);

/* Appends ids [n]; EXHAUSTED without memory, RANGE where out is full. */
enum status vocab_append_ids(struct buf *out, const int32_t *ids, size_t n,
                             struct error *err) MUST_CHECK;

/* The id of a control token by its exact text, -1 if there is none. */
int32_t vocab_find_control(const struct vocab *v, const char *text);

#endif
