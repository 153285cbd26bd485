/* The automata of all rules run side by side, with a count of the characters if a length is asked
 * for that they do not imply. Then each step by a character becomes steps by its bytes in JSON
 * text: the bytes of UTF-8, or an escape. What remains to be read of a character, and where it
 * leads, is a state; states for the same rest are the same. */
#include "agents/constraint/string_automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

void string_rules_init(struct string_rules *r, size_t *work, struct arena *arena)
{
    memset(r, 0, sizeof(*r));
    r->most = SIZE_MAX;
    r->work = work;
    r->arena = arena;
}

enum status string_rules_add(struct string_rules *r, const struct automaton *a, bool is_excluded,
                             struct error *err)
{
    if (r->n_parts == STRING_MAX_PARTS)
        return error_set(err, STATUS_UNIMPLEMENTED, "stands beside too many other rules");
    r->parts[r->n_parts++] = (struct regex_part){*a, is_excluded};
    return STATUS_OK;
}

static enum status rules_add_regex(struct string_rules *r, const char *pattern, size_t len,
                                   bool is_whole, struct error *err)
{
    struct regex *regex = arena_alloc(r->arena, 1, sizeof(*regex));
    enum status rc;

    if (regex == NULL)
        return error_no_memory(err, sizeof(*regex), "a pattern");
    rc = (is_whole ? regex_compile_whole : regex_compile)(regex, pattern, len, r->work, r->arena,
                                                          err);
    for (size_t i = 0; rc == STATUS_OK && i < regex->n_parts; i++)
        rc = string_rules_add(r, &regex->parts[i].automaton, regex->parts[i].is_excluded, err);
    return rc;
}

enum status string_rules_add_pattern(struct string_rules *r, const char *pattern, size_t len,
                                     struct error *err)
{
    return rules_add_regex(r, pattern, len, false, err);
}

enum status string_rules_add_whole(struct string_rules *r, const char *pattern, size_t len,
                                   struct error *err)
{
    return rules_add_regex(r, pattern, len, true, err);
}

/* --- texts --- */

struct texts_machine {
    const char *const *texts;
    const size_t *lens; /* [n], the texts sorted */
    size_t n;
};

/* The texts that begin alike, and how many bytes of them were read. */
struct texts_key {
    uint32_t first, end, at;
};

static void texts_start(const void *self, void *ret_key)
{
    const struct texts_machine *m = self;

    *(struct texts_key *)ret_key = (struct texts_key){0, (uint32_t)m->n, 0};
}

static uint32_t texts_code(const struct texts_machine *m, uint32_t i, uint32_t at)
{
    uint32_t code = UINT32_MAX; /* a text that has ended comes first */

    if (at < m->lens[i])
        (void)utf8_decode(m->texts[i] + at, m->lens[i] - at, &code); /* it is UTF-8 */
    return at < m->lens[i] ? code + 1 : 0;
}

static bool texts_step(const void *self, const void *key, uint32_t code, void *ret_key)
{
    const struct texts_machine *m = self;
    const struct texts_key *k = key;
    struct texts_key next = *k;
    char bytes[4];
    uint32_t low = k->first, high = k->end;

    while (low < high) { /* the first that does not come before */
        const uint32_t mid = low + (high - low) / 2;

        if (texts_code(m, mid, k->at) < code + 1)
            low = mid + 1;
        else
            high = mid;
    }
    next.first = low;
    high = k->end;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;

        if (texts_code(m, mid, k->at) <= code + 1)
            low = mid + 1;
        else
            high = mid;
    }
    next.end = low;
    next.at = k->at + (uint32_t)utf8_encode(code, bytes);
    memcpy(ret_key, &next, sizeof(next));
    return next.first < next.end;
}

static bool texts_is_end(const void *self, const void *key)
{
    const struct texts_machine *m = self;
    const struct texts_key *k = key;

    return m->lens[k->first] == k->at;
}

struct text_row {
    const char *text;
    size_t len;
};

static int text_row_compare(const void *a, const void *b)
{
    const struct text_row *x = a, *y = b;
    const int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);

    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

static int code_compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* The characters of all texts, each as a run of its own, and the runs between them. */
static size_t texts_symbols(uint32_t *symbols, const struct text_row *rows, size_t n)
{
    bool has[0x800] = {false}; /* the characters of one or two bytes, which most texts repeat */
    size_t n_symbols = 0, n_kept = 1;
    uint32_t code;

    symbols[n_symbols++] = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t at = 0; at < rows[i].len;
             at += utf8_decode(rows[i].text + at, rows[i].len - at, &code)) {
            (void)utf8_decode(rows[i].text + at, rows[i].len - at, &code);
            if (code < sizeof(has) && has[code])
                continue;
            if (code < sizeof(has))
                has[code] = true;
            symbols[n_symbols++] = code;
            symbols[n_symbols++] = code + 1;
        }
    qsort(symbols, n_symbols, sizeof(*symbols), code_compare);
    for (size_t i = 1; i < n_symbols; i++)
        if (symbols[i] != symbols[n_kept - 1] && symbols[i] <= CHAR_LAST)
            symbols[n_kept++] = symbols[i];
    return n_kept;
}

enum status string_rules_add_texts(struct string_rules *r, const char *const *texts,
                                   const size_t *lens, size_t n, bool is_excluded,
                                   struct error *err)
{
    struct text_row *rows = arena_alloc(r->arena, n + 1, sizeof(*rows));
    const char **sorted = arena_alloc(r->arena, n + 1, sizeof(*sorted));
    size_t *sizes = arena_alloc(r->arena, n + 1, sizeof(*sizes)), n_bytes = 0;
    struct texts_machine self = {sorted, sizes, n};
    struct automaton a = {.n_states = 0};
    uint32_t *symbols;
    enum status rc;

    if (n == 0)
        return is_excluded ? STATUS_OK : string_rules_add(r, &a, false, err);
    for (size_t i = 0; i < n; i++)
        n_bytes += lens[i];
    symbols = arena_alloc(r->arena, 2 * n_bytes + 1, sizeof(*symbols));
    if (rows == NULL || sorted == NULL || sizes == NULL || symbols == NULL)
        return error_no_memory(err, n * sizeof(*rows), "texts");
    for (size_t i = 0; i < n; i++)
        rows[i] = (struct text_row){texts[i], lens[i]};
    qsort(rows, n, sizeof(*rows), text_row_compare);
    for (size_t i = 0; i < n; i++) {
        sorted[i] = rows[i].text;
        sizes[i] = rows[i].len;
    }
    rc = automaton_of_machine(&a,
                              &(struct machine){.symbols = symbols,
                                                .n_symbols = texts_symbols(symbols, rows, n),
                                                .last = CHAR_LAST,
                                                .key_bytes = sizeof(struct texts_key),
                                                .step_work = 2,
                                                .work = r->work,
                                                .start = texts_start,
                                                .step = texts_step,
                                                .is_end = texts_is_end,
                                                .self = &self},
                              AUTOMATON_MAX_STATES, r->arena, err);
    return rc == STATUS_OK ? string_rules_add(r, &a, is_excluded, err) : rc;
}

/* --- all rules --- */

struct joined {
    const struct string_rules *rules;
    size_t least, most; /* that must be counted; 0 and SIZE_MAX if none */
};

/* A state of each part, AUTOMATON_DEAD for one that matches nothing more, and then the count. */
static void joined_start(const void *self, void *ret_key)
{
    const struct joined *j = self;
    uint32_t *key = ret_key;

    for (size_t i = 0; i < j->rules->n_parts; i++)
        key[i] = j->rules->parts[i].automaton.n_states > 0 ? 0 : AUTOMATON_DEAD;
}

static bool joined_step(const void *self, const void *key, uint32_t code, void *ret_key)
{
    const struct joined *j = self;
    const size_t n = j->rules->n_parts;
    const uint32_t *at = key;
    uint32_t *next = ret_key;

    if (code >= CHAR_FIRST_SURROGATE && code <= CHAR_LAST_SURROGATE)
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct regex_part *part = &j->rules->parts[i];

        next[i] = at[i] == AUTOMATON_DEAD ? AUTOMATON_DEAD
                                          : automaton_step(&part->automaton, at[i], code);
        if (next[i] == AUTOMATON_DEAD && !part->is_excluded)
            return false;
    }
    if (at[n] >= j->most)
        return false;
    next[n] = j->most == SIZE_MAX && at[n] >= j->least ? at[n] : at[n] + 1;
    return true;
}

static bool joined_is_end(const void *self, const void *key)
{
    const struct joined *j = self;
    const size_t n = j->rules->n_parts;
    const uint32_t *at = key;

    for (size_t i = 0; i < n; i++) {
        const struct regex_part *part = &j->rules->parts[i];

        if ((at[i] != AUTOMATON_DEAD && part->automaton.states[at[i]].is_end) == part->is_excluded)
            return false;
    }
    return at[n] >= j->least;
}

static size_t joined_symbols(uint32_t **out, const struct string_rules *r)
{
    size_t n = 3, n_kept = 1;
    uint32_t *symbols;

    for (size_t i = 0; i < r->n_parts; i++)
        for (size_t k = 0; k < r->parts[i].automaton.n_states; k++)
            n += 2 * r->parts[i].automaton.states[k].n_edges;
    symbols = arena_alloc(r->arena, n, sizeof(*symbols));
    *out = symbols;
    if (symbols == NULL)
        return 0;
    n = 0;
    symbols[n++] = 0;
    symbols[n++] = CHAR_FIRST_SURROGATE;
    symbols[n++] = CHAR_LAST_SURROGATE + 1;
    for (size_t i = 0; i < r->n_parts; i++)
        for (size_t k = 0; k < r->parts[i].automaton.n_states; k++) {
            const struct automaton_state *s = &r->parts[i].automaton.states[k];

            for (uint32_t e = 0; e < s->n_edges; e++) {
                symbols[n++] = s->edges[e].first;
                symbols[n++] = s->edges[e].last + 1;
            }
        }
    qsort(symbols, n, sizeof(*symbols), code_compare);
    for (size_t i = 1; i < n; i++)
        if (symbols[i] != symbols[n_kept - 1] && symbols[i] <= CHAR_LAST)
            symbols[n_kept++] = symbols[i];
    return n_kept;
}

static enum status joined_make(const struct joined *j, struct automaton *out, struct error *err)
{
    uint32_t *symbols;
    const size_t n_symbols = joined_symbols(&symbols, j->rules);

    if (symbols == NULL)
        return error_no_memory(err, 0, "an automaton");
    return automaton_of_machine(
        out,
        &(struct machine){.symbols = symbols,
                          .n_symbols = n_symbols,
                          .last = CHAR_LAST,
                          .key_bytes = (j->rules->n_parts + 1) * sizeof(uint32_t),
                          .step_work = 2 + 2 * j->rules->n_parts,
                          .work = j->rules->work,
                          .start = joined_start,
                          .step = joined_step,
                          .is_end = joined_is_end,
                          .self = j},
        AUTOMATON_MAX_STATES, j->rules->arena, err);
}

/* --- lengths that are too long to be counted with each state --- */

enum { MAX_LOOPED = 384 }; /* states that the counts in all loops take */

/* An automaton whose loops are counted each by itself, so that no text is too long: some that would
 * not be are left out. A loop is states that lead to each other, here those of one number. */
struct looped {
    const struct automaton *a;
    uint32_t *loops;    /* [n_states]: the number of each state's loop; its own, if it is in none */
    bool *is_in_loop;   /* [n_states] */
    size_t least, most; /* least: characters of a text; most: of each passage through a loop */
};

struct looped_key {
    uint32_t state, n_in_loop, n_all; /* n_all: up to least */
};

static void looped_start(const void *self, void *ret_key)
{
    (void)memset(ret_key, 0, sizeof(struct looped_key));
}

static bool looped_step(const void *self, const void *key, uint32_t code, void *ret_key)
{
    const struct looped *l = self;
    const struct looped_key *k = key;
    struct looped_key next = {.state = automaton_step(l->a, k->state, code)};

    if (next.state == AUTOMATON_DEAD)
        return false;
    if (l->loops[next.state] == l->loops[k->state] && l->is_in_loop[next.state])
        next.n_in_loop = k->n_in_loop + 1;
    next.n_all = k->n_all < l->least ? k->n_all + 1 : k->n_all;
    memcpy(ret_key, &next, sizeof(next));
    return next.n_in_loop <= l->most;
}

static bool looped_is_end(const void *self, const void *key)
{
    const struct looped *l = self;
    const struct looped_key *k = key;

    return l->a->states[k->state].is_end && k->n_all >= l->least;
}

/* Finds the loops by Tarjan's algorithm, without recursion. order [n_states]: the states, those of
 * a loop together, behind all that they lead to. False without memory. */
static bool looped_find(struct looped *l, uint32_t *order)
{
    const size_t n = l->a->n_states;
    uint32_t *index = try_alloc(5 * n, sizeof(*index)), *low = index + n, *edges = low + n,
             *stack = edges + n, *path = stack + n;
    uint32_t n_seen = 0, n_stack = 0, n_path = 0, n_done = 0;

    if (index == NULL)
        return false;
    memset(l->loops, 0xFF, n * sizeof(*l->loops)); /* none has a number yet */
    path[n_path++] = 0;
    while (n_path > 0) {
        const uint32_t at = path[n_path - 1];
        const struct automaton_state *s = &l->a->states[at];

        if (index[at] == 0) {
            index[at] = low[at] = ++n_seen;
            stack[n_stack++] = at;
        }
        if (edges[at] < s->n_edges) {
            const uint32_t to = s->edges[edges[at]].target;

            if (index[to] == 0) {
                path[n_path++] = to; /* the edge is looked at again behind */
                continue;
            }
            edges[at]++;
            if (l->loops[to] == UINT32_MAX && low[to] < low[at])
                low[at] = low[to];
            l->is_in_loop[at] = l->is_in_loop[at] || to == at;
            continue;
        }
        n_path--;
        if (low[at] != index[at])
            continue;
        for (uint32_t top = UINT32_MAX, n_first = n_done; top != at;) {
            top = stack[--n_stack];
            l->loops[top] = at;
            order[n_done++] = top;
            if (top == at && n_done - n_first > 1)
                for (uint32_t i = n_first; i < n_done; i++)
                    l->is_in_loop[order[i]] = true;
        }
    }
    free(index);
    return true;
}

/* The most loops on a way through the automaton, and the most steps outside of loops. */
static void looped_measure(const struct looped *l, const uint32_t *order, size_t *n_loops,
                           size_t *n_steps, size_t *ret_loops, size_t *ret_steps)
{
    const size_t n = l->a->n_states;

    for (size_t first = 0, end; first < n; first = end) {
        size_t most_loops = 0, most_steps = 0;

        for (end = first; end < n && l->loops[order[end]] == l->loops[order[first]]; end++) {
            const struct automaton_state *s = &l->a->states[order[end]];

            for (uint32_t i = 0; i < s->n_edges; i++) {
                const uint32_t to = s->edges[i].target;

                if (l->loops[to] == l->loops[order[first]])
                    continue;
                most_loops = n_loops[to] > most_loops ? n_loops[to] : most_loops;
                most_steps = n_steps[to] + 1 > most_steps ? n_steps[to] + 1 : most_steps;
            }
        }
        for (size_t i = first; i < end; i++) {
            n_loops[order[i]] = most_loops + l->is_in_loop[order[i]];
            n_steps[order[i]] = most_steps;
        }
    }
    *ret_loops = n_loops[0];
    *ret_steps = n_steps[0];
}

/* How often each loop may be passed: so that no text has more than most characters, and that the
 * counts take few states. 0: there is no such number. */
static size_t looped_bound(const struct looped *l, size_t most, size_t n_loops, size_t n_steps)
{
    size_t n_in_loops = 0, bound;

    for (size_t i = 0; i < l->a->n_states; i++)
        if (l->is_in_loop[i]) /* many edges become more states over bytes */
            n_in_loops += 1 + l->a->states[i].n_edges / 64;
    if (n_loops == 0 || n_steps >= most)
        return 0;
    bound = (most - n_steps) / n_loops;
    return bound < MAX_LOOPED / n_in_loops ? bound : MAX_LOOPED / n_in_loops;
}

/* Of a's texts of least to most characters, those that pass through no loop for long. */
static enum status looped_make(const struct string_rules *r, const struct automaton *a,
                               struct automaton *out, struct error *err)
{
    const size_t n = a->n_states;
    struct looped l = {.a = a, .least = r->least};
    uint32_t *order = arena_alloc(r->arena, n, sizeof(*order)), *symbols;
    size_t *sizes = arena_alloc(r->arena, 2 * n, sizeof(*sizes)), n_loops, n_steps, n_symbols;
    struct string_rules one = {.n_parts = 1, .arena = r->arena};

    l.loops = arena_alloc(r->arena, n, sizeof(*l.loops));
    l.is_in_loop = arena_alloc(r->arena, n, sizeof(*l.is_in_loop));
    one.parts[0].automaton = *a;
    n_symbols = joined_symbols(&symbols, &one);
    if (order == NULL || sizes == NULL || l.loops == NULL || l.is_in_loop == NULL || n_symbols == 0)
        return error_no_memory(err, 0, "an automaton");
    memset(l.is_in_loop, 0, n * sizeof(*l.is_in_loop));
    if (!looped_find(&l, order))
        return error_no_memory(err, 0, "an automaton");
    looped_measure(&l, order, sizes, sizes + n, &n_loops, &n_steps);
    l.most = looped_bound(&l, r->most, n_loops, n_steps);
    if (l.most == 0)
        return error_set(err, STATUS_UNIMPLEMENTED, "needs an automaton with too many states");
    return automaton_of_machine(out,
                                &(struct machine){.symbols = symbols,
                                                  .n_symbols = n_symbols,
                                                  .last = CHAR_LAST,
                                                  .key_bytes = sizeof(struct looped_key),
                                                  .step_work = 2,
                                                  .work = r->work,
                                                  .start = looped_start,
                                                  .step = looped_step,
                                                  .is_end = looped_is_end,
                                                  .self = &l},
                                AUTOMATON_MAX_STATES, r->arena, err);
}

/* Whether counting up to most takes too many states: each state with each number of characters with
 * which it is reached. */
static bool is_too_long(const struct automaton *a, size_t most, bool *ret_no_memory)
{
    bool *at = try_alloc(2 * a->n_states, sizeof(*at)), *next;
    size_t n = 0;

    *ret_no_memory = at == NULL;
    if (at == NULL)
        return false;
    next = at + a->n_states;
    at[0] = true;
    for (size_t i = 0; i <= most && n <= AUTOMATON_MAX_STATES; i++) {
        memset(next, 0, a->n_states * sizeof(*next));
        for (size_t k = 0; k < a->n_states; k++) {
            n += at[k];
            for (uint32_t e = 0; at[k] && e < a->states[k].n_edges; e++)
                next[a->states[k].edges[e].target] = true;
        }
        memcpy(at, next, a->n_states * sizeof(*at));
    }
    free(at);
    return n > AUTOMATON_MAX_STATES;
}

enum status string_rules_join(const struct string_rules *r, struct automaton *out,
                              struct error *err)
{
    bool no_memory = false;
    struct joined j = {r, 0, SIZE_MAX};
    size_t least = 0, most = SIZE_MAX;
    enum status rc = STATUS_OK;

    if (r->n_parts == 1 && !r->parts[0].is_excluded) /* it is one already */
        *out = r->parts[0].automaton;
    else
        rc = joined_make(&j, out, err);
    if (rc == STATUS_OK && out->n_states > 0 && (r->least > 0 || r->most < SIZE_MAX))
        rc = automaton_lengths(out, &least, &most, err);
    if (rc != STATUS_OK || out->n_states == 0)
        return rc;
    if (least < r->least)
        j.least = r->least;
    if (most > r->most)
        j.most = r->most;
    if (most == SIZE_MAX && j.most < SIZE_MAX && is_too_long(out, j.most, &no_memory)) {
        const struct automaton all = *out;

        rc = looped_make(r, &all, out, err);
        return rc == STATUS_OK && out->n_states == 0
                   ? error_set(err, STATUS_UNIMPLEMENTED, "needs an automaton with too many states")
                   : rc;
    }
    if (no_memory)
        return error_no_memory(err, out->n_states, "an automaton");
    return j.least > 0 || j.most < SIZE_MAX ? joined_make(&j, out, err) : STATUS_OK;
}

enum status string_pattern(struct automaton *out, const char *pattern, size_t len, size_t *work,
                           struct arena *arena, struct error *err)
{
    struct string_rules r;
    enum status rc;

    string_rules_init(&r, work, arena);
    rc = string_rules_add_pattern(&r, pattern, len, err);
    return rc == STATUS_OK ? string_rules_join(&r, out, err) : rc;
}

/* --- JSON text --- */

enum {
    KIND_BYTES,  /* so many more bytes of UTF-8 */
    KIND_DIGITS, /* so many more digits of \uXXXX */
    KIND_LETTER, /* what follows a backslash */
    KIND_CHAR,   /* a state of the automaton over characters */
    KIND_END,    /* behind the closing quote */
    MAX_RESTS = 1 << 15,
    REST_WORK = 32, /* what a state of the result costs, in looks at a part of a state */
};

/* What remains of a character: ranges of what its remaining bits may be, and where each leads. */
struct char_rest {
    int kind;
    uint32_t n_more;              /* bytes or digits; for KIND_CHAR the state */
    struct automaton_edge *edges; /* [n_edges] */
    uint32_t n_edges;
    uint32_t next; /* in a list of the same hash, + 1 */
};

struct json_maker {
    const struct automaton *chars;
    bool is_part;            /* no quote ends it */
    struct char_rest *rests; /* [n_rests]: each is a state of the result */
    uint32_t n_rests;
    uint32_t *table; /* [MAX_RESTS], heads of lists, + 1 */
    struct automaton out;
    size_t *work;
    struct arena *arena;
    struct error *err;
};

static bool maker_fail(struct json_maker *m)
{
    return error_set(m->err, STATUS_UNIMPLEMENTED,
                     "needs an automaton with too many states or too much work") == STATUS_OK;
}

/* The state of a rest; copies the edges if it is new. */
static bool maker_find(struct json_maker *m, struct char_rest r, uint32_t *out)
{
    uint64_t h = (uint64_t)r.kind * 31 + r.n_more;
    uint32_t *head;

    for (uint32_t i = 0; i < r.n_edges; i++) {
        h = (h ^ r.edges[i].first) * 0x100000001B3u;
        h = (h ^ r.edges[i].last) * 0x100000001B3u;
        h = (h ^ r.edges[i].target) * 0x100000001B3u;
    }
    head = &m->table[(h ^ h >> 31) % MAX_RESTS];
    for (uint32_t at = *head; at != 0; at = m->rests[at - 1].next) {
        const struct char_rest *other = &m->rests[at - 1];

        if (other->kind == r.kind && other->n_more == r.n_more && other->n_edges == r.n_edges &&
            (r.n_edges == 0 || memcmp(other->edges, r.edges, r.n_edges * sizeof(*r.edges)) == 0)) {
            *out = at - 1;
            return true;
        }
    }
    if (m->n_rests == MAX_RESTS || *m->work < REST_WORK)
        return maker_fail(m);
    *m->work -= REST_WORK;
    r.next = *head;
    if (r.n_edges > 0) {
        struct automaton_edge *copy = arena_alloc(m->arena, r.n_edges, sizeof(*copy));

        if (copy == NULL)
            return error_no_memory(m->err, 0, "an automaton") == STATUS_OK;
        memcpy(copy, r.edges, r.n_edges * sizeof(*copy));
        r.edges = copy;
    }
    *out = m->n_rests;
    m->rests[m->n_rests++] = r;
    *head = m->n_rests;
    return true;
}

/* The parts of edges between first and last, counted from first. */
static uint32_t edges_within(struct automaton_edge *out, const struct automaton_edge *edges,
                             uint32_t n, uint32_t first, uint32_t last)
{
    uint32_t n_out = 0;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t from = edges[i].first > first ? edges[i].first : first,
                       to = edges[i].last < last ? edges[i].last : last;

        if (from <= to) {
            struct automaton_edge e = {from - first, to - first, edges[i].target};

            if (n_out > 0 && out[n_out - 1].target == e.target &&
                out[n_out - 1].last + 1 == e.first)
                out[n_out - 1].last = e.last;
            else
                out[n_out++] = e;
        }
    }
    return n_out;
}

struct byte_edges {
    struct automaton_edge all[512]; /* [n] */
    uint32_t n;
};

static void byte_edges_add(struct byte_edges *b, uint32_t byte, uint32_t target)
{
    if (b->n > 0 && b->all[b->n - 1].target == target && b->all[b->n - 1].last + 1 == byte)
        b->all[b->n - 1].last = byte;
    else
        b->all[b->n++] = (struct automaton_edge){byte, byte, target};
}

/* Steps by one byte of n_more + 1: its bits_at_first are the highest of the rest. first_byte is
 * added to them. */
static bool maker_add_bytes(struct json_maker *m, struct byte_edges *b,
                            const struct automaton_edge *edges, uint32_t n, uint32_t first_byte,
                            uint32_t n_values, uint32_t n_more)
{
    struct automaton_edge *part = try_alloc(n + 1, sizeof(*part));
    bool is_made = part != NULL || error_no_memory(m->err, 0, "an automaton") == STATUS_OK;

    for (uint32_t i = 0; is_made && i < n_values; i++) {
        const uint32_t size = 1u << 6 * n_more;
        const uint32_t n_part = edges_within(part, edges, n, i * size, i * size + size - 1);
        struct char_rest r = {KIND_BYTES, n_more, part, n_part, 0};
        uint32_t target;

        if (n_part == 0)
            continue;
        if (n_more == 0)
            r = (struct char_rest){.kind = KIND_CHAR, .n_more = part[0].target};
        is_made = maker_find(m, r, &target);
        byte_edges_add(b, first_byte + i, target);
    }
    free(part);
    return is_made;
}

/* A character that needs an escape: what follows the backslash. */
static char escape_letter(uint32_t code)
{
    switch (code) {
    case '"':
    case '\\':
        return (char)code;
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 'u';
    }
}

/* What follows a backslash: the escapes of the characters that need one. */
static bool maker_add_letters(struct json_maker *m, struct byte_edges *b,
                              const struct automaton_edge *edges, uint32_t n)
{
    struct automaton_edge controls[32];
    uint32_t n_controls = 0, targets[128];

    memset(targets, 0xFF, sizeof(targets));
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t code = edges[i].first; code <= edges[i].last && code <= '\\'; code++) {
            if (code >= ' ' && code != '"' && code != '\\')
                continue;
            if (escape_letter(code) == 'u')
                controls[n_controls++] = (struct automaton_edge){code, code, edges[i].target};
            else if (!maker_find(m,
                                 (struct char_rest){.kind = KIND_CHAR, .n_more = edges[i].target},
                                 &targets[(unsigned char)escape_letter(code)]))
                return false;
        }
    if (n_controls > 0 &&
        !maker_find(m, (struct char_rest){KIND_DIGITS, 4, controls, n_controls, 0}, &targets['u']))
        return false;
    for (uint32_t i = 0; i < 128; i++)
        if (targets[i] != UINT32_MAX)
            byte_edges_add(b, i, targets[i]);
    return true;
}

/* The digits of \u00XX, the letters among them small. */
static bool maker_add_digits(struct json_maker *m, struct byte_edges *b,
                             const struct automaton_edge *edges, uint32_t n, uint32_t n_more)
{
    const uint32_t shift = 4 * (n_more - 1);

    for (uint32_t digit = 0; digit < 16; digit++) {
        struct automaton_edge part[32];
        const uint32_t n_part =
            edges_within(part, edges, n, digit << shift, (digit << shift) + (1u << shift) - 1);
        struct char_rest r = {KIND_DIGITS, n_more - 1, part, n_part, 0};
        uint32_t target;

        if (n_part == 0)
            continue;
        if (n_more == 1)
            r = (struct char_rest){.kind = KIND_CHAR, .n_more = part[0].target};
        if (!maker_find(m, r, &target))
            return false;
        byte_edges_add(b, digit < 10 ? '0' + digit : 'a' + digit - 10, target);
    }
    return true;
}

/* The state's edges by characters from first to last. */
static uint32_t edges_between(struct automaton_edge *out, const struct automaton_state *s,
                              uint32_t first, uint32_t last)
{
    uint32_t n = edges_within(out, s->edges, s->n_edges, first, last);

    for (uint32_t i = 0; i < n; i++) {
        out[i].first += first;
        out[i].last += first;
    }
    return n;
}

/* A state between characters. */
static bool maker_add_char(struct json_maker *m, struct byte_edges *b, uint32_t state)
{
    /* Characters of two, three and four bytes: the first of the bytes, and how many there are. */
    static const struct {
        uint32_t first, last, byte, n_bytes;
    } leads[] = {{0x80, 0x7FF, 0xC0, 32}, {0x800, 0xFFFF, 0xE0, 16}, {0x10000, CHAR_LAST, 0xF0, 5}};
    const struct automaton_state *s = &m->chars->states[state];
    struct automaton_edge *part = try_alloc(s->n_edges + 1, sizeof(*part));
    bool is_made = part != NULL || error_no_memory(m->err, 0, "an automaton") == STATUS_OK;
    bool has_escape = false;
    uint32_t target;

    for (uint32_t i = 0; i < s->n_edges; i++)
        has_escape = has_escape || s->edges[i].first < ' ' ||
                     (s->edges[i].first <= '"' && s->edges[i].last >= '"') ||
                     (s->edges[i].first <= '\\' && s->edges[i].last >= '\\');
    for (uint32_t code = ' '; is_made && code < 0x80; code++) {
        target = UINT32_MAX;
        if (code == '"')
            is_made = !s->is_end || m->is_part ||
                      maker_find(m, (struct char_rest){.kind = KIND_END}, &target);
        else if (code == '\\')
            is_made =
                !has_escape ||
                maker_find(m, (struct char_rest){.kind = KIND_LETTER, .n_more = state}, &target);
        else if (automaton_step(m->chars, state, code) != AUTOMATON_DEAD)
            is_made =
                maker_find(m,
                           (struct char_rest){.kind = KIND_CHAR,
                                              .n_more = automaton_step(m->chars, state, code)},
                           &target);
        if (is_made && target != UINT32_MAX)
            byte_edges_add(b, code, target);
    }
    for (size_t i = 0; is_made && i < 3; i++) {
        const uint32_t n = edges_between(part, s, leads[i].first, leads[i].last);

        is_made = maker_add_bytes(m, b, part, n, leads[i].byte, leads[i].n_bytes, (uint32_t)i + 1);
    }
    free(part);
    return is_made;
}

static bool maker_add(struct json_maker *m, struct byte_edges *b, const struct char_rest *r)
{
    switch (r->kind) {
    case KIND_END:
        return true;
    case KIND_CHAR:
        return maker_add_char(m, b, r->n_more);
    case KIND_LETTER:
        return maker_add_letters(m, b, m->chars->states[r->n_more].edges,
                                 m->chars->states[r->n_more].n_edges);
    case KIND_DIGITS:
        return maker_add_digits(m, b, r->edges, r->n_edges, r->n_more);
    default:
        return maker_add_bytes(m, b, r->edges, r->n_edges, 0x80, 64, r->n_more - 1);
    }
}

/* Writes the states of the result, as they are found. */
static bool maker_run(struct json_maker *m, struct byte_edges *b)
{
    uint32_t first;
    bool is_made = maker_find(m, (struct char_rest){.kind = KIND_CHAR}, &first);

    for (uint32_t i = 0; is_made && i < m->n_rests; i++) {
        const struct char_rest r = m->rests[i];
        struct automaton_state *s = &m->out.states[i];

        b->n = 0;
        if (!maker_add(m, b, &r))
            return false;
        s->is_end = m->is_part ? r.kind == KIND_CHAR && m->chars->states[r.n_more].is_end
                               : r.kind == KIND_END;
        s->n_edges = b->n;
        s->edges = arena_alloc(m->arena, b->n + 1, sizeof(*s->edges));
        if (s->edges == NULL)
            return error_no_memory(m->err, 0, "an automaton") == STATUS_OK;
        memcpy(s->edges, b->all, b->n * sizeof(*s->edges));
    }
    return is_made;
}

static enum status string_make_json(struct automaton *out, const struct automaton *a, bool is_part,
                                    size_t *work, struct arena *arena, struct error *err)
{
    struct json_maker m = {
        .chars = a, .is_part = is_part, .work = work, .arena = arena, .err = err};
    struct automaton_state *states;
    struct byte_edges b;
    enum status rc = STATUS_OK;

    if (*work < AUTOMATON_WORK)
        return error_set(err, STATUS_UNIMPLEMENTED, "needs too much work");
    *work -= AUTOMATON_WORK;
    m.rests = try_alloc(MAX_RESTS, sizeof(*m.rests));
    m.table = try_alloc(MAX_RESTS, sizeof(*m.table));
    states = m.out.states = try_alloc(MAX_RESTS, sizeof(*states));
    if (m.rests == NULL || m.table == NULL || m.out.states == NULL)
        rc = error_no_memory(err, MAX_RESTS * sizeof(*m.rests), "an automaton");
    else if (!maker_run(&m, &b))
        rc = err->status;
    m.out.n_states = m.n_rests;
    if (rc == STATUS_OK)
        rc = automaton_minimize(&m.out, arena, err); /* its states are the arena's */
    if (rc == STATUS_OK)
        *out = m.out;
    free(m.rests);
    free(m.table);
    free(states);
    return rc;
}

enum status string_to_json(struct automaton *out, const struct automaton *a, size_t *work,
                           struct arena *arena, struct error *err)
{
    return string_make_json(out, a, false, work, arena, err);
}

/* --- texts that end in one set of characters --- */

/* How many characters lead back to the state; 0: one leads elsewhere, or it is no end. */
static size_t tail_size(const struct automaton *a, uint32_t state)
{
    const struct automaton_state *s = &a->states[state];
    size_t n = 0;

    for (uint32_t i = 0; i < s->n_edges; i++) {
        if (s->edges[i].target != state)
            return 0;
        n += s->edges[i].last - s->edges[i].first + 1;
    }
    return s->is_end ? n : 0;
}

enum { MAX_BLANKS = 16 }; /* characters of an edge of white space */

/* Whether the edge leads back to the state by few characters, none of which ASCII prints, as white
 * space does. */
static bool is_blank_loop(const struct automaton_edge *e, uint32_t state)
{
    return e->target == state && e->last - e->first < MAX_BLANKS &&
           (e->last <= ' ' || e->first > '~');
}

/* Whether a head, without such loops, may have more than most characters. */
static bool has_longer_head(const struct automaton *a, uint32_t tail, size_t most, bool *at)
{
    bool *next = at + a->n_states, is_left = tail != 0;

    memset(at, 0, a->n_states * sizeof(*at));
    at[0] = tail != 0;
    for (size_t n = 0; n < most && is_left; n++) {
        is_left = false;
        memset(next, 0, a->n_states * sizeof(*next));
        for (uint32_t i = 0; i < a->n_states; i++)
            for (uint32_t k = 0; at[i] && k < a->states[i].n_edges; k++) {
                const struct automaton_edge *e = &a->states[i].edges[k];

                if (e->target != tail && !is_blank_loop(e, i))
                    next[e->target] = is_left = true;
            }
        memcpy(at, next, a->n_states * sizeof(*at));
    }
    return is_left;
}

/* That of most characters; states come in the order of a search breadth first. */
bool string_tail_find(struct string_tail *ret, const struct automaton *a, size_t slack,
                      struct arena *arena)
{
    bool *at = arena_alloc(arena, 2 * a->n_states + 1, sizeof(*at));
    uint32_t *far = arena_alloc(arena, a->n_states + 1, sizeof(*far));
    size_t most = 0;

    if (far == NULL || at == NULL)
        return false;
    memset(far, 0xFF, (a->n_states + 1) * sizeof(*far));
    far[0] = 0;
    for (uint32_t k = 0; k < a->n_states; k++) {
        const struct automaton_state *s = &a->states[k];

        for (uint32_t i = 0; i < s->n_edges; i++)
            if (far[k] != UINT32_MAX && far[s->edges[i].target] > far[k] + 1)
                far[s->edges[i].target] = far[k] + 1;
        if (tail_size(a, k) > most) {
            most = tail_size(a, k);
            ret->state = k;
            ret->shortest = far[k];
        }
    }
    ret->set = (struct char_set){arena_alloc(arena, CHAR_SET_MAX, sizeof(*ret->set.ranges)), 0,
                                 CHAR_SET_MAX};
    if (most == 0 || ret->set.ranges == NULL ||
        has_longer_head(a, ret->state, ret->shortest + slack, at))
        return false;
    for (uint32_t i = 0; i < a->states[ret->state].n_edges; i++)
        if (!char_set_add(&ret->set, a->states[ret->state].edges[i].first,
                          a->states[ret->state].edges[i].last))
            return false;
    return true;
}

struct tailed {
    const struct automaton *a;
    uint32_t tail;
    size_t most_head, least, n;
    bool is_part;
};

struct tailed_key {
    uint32_t state, n_head, n_tail, n_all; /* n_all: up to least */
};

static void tailed_start(const void *self, void *ret_key)
{
    (void)memset(ret_key, 0, sizeof(struct tailed_key));
}

static bool tailed_step(const void *self, const void *key, uint32_t code, void *ret_key)
{
    const struct tailed *t = self;
    const struct tailed_key *k = key;
    struct tailed_key next = {.state = automaton_step(t->a, k->state, code)};

    if (next.state == AUTOMATON_DEAD)
        return false;
    if (k->state == t->tail)
        next.n_tail = k->n_tail + 1;
    else if (k->n_head == t->most_head)
        return false;
    else if (next.state != t->tail)
        next.n_head = k->n_head + 1;
    next.n_all = k->n_all < t->least ? k->n_all + 1 : k->n_all;
    memcpy(ret_key, &next, sizeof(next));
    return next.n_tail <= t->n;
}

static bool tailed_is_end(const void *self, const void *key)
{
    const struct tailed *t = self;
    const struct tailed_key *k = key;

    return t->a->states[k->state].is_end && k->n_all >= t->least &&
           (!t->is_part || (k->state == t->tail && k->n_tail == t->n));
}

enum status string_tail_to_json(struct automaton *out, const struct string_tail *t,
                                const struct automaton *a, size_t most_head, size_t least, size_t n,
                                bool is_part, size_t *work, struct arena *arena, struct error *err)
{
    const struct tailed self = {a, t->state, most_head, least, n, is_part};
    struct string_rules one = {.n_parts = 1, .arena = arena};
    struct automaton chars = {.n_states = 0};
    uint32_t *symbols;
    size_t n_symbols;
    enum status rc;

    one.parts[0].automaton = *a;
    n_symbols = joined_symbols(&symbols, &one);
    if (n_symbols == 0)
        return error_no_memory(err, 0, "an automaton");
    rc = automaton_of_machine(&chars,
                              &(struct machine){.symbols = symbols,
                                                .n_symbols = n_symbols,
                                                .last = CHAR_LAST,
                                                .key_bytes = sizeof(struct tailed_key),
                                                .step_work = 2,
                                                .work = work,
                                                .start = tailed_start,
                                                .step = tailed_step,
                                                .is_end = tailed_is_end,
                                                .self = &self},
                              AUTOMATON_MAX_STATES, arena, err);
    if (rc == STATUS_OK && chars.n_states > 0)
        return string_make_json(out, &chars, is_part, work, arena, err);
    *out = chars;
    return rc;
}

/* The automaton of a character of the set, and again. */
static enum status set_loop(struct automaton *out, const struct char_set *set, struct arena *arena,
                            struct error *err)
{
    struct automaton_state *state = arena_alloc(arena, 1, sizeof(*state));
    struct automaton_edge *edges = arena_alloc(arena, set->n, sizeof(*edges));

    if (state == NULL || edges == NULL)
        return error_no_memory(err, set->n * sizeof(*edges), "an automaton");
    for (size_t i = 0; i < set->n; i++)
        edges[i] = (struct automaton_edge){set->ranges[i].first, set->ranges[i].last, 0};
    *state = (struct automaton_state){edges, (uint32_t)set->n, true};
    *out = (struct automaton){state, 1};
    return STATUS_OK;
}

/* Copies a state of one character into the layer behind so many. The first of them, between
 * characters, may have the closing quote. */
struct layer {
    uint32_t first, next; /* the state between characters of this layer, and of the next one */
    uint32_t end;         /* behind the quote; 0: there is none */
};

static struct automaton_edge *layer_put(struct automaton_state *out,
                                        const struct automaton_state *state, struct layer layer,
                                        struct automaton_edge *edges)
{
    const struct automaton_edge quote = {'"', '"', layer.end};
    bool is_quoted = layer.end == 0;

    out->edges = edges;
    for (uint32_t i = 0; i < state->n_edges; i++) {
        const struct automaton_edge *e = &state->edges[i];

        if (!is_quoted && e->first > '"') {
            *edges++ = quote;
            is_quoted = true;
        }
        *edges++ = (struct automaton_edge){e->first, e->last,
                                           e->target == 0 ? layer.next : layer.first + e->target};
    }
    if (!is_quoted)
        *edges++ = quote;
    out->n_edges = (uint32_t)(edges - out->edges);
    return edges;
}

enum status string_of_set(struct automaton *out, const struct char_set *set, size_t least,
                          size_t most, bool is_part, size_t *work, struct arena *arena,
                          struct error *err)
{
    const size_t n_layers = most == SIZE_MAX ? least + 1 : most; /* that go on */
    struct automaton loop, one;
    struct automaton_state *states;
    struct automaton_edge *edges;
    size_t n_edges = 0, n_states;
    uint32_t end;
    enum status rc = set_loop(&loop, set, arena, err);

    if (rc == STATUS_OK) /* its first state is between characters */
        rc = string_make_json(&one, &loop, true, work, arena, err);
    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < one.n_states; i++)
        n_edges += one.states[i].n_edges;
    if (n_layers > MAX_RESTS / one.n_states || *work < n_layers * one.n_states)
        return error_set(err, STATUS_UNIMPLEMENTED, "needs too many states or too much work");
    *work -= n_layers * one.n_states;
    end = (uint32_t)(n_layers * one.n_states) + (most != SIZE_MAX);
    n_states = end + !is_part;
    states = arena_alloc(arena, n_states, sizeof(*states));
    edges = arena_alloc(arena, n_layers * (n_edges + 1) + 1, sizeof(*edges));
    if (states == NULL || edges == NULL)
        return error_no_memory(err, n_layers * n_edges * sizeof(*edges), "an automaton");
    for (size_t i = 0; i <= n_layers - (most == SIZE_MAX); i++) {
        const uint32_t first = (uint32_t)(i * one.n_states);
        const struct layer layer = {
            first, i + 1 == n_layers && most == SIZE_MAX ? first : first + (uint32_t)one.n_states,
            i >= least && !is_part ? end : 0};
        const struct automaton_state none = {NULL, 0, false};

        edges = layer_put(&states[first], i == most ? &none : &one.states[0], layer, edges);
        states[first].is_end = i >= least && is_part;
        for (uint32_t k = 1; i != most && k < one.n_states; k++)
            edges = layer_put(&states[first + k], &one.states[k],
                              (struct layer){layer.first, layer.next, 0}, edges);
    }
    if (!is_part)
        states[end].is_end = true;
    *out = (struct automaton){states, n_states};
    return STATUS_OK;
}

enum status string_any_json(struct automaton *out, struct arena *arena, struct error *err)
{
    enum {
        BODY,
        TAIL1,
        TAIL2,
        TAIL3,
        E0,
        ED,
        F0,
        F4,
        SLASH,
        HEX4,
        HEX3,
        HEX2,
        HEX1,
        HEX_D,
        HIGH2,
        HIGH1,
        LOW_SLASH,
        LOW_U,
        LOW4,
        LOW3,
        END,
        N_STATES
    };
    static const struct {
        uint32_t from, first, last, to;
    } rows[] = {
        {BODY, ' ', '!', BODY},       {BODY, '"', '"', END},          {BODY, '#', '[', BODY},
        {BODY, '\\', '\\', SLASH},    {BODY, ']', 0x7F, BODY},        {BODY, 0xC2, 0xDF, TAIL1},
        {BODY, 0xE0, 0xE0, E0},       {BODY, 0xE1, 0xEC, TAIL2},      {BODY, 0xED, 0xED, ED},
        {BODY, 0xEE, 0xEF, TAIL2},    {BODY, 0xF0, 0xF0, F0},         {BODY, 0xF1, 0xF3, TAIL3},
        {BODY, 0xF4, 0xF4, F4},       {TAIL1, 0x80, 0xBF, BODY},      {TAIL2, 0x80, 0xBF, TAIL1},
        {TAIL3, 0x80, 0xBF, TAIL2},   {E0, 0xA0, 0xBF, TAIL1},        {ED, 0x80, 0x9F, TAIL1},
        {F0, 0x90, 0xBF, TAIL2},      {F4, 0x80, 0x8F, TAIL2},        {SLASH, '"', '"', BODY},
        {SLASH, '/', '/', BODY},      {SLASH, '\\', '\\', BODY},      {SLASH, 'b', 'b', BODY},
        {SLASH, 'f', 'f', BODY},      {SLASH, 'n', 'n', BODY},        {SLASH, 'r', 'r', BODY},
        {SLASH, 't', 't', BODY},      {SLASH, 'u', 'u', HEX4},        {HEX4, '0', '9', HEX3},
        {HEX4, 'A', 'C', HEX3},       {HEX4, 'D', 'D', HEX_D},        {HEX4, 'E', 'F', HEX3},
        {HEX4, 'a', 'c', HEX3},       {HEX4, 'd', 'd', HEX_D},        {HEX4, 'e', 'f', HEX3},
        {HEX3, '0', '9', HEX2},       {HEX3, 'A', 'F', HEX2},         {HEX3, 'a', 'f', HEX2},
        {HEX2, '0', '9', HEX1},       {HEX2, 'A', 'F', HEX1},         {HEX2, 'a', 'f', HEX1},
        {HEX1, '0', '9', BODY},       {HEX1, 'A', 'F', BODY},         {HEX1, 'a', 'f', BODY},
        {HEX_D, '0', '7', HEX2},      {HEX_D, '8', '9', HIGH2},       {HEX_D, 'A', 'B', HIGH2},
        {HEX_D, 'a', 'b', HIGH2},     {HIGH2, '0', '9', HIGH1},       {HIGH2, 'A', 'F', HIGH1},
        {HIGH2, 'a', 'f', HIGH1},     {HIGH1, '0', '9', LOW_SLASH},   {HIGH1, 'A', 'F', LOW_SLASH},
        {HIGH1, 'a', 'f', LOW_SLASH}, {LOW_SLASH, '\\', '\\', LOW_U}, {LOW_U, 'u', 'u', LOW4},
        {LOW4, 'D', 'D', LOW3},       {LOW4, 'd', 'd', LOW3},         {LOW3, 'C', 'F', HEX2},
        {LOW3, 'c', 'f', HEX2},
    };
    enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };
    struct automaton_state *states = arena_alloc(arena, N_STATES, sizeof(*states));
    struct automaton_edge *edges = arena_alloc(arena, N_ROWS, sizeof(*edges));

    if (states == NULL || edges == NULL)
        return error_no_memory(err, 0, "an automaton");
    for (size_t i = 0; i < N_ROWS; i++) {
        struct automaton_state *s = &states[rows[i].from];

        edges[i] = (struct automaton_edge){rows[i].first, rows[i].last, rows[i].to};
        if (s->n_edges++ == 0)
            s->edges = &edges[i];
    }
    states[END].is_end = true;
    *out = (struct automaton){states, N_STATES};
    return STATUS_OK;
}
