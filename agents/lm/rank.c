/* Models that judge how well a document fits a query: the state of the prompt's last token goes
 * through a head whose rows are those of "yes" and "no" (Qwen3-Reranker). The prompt is made by the
 * file's template "rerank", in which {query} and {document} stand for the two texts. */
#include <string.h>

#include "agents/lm/lm.h"
#include "compute/encoder/head.h"

enum { FILE_RANKS = 4, PLACES_MAX = 4 };

/* Of files that have a head and no template. */
static const char usual_text[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
    "answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n";

enum status lm_rank_open(struct lm *m, struct error *err)
{
    const struct transformer_shape *shape = transformer_shape(m->transformer);
    const struct head_config config = {.kind = HEAD_RANK, .width = shape->width};
    char key[ARCH_KEY_MAX];
    uint64_t pooling;
    enum status rc =
        gguf_get_u64(m->gguf, arch_key(key, shape->arch, "pooling_type"), &pooling, err);

    if (rc != STATUS_OK || pooling != FILE_RANKS)
        return rc == STATUS_NOT_FOUND || rc == STATUS_OK ? STATUS_OK : rc;
    rc = head_open(&m->rank, m->gguf, &config, err);
    if (rc != STATUS_OK)
        return rc;
    m->rank_text = usual_text;
    m->rank_text_len = sizeof(usual_text) - 1;
    rc = gguf_get_text(m->gguf, "tokenizer.chat_template.rerank", &m->rank_text, &m->rank_text_len,
                       err);
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

struct rank_prompt {
    struct buf text;
    struct text_span spans[2 * PLACES_MAX + 1];
    size_t n_spans;
};

/* Appends text as a span of its own. */
static enum status rank_prompt_put(struct rank_prompt *p, const char *text, size_t len,
                                   bool is_trusted, struct error *err)
{
    if (buf_append(&p->text, text, len) != STATUS_OK)
        return error_no_memory(err, len, "a prompt");
    p->spans[p->n_spans++] = (struct text_span){p->text.len, is_trusted};
    return STATUS_OK;
}

/* The place of the next {query} or {document} in text; len: there is none. */
static size_t find_text_place(const char *text, size_t len, const char **ret_name)
{
    static const char *const names[] = {"{query}", "{document}"};
    size_t first = len;

    for (size_t i = 0; i < 2; i++) {
        const char *at = memmem(text, len, names[i], strlen(names[i]));

        if (at != NULL && (size_t)(at - text) < first) {
            first = (size_t)(at - text);
            *ret_name = names[i];
        }
    }
    return first;
}

static enum status rank_prompt_fill(struct rank_prompt *p, const struct lm *m, struct text query,
                                    struct text document, struct error *err)
{
    const char *at = m->rank_text;
    size_t left = m->rank_text_len;
    enum status rc = STATUS_OK;

    while (rc == STATUS_OK && left > 0) {
        const char *name = NULL;
        size_t n = p->n_spans < 2 * PLACES_MAX ? find_text_place(at, left, &name) : left;

        rc = rank_prompt_put(p, at, n, true, err);
        if (rc == STATUS_OK && name != NULL) {
            const struct text given = name[1] == 'q' ? query : document;

            rc = rank_prompt_put(p, given.text, given.len, false, err);
            n += strlen(name);
        }
        at += n;
        left -= n;
    }
    return rc;
}

enum status lm_rank_render(const struct lm *m, struct text query, struct text document,
                           struct buf *ids, struct error *err)
{
    struct rank_prompt p = {.n_spans = 0};
    enum status rc;

    buf_init(&p.text, SIZE_MAX);
    rc = rank_prompt_fill(&p, m, query, document, err);
    if (rc == STATUS_OK)
        rc = vocab_encode_spans(m->vocab, p.text.data, p.text.len, p.spans, p.n_spans, true, ids,
                                err);
    buf_deinit(&p.text);
    return rc;
}
