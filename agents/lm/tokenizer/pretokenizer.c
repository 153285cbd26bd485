#include "agents/lm/tokenizer/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Each pattern matches at every position of any text, so matching is anchored: text that the
 * originals leave between two matches is a piece as well, and a last alternative matches it here.
 * White space is Unicode's White_Space property, spelled out because PCRE2's \s also takes U+180E.
 */
#define SPACE                                                                       \
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
#define SPACES \
    "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+" /* a run leaves its last space to a word */
#define OTHERS " ?[^" SPACE "\\p{L}\\p{N}]+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" OTHERS "|" SPACES
#define GPT4(digits)                                                                              \
    "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "|" OTHERS "[\\r\\n]*|[" SPACE "]*[\\r\\n]+|" SPACES

enum { STAGES_MAX = 2 };

struct split_family {
    const char *name;
    const char *patterns[STAGES_MAX]; /* each splits the pieces of the one before */
    bool prefers_whole, adds_bos;
};

static const struct split_family families[] = {
    {"gpt-2", {GPT2}, false, false},
    {"gpt2", {GPT2}, false, false},
    {"smollm", {"\\p{N}|\\P{N}+", GPT2}, false, false},
    {"llama-bpe", {GPT4("\\p{N}{1,3}")}, true, true},
    {"qwen2", {GPT4("\\p{N}")}, false, false},
};

struct pretokenizer {
    const struct split_family *family;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_code *codes[STAGES_MAX]; /* [n_stages] */
    size_t n_stages;
};

struct char_run {
    const struct pretokenizer *p;
    pcre2_match_data *found;
    pretokenizer_piece_fn each;
    void *arg;
    struct error *err;
};

static void *take_memory(size_t size_bytes, void *arg)
{
    (void)arg;
    return try_alloc(1, size_bytes);
}

static void give_memory(void *memory, void *arg)
{
    (void)arg;
    free(memory);
}

static const struct split_family *find_family(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strlen(families[i].name) == len && memcmp(families[i].name, name, len) == 0)
            return &families[i];
    return NULL;
}

static enum status compile(struct pretokenizer *p, const char *pattern, struct error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(p->memory);
    pcre2_code *code;
    PCRE2_SIZE at;
    int what;

    if (context == NULL)
        return error_no_memory(err, 0, "a pattern");
    code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &what, &at, context);
    pcre2_compile_context_free(context);
    if (code == NULL) {
        assert(what == PCRE2_ERROR_HEAP_FAILED); /* our patterns are valid */
        return error_no_memory(err, 0, "a pattern");
    }
    p->codes[p->n_stages++] = code;
    /* Without JIT pcre2_match interprets the pattern: slower, but the same pieces. */
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    return STATUS_OK;
}

enum status pretokenizer_open(struct pretokenizer **out, const char *name, size_t name_len,
                              struct error *err)
{
    const struct split_family *family = find_family(name, name_len);
    struct pretokenizer *p;
    enum status rc;

    if (family == NULL)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "pre-tokenizer '%.*s' is unknown; known: gpt-2, smollm, llama-bpe, qwen2",
                         (int)(name_len < 64 ? name_len : 64), name);
    p = try_alloc(1, sizeof *p);
    if (p == NULL)
        return error_no_memory(err, sizeof *p, "a pre-tokenizer");
    p->family = family;
    p->memory = pcre2_general_context_create(take_memory, give_memory, NULL);
    p->limits = p->memory == NULL ? NULL : pcre2_match_context_create(p->memory);
    if (p->limits == NULL) {
        rc = error_no_memory(err, 0, "a pre-tokenizer");
        goto out;
    }
    /* The patterns backtrack over at most one run, so matching is linear and needs no match limit,
     * which would only refuse long runs. */
    (void)pcre2_set_match_limit(p->limits, UINT32_MAX);
    (void)pcre2_set_depth_limit(p->limits, UINT32_MAX);
    rc = STATUS_OK;
    for (size_t i = 0; i < STAGES_MAX && family->patterns[i] != NULL && rc == STATUS_OK; i++)
        rc = compile(p, family->patterns[i], err);
    if (rc != STATUS_OK)
        goto out;
    *out = p;
    p = NULL; /* owned by the caller */
out:
    pretokenizer_close(p);
    return rc;
}

void pretokenizer_close(struct pretokenizer *p)
{
    if (p == NULL)
        return;
    for (size_t i = 0; i < p->n_stages; i++)
        pcre2_code_free(p->codes[i]);
    pcre2_match_context_free(p->limits);
    pcre2_general_context_free(p->memory);
    free(p);
}

bool pretokenizer_prefers_whole(const struct pretokenizer *p)
{
    return p->family->prefers_whole;
}

bool pretokenizer_adds_bos(const struct pretokenizer *p)
{
    return p->family->adds_bos;
}

static enum status char_run_cut(const struct char_run *r, size_t stage, const char *text,
                                size_t len)
{
    enum status rc = STATUS_OK;

    if (stage == r->p->n_stages)
        return r->each(r->arg, text, len);
    assert(stage < STAGES_MAX);
    while (len > 0 && rc == STATUS_OK) {
        /* The subject begins at the piece, so that text is read once. A UTF-8 check would read all
         * the rest each time. */
        int n = pcre2_match(r->p->codes[stage], (PCRE2_SPTR)text, len, 0, PCRE2_NO_UTF_CHECK,
                            r->found, r->p->limits);
        size_t n_bytes;

        if (n < 0)
            return error_set(r->err, n == PCRE2_ERROR_NOMEMORY ? STATUS_EXHAUSTED : STATUS_INTERNAL,
                             "cutting text into words failed (%d)", n);
        n_bytes = pcre2_get_ovector_pointer(r->found)[1];
        assert(n_bytes > 0 && n_bytes <= len);
        rc = char_run_cut(r, stage + 1, text, n_bytes);
        text += n_bytes;
        len -= n_bytes;
    }
    return rc;
}

enum status pretokenizer_run(const struct pretokenizer *p, const char *text, size_t len,
                             pretokenizer_piece_fn each, void *arg, struct error *err)
{
    struct char_run r = {.p = p, .each = each, .arg = arg, .err = err};
    enum status rc;

    r.found = pcre2_match_data_create(1, p->memory);
    if (r.found == NULL)
        return error_no_memory(err, 0, "cutting text into words");
    rc = char_run_cut(&r, 0, text, len);
    pcre2_match_data_free(r.found);
    return rc;
}
