#include "tests/support/tiny_vocab.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "tests/unit/compute/gguf/gguf_maker.h"

static const char *const specials[] = {
    [TV_END_OF_TEXT] = "<|endoftext|>",
    [TV_IM_START] = "<|im_start|>",
    [TV_IM_END] = "<|im_end|>",
    [TV_BEGIN_OF_TEXT] = "<|begin_of_text|>",
    [TV_START_HEADER] = "<|start_header_id|>",
    [TV_END_HEADER] = "<|end_header_id|>",
    [TV_EOT] = "<|eot_id|>",
    [TV_TOOL] = "<tool>",
    [TV_TOOL_CALL] = "<tool>call",
};

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

struct tokens {
    struct gguf_maker *m;
    const struct tiny_vocab_config *config;
    size_t n_keys;
};

static bool has_key(struct tokens *t, const char *key)
{
    if (t->config->leave_out != NULL && strcmp(t->config->leave_out, key) == 0)
        return false;
    t->n_keys++;
    return true;
}

/* The character that stands for a byte in GPT-2's alphabet. */
static void make_byte_token(struct gguf_maker *m, int byte)
{
    static const int first_unprintable[] = {0, 0x7F, 0xAD}, end[] = {0x21, 0xA1, 0xAE};
    int c = byte, n_before = 0;
    char text[5] = {0};

    for (size_t i = 0; i < 3; i++) {
        if (byte >= first_unprintable[i] && byte < end[i])
            c = 256 + n_before + byte - first_unprintable[i];
        n_before += end[i] - first_unprintable[i];
    }
    (void)utf8_encode((uint32_t)c, text);
    make_text(m, text);
}

/* The two sides of a merge without the space between. */
static void make_joined(struct gguf_maker *m, const char *merge)
{
    const char *space = strchr(merge, ' ');
    size_t n_left = (size_t)(space - merge), len = strlen(merge) - 1;

    make_int(m, len, 8);
    make_bytes(m, merge, n_left);
    make_bytes(m, space + 1, len - n_left);
}

static size_t n_tokens(const struct tiny_vocab_config *c)
{
    return TV_MERGED + c->n_merges + (c->extra_token != NULL) + c->n_more;
}

static void make_tokens(struct gguf_maker *m, const struct tiny_vocab_config *c)
{
    make_key_array(m, "tokenizer.ggml.tokens", GGUF_TEXT, n_tokens(c));
    for (size_t i = 0; i < TV_BYTE; i++)
        make_text(m, specials[i]);
    for (int b = 0; b < 256; b++)
        if (b != 0 && b == c->missing)
            make_text(m, "[missing]");
        else
            make_byte_token(m, b);
    for (size_t i = 0; i < c->n_merges; i++)
        make_joined(m, c->merges[i]);
    if (c->extra_token != NULL)
        make_text(m, c->extra_token);
    for (size_t i = 0; i < c->n_more; i++) {
        char text[32];

        (void)snprintf(text, sizeof(text), "more-%zu", i);
        make_text(m, text);
    }
}

static void make_types(struct gguf_maker *m, const struct tiny_vocab_config *c)
{
    size_t n = n_tokens(c) - c->n_types_less;

    make_key_array(m, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (size_t i = 0; i < n; i++) {
        int32_t type = NORMAL;

        if (i < TV_TOOL)
            type = c->control_type == 0 ? CONTROL : c->control_type;
        else if (i < TV_BYTE)
            type = USER_DEFINED;
        else if (c->missing != 0 && i == (size_t)TV_BYTE + c->missing)
            type = UNUSED;
        make_int(m, (uint32_t)type, 4);
    }
}

static void make_merges(struct gguf_maker *m, const struct tiny_vocab_config *c)
{
    make_key_array(m, "tokenizer.ggml.merges", GGUF_TEXT, c->n_merges + (c->extra_merge != NULL));
    for (size_t i = 0; i < c->n_merges; i++)
        make_text(m, c->merges[i]);
    if (c->extra_merge != NULL)
        make_text(m, c->extra_merge);
}

static void make_keys(struct tokens *t)
{
    const struct tiny_vocab_config *c = t->config;
    struct gguf_maker *m = t->m;

    if (has_key(t, "tokenizer.ggml.model"))
        make_key_text(m, "tokenizer.ggml.model", c->model == NULL ? "gpt2" : c->model);
    if (has_key(t, "tokenizer.ggml.pre"))
        make_key_text(m, "tokenizer.ggml.pre", c->pre == NULL ? "gpt-2" : c->pre);
    if (has_key(t, "tokenizer.ggml.tokens"))
        make_tokens(m, c);
    if (has_key(t, "tokenizer.ggml.token_type"))
        make_types(m, c);
    if (has_key(t, "tokenizer.ggml.merges"))
        make_merges(m, c);
    if (has_key(t, "tokenizer.ggml.eos_token_id"))
        make_key_int(m, "tokenizer.ggml.eos_token_id", GGUF_U32, TV_IM_END, 4);
    if (has_key(t, "tokenizer.ggml.bos_token_id"))
        make_key_int(m, "tokenizer.ggml.bos_token_id", GGUF_U32,
                     c->bos == 0 ? TV_BEGIN_OF_TEXT : c->bos, 4);
    if (c->chat_template != NULL && has_key(t, "tokenizer.chat_template"))
        make_key_text(m, "tokenizer.chat_template", c->chat_template);
}

void tiny_vocab_open(struct tiny_vocab *out, const struct tiny_vocab_config *config)
{
    struct gguf_maker *m = xalloc(sizeof(*m));
    struct tokens t = {.m = m, .config = config};
    struct error err;

    make_keys(&t); /* the first time only to count */
    make_head(m, 3, 0, t.n_keys);
    make_keys(&t);
    make_padding(m, 32);
    out->maker = m;
    if (gguf_open_bytes(&out->gguf, m->bytes, m->len, "tiny.gguf", &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        abort();
    }
}

void tiny_vocab_close(struct tiny_vocab *v)
{
    gguf_close(v->gguf);
    free(v->maker);
}
