/* Vocabulary, template, sampler and writer when memory runs out. */
#include <string.h>

#include "agents/lm/chat/template.h"
#include "agents/lm/sampling/logits.h"
#include "agents/lm/sampling/sampler.h"
#include "agents/lm/tokenizer/detokenizer.h"
#include "agents/lm/tokenizer/vocab.h"
#include "tests/fault/sweep.h"
#include "tests/support/tiny_vocab.h"
#include "tests/unit/base/suite.h"

static const char *const merges[] = {"h e", "l l", "he ll", "hell o"};
static const char template[] =
    "{{ bos_token }}{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
static const struct tiny_vocab_config config = {
    .pre = "smollm", .merges = merges, .n_merges = 4, .chat_template = template};

/* A valid vocabulary and template, for the tests that use them. */
struct opened {
    struct tiny_vocab file;
    struct vocab *v;
    struct chat_template *t;
};

static void open_all(struct opened *o)
{
    struct error err;

    tiny_vocab_open(&o->file, &config);
    ck_assert_int_eq(vocab_open(&o->v, o->file.gguf, &err), STATUS_OK);
    ck_assert_int_eq(chat_template_open(&o->t, o->file.gguf, o->v, &err), STATUS_OK);
}

static void close_all(struct opened *o)
{
    chat_template_close(o->t);
    vocab_close(o->v);
    tiny_vocab_close(&o->file);
}

static enum status open_once(void *arg)
{
    struct tiny_vocab *file = arg;
    struct chat_template *t = NULL;
    struct vocab *v = NULL;
    struct error err;
    enum status rc = vocab_open(&v, file->gguf, &err);

    if (rc == STATUS_OK)
        rc = chat_template_open(&t, file->gguf, v, &err);
    ck_assert(rc == STATUS_OK || (err.status == rc && err.text[0] != '\0'));
    chat_template_close(t);
    vocab_close(v);
    return rc;
}

/* Opening a vocabulary and a template. */
START_TEST(opening)
{
    struct tiny_vocab file;

    tiny_vocab_open(&file, &config);
    ck_assert_int_gt(sweep(open_once, &file), 10);
    tiny_vocab_close(&file);
}
END_TEST

static enum status render_once(void *arg)
{
    const struct opened *o = arg;
    const struct message m = {.role = ROLE_USER, .text = "hello 12345 hello", .len = 17};
    struct buf ids, text;
    struct error err;
    enum status rc;
    size_t n_ids, n_text;

    buf_init(&ids, SIZE_MAX);
    buf_init(&text, SIZE_MAX);
    rc = chat_template_begin(o->t, NULL, 0, &ids, &text, &err);
    n_ids = ids.len;
    n_text = text.len;
    ck_assert(rc == STATUS_OK || (n_ids == 0 && n_text == 0));
    if (rc == STATUS_OK)
        rc = chat_template_message(o->t, &m, &ids, &text, &err);
    ck_assert(rc == STATUS_OK || (ids.len == n_ids && text.len == n_text));
    if (rc == STATUS_OK)
        rc = chat_template_reply_start(o->t, &ids, &text, &err);
    if (rc == STATUS_OK)
        rc = chat_template_reply_end(o->t, 5, &ids, &text, &err);
    buf_deinit(&ids);
    buf_deinit(&text);
    return rc;
}

/* Encoding and rendering: a part that fails appends nothing. */
START_TEST(rendering)
{
    struct opened o;

    open_all(&o);
    ck_assert_int_gt(sweep(render_once, &o), 10);
    close_all(&o);
}
END_TEST

static enum status reply_once(void *arg)
{
    const struct opened *o = arg;
    static const int32_t context[100] = {4, 5, 6};
    const struct text stop = {"zz", 2};
    float logits[64] = {0};
    struct arena arena;
    struct sampling s;
    struct sampler *sampler;
    struct sampled sampled;
    struct detokenizer w;
    struct buf text;
    struct error err;
    bool is_stopped;
    enum status rc;

    sampling_init(&s);
    s.temperature = 1;
    s.top_k = 30;
    s.repetition_penalty = 1.1f;
    s.want_logprobs = true;
    s.stops = &stop;
    s.n_stops = 1;
    arena_init(&arena, 1 << 20);
    buf_init(&text, SIZE_MAX);
    detokenizer_init(&w, o->v, &s, SIZE_MAX);
    rc = sampler_open(&sampler, &s, o->v, logit_kernels_choose(), 1, context, 100, &arena, &err);
    for (uint32_t i = 0; i < 100 && rc == STATUS_OK; i++) {
        memset(logits, 0, sizeof(logits));
        rc = sampler_next(sampler, logits, 64, i, &sampled, &err);
        if (rc == STATUS_OK) {
            sampler_accept(sampler, sampled.id);
            rc = detokenizer_add(&w, TV_BYTE + 'z' - (int32_t)(i % 2), &text, &is_stopped, &err);
        }
    }
    if (rc == STATUS_OK)
        rc = detokenizer_end(&w, &text, &err);
    detokenizer_deinit(&w);
    buf_deinit(&text);
    arena_deinit(&arena);
    return rc;
}

/* Sampling and writing a reply. */
START_TEST(replying)
{
    struct opened o;

    open_all(&o);
    ck_assert_int_gt(sweep(reply_once, &o), 3);
    close_all(&o);
}
END_TEST

SUITE_MAIN("fault/lm_text", opening, rendering, replying)
