/* A small llama model with seeded weights, made in memory as the bytes of a GGUF file: for tests
 * that need a model but not meaningful replies. Its vocabulary is byte-level BPE with SmolLM's
 * control tokens and chat template. */
#ifndef TESTS_SUPPORT_TINY_MODEL_H
#define TESTS_SUPPORT_TINY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/numerics/dtype.h"

enum {
    TINY_LAYERS = 2,
    TINY_WIDTH = 256, /* also the width of the feed-forward: whole blocks of every format */
    TINY_HEADS = 4,
    TINY_KV_HEADS = 2,
    TINY_HEAD_DIM = TINY_WIDTH / TINY_HEADS,
    TINY_CONTEXT = 2048,

    TINY_STATE_HEADS = 4, /* of layers with a state, and of keys */
    TINY_STATE_KEYS = 2,
    TINY_STATE_DIM = TINY_WIDTH / TINY_STATE_HEADS,
    TINY_STATE_TAPS = 4,

    /* ids: the control tokens, then the 256 bytes by value, then the merged tokens */
    TINY_END_OF_TEXT = 0, /* <|endoftext|> */
    TINY_IM_START = 1,    /* <|im_start|>, also bos */
    TINY_IM_END = 2,      /* <|im_end|>, also eos */
    TINY_FIRST_BYTE = 3,
    TINY_FIRST_MERGED = TINY_FIRST_BYTE + 256, /* he ll hell hello " t" " a" in " the" */
    TINY_VOCAB = TINY_FIRST_MERGED + 8,
};

/* A key with a value of its type: text, a float or a bool. */
struct tiny_key {
    const char *name; /* NULL: none */
    const char *text; /* NULL: a number or a bool */
    float number;
    bool is_bool; /* number is 0 or 1 */
};

/* A token with an id of its own, which text is not merged to. */
struct tiny_token {
    const char *text;
    bool is_control; /* else user-defined */
};

/* Zeroed, it is a sound f32 model with a tied head. */
struct tiny_config {
    enum dtype type; /* of the matrices */
    uint32_t seed;
    bool has_own_head;                    /* output.weight */
    bool has_rope_freqs;                  /* rope_freqs.weight */
    const char *chat_template;            /* NULL: SmolLM's */
    const struct tiny_token *more_tokens; /* [n_more_tokens] their ids are from TINY_VOCAB on */
    size_t n_more_tokens;
    bool adds_bos; /* a prompt without a template begins with bos */

    bool has_state; /* architecture qwen35: the first layer carries a state, the second attends */

    /* Defects; NULL: none. */
    const char *architecture; /* instead of llama */
    bool has_own_keys;        /* the keys begin with architecture, too, not with llama */
    const char *leave_out;    /* a key or tensor to leave out */
    const char *set_key;      /* a key that becomes an integer, set_value; may be new */
    uint32_t set_value;
    const char *add_tensor; /* one more vector, [TINY_WIDTH] f32 */
    struct tiny_key add_keys[2];
    const char
        *break_tensor; /* a tensor whose first scale or number, f16 or f32, is infinite or NaN */
};

struct tiny_model {
    unsigned char *bytes; /* for gguf_open_bytes; aligned for any type */
    size_t size_bytes;
};

void tiny_model_init(struct tiny_model *out, const struct tiny_config *config);
void tiny_model_deinit(struct tiny_model *m);

/* SmolLM's chat template, as the file holds it. */
extern const char tiny_chat_template[];

#endif
