/* A constraint that is asked for first is put into the table; all who ask meanwhile wait for it. A
 * job in the background makes the vocabulary, once; the compiler compiles, in a process of its own;
 * a job makes the constraint of the bytes that come back. Done, it has a reference for each who
 * waits, and is kept for later when the last is gone. One that fails leaves the table. One for
 * which nobody waits any more is cancelled; a job of some milliseconds is let finish. */
#include "agents/lm/grammar/grammars.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/lm/grammar/engine.h"
#include "agents/lm/grammar/grammars_parts.h"
#include "agents/lm/grammar/vocab_file.h"
#include "base/alloc.h"
#include "base/env.h"
#include "base/shared_limit.h"

static const struct limit_kind kind_of_constraint_bytes = {
    "bytes of constraints of running replies", NULL, NULL};
static const struct limit_kind kind_of_compiling = {"constraints that are compiled", NULL, NULL};

enum { RETRY_MS = 1000 };

enum status grammars_open(struct grammars **out, const struct vocab *v, size_t n_tokens,
                          const struct agent_background *b, const struct agent_compiler *c,
                          struct error *err)
{
    struct grammars *g = try_alloc(1, sizeof(*g));

    if (g == NULL)
        return error_no_memory(err, sizeof(*g), "grammars");
    g->vocab = v;
    g->n_tokens = n_tokens;
    g->background = b;
    g->compiler = c;
    g->vocab_fd = -1;
    hash_init(&g->all, &env_real);
    list_init(&g->kept);
    *out = g;
    return STATUS_OK;
}

static void grammar_free(struct grammar *g)
{
    struct grammars *owner = g->owner;

    hash_remove(&owner->all, &g->by_text);
    if (g->state == GRAMMAR_READY)
        owner->n_bytes -= g->n_bytes;
    else
        owner->n_compiling--;
    if (g->compiled != NULL)
        owner->module->compiled_close(g->compiled);
    free(g->bytes);
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
    assert(g->all.n == 0 && g->n_compiling == 0 && g->n_bytes == 0);
    if (g->compiler != NULL)
        g->compiler->forget(g->compiler->self);
    if (g->engine_vocab != NULL)
        g->module->vocab_close(g->engine_vocab);
    if (g->vocab_fd >= 0)
        (void)close(g->vocab_fd); /* of memory */
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
    const char **texts = try_alloc(n, sizeof(*texts));
    size_t *lens = try_alloc(n, sizeof(*lens)), n_ends;
    const int32_t *ends = vocab_stop_tokens(g->vocab, &n_ends);
    char why[160] = "";
    enum status rc = STATUS_OK;

    if (texts == NULL || lens == NULL)
        rc = error_no_memory(err, n * sizeof(*texts), "a grammar's vocabulary");
    for (size_t i = 0; rc == STATUS_OK && i < n; i++)
        if (i < n_named)
            rc = vocab_bytes(g->vocab, (int32_t)i, false, &texts[i], &lens[i], err);
        else
            texts[i] = "";
    if (rc == STATUS_OK && g->compiler != NULL && g->vocab_fd < 0)
        rc = vocab_file_make(&g->vocab_fd, texts, lens, n, ends, n_ends, err);
    if (rc == STATUS_OK) {
        g->engine_vocab = g->module->vocab_open(texts, lens, n, ends, n_ends, why, sizeof(why));
        if (g->engine_vocab == NULL)
            rc = error_set(err, STATUS_INTERNAL, "the grammar module's vocabulary: %s", why);
    }
    free(texts);
    free(lens);
    return rc;
}

/* Looks how each text must begin: that may take some milliseconds, which no turn's start should. */
static void grammar_look(struct grammar *g)
{
    const struct grammar_module *module = g->owner->module;
    void *matcher = module->matcher_open(g->compiled, &g->is_spent);

    if (matcher == NULL && !g->is_spent) {
        module->compiled_close(g->compiled);
        g->compiled = NULL;
        (void)error_no_memory(&g->err, sizeof(*g), "a constraint's state");
    }
    if (matcher == NULL)
        return;
    g->n_forced = module->matcher_forced(matcher, g->forced, sizeof(g->forced));
    g->is_spent = module->matcher_is_spent(matcher);
    module->matcher_close(matcher);
}

/* In the background, as the other jobs are. In this process. */
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
                                         &no_memory, why, sizeof(why));
    if (g->compiled != NULL)
        grammar_look(g);
    else
        (void)error_because(&g->err, STATUS_INVALID, REASON_INVALID_FIELD, "constraint",
                            "the constraint cannot be compiled: %s", why);
}

static void grammar_open_vocab(struct job *job)
{
    struct grammar *g = container_of(job, struct grammar, job);

    if (g->owner->engine_vocab == NULL)
        (void)!grammars_open_vocab(g->owner, &g->err); /* seen when the job is done */
}

static void grammar_load(struct job *job)
{
    struct grammar *g = container_of(job, struct grammar, job);
    char why[160] = "";

    g->compiled = g->owner->module->compiled_load(g->owner->engine_vocab, g->bytes, g->n_bytes, why,
                                                  sizeof(why));
    if (g->compiled != NULL)
        grammar_look(g);
    else
        (void)error_set(&g->err, STATUS_UNAVAILABLE,
                        "the program that compiles constraints gave a wrong answer: %s", why);
}

/* What turns of the tenant use, or of all. */
static size_t grammars_used_bytes(const struct grammars *g, const struct tenant *tenant)
{
    size_t n_bytes = 0;

    for (const struct hash_node *at = hash_each(&g->all, NULL); at != NULL;
         at = hash_each(&g->all, at)) {
        const struct grammar *one = container_of(at, struct grammar, by_text);

        if (one->state == GRAMMAR_READY && one->n_refs > 0 &&
            (tenant == NULL || one->tenant == tenant))
            n_bytes += one->n_bytes;
    }
    return n_bytes;
}

/* A constraint has been compiled: there may be no room for it. */
static enum status grammar_check_room(struct grammar *g, struct error *err)
{
    struct grammars *owner = g->owner;
    const size_t limit = GRAMMARS_MAX_BYTES / (g->tenant != NULL ? 2 : 1);

    while (owner->n_bytes + g->n_bytes > GRAMMARS_MAX_BYTES && !list_is_empty(&owner->kept))
        grammars_drop_oldest(owner);
    if (owner->n_bytes + g->n_bytes <= GRAMMARS_MAX_BYTES &&
        grammars_used_bytes(owner, g->tenant) + g->n_bytes <= limit)
        return STATUS_OK;
    (void)error_because(
        err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
        "%sthe limit of %d %s (built in) is reached",
        owner->n_bytes + g->n_bytes <= GRAMMARS_MAX_BYTES ? "the principal's half of " : "",
        GRAMMARS_MAX_BYTES, kind_of_constraint_bytes.noun);
    err->retry_after_ms = RETRY_MS;
    return STATUS_EXHAUSTED;
}

/* Calls all waiters of g. A compiled g then has a reference for each; one that failed is freed. */
static void grammar_settle(struct grammar *g)
{
    struct error err = g->err;

    if (g->compiled != NULL) {
        g->n_bytes = g->owner->module->compiled_bytes(g->compiled);
        if (grammar_check_room(g, &err) != STATUS_OK) {
            g->owner->module->compiled_close(g->compiled);
            g->compiled = NULL;
        }
    }
    if (g->compiled != NULL) {
        g->state = GRAMMAR_READY;
        g->owner->n_compiling--;
        g->owner->n_bytes += g->n_bytes;
    }
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

static void on_compiled(struct job *job)
{
    grammar_settle(container_of(job, struct grammar, job));
}

static void on_loaded(struct job *job)
{
    struct grammar *g = container_of(job, struct grammar, job);

    free(g->bytes);
    g->bytes = NULL;
    grammar_settle(g);
}

static enum status grammar_submit(struct grammar *g, struct error *err)
{
    const struct agent_compiler *c = g->owner->compiler;
    enum status rc;

    g->compile.vocab_fd = g->owner->vocab_fd;
    rc = c->submit(c->self, &g->compile, err);
    if (rc == STATUS_OK)
        g->state = GRAMMAR_COMPILING;
    return rc;
}

static void on_vocab(struct job *job)
{
    struct grammar *g = container_of(job, struct grammar, job);

    g->owner->has_vocab = g->owner->engine_vocab != NULL && g->owner->vocab_fd >= 0;
    if (list_is_empty(&g->waiting))
        grammar_free(g);
    else if (g->err.status != STATUS_OK || grammar_submit(g, &g->err) != STATUS_OK)
        grammar_settle(g);
}

/* The budget of work was too small. It does not count for some who wait: true if it is compiled
 * again for them. */
static bool grammar_go_on(struct grammar *g, const struct error *err)
{
    struct list waiting;

    list_init(&waiting);
    list_move(&g->waiting, &waiting);
    g->n_refs++; /* held while the callbacks run */
    while (!list_is_empty(&waiting)) {
        struct grammar_waiter *w = container_of(list_pop(&waiting), struct grammar_waiter, link);

        if (w->is_unbounded)
            list_push(&g->waiting, &w->link);
        else
            w->ready(w, NULL, err);
    }
    g->n_refs--;
    g->compile.is_unbounded = true;
    return !list_is_empty(&g->waiting) && grammar_submit(g, &g->err) == STATUS_OK;
}

static void on_answer(struct compile_job *job, char *bytes, size_t len, const struct error *err)
{
    struct grammar *g = container_of(job, struct grammar, compile);
    const struct agent_background *b = g->owner->background;

    assert(g->state == GRAMMAR_COMPILING);
    if (bytes == NULL) {
        g->err = *err;
        if (!job->is_over_budget || !grammar_go_on(g, err))
            grammar_settle(g);
        return;
    }
    g->bytes = bytes;
    g->n_bytes = len;
    g->job = (struct job){.run = grammar_load, .done = on_loaded};
    g->state = GRAMMAR_LOADING;
    if (b->submit(b->self, &g->job, &g->err) != STATUS_OK)
        grammar_settle(g);
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

static struct grammar *grammars_add(struct grammars *g, const struct constraint *c,
                                    const struct grammar_waiter *w, uint64_t hash)
{
    struct grammar *one = try_alloc(1, sizeof(*one) + c->len + 1);
    char *text;

    if (one == NULL)
        return NULL;
    text = (char *)(one + 1);
    memcpy(text, c->text, c->len);
    one->constraint = (struct constraint){c->form, text, c->len};
    one->owner = g;
    one->tenant = w->tenant;
    one->compile = (struct compile_job){
        .form = (int)c->form,
        .text = text,
        .len = c->len,
        .n_tokens = g->n_tokens,
        .tenant = w->tenant,
        .is_unbounded = w->is_unbounded,
        .done = on_answer,
    };
    list_init(&one->waiting);
    hash_add(&g->all, &one->by_text, hash);
    g->n_compiling++;
    return one;
}

static size_t grammars_compiling_of(const struct grammars *g, const struct tenant *tenant)
{
    size_t n = 0;

    for (const struct hash_node *at = hash_each(&g->all, NULL); at != NULL;
         at = hash_each(&g->all, at)) {
        const struct grammar *one = container_of(at, struct grammar, by_text);

        n += one->state != GRAMMAR_READY && one->tenant == tenant;
    }
    return n;
}

static enum status grammars_check_compiling(const struct grammars *g, const struct tenant *tenant,
                                            struct error *err)
{
    if (g->n_compiling >= GRAMMARS_MAX_COMPILING)
        (void)error_because(err, STATUS_EXHAUSTED, REASON_QUEUE_FULL, NULL,
                            "the limit of %d %s (built in) is reached", GRAMMARS_MAX_COMPILING,
                            kind_of_compiling.noun);
    else if (tenant != NULL && grammars_compiling_of(g, tenant) >= GRAMMARS_MAX_COMPILING / 2)
        (void)error_because(err, STATUS_EXHAUSTED, REASON_QUEUE_FULL, NULL,
                            "the principal's half of the limit of %d %s (built in) is reached",
                            GRAMMARS_MAX_COMPILING, kind_of_compiling.noun);
    else
        return STATUS_OK;
    err->retry_after_ms = RETRY_MS;
    return STATUS_EXHAUSTED;
}

static enum status grammars_begin(struct grammar **out, struct grammars *g,
                                  const struct constraint *c, const struct grammar_waiter *w,
                                  uint64_t hash, struct error *err)
{
    const struct agent_background *b = g->background;
    struct grammar *one;
    enum status rc = grammars_check_compiling(g, w->tenant, err);

    if (rc != STATUS_OK)
        return rc;
    one = grammars_add(g, c, w, hash);
    if (one == NULL)
        return error_no_memory(err, c->len, "a grammar");
    if (g->compiler == NULL) {
        one->state = GRAMMAR_COMPILING;
        one->job = (struct job){.run = grammar_compile, .done = on_compiled};
    } else {
        one->job = (struct job){.run = grammar_open_vocab, .done = on_vocab};
    }
    if (g->compiler != NULL && g->has_vocab)
        rc = grammar_submit(one, err);
    else if (b != NULL)
        rc = b->submit(b->self, &one->job, err);
    if (rc != STATUS_OK) {
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
    if (g->compiled == NULL) {
        *err = g->err;
        grammar_free(g);
        return err->status;
    }
    g->n_bytes = g->owner->module->compiled_bytes(g->compiled);
    g->state = GRAMMAR_READY;
    g->owner->n_compiling--;
    g->owner->n_bytes += g->n_bytes;
    g->n_refs = 1;
    return STATUS_OK;
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
        rc = grammars_begin(&found, g, c, w, hash, err);
        if (rc == STATUS_OK && g->background == NULL) {
            rc = grammar_compile_here(found, err);
            *out = rc == STATUS_OK ? found : NULL;
            return rc;
        }
        if (rc != STATUS_OK)
            return rc;
    }
    if (found->state != GRAMMAR_READY) {
        list_push(&found->waiting, &w->link);
        w->grammar = found;
        *out = NULL;
        return STATUS_OK;
    }
    grammar_ref(found);
    *out = found;
    return STATUS_OK;
}

void grammars_forget(struct grammar_waiter *w)
{
    struct grammar *g = w->grammar;

    if (!link_is_on(&w->link))
        return;
    list_remove(&w->link);
    if (!list_is_empty(&g->waiting) || g->state != GRAMMAR_COMPILING || g->n_refs > 0 ||
        g->owner->compiler == NULL)
        return;
    g->owner->compiler->cancel(g->owner->compiler->self, &g->compile);
    grammar_free(g);
}
