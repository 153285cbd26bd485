#include "agents/lm/tokenizer/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <pcre2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/tokenizer/families.h"
#include "base/alloc.h"

typedef int (*pcre2_match_fn)(const pcre2_code *code, PCRE2_SPTR text, PCRE2_SIZE len,
                              PCRE2_SIZE from, uint32_t options, pcre2_match_data *found,
                              pcre2_match_context *limits);

struct pretokenizer {
    const struct split_family *family;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_code *codes[FAMILY_STAGES_MAX]; /* [n_stages] */
    size_t n_stages;
    pcre2_match_fn match;
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
    return try_alloc(1, size_bytes);
}

static void give_memory(void *memory, void *arg)
{
    free(memory);
}

static enum status compile(struct pretokenizer *p, const char *pattern, struct error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(p->memory);
    pcre2_code *code;
    PCRE2_SIZE at;
    int what;

    if (context == NULL)
        return error_no_memory(err, 0, "a pattern");
    code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &what,
                         &at, context);
    pcre2_compile_context_free(context);
    if (code == NULL) {
        assert(what == PCRE2_ERROR_HEAP_FAILED); /* our patterns are valid */
        return error_no_memory(err, 0, "a pattern");
    }
    p->codes[p->n_stages++] = code;
    /* Without JIT pcre2_match interprets the pattern: slower, but the same pieces. */
    if (pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) != 0)
        p->match = pcre2_match;
    return STATUS_OK;
}

/* UNIMPLEMENTED, with the first name of each family. */
static enum status refuse_name(const char *name, size_t len, struct error *err)
{
    char known[256] = "";
    size_t n = 0;

    for (size_t i = 0; family_name(i) != NULL; i++) {
        int n_more =
            snprintf(known + n, sizeof(known) - n, "%s%s", i == 0 ? "" : ", ", family_name(i));

        assert(n_more > 0 && (size_t)n_more < sizeof(known) - n);
        n += (size_t)n_more;
    }
    return error_set(err, STATUS_UNIMPLEMENTED, "pre-tokenizer '%.*s' is unknown; known: %s",
                     (int)(len < 64 ? len : 64), name, known);
}

enum status pretokenizer_open(struct pretokenizer **out, const char *name, size_t name_len,
                              struct error *err)
{
    const struct split_family *family = family_find(name, name_len);
    struct pretokenizer *p;
    enum status rc;

    if (family == NULL)
        return refuse_name(name, name_len, err);
    p = try_alloc(1, sizeof(*p));
    if (p == NULL)
        return error_no_memory(err, sizeof(*p), "a pre-tokenizer");
    p->family = family;
    p->match = pcre2_jit_match;
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
    for (size_t i = 0; i < FAMILY_STAGES_MAX && family->patterns[i] != NULL && rc == STATUS_OK; i++)
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

/* The next match of the stage's pattern in text; *ret_from is len if there is none. */
static enum status char_run_search(const struct char_run *r, size_t stage, const char *text,
                                   size_t len, size_t *ret_from, size_t *ret_end)
{
    /* The subject begins where the last match ended, so that text is read once. A UTF-8 check
     * would read all the rest each time. */
    int n = r->p->match(r->p->codes[stage], (PCRE2_SPTR)text, len, 0, PCRE2_NO_UTF_CHECK, r->found,
                        r->p->limits);

    if (n == PCRE2_ERROR_NOMATCH) {
        *ret_from = *ret_end = len;
        return STATUS_OK;
    }
    if (n < 0)
        return error_set(r->err, n == PCRE2_ERROR_NOMEMORY ? STATUS_EXHAUSTED : STATUS_INTERNAL,
                         "splitting text into words failed (%d)", n);
    *ret_from = pcre2_get_ovector_pointer(r->found)[0];
    *ret_end = pcre2_get_ovector_pointer(r->found)[1];
    assert(*ret_from < *ret_end && *ret_end <= len);
    return STATUS_OK;
}

static enum status char_run_cut(const struct char_run *r, size_t stage, const char *text,
                                size_t len)
{
    if (stage == r->p->n_stages)
        return r->each(r->arg, text, len);
    assert(stage < FAMILY_STAGES_MAX);
    while (len > 0) {
        size_t from = 0, end = 0;
        enum status rc = char_run_search(r, stage, text, len, &from, &end);

        if (rc == STATUS_OK && from > 0)
            rc = char_run_cut(r, stage + 1, text, from);
        if (rc == STATUS_OK && end > from)
            rc = char_run_cut(r, stage + 1, text + from, end - from);
        if (rc != STATUS_OK)
            return rc;
        text += end;
        len -= end;
    }
    return STATUS_OK;
}

enum status pretokenizer_run(const struct pretokenizer *p, const char *text, size_t len,
                             pretokenizer_piece_fn each, void *arg, struct error *err)
{
    struct char_run r = {.p = p, .each = each, .arg = arg, .err = err};
    enum status rc;

    r.found = pcre2_match_data_create(1, p->memory);
    if (r.found == NULL)
        return error_no_memory(err, 0, "splitting text into words");
    rc = char_run_cut(&r, 0, text, len);
    pcre2_match_data_free(r.found);
    return rc;
}
