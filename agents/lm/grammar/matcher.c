/* Follows a reply through its compiled constraint by the functions of the grammar module. Where few
 * tokens are left, it lets follow only tokens from which the shortest way out still fits. */
#include "agents/lm/grammar/matcher.h"

#include <assert.h>
#include <string.h>

#include "agents/lm/grammar/grammars_parts.h"
#include "agents/lm/grammar/repetition.h"
#include "base/buf.h"
#include "base/utf8.h"

enum {
    MAX_CLOSING_BYTES = 4096,
    MAX_PLAN_TOKENS = 1024,
    MIN_FORCED_BYTES = 2,
    LOOK_SHARE = 8, /* the next check is due after 1 / LOOK_SHARE of the spare tokens */
    TIGHT = 64,     /* with fewer spare tokens, each token is checked */
    MIN_SPARE = 5,  /* for the rest of a character and for a longer ending after it */
};

/* The canonical tokens of a text. */
struct closing_plan {
    int32_t ids[MAX_PLAN_TOKENS]; /* [n] */
    size_t n;
    bool is_found, is_inside; /* of a character, which must be completed first */
};

struct matcher {
    struct grammar *grammar;
    void *engine;
    uint32_t *mask; /* [n_words] */
    size_t n_words;
    struct closing_plan forced; /* the forced bytes, of which at_forced were generated */
    size_t at_forced;
    struct closing_plan plan; /* the text that ends the reply from here, if is_tight */
    size_t look_at; /* when so many tokens are left, it computes the text that ends the reply */
    bool is_tight;  /* just enough tokens are left for plan: no token may make the plan longer */
    bool is_ending; /* the forced text ends the reply */
    struct repetition repetition;
    bool is_repeating; /* the reply repeats itself and is ended as soon as possible */
};

static const struct grammar_module *matcher_module(const struct matcher *m)
{
    return m->grammar->owner->module;
}

static enum status matcher_too_ambiguous(struct error *err)
{
    return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, "constraint",
                         "the constraint is too ambiguous: the reply could be read in so many ways "
                         "that the next token took too much work");
}

/* The ids' bytes are the text's first ones. */
static bool spells(const struct vocab *v, const int32_t *ids, size_t n, const char *text,
                   size_t len)
{
    struct error ignored;
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        const char *bytes;
        size_t n_bytes;

        if (vocab_bytes(v, ids[i], false, &bytes, &n_bytes, &ignored) != STATUS_OK ||
            n_bytes == 0 || n_bytes > len - at || memcmp(bytes, text + at, n_bytes) != 0)
            return false;
        at += n_bytes;
    }
    return true;
}

/* The text's canonical tokens but the last n_free. None is found where they do not spell it. */
static enum status matcher_encode(const struct matcher *m, const char *text, size_t len,
                                  size_t n_free, struct closing_plan *out, struct error *err)
{
    const struct vocab *v = m->grammar->owner->vocab;
    struct buf ids;
    enum status rc;
    size_t n;

    buf_init(&ids, SIZE_MAX);
    rc = vocab_encode(v, text, len, &ids, err);
    n = ids.len / sizeof(out->ids[0]);
    out->n = 0;
    out->is_found = false;
    if (rc == STATUS_OK && n > n_free && n - n_free <= MAX_PLAN_TOKENS) {
        memcpy(out->ids, ids.data, (n - n_free) * sizeof(out->ids[0]));
        out->is_found = spells(v, out->ids, n - n_free, text, len);
        out->n = out->is_found ? n - n_free : 0;
    }
    buf_deinit(&ids);
    return rc;
}

/* Why the engine's matcher has refused to go on, if it has. */
static enum status matcher_check(const struct matcher *m, struct error *err)
{
    return matcher_module(m)->matcher_is_spent(m->engine) ? matcher_too_ambiguous(err) : STATUS_OK;
}

/* The engine did not take a token that its mask allows. */
static enum status matcher_mismatch(const struct matcher *m, int32_t id, struct error *err)
{
    if (matcher_check(m, err) != STATUS_OK)
        return err->status;
    return error_set(err, STATUS_INTERNAL, "token %d does not match the constraint", id);
}

/* Takes the text that must come next: finds its tokens but the last. Without memory for them each
 * token is a choice of the model: but then a reply would depend on memory, so it fails. */
static enum status take_forced(struct matcher *m, const char *text, size_t len, struct error *err)
{
    m->forced.n = m->at_forced = 0;
    while (len > 0 && !utf8_is_valid(text, len))
        len--; /* the end is inside a character, or a token ended there */
    return len < MIN_FORCED_BYTES ? STATUS_OK : matcher_encode(m, text, len, 1, &m->forced, err);
}

static enum status find_forced(struct matcher *m, struct error *err)
{
    char text[GRAMMAR_MAX_FORCED];
    const size_t len = matcher_module(m)->matcher_forced(m->engine, text, sizeof(text));

    return matcher_check(m, err) != STATUS_OK ? err->status : take_forced(m, text, len, err);
}

enum status matcher_open(struct matcher **out, struct grammar *g, struct arena *arena,
                         struct error *err)
{
    const struct grammar_module *module = g->owner->module;
    const size_t n_words = (g->owner->n_tokens + 31) / 32;
    struct matcher *m = arena_alloc(arena, 1, sizeof(*m));
    uint32_t *mask = arena_alloc(arena, n_words, sizeof(*mask));
    bool is_spent = false;
    enum status rc;

    if (g->is_spent) {
        grammar_unref(g);
        return matcher_too_ambiguous(err);
    }
    if (m == NULL || mask == NULL) {
        grammar_unref(g);
        return error_no_memory(err, n_words * sizeof(*mask), "a constraint's mask");
    }
    *m = (struct matcher){.grammar = g, .mask = mask, .n_words = n_words, .look_at = SIZE_MAX};
    m->engine = module->matcher_open(g->compiled, &is_spent);
    if (is_spent)
        rc = matcher_too_ambiguous(err);
    else if (m->engine == NULL)
        rc = error_no_memory(err, sizeof(*m), "a constraint's state");
    else
        rc = take_forced(m, g->forced, g->n_forced, err);
    if (rc != STATUS_OK) {
        matcher_close(m);
        return rc;
    }
    *out = m;
    return STATUS_OK;
}

void matcher_close(struct matcher *m)
{
    if (m == NULL)
        return;
    if (m->engine != NULL)
        matcher_module(m)->matcher_close(m->engine);
    grammar_unref(m->grammar);
}

static void matcher_watch(struct matcher *m, int32_t id)
{
    if (m->grammar->constraint.form != CONSTRAINT_SCHEMA || m->is_repeating)
        return;
    m->is_repeating = repetition_add(&m->repetition, id);
    if (m->is_repeating)
        m->look_at = SIZE_MAX;
}

/* The tokens of the text that ends the reply soonest. There are none inside a character. */
static enum status matcher_find_plan(const struct matcher *m, struct closing_plan *out,
                                     struct error *err)
{
    char text[MAX_CLOSING_BYTES];
    const size_t len = matcher_module(m)->matcher_ending(m->engine, text, sizeof(text));

    if (matcher_check(m, err) != STATUS_OK)
        return err->status;
    out->n = 0;
    out->is_found = len == 0;
    out->is_inside = len > 0 && len != SIZE_MAX && ((unsigned char)text[0] & 0xC0) == 0x80;
    return len == 0 || len == SIZE_MAX || out->is_inside
               ? STATUS_OK
               : matcher_encode(m, text, len, 0, out, err);
}

enum status matcher_least(struct matcher *m, size_t *out, struct error *err)
{
    struct closing_plan plan = {.is_found = false};
    enum status rc;

    matcher_module(m)->matcher_renew(m->engine);
    rc = matcher_find_plan(m, &plan, err);
    *out = plan.is_found ? plan.n + 1 : 0;
    return rc;
}

/* The plan's tokens are forced, and then the end. */
static void matcher_follow(struct matcher *m)
{
    m->forced = m->plan;
    m->at_forced = 0;
    m->is_ending = true;
}

/* Looks whether the reply, which may have n_left more tokens, has to end now: because it repeats
 * itself, or because there is hardly room for what ends it. Seldom while there is much. */
static enum status matcher_look(struct matcher *m, size_t n_left, struct error *err)
{
    size_t n_spare;

    if (n_left > m->look_at)
        return STATUS_OK;
    if (matcher_find_plan(m, &m->plan, err) != STATUS_OK)
        return err->status;
    m->is_tight = false;
    if (m->plan.is_found && m->plan.n == 0 && m->grammar->constraint.form == CONSTRAINT_TAGS) {
        m->look_at = n_left - n_left / LOOK_SHARE - 1; /* text between calls has no end */
    } else if (m->plan.is_found && m->is_repeating) {
        matcher_follow(m);
    } else if (m->plan.is_inside) {
        m->look_at = n_left - 1;
    } else if (!m->plan.is_found) {
        m->look_at = n_left - n_left / LOOK_SHARE - 1;
    } else if (n_left < m->plan.n + 1) {
        m->look_at = 0; /* max_tokens is too small */
    } else {
        n_spare = n_left - m->plan.n - 1;
        m->is_tight = n_spare < TIGHT;
        m->look_at = n_left - (m->is_tight ? 1 : n_spare / LOOK_SHARE);
        if (n_spare < MIN_SPARE)
            matcher_follow(m);
    }
    return STATUS_OK;
}

/* The tokens that end a reply. */
static void matcher_mask_ends(struct matcher *m)
{
    size_t n;
    const int32_t *ends = vocab_stop_tokens(m->grammar->owner->vocab, &n);

    memset(m->mask, 0, m->n_words * sizeof(*m->mask));
    for (size_t i = 0; i < n; i++)
        m->mask[ends[i] / 32] |= 1u << ends[i] % 32;
}

/* One of them, the usual one where the model names it; -1 if there is none. */
static int32_t matcher_end(const struct matcher *m)
{
    const struct vocab *v = m->grammar->owner->vocab;
    size_t n;
    const int32_t *ends = vocab_stop_tokens(v, &n);

    return vocab_eos(v) >= 0 ? vocab_eos(v) : n > 0 ? ends[0] : -1;
}

int32_t matcher_forced(const struct matcher *m)
{
    return m->at_forced < m->forced.n ? m->forced.ids[m->at_forced] : -1;
}

enum status matcher_mask(struct matcher *m, size_t n_left, const uint32_t **out, struct error *err)
{
    enum status rc = STATUS_OK;
    int32_t forced;

    matcher_module(m)->matcher_renew(m->engine);
    if (matcher_forced(m) < 0 && !m->is_ending)
        rc = matcher_look(m, n_left, err);
    if (rc != STATUS_OK)
        return rc;
    forced = matcher_forced(m);
    if (forced >= 0) {
        memset(m->mask, 0, m->n_words * sizeof(*m->mask));
        m->mask[forced / 32] = 1u << forced % 32;
    } else if (m->is_ending) {
        matcher_mask_ends(m);
    } else if (!matcher_module(m)->matcher_mask(m->engine, m->mask)) {
        if (matcher_check(m, err) != STATUS_OK)
            return err->status;
        return error_set(err, STATUS_INTERNAL, "the constraint allows no token");
    }
    *out = m->mask;
    return STATUS_OK;
}

enum status matcher_settle(struct matcher *m, size_t n_left, int32_t *id, struct error *err)
{
    const int32_t way_out = m->plan.n > 0 ? m->plan.ids[0] : matcher_end(m);
    struct closing_plan after = {.is_found = false};
    enum status rc;

    if (!m->is_tight || m->is_ending || way_out < 0 || matcher_forced(m) >= 0 ||
        vocab_is_stop_token(m->grammar->owner->vocab, *id))
        return STATUS_OK;
    matcher_module(m)->matcher_renew(m->engine);
    if (!matcher_module(m)->matcher_accept(m->engine, *id))
        return matcher_mismatch(m, *id, err);
    rc = matcher_find_plan(m, &after, err);
    matcher_module(m)->matcher_take_back(m->engine, 1);
    if (rc != STATUS_OK || after.is_inside || (after.is_found && after.n + 2 <= n_left))
        return rc;
    matcher_follow(m);
    *id = way_out;
    return STATUS_OK;
}

enum status matcher_accept(struct matcher *m, int32_t id, struct error *err)
{
    matcher_module(m)->matcher_renew(m->engine);
    if (!matcher_module(m)->matcher_accept(m->engine, id))
        return matcher_mismatch(m, id, err);
    matcher_watch(m, id);
    if (m->at_forced < m->forced.n) {
        assert(id == m->forced.ids[m->at_forced]);
        m->at_forced++;
    }
    return m->at_forced < m->forced.n || m->is_ending ? STATUS_OK : find_forced(m, err);
}
