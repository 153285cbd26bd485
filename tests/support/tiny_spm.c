#include "tests/support/tiny_spm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/unit/compute/gguf/gguf_maker.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, BYTE = 6 };

static void make_texts(struct gguf_maker *m, const struct tiny_spm_config *c)
{
    make_key_array(m, "tokenizer.ggml.tokens", GGUF_TEXT, TS_TOKEN + c->n_tokens);
    make_text(m, "<unk>");
    make_text(m, "<s>");
    make_text(m, "</s>");
    for (int b = 0; b < 256; b++) {
        char text[16];

        (void)snprintf(text, sizeof(text), "<0x%02X>", b);
        make_text(m, b == 0 && c->first_byte != NULL ? c->first_byte : text);
    }
    for (size_t i = 0; i < c->n_tokens; i++)
        make_text(m, c->tokens[i].text);
}

static void make_types(struct gguf_maker *m, const struct tiny_spm_config *c)
{
    make_key_array(m, "tokenizer.ggml.token_type", GGUF_I32, TS_TOKEN + c->n_tokens);
    make_int(m, UNKNOWN, 4);
    make_int(m, CONTROL, 4);
    make_int(m, CONTROL, 4);
    for (int b = 0; b < 256; b++)
        make_int(m, BYTE, 4);
    for (size_t i = 0; i < c->n_tokens; i++)
        make_int(m, c->tokens[i].type == 0 ? NORMAL : (uint32_t)c->tokens[i].type, 4);
}

static void make_scores(struct gguf_maker *m, const struct tiny_spm_config *c)
{
    size_t n = TS_TOKEN + c->n_tokens - c->n_scores_less;

    make_key_array(m, "tokenizer.ggml.scores", GGUF_F32, n);
    for (size_t i = 0; i < n; i++) {
        float score = i < TS_TOKEN ? 0 : c->tokens[i - TS_TOKEN].score;

        make_bytes(m, &score, sizeof(score));
    }
}

static void make_merges(struct gguf_maker *m, const struct tiny_spm_config *c)
{
    make_key_array(m, "tokenizer.ggml.merges", GGUF_TEXT, c->n_merges);
    for (size_t i = 0; i < c->n_merges; i++)
        make_text(m, c->merges[i]);
}

void tiny_spm_open(struct tiny_vocab *out, const struct tiny_spm_config *c)
{
    struct gguf_maker *m = xalloc(sizeof(*m));
    struct error err;

    make_head(m, 3, 0, 5 + (c->bool_key != NULL) + (c->id_key != NULL) + (c->name != NULL));
    make_key_text(m, "tokenizer.ggml.model", c->model == NULL ? "llama" : c->model);
    make_texts(m, c);
    make_types(m, c);
    make_scores(m, c);
    make_merges(m, c);
    if (c->name != NULL)
        make_key_text(m, "general.name", c->name);
    if (c->bool_key != NULL)
        make_key_int(m, c->bool_key, GGUF_BOOL, c->bool_value, 1);
    if (c->id_key != NULL)
        make_key_int(m, c->id_key, GGUF_U32, c->id, 4);
    make_padding(m, 32);
    out->maker = m;
    if (gguf_open_bytes(&out->gguf, m->bytes, m->len, "tiny.gguf", &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        abort();
    }
}
