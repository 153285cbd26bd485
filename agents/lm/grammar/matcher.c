#include "agents/lm/grammar/matcher.h"

#include <assert.h>
#include <string.h>

#include "agents/lm/grammar/grammars_parts.h"
#include "base/buf.h"
#include "base/utf8.h"

enum {
    MAX_FORCED_BYTES = 256, /* of a forced text that are looked at; the rest follows */
    MIN_FORCED_BYTES = 2,
    MAX_PERIOD = 64,    /* tokens of a phrase that is repeated */
    MIN_REPEATED = 128, /* tokens in a row that repeat such a phrase, until a reply is closed */
};

struct matcher {
    struct grammar *grammar;
    void *engine;
    uint32_t *mask; /* [n_words] */
    size_t n_words;
    int32_t forced[MAX_FORCED_BYTES]; /* [n_forced] the canonical tokens of a forced text */
    size_t n_forced, at_forced;
    int32_t last[MAX_PERIOD];       /* the last tokens, in turn */
    uint32_t n_repeats[MAX_PERIOD]; /* how many in a row were as the one 1 + i tokens before */
    size_t n_accepted;
    bool is_closing; /* it repeats itself: the reply comes to its end as soon as it may */
};

static const struct grammar_module *matcher_module(const struct matcher *m)
{
    return m->grammar->owner->module;
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

/* Finds the text that must come next, and its tokens but the last. Without memory for them each
 * token is a choice of the model: but then a reply would depend on memory, so it fails. */
static enum status find_forced(struct matcher *m, struct error *err)
{
    const struct vocab *v = m->grammar->owner->vocab;
    char text[MAX_FORCED_BYTES];
    size_t len = matcher_module(m)->matcher_forced(m->engine, text, sizeof text), n;
    struct buf ids;
    enum status rc;

    m->n_forced = m->at_forced = 0;
    while (len > 0 && !utf8_is_valid(text, len))
        len--; /* it was cut inside a character, or a token ended there */
    if (len < MIN_FORCED_BYTES)
        return STATUS_OK;
    buf_init(&ids, SIZE_MAX);
    rc = vocab_encode(v, text, len, &ids, err);
    n = ids.len / sizeof m->forced[0];
    if (rc == STATUS_OK && n > 1 && n <= MAX_FORCED_BYTES) {
        memcpy(m->forced, ids.data, (n - 1) * sizeof m->forced[0]);
        if (spells(v, m->forced, n - 1, text, len))
            m->n_forced = n - 1;
    }
    buf_deinit(&ids);
    return rc;
}

enum status matcher_open(struct matcher **out, struct grammar *g, struct arena *arena,
                         struct error *err)
{
    const struct grammar_module *module = g->owner->module;
    const size_t n_words = (g->owner->n_tokens + 31) / 32;
    struct matcher *m = arena_alloc(arena, 1, sizeof *m);
    uint32_t *mask = arena_alloc(arena, n_words, sizeof *mask);
    enum status rc;

    if (m == NULL || mask == NULL) {
        grammar_unref(g);
        return error_no_memory(err, n_words * sizeof *mask, "a constraint's mask");
    }
    *m = (struct matcher){.grammar = g, .mask = mask, .n_words = n_words};
    m->engine = module->matcher_open(g->compiled);
    if (m->engine == NULL)
        rc = error_no_memory(err, sizeof *m, "a constraint's state");
    else
        rc = find_forced(m, err);
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

/* A small model that may write a string, a number or a list of any length often writes the same
 * for ever. What is valid and long repeats itself seldom as long as this. */
static void matcher_watch(struct matcher *m, int32_t id)
{
    if (m->grammar->constraint.form != CONSTRAINT_SCHEMA || m->is_closing)
        return;
    for (size_t i = 0; i < MAX_PERIOD && i < m->n_accepted; i++) {
        bool repeats = m->last[(m->n_accepted - 1 - i) % MAX_PERIOD] == id;

        m->n_repeats[i] = repeats ? m->n_repeats[i] + 1 : 0;
        m->is_closing = m->is_closing || m->n_repeats[i] >= MIN_REPEATED;
    }
    m->last[m->n_accepted++ % MAX_PERIOD] = id;
}

/* What a token does for a JSON text that is to end soon, the best last. */
enum closing { CLOSES_NOTHING, CLOSES_VALUE, CLOSES_STRING, CLOSES_HOLDER, ENDS_REPLY };

static enum closing closing_of(const char *bytes, size_t len)
{
    if (len == 0)
        return ENDS_REPLY;                                /* a control token */
    if (len == 1 && (bytes[0] == ',' || bytes[0] == '@')) /* '@': what an address goes on with */
        return CLOSES_VALUE;
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != '"' && bytes[i] != ']' && bytes[i] != '}')
            return CLOSES_NOTHING;
    return bytes[0] == '"' ? CLOSES_STRING : CLOSES_HOLDER;
}

static enum closing matcher_closing_of(const struct matcher *m, size_t id, bool *ret_is_letter)
{
    const char *bytes = NULL;
    size_t len = 0;
    struct error ignored;

    if (vocab_bytes(m->grammar->owner->vocab, (int32_t)id, false, &bytes, &len, &ignored) !=
        STATUS_OK)
        return CLOSES_NOTHING;
    *ret_is_letter = len == 1 && bytes[0] == 'z';
    return closing_of(bytes, len);
}

static bool mask_has(const uint32_t *mask, size_t id)
{
    return (mask[id / 32] >> id % 32 & 1) != 0;
}

/* Leaves of the mask what closes the most. Where any letter may stand, within a string, brackets
 * close nothing. */
static void matcher_close_reply(struct matcher *m)
{
    const size_t n = m->grammar->owner->n_tokens;
    enum closing best = CLOSES_NOTHING, here;
    bool has[ENDS_REPLY + 1] = {false}, is_text = false, is_letter;

    for (size_t id = 0; id < n; id++) {
        if (!mask_has(m->mask, id))
            continue;
        is_letter = false;
        here = matcher_closing_of(m, id, &is_letter);
        is_text = is_text || is_letter;
        has[here] = true;
        best = here > best ? here : best;
    }
    if (is_text)
        best = has[CLOSES_STRING]  ? CLOSES_STRING
               : has[CLOSES_VALUE] ? CLOSES_VALUE
                                   : CLOSES_NOTHING;
    for (size_t id = 0; best != CLOSES_NOTHING && id < n; id++)
        if (mask_has(m->mask, id) && matcher_closing_of(m, id, &is_letter) != best)
            m->mask[id / 32] &= ~(1u << id % 32);
}

int32_t matcher_forced(const struct matcher *m)
{
    return m->at_forced < m->n_forced ? m->forced[m->at_forced] : -1;
}

enum status matcher_mask(struct matcher *m, const uint32_t **out, struct error *err)
{
    const int32_t forced = matcher_forced(m);

    if (forced >= 0) {
        memset(m->mask, 0, m->n_words * sizeof *m->mask);
        m->mask[forced / 32] = 1u << forced % 32;
    } else if (!matcher_module(m)->matcher_mask(m->engine, m->mask)) {
        return error_set(err, STATUS_INTERNAL, "the constraint allows no token");
    } else if (m->is_closing) {
        matcher_close_reply(m);
    }
    *out = m->mask;
    return STATUS_OK;
}

enum status matcher_accept(struct matcher *m, int32_t id, struct error *err)
{
    if (!matcher_module(m)->matcher_accept(m->engine, id))
        return error_set(err, STATUS_INTERNAL, "token %d does not match the constraint", id);
    matcher_watch(m, id);
    if (m->at_forced < m->n_forced) {
        assert(id == m->forced[m->at_forced]);
        m->at_forced++;
    }
    return m->at_forced < m->n_forced ? STATUS_OK : find_forced(m, err);
}
