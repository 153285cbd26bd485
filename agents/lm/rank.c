/* Models that judge how well a document fits a query: the state of the prompt's last token goes
 * through a head of one score, or of the rows of "yes" and "no" (Qwen3-Reranker). A prompt has the
 * two texts in the places {query} and {document} of another one: the file's template "rerank", or
 * what its chat template makes of messages of these two roles, or Qwen3-Reranker's where the head
 * is one of "yes". For other heads it is the query and then the document. */
#include <string.h>

#include "agents/lm/lm.h"
#include "compute/encoder/head.h"

enum { FILE_RANKS = 4, PLACES_MAX = 4, SPANS_MAX_BYTES = 1 << 20, YES_AND_NO = 2 };

static const char usual_text[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
    "answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n";

static const char query_place[] = "{query}", document_place[] = "{document}";

/* Whether a text has the name between quotation marks. */
static bool has_quoted(const char *text, size_t len, const char *name)
{
    const size_t n = strlen(name);

    for (const char *at = text; (at = memmem(at, len - (size_t)(at - text), name, n)) != NULL; at++)
        if (at > text && at + n < text + len && (at[-1] == '\'' || at[-1] == '"') &&
            at[n] == at[-1])
            return true;
    return false;
}

/* The prompt of a chat template that names the roles of sentence-transformers' pairs. NOT_FOUND: it
 * does not. */
static enum status rank_read_chat_template(struct lm *m, const char *text, size_t len,
                                           struct error *err)
{
    struct chat_prompter *p;
    bool has_opening = false;
    enum status rc;

    if (text == NULL || !has_quoted(text, len, "query") || !has_quoted(text, len, "document"))
        return STATUS_NOT_FOUND;
    rc = gguf_get_bool(m->gguf, "parley.rank.add_generation_prompt", &has_opening, err);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    rc = chat_prompter_open(&p, text, len, m->vocab, err);
    if (rc != STATUS_OK)
        return rc;
    rc = chat_prompter_render_pair(p, query_place, document_place, has_opening, &m->rank_prompt,
                                   err);
    chat_prompter_close(p);
    if (rc != STATUS_OK)
        return error_prefix(err, "%s: its chat template", gguf_path(m->gguf));
    m->rank_text = m->rank_prompt.data;
    m->rank_text_len = m->rank_prompt.len;
    return STATUS_OK;
}

/* Whether the first score is that of "yes": the file says so, or there are two. */
static enum status rank_find_yes(bool *out, const struct lm *m, struct error *err)
{
    static const char yes[] = "yes";
    char key[ARCH_KEY_MAX];
    const char *label = NULL;
    size_t n = 0, len = 0;
    enum status rc = gguf_array_len(
        m->gguf, arch_key(key, transformer_shape(m->transformer)->arch, "classifier.output_labels"),
        &n, err);

    if (rc == STATUS_OK && n > 0)
        rc = gguf_array_text(m->gguf, key, 0, &label, &len, err);
    *out = head_n_out(m->rank) == YES_AND_NO ||
           (label != NULL && len == sizeof(yes) - 1 && memcmp(label, yes, len) == 0);
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

static enum status rank_read_pad(struct lm *m, struct error *err)
{
    uint64_t pad = UINT64_MAX;
    enum status rc = gguf_get_u64(m->gguf, "parley.rank.pad_token_id", &pad, err);

    m->rank_pad = pad <= INT32_MAX ? (int32_t)pad : -1;
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

/* A template that the options name is before what the file has. */
static enum status rank_read_text(struct lm *m, struct error *err)
{
    const char *own = NULL;
    size_t len = 0;
    bool is_yes = false;
    enum status rc = rank_read_chat_template(m, m->named_template.data, m->named_template.len, err);

    if (rc == STATUS_NOT_FOUND)
        rc = gguf_get_text(m->gguf, "tokenizer.chat_template.rerank", &m->rank_text,
                           &m->rank_text_len, err);
    if (rc == STATUS_NOT_FOUND &&
        (rc = gguf_get_text(m->gguf, "tokenizer.chat_template", &own, &len, err)) == STATUS_OK)
        rc = rank_read_chat_template(m, own, len, err);
    if (rc != STATUS_NOT_FOUND)
        return rc;
    rc = rank_find_yes(&is_yes, m, err);
    if (rc == STATUS_OK && is_yes) {
        m->rank_text = usual_text;
        m->rank_text_len = sizeof(usual_text) - 1;
        rc = gguf_get_bool(m->gguf, "parley.rank.is_label_prompt", &m->is_label_prompt, err);
    }
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

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
    if (rc != STATUS_OK || m->rank == NULL)
        return rc;
    rc = rank_read_pad(m, err);
    return rc == STATUS_OK ? rank_read_text(m, err) : rc;
}

struct rank_prompt {
    struct buf text, spans; /* spans: struct text_span */
};

/* Appends text as a span of its own. */
static enum status rank_prompt_put(struct rank_prompt *p, const char *text, size_t len,
                                   bool is_trusted, struct error *err)
{
    struct text_span span = {p->text.len + len, is_trusted};

    if (len > 0 && (buf_append(&p->text, text, len) != STATUS_OK ||
                    buf_append(&p->spans, &span, sizeof(span)) != STATUS_OK))
        return error_no_memory(err, len, "a prompt");
    return STATUS_OK;
}

/* Appends text of the template. Only its special tokens are trusted: its words merge with those of
 * the query and the document, as they do where all is one string. */
static enum status rank_prompt_put_own(struct rank_prompt *p, const struct lm *m, const char *text,
                                       size_t len, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t done = 0; rc == STATUS_OK && done < len;) {
        size_t end, at = vocab_find_special(m->vocab, text, len, done, &end);

        rc = rank_prompt_put(p, text + done, at - done, false, err);
        if (rc == STATUS_OK)
            rc = rank_prompt_put(p, text + at, end - at, true, err);
        done = end;
    }
    return rc;
}

/* The next place of text; len: there is none. */
static size_t find_text_place(const char *text, size_t len, const char **ret_name)
{
    static const char *const names[] = {query_place, document_place};
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

    for (int n_places = 0; rc == STATUS_OK && left > 0; n_places++) {
        const char *name = NULL;
        size_t n = n_places < PLACES_MAX ? find_text_place(at, left, &name) : left;

        rc = rank_prompt_put_own(p, m, at, n, err);
        if (rc == STATUS_OK && name != NULL) {
            const struct text given = name == query_place ? query : document;

            rc = rank_prompt_put(p, given.text, given.len, false, err);
            n += strlen(name);
        }
        at += n;
        left -= n;
    }
    return rc;
}

static enum status rank_render_prompt(const struct lm *m, struct text query, struct text document,
                                      struct buf *ids, struct error *err)
{
    struct rank_prompt p;
    enum status rc;

    buf_init(&p.text, SIZE_MAX);
    buf_init(&p.spans, SPANS_MAX_BYTES);
    rc = rank_prompt_fill(&p, m, query, document, err);
    if (rc == STATUS_OK)
        rc = vocab_encode_spans(m->vocab, p.text.data, p.text.len,
                                (const struct text_span *)(const void *)p.spans.data,
                                p.spans.len / sizeof(struct text_span), true, ids, err);
    buf_deinit(&p.text);
    buf_deinit(&p.spans);
    return rc;
}

/* A text with what the tokenizer puts around it. */
static enum status rank_append(const struct lm *m, struct text text, struct buf *ids,
                               struct error *err)
{
    const int32_t bos = vocab_bos(m->vocab), eos = vocab_eos(m->vocab);
    enum status rc = lm_append_ids(m, &bos, vocab_adds_bos(m->vocab) && bos >= 0, ids, err);

    if (rc == STATUS_OK)
        rc = vocab_encode(m->vocab, text.text, text.len, ids, err);
    return rc == STATUS_OK ? lm_append_ids(m, &eos, vocab_adds_eos(m->vocab) && eos >= 0, ids, err)
                           : rc;
}

/* Leaves out what pads the ids behind `before`, but for one. */
static void rank_trim(const struct lm *m, struct buf *ids, size_t before)
{
    const size_t n = sizeof(m->rank_pad);

    while (m->rank_pad >= 0 && ids->len - before > n &&
           memcmp(ids->data + ids->len - n, &m->rank_pad, n) == 0)
        ids->len -= n;
}

enum status lm_rank_render(const struct lm *m, struct text query, struct text document,
                           struct buf *ids, struct error *err)
{
    const size_t before = ids->len;
    enum status rc = m->rank_text != NULL ? rank_render_prompt(m, query, document, ids, err)
                                          : rank_append(m, query, ids, err);

    if (rc == STATUS_OK && m->rank_text == NULL)
        rc = rank_append(m, document, ids, err);
    if (rc == STATUS_OK)
        rank_trim(m, ids, before);
    return rc == STATUS_OK && ids->len == before
               ? error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, "prompt",
                               "the query and the document are empty")
               : rc;
}
