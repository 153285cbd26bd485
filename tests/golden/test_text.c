/* Holds the tokenizer and the chat template of the real model to tokens.jsonl and chats.jsonl:
 * every line is equal. The model is the file that PARLEY_MODEL names, or the one that `./run model`
 * puts into build/model. */
#include <stdio.h>
#include <stdlib.h>

#include "agents/lm/chat/golden_text.h"

#define MODEL_FILE "SmolLM2-135M-Instruct.Q4_1.gguf"

/* 1 when lines are unequal or fewer than there should be. */
static int judge(const char *name, const struct golden_text *r, size_t n)
{
    printf("%s: %zu of %zu equal\n", name, r->equal, r->n);
    if (r->equal != r->n)
        (void)fprintf(stderr, "FAILED: %s, line %zu is unequal\n", name, r->first_unequal);
    else if (r->n < n)
        (void)fprintf(stderr, "FAILED: %s has fewer than %zu lines\n", name, n);
    return r->equal != r->n || r->n < n;
}

static enum status run(const char *path, int *ret_broken, struct error *err)
{
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    struct chat_template *t = NULL;
    struct golden_text tokens, chats;
    enum status rc;

    if ((rc = gguf_open(&g, path, err)) == STATUS_OK &&
        (rc = vocab_open(&v, g, err)) == STATUS_OK &&
        (rc = chat_template_open(&t, g, v, err)) == STATUS_OK &&
        (rc = golden_text_tokens(&tokens, v, GOLDEN_DIR "/tokens.jsonl", err)) == STATUS_OK &&
        (rc = golden_text_chats(&chats, v, t, NULL, GOLDEN_DIR "/chats.jsonl", err)) == STATUS_OK)
        *ret_broken = judge("tokens", &tokens, 44) + judge("chats", &chats, 16);
    chat_template_close(t);
    vocab_close(v);
    gguf_close(g);
    return rc;
}

int main(void)
{
    const char *model = getenv("PARLEY_MODEL");
    struct error err = {0};
    int n_broken = 0;
    enum status rc;

    if (model == NULL || *model == '\0')
        model = MODEL_DIR "/" MODEL_FILE;
    rc = run(model, &n_broken, &err);
    if (rc != STATUS_OK)
        (void)fprintf(stderr, "%s%s\n", err.text,
                      rc == STATUS_NOT_FOUND ? " (`./run model` fetches the model)" : "");
    return rc != STATUS_OK || n_broken > 0;
}
