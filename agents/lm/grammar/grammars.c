/* A constraint that is asked for first is put into the table and compiled by a job in the
 * background; all who ask meanwhile wait for it. Done, it has a reference for each of them, and is
 * kept for later when the last is gone. One that fails leaves the table. */
#include "agents/lm/grammar/grammars.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/grammar/engine.h"
#include "agents/lm/grammar/grammars_parts.h"
#include "base/alloc.h"
#include "base/env.h"

enum { RETRY_MS = 1000 };

enum status grammars_open(struct grammars **out, const struct vocab *v, size_t n_tokens,
                          const struct agent_background *b, struct error *err)
{
    struct grammars *g = try_alloc(1, sizeof *g);

    if (g == NULL)
        return error_no_memory(err, sizeof *g, "grammars");
    g->vocab = v;
    g->n_tokens = n_tokens;
    g->background = b;
    hash_init(&g->all, &env_real);
    list_init(&g->kept);
    *out = g;
    return STATUS_OK;
}

static void grammar_free(struct grammar *g)
{
    struct grammars *owner = g->owner;

    hash_remove(&owner->all, &g->by_text);
    if (g->compiled != NULL)
        owner->module->compiled_close(g->compiled);
    free(g);
}

static void grammars_drop_oldest(struct grammars *g)
{
    struct grammar *oldest = container_of(list_pop(&g->kept), struct grammar, kept);

    g->n_kept--;
    g->n_kept_bytes -= oldest->n_bytes;
    grammar_free(oldest);
}

void grammars_close(struct grammars *g)
{
    if (g == NULL)
        return;
    while (!list_is_empty(&g->kept))
        grammars_drop_oldest(g);
    assert(g->all.n == 0 && g->n_compiling == 0);
    if (g->engine_vocab != NULL)
        g->module->vocab_close(g->engine_vocab);
    hash_deinit(&g->all);
    free(g);
}

void grammar_unref(struct grammar *g)
{
    struct grammars *owner;

    if (g == NULL || --g->n_refs > 0)
        return;
    owner = g->owner;
    list_push(&owner->kept, &g->kept);
    owner->n_kept++;
    owner->n_kept_bytes += g->n_bytes;
    while (owner->n_kept > GRAMMARS_MAX_KEPT || owner->n_kept_bytes > GRAMMARS_MAX_KEPT_BYTES)
        grammars_drop_oldest(owner);
}

static void grammar_ref(struct grammar *g)
{
    if (g->n_refs++ > 0)
        return;
    list_remove(&g->kept);
    g->owner->n_kept--;
    g->owner->n_kept_bytes -= g->n_bytes;
}

/* --- compiling --- */

static enum status grammars_open_vocab(struct grammars *g, struct error *err)
{
    const size_t n = g->n_tokens, n_named = vocab_n_tokens(g->vocab);
    const char **texts = try_alloc(n, sizeof *texts);
    size_t *lens = try_alloc(n, sizeof *lens), n_ends;
    const int32_t *ends = vocab_stop_tokens(g->vocab, &n_ends);
    char why[160] = "";
    enum status rc = STATUS_OK;

    if (texts == NULL || lens == NULL)
        rc = error_no_memory(err, n * sizeof *texts, "a grammar's vocabulary");
    for (size_t i = 0; rc == STATUS_OK && i < n; i++)
        if (i < n_named)
            rc = vocab_bytes(g->vocab, (int32_t)i, false, &texts[i], &lens[i], err);
        else
            texts[i] = "";
    if (rc == STATUS_OK) {
        g->engine_vocab = g->module->vocab_open(texts, lens, n, ends, n_ends, why, sizeof why);
        if (g->engine_vocab == NULL)
            rc = error_set(err, STATUS_INTERNAL, "the grammar module's vocabulary: %s", why);
    }
    free(texts);
    free(lens);
    return rc;
}

/* In the background. */
static void grammar_compile(struct job *job)
{
    struct grammar *g = container_of(job, struct grammar, job);
    struct grammars *owner = g->owner;
    const struct constraint *c = &g->constraint;
    char why[160] = "";
    bool no_memory;

    if (owner->engine_vocab == NULL && grammars_open_vocab(owner, &g->err) != STATUS_OK)
        return;
    g->compiled = owner->module->compile(owner->engine_vocab, (int)c->form, c->text, c->len,
                                         &no_memory, why, sizeof why);
    if (g->compiled == NULL)
        (void)error_because(&g->err, STATUS_INVALID, REASON_INVALID_FIELD, "constraint",
                            "the constraint cannot be compiled: %s", why);
    else
        g->n_bytes = owner->module->compiled_bytes(g->compiled);
}

static void on_compiled(struct job *job)
{
    struct grammar *g = container_of(job, struct grammar, job);
    struct error err = g->err;

    g->is_compiling = false;
    g->owner->n_compiling--;
    g->n_refs++; /* held while the callbacks run */
    while (!list_is_empty(&g->waiting)) {
        struct grammar_waiter *w = container_of(list_pop(&g->waiting), struct grammar_waiter, link);

        if (g->compiled != NULL)
            g->n_refs++;
        w->ready(w, g->compiled != NULL ? g : NULL, &err);
    }
    if (g->compiled != NULL)
        grammar_unref(g);
    else
        grammar_free(g);
}

static struct grammar *grammars_find(const struct grammars *g, const struct constraint *c,
                                     uint64_t hash)
{
    struct hash_node *at;

    for (at = hash_first(&g->all, hash); at != NULL; at = hash_next(at)) {
        struct grammar *one = container_of(at, struct grammar, by_text);

        if (one->constraint.form == c->form && one->constraint.len == c->len &&
            memcmp(one->constraint.text, c->text, c->len) == 0)
            return one;
    }
    return NULL;
}

static struct grammar *grammars_add(struct grammars *g, const struct constraint *c, uint64_t hash)
{
    struct grammar *one = try_alloc(1, sizeof *one + c->len + 1);
    char *text;

    if (one == NULL)
        return NULL;
    text = (char *)(one + 1);
    memcpy(text, c->text, c->len);
    one->constraint = (struct constraint){c->form, text, c->len};
    one->owner = g;
    one->is_compiling = true;
    one->job = (struct job){.run = grammar_compile, .done = on_compiled};
    list_init(&one->waiting);
    hash_add(&g->all, &one->by_text, hash);
    g->n_compiling++;
    return one;
}

static enum status grammars_begin(struct grammar **out, struct grammars *g,
                                  const struct constraint *c, uint64_t hash, struct error *err)
{
    struct grammar *one;
    enum status rc;

    if (g->n_compiling >= GRAMMARS_MAX_COMPILING) {
        (void)error_because(err, STATUS_EXHAUSTED, REASON_QUEUE_FULL, NULL,
                            "%d constraints are being compiled", GRAMMARS_MAX_COMPILING);
        err->retry_after_ms = RETRY_MS;
        return STATUS_EXHAUSTED;
    }
    one = grammars_add(g, c, hash);
    if (one == NULL)
        return error_no_memory(err, c->len, "a grammar");
    if (g->background == NULL) {
        *out = one;
        return STATUS_OK;
    }
    rc = g->background->submit(g->background->self, &one->job, err);
    if (rc != STATUS_OK) {
        g->n_compiling--;
        grammar_free(one);
        return rc;
    }
    *out = one;
    return STATUS_OK;
}

/* Without a thread in the background. */
static enum status grammar_compile_here(struct grammar *g, struct error *err)
{
    grammar_compile(&g->job);
    g->is_compiling = false;
    g->owner->n_compiling--;
    if (g->compiled != NULL) {
        g->n_refs = 1;
        return STATUS_OK;
    }
    *err = g->err;
    grammar_free(g);
    return err->status;
}

enum status grammars_get(struct grammar **out, struct grammars *g, const struct constraint *c,
                         struct grammar_waiter *w, struct error *err)
{
    const uint64_t hash = hash_bytes(&g->all, (uint64_t)c->form, c->text, c->len);
    struct grammar *found;
    enum status rc = STATUS_OK;

    if (g->module == NULL)
        rc = engine_load(&g->module, err);
    if (rc != STATUS_OK)
        return rc;
    found = grammars_find(g, c, hash);
    if (found == NULL) {
        rc = grammars_begin(&found, g, c, hash, err);
        if (rc == STATUS_OK && g->background == NULL) {
            rc = grammar_compile_here(found, err);
            *out = rc == STATUS_OK ? found : NULL;
            return rc;
        }
        if (rc != STATUS_OK)
            return rc;
    }
    if (found->is_compiling) {
        list_push(&found->waiting, &w->link);
        *out = NULL;
        return STATUS_OK;
    }
    grammar_ref(found);
    *out = found;
    return STATUS_OK;
}

void grammars_forget(struct grammar_waiter *w)
{
    if (link_is_on(&w->link))
        list_remove(&w->link);
}
