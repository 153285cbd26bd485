/* Foreign text through vocabularies of all kinds, a foreign chat template, and a model's bytes
 * through the writer. The first byte picks which; the rest is the input. */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/chat/template.h"
#include "agents/lm/tokenizer/detokenizer.h"
#include "agents/lm/tokenizer/vocab.h"
#include "base/utf8.h"
#include "tests/fuzz/target.h"
#include "tests/support/tiny_spm.h"
#include "tests/support/tiny_vocab.h"
#include "tests/unit/compute/gguf/gguf_maker.h"

static const char *const kinds[] = {"gpt-2",   "smollm",      "llama-bpe",     "qwen2",
                                    "default", "falcon",      "qwen35",        "tekken",
                                    "gpt-4o",  "deepseek-v3", "deepseek-coder"};
/* A first byte below LATER picks one of N_MODES, SPM the vocabulary of characters, others
 * one of the kinds from N_FIRST on. */
enum {
    N_KINDS = sizeof(kinds) / sizeof(kinds[0]),
    N_FIRST = 4,
    TEMPLATE = N_FIRST,
    WRITER,
    N_MODES,
    LATER = 128,
    SPM = 255,
};

static const char *const merges[] = {
    "a a", "aa aa", "h e",           "l l",           "he ll",         "hell o", "\u0120 a",
    "1 2", "12 3",  "\u0120 \u0120", "\u010a \u010a", "\u00c3 \u00a9", "' s",    "\u00e2 \u0124",
};

static const struct tiny_spm_token spm_tokens[] = {
    {"\u2581", -9, 0}, {"a", -9, 0},       {"aa", -1, 0},
    {"aaaa", -2, 0},   {"\u2581a", -3, 0}, {"\u2581\u2581", -1, 0},
    {"\u00e9", -4, 0}, {"\u00e9a", -5, 0}, {"<tool>", 0, 4},
};

static struct vocab *spm_vocab(void)
{
    static struct vocab *v;

    if (v == NULL) {
        const struct tiny_spm_config config = {
            .tokens = spm_tokens, .n_tokens = sizeof(spm_tokens) / sizeof(spm_tokens[0])};
        struct tiny_vocab file;
        struct error err;
        enum status rc;

        tiny_spm_open(&file, &config);
        rc = vocab_open(&v, file.gguf, &err);
        assert(rc == STATUS_OK);
        tiny_vocab_close(&file);
    }
    return v;
}

/* Text that is UTF-8 comes back whole, but U+2581 as a space. */
static void fuzz_spm(const char *text, size_t len)
{
    struct buf ids, back;
    struct error err;
    enum status rc;
    size_t at = 0;

    if (memmem(text, len, "<tool>", 6) != NULL || len == 0)
        return; /* text behind it has a space more */
    buf_init(&ids, SIZE_MAX);
    buf_init(&back, SIZE_MAX);
    rc = vocab_encode(spm_vocab(), text, len, &ids, &err);
    assert(rc == (utf8_is_valid(text, len) ? STATUS_OK : STATUS_INVALID));
    if (rc == STATUS_OK) {
        rc = vocab_decode(spm_vocab(), (const int32_t *)(const void *)ids.data,
                          ids.len / sizeof(int32_t), &back, &err);
        assert(rc == STATUS_OK);
        for (size_t i = 0; i < back.len; i++, at++)
            if (at + 3 <= len && memcmp(text + at, "\u2581", 3) == 0 && back.data[i] == ' ')
                at += 2;
            else
                assert(at < len && back.data[i] == text[at]);
        assert(at == len);
    }
    buf_deinit(&ids);
    buf_deinit(&back);
}

/* Opened at the first use and kept, since vocabularies are immutable. */
static struct vocab *vocab_of(size_t kind)
{
    static struct vocab *vocabs[N_KINDS];

    if (vocabs[kind] == NULL) {
        const struct tiny_vocab_config config = {.pre = kinds[kind],
                                                 .merges = merges,
                                                 .n_merges = sizeof(merges) / sizeof(merges[0]),
                                                 .extra_token = "whole"};
        struct tiny_vocab file;
        struct error err;
        enum status rc;

        tiny_vocab_open(&file, &config);
        rc = vocab_open(&vocabs[kind], file.gguf, &err);
        assert(rc == STATUS_OK);
        tiny_vocab_close(&file);
    }
    return vocabs[kind];
}

/* Text that is UTF-8 has ids, and their bytes are the text. */
static void fuzz_text(const struct vocab *v, const char *text, size_t len)
{
    struct buf ids;
    struct error err;
    enum status rc;
    size_t at = 0;

    buf_init(&ids, SIZE_MAX);
    rc = vocab_encode(v, text, len, &ids, &err);
    assert(rc == (utf8_is_valid(text, len) ? STATUS_OK : STATUS_INVALID));
    for (size_t i = 0; i < ids.len / sizeof(int32_t); i++) {
        const char *bytes;
        size_t n;
        int32_t id;

        memcpy(&id, ids.data + i * sizeof(id), sizeof(id));
        rc = vocab_bytes(v, id, false, &bytes, &n, &err);
        assert(rc == STATUS_OK && n > 0 && n <= len - at);
        assert(memcmp(bytes, text + at, n) == 0);
        at += n;
    }
    assert(at == len || ids.len == 0);
    buf_deinit(&ids);
}

static void render(const struct chat_template *t)
{
    const struct message m = {.role = ROLE_USER, .text = " hi ", .len = 4};
    struct buf ids, text;
    struct error err;
    bool is_good;

    buf_init(&ids, SIZE_MAX);
    buf_init(&text, SIZE_MAX);
    is_good = chat_template_begin(t, NULL, 0, &ids, &text, &err) == STATUS_OK &&
              chat_template_message(t, &m, &ids, &text, &err) == STATUS_OK &&
              chat_template_reply_start(t, &ids, &text, &err) == STATUS_OK;
    /* a default system prompt of invalid UTF-8 is the only possible failure */
    assert(is_good || !utf8_is_valid(chat_template_default_system(t),
                                     strlen(chat_template_default_system(t))));
    assert(!is_good || strstr(text.data, "hi") != NULL);
    buf_deinit(&ids);
    buf_deinit(&text);
}

static void fuzz_template(const char *template)
{
    static struct gguf_maker maker;
    struct chat_template *t = NULL;
    struct gguf *g;
    struct error err;
    enum status rc;

    make_head(&maker, 3, 0, 1);
    make_key_text(&maker, "tokenizer.chat_template", template);
    make_padding(&maker, 32);
    if (gguf_open_bytes(&g, maker.bytes, maker.len, "fuzz", &err) != STATUS_OK)
        return;
    rc = chat_template_open(&t, g, vocab_of(0), &err);
    assert(rc == STATUS_OK || rc == STATUS_UNIMPLEMENTED);
    if (rc == STATUS_OK)
        render(t);
    chat_template_close(t);
    gguf_close(g);
}

/* The input is a stop text, a zero, another, a zero, and the reply's bytes: a token each, 0xF8 and
 * above standing for tokens of several bytes. What is shown is UTF-8 and grows. */
static void fuzz_writer(const char *input, size_t len)
{
    const char *const end = input + len;
    struct vocab *v = vocab_of(0);
    struct text stops[2];
    struct sampling s;
    struct detokenizer w;
    struct buf text;
    struct error err;
    bool is_stopped = false;
    enum status rc;

    sampling_init(&s);
    s.stops = stops;
    while (s.n_stops < 2) {
        const char *zero = memchr(input, 0, (size_t)(end - input));

        if (zero == NULL)
            break;
        stops[s.n_stops++] = (struct text){input, (size_t)(zero - input)};
        input = zero + 1;
        if (stops[s.n_stops - 1].len == 0)
            s.n_stops--;
    }
    buf_init(&text, SIZE_MAX);
    detokenizer_init(&w, v, &s, SIZE_MAX);
    for (; input < end && !is_stopped; input++) {
        uint8_t byte = (uint8_t)*input;
        int32_t id = byte >= 0xF8 ? TV_MERGED + byte - 0xF8 : TV_BYTE + byte;

        rc = detokenizer_add(&w, id, &text, &is_stopped, &err);
        assert(rc == STATUS_OK && (text.len == 0 || utf8_is_valid(text.data, text.len)));
    }
    rc = detokenizer_end(&w, &text, &err);
    assert(rc == STATUS_OK && (text.len == 0 || utf8_is_valid(text.data, text.len)));
    for (size_t i = 0; i < s.n_stops; i++) /* no stop text is ever shown */
        assert(text.len < stops[i].len || !utf8_is_valid(stops[i].text, stops[i].len) ||
               memmem(stops[i].text, stops[i].len, "\uFFFD", 3) != NULL ||
               memmem(text.data, text.len, stops[i].text, stops[i].len) == NULL);
    detokenizer_deinit(&w);
    buf_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    size_t mode = size_bytes == 0 ? 0 : data[0] % N_MODES;
    char *input;

    if (size_bytes == 0 || size_bytes > 1 << 15)
        return 0;
    input = malloc(size_bytes); /* of exactly this size, so that a sanitizer sees a read past it */
    assert(input != NULL);
    memcpy(input, data + 1, size_bytes - 1);
    input[size_bytes - 1] = '\0';
    if (data[0] == SPM)
        fuzz_spm(input, size_bytes - 1);
    else if (data[0] >= LATER)
        fuzz_text(vocab_of(N_FIRST + (data[0] - LATER) % (N_KINDS - N_FIRST)), input,
                  size_bytes - 1);
    else if (mode < N_FIRST)
        fuzz_text(vocab_of(mode), input, size_bytes - 1);
    else if (mode == TEMPLATE)
        fuzz_template(input);
    else
        fuzz_writer(input, size_bytes - 1);
    free(input);
    return 0;
}
