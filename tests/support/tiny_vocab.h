/* A small byte-level vocabulary in the bytes of a GGUF file, valid or with a chosen defect. */
#ifndef TESTS_SUPPORT_TINY_VOCAB_H
#define TESTS_SUPPORT_TINY_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "compute/gguf/gguf.h"

/* Ids: control tokens, user-defined tokens, the 256 bytes by value, then the result of each merge,
 * in order, then the extra token. */
enum {
    TV_END_OF_TEXT,   /* <|endoftext|> */
    TV_IM_START,      /* <|im_start|> */
    TV_IM_END,        /* <|im_end|>, eos */
    TV_BEGIN_OF_TEXT, /* <|begin_of_text|>, bos */
    TV_START_HEADER,  /* <|start_header_id|> */
    TV_END_HEADER,    /* <|end_header_id|> */
    TV_EOT,           /* <|eot_id|> */
    TV_TOOL,          /* <tool>, user-defined */
    TV_TOOL_CALL,     /* <tool>call, user-defined */
    TV_BYTE,
    TV_MERGED = TV_BYTE + 256,
};

/* Zeroed, it is a valid gpt-2 vocabulary without merges and chat template. */
struct tiny_vocab_config {
    const char *pre;           /* NULL: gpt-2 */
    const char *const *merges; /* [n_merges] as the file has them: "h e" */
    size_t n_merges;
    const char *extra_token;   /* a normal token that no merge gives */
    size_t n_more;             /* further normal tokens behind it, which no merge gives */
    const char *chat_template; /* NULL: none */
    unsigned char missing;     /* a byte without a token; 0 for none */

    /* Defects; zero: none. */
    const char *model;       /* instead of gpt2 */
    const char *extra_merge; /* one whose result is not a token */
    const char *leave_out;   /* a key to leave out */
    size_t n_types_less;
    int32_t control_type; /* instead of 3 */
    uint32_t bos;         /* instead of TV_BEGIN_OF_TEXT */
};

/* Opens a vocabulary's file; the bytes are freed with tiny_vocab_close. */
struct tiny_vocab {
    struct gguf_maker *maker;
    struct gguf *gguf;
};

void tiny_vocab_open(struct tiny_vocab *out, const struct tiny_vocab_config *config);
void tiny_vocab_close(struct tiny_vocab *v);

#endif
