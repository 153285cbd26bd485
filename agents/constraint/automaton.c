/* Explores a machine's states, breadth first, each found again by its bytes in a hash table. Then
 * drops those that reach no end, and merges those that go on alike: classes of states are split by
 * where their edges lead until none is split any more, or no more time is due to it. Only states
 * that lead to a state of a new class are looked at again. */
#include "agents/constraint/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum {
    MAX_SPLITS = 1 << 19, /* looks at a state, to merge those of one automaton */
    EDGES_FOR_WORK = 64,  /* edges of a state that cost a look more */
    MAX_EDGES = 1 << 19,  /* of one automaton */
};

struct explorer {
    const struct machine *m;
    struct automaton a;
    char *keys;      /* [max_states][key_bytes] */
    uint32_t *table; /* [table_size]: a state + 1, by the hash of its key */
    size_t table_size, max_states, n_edges;
    uint32_t *targets,
        *stamps; /* [n_symbols]: where a class leads, if stamped with the state + 1 */
    struct arena *arena;
    struct error *err;
};

static enum status automaton_no_memory(struct error *err)
{
    return error_no_memory(err, 0, "an automaton");
}

static uint64_t hash_add(uint64_t h, uint64_t value)
{
    h = (h + value + 1) * 0x9E3779B97F4A7C15u; /* splitmix64's rounds */
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 27) * 0x94D049BB133111EBu;
    return h ^ h >> 31;
}

static uint64_t hash_of_key(const char *key, size_t len)
{
    uint64_t h = 0, word;

    for (; len >= sizeof(word); key += sizeof(word), len -= sizeof(word)) {
        memcpy(&word, key, sizeof(word));
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
    }
    word = 0;
    memcpy(&word, key, len);
    return hash_add(h, word);
}

/* The state of this key, which is new if it was not there. False: there are too many. */
static bool explorer_find(struct explorer *x, const char *key, uint32_t *out)
{
    const size_t size = x->m->key_bytes;
    size_t at = hash_of_key(key, size) % x->table_size;

    for (; x->table[at] != 0; at = (at + 1) % x->table_size)
        if (memcmp(x->keys + (x->table[at] - 1) * size, key, size) == 0) {
            *out = x->table[at] - 1;
            return true;
        }
    if (x->a.n_states == x->max_states)
        return false;
    *out = (uint32_t)x->a.n_states++;
    memcpy(x->keys + *out * size, key, size);
    x->table[at] = *out + 1;
    return true;
}

static enum status explorer_too_large(struct explorer *x)
{
    return error_set(x->err, STATUS_UNIMPLEMENTED,
                     "needs an automaton of more than %zu states or too much work", x->max_states);
}

/* Appends to edges [*n], where one that goes on with the last is a part of it. */
static void edges_add(struct automaton_edge *edges, uint32_t *n, struct automaton_edge e)
{
    if (*n > 0 && edges[*n - 1].target == e.target && edges[*n - 1].last + 1 == e.first)
        edges[*n - 1].last = e.last;
    else
        edges[(*n)++] = e;
}

static enum status explorer_follow(struct explorer *x, uint32_t state, struct automaton_edge *edges)
{
    const struct machine *m = x->m;
    struct automaton_state *s;
    char key[AUTOMATON_MAX_KEY];
    uint32_t n = 0;

    for (size_t i = 0; i < m->n_symbols; i++) {
        const uint32_t first = m->symbols[i],
                       last = i + 1 < m->n_symbols ? m->symbols[i + 1] - 1 : m->last;
        const size_t class = m->classes != NULL ? m->classes[i] : i;

        if (x->stamps[class] != state + 1) {
            if (*m->work < m->step_work)
                return explorer_too_large(x);
            *m->work -= m->step_work;
            memset(key, 0, m->key_bytes);
            x->stamps[class] = state + 1;
            x->targets[class] = AUTOMATON_DEAD;
            if (m->step(m->self, x->keys + state * m->key_bytes, first, key) &&
                !explorer_find(x, key, &x->targets[class]))
                return explorer_too_large(x);
        }
        if (x->targets[class] != AUTOMATON_DEAD)
            edges_add(edges, &n, (struct automaton_edge){first, last, x->targets[class]});
    }
    x->n_edges += n;
    if (*m->work < n / EDGES_FOR_WORK || x->n_edges > MAX_EDGES)
        return explorer_too_large(x);
    *m->work -= n / EDGES_FOR_WORK;
    s = &x->a.states[state];
    s->is_end = m->is_end(m->self, x->keys + state * m->key_bytes);
    s->n_edges = n;
    s->edges = arena_alloc(x->arena, n + 1, sizeof(*edges));
    if (s->edges == NULL)
        return automaton_no_memory(x->err);
    memcpy(s->edges, edges, n * sizeof(*edges));
    return STATUS_OK;
}

enum status automaton_of_machine(struct automaton *out, const struct machine *m, size_t max_states,
                                 struct arena *arena, struct error *err)
{
    struct explorer x = {.m = m,
                         .max_states = max_states,
                         .table_size = 2 * max_states + 1,
                         .arena = arena,
                         .err = err};
    struct automaton_edge *edges = arena_alloc(arena, m->n_symbols + 1, sizeof(*edges));
    char key[AUTOMATON_MAX_KEY] = {0};
    enum status rc = STATUS_OK;
    uint32_t first;

    if (m->key_bytes > sizeof(key) || *m->work < AUTOMATON_WORK)
        return explorer_too_large(&x);
    *m->work -= AUTOMATON_WORK;
    x.a.states = arena_alloc(arena, max_states, sizeof(*x.a.states));
    x.keys = try_alloc(max_states, m->key_bytes + 1);
    x.table = try_alloc(x.table_size, sizeof(*x.table));
    x.targets = try_alloc(m->n_symbols + 1, 2 * sizeof(*x.targets));
    x.stamps = x.targets != NULL ? x.targets + m->n_symbols + 1 : NULL;
    if (edges == NULL || x.a.states == NULL || x.keys == NULL || x.table == NULL ||
        x.targets == NULL)
        rc = automaton_no_memory(err);
    if (rc == STATUS_OK) {
        m->start(m->self, key);
        (void)explorer_find(&x, key, &first); /* there is room for one */
    }
    for (uint32_t i = 0; rc == STATUS_OK && i < x.a.n_states; i++)
        rc = explorer_follow(&x, i, edges);
    free(x.keys);
    free(x.table);
    free(x.targets);
    if (rc == STATUS_OK)
        rc = automaton_minimize(&x.a, arena, err);
    if (rc == STATUS_OK)
        *out = x.a;
    return rc;
}

/* --- as few states as possible --- */

/* Marks what reaches an end: looks at all states until nothing changes, backwards since most edges
 * lead to later states. */
static void mark_alive(const struct automaton *a, bool *is_alive)
{
    bool has_changed = true;

    while (has_changed) {
        has_changed = false;
        for (size_t i = a->n_states; i-- > 0;) {
            bool is = a->states[i].is_end;

            for (uint32_t k = 0; !is && k < a->states[i].n_edges; k++)
                is = is_alive[a->states[i].edges[k].target];
            has_changed = has_changed || is != is_alive[i];
            is_alive[i] = is;
        }
    }
}

/* Edges to states that reach no end go. */
static void drop_dead(struct automaton *a, const bool *is_alive)
{
    for (size_t i = 0; i < a->n_states; i++) {
        struct automaton_state *s = &a->states[i];
        uint32_t n = 0;

        for (uint32_t k = 0; k < s->n_edges; k++)
            if (is_alive[s->edges[k].target])
                s->edges[n++] = s->edges[k];
        s->n_edges = n;
    }
    if (a->n_states > 0 && !is_alive[0])
        a->n_states = 0;
}

/* Of where the state leads, by classes: equal for states of one class that go on alike. */
static uint64_t signature_of(const struct automaton_state *s, const uint32_t *classes)
{
    uint64_t h = 0;
    uint32_t k = 0;

    while (k < s->n_edges) {
        const uint32_t first = s->edges[k].first, to = classes[s->edges[k].target];
        uint32_t last = s->edges[k].last;

        while (++k < s->n_edges && s->edges[k].first == last + 1 &&
               classes[s->edges[k].target] == to)
            last = s->edges[k].last;
        h = hash_add(hash_add(hash_add(h, first), last), to);
    }
    return h;
}

struct signed_state {
    uint64_t signature;
    uint32_t class, state;
};

static int signed_state_compare(const void *a, const void *b)
{
    const struct signed_state *x = a, *y = b;

    if (x->class != y->class)
        return x->class < y->class ? -1 : 1;
    if (x->signature != y->signature)
        return x->signature < y->signature ? -1 : 1;
    return x->state < y->state ? -1 : x->state > y->state;
}

/* The classes of the states, each a run of elements. A state is marked where it leads to a state
 * that got another class; the marked ones come first in their class. Those behind them went on
 * alike before, and still do. */
struct partition {
    const struct automaton *a;
    uint32_t *classes;               /* [n_states]: of each state; as all that follow, but */
    uint32_t *elements, *places;     /* the states by their classes, and where each stands */
    uint32_t *first, *past, *marked; /* of each class: its elements, and how many are marked */
    uint32_t *touched, *moved;       /* the classes with marked states; the states of new classes */
    uint32_t *begins, *sources;      /* [n_states + 1], [edges]: the states that lead to each one */
    uint64_t *unmarked;              /* of each class: the signature of its unmarked states */
    struct signed_state *all;
    uint32_t n_classes, n_touched, n_moved;
};

static void partition_free(struct partition *p)
{
    free(p->classes);
    free(p->sources);
    free(p->unmarked);
    free(p->all);
}

static bool partition_alloc(struct partition *p, size_t n)
{
    size_t n_edges = 0;

    for (size_t i = 0; i < n; i++)
        n_edges += p->a->states[i].n_edges;
    p->classes = try_alloc(9 * n + 1, sizeof(*p->classes));
    p->sources = try_alloc(n_edges + 1, sizeof(*p->sources));
    p->unmarked = try_alloc(n + 1, sizeof(*p->unmarked));
    p->all = try_alloc(n + 1, sizeof(*p->all));
    if (p->classes == NULL || p->sources == NULL || p->unmarked == NULL || p->all == NULL)
        return false;
    p->elements = p->classes + n;
    p->places = p->elements + n;
    p->first = p->places + n;
    p->past = p->first + n;
    p->marked = p->past + n;
    p->touched = p->marked + n;
    p->moved = p->touched + n;
    p->begins = p->moved + n;
    return true;
}

static void partition_mark(struct partition *p, uint32_t state)
{
    const uint32_t class = p->classes[state], at = p->places[state],
                   to = p->first[class] + p->marked[class], other = p->elements[to];

    if (at < to)
        return; /* it is marked already */
    p->elements[at] = other;
    p->places[other] = at;
    p->elements[to] = state;
    p->places[state] = to;
    if (p->marked[class]++ == 0)
        p->touched[p->n_touched++] = class;
}

/* The states of a class begin at p->elements[at]. */
static void partition_put(struct partition *p, uint32_t at, uint32_t class,
                          const struct signed_state *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        p->elements[at + i] = all[i].state;
        p->places[all[i].state] = at + (uint32_t)i;
        p->classes[all[i].state] = class;
    }
}

static size_t run_length(const struct signed_state *all, size_t n)
{
    size_t len = 1;

    while (len < n && all[len].signature == all[0].signature)
        len++;
    return len;
}

/* Splits a class by its marked states all [n], which are ordered. Those that go on as the unmarked
 * ones keep the class; without unmarked ones the most that go on alike keep it. */
static void partition_split(struct partition *p, const struct signed_state *all, size_t n)
{
    const uint32_t class = all[0].class;
    const bool has_unmarked = p->first[class] + n < p->past[class];
    uint32_t at = p->first[class];
    size_t kept = 0, n_kept = 0, len;

    for (size_t i = 0; i < n; i += len) {
        len = run_length(all + i, n - i);
        if (has_unmarked ? all[i].signature == p->unmarked[class] : len > n_kept) {
            kept = i;
            n_kept = len;
        }
    }
    for (size_t i = 0; i < n; i += len) {
        len = run_length(all + i, n - i);
        if (n_kept > 0 && i == kept)
            continue;
        partition_put(p, at, p->n_classes, all + i, len);
        for (size_t k = i; k < i + len; k++)
            p->moved[p->n_moved++] = all[k].state;
        p->first[p->n_classes] = at;
        at += (uint32_t)len;
        p->past[p->n_classes] = at;
        p->marked[p->n_classes++] = 0;
    }
    partition_put(p, at, class, all + kept, n_kept);
    p->first[class] = at;
    p->marked[class] = 0;
}

/* Splits each class that has marked states; returns how many states it looked at. Signatures are of
 * 64 bits, and of a bounded number of states of one schema: equal ones are taken for equal states.
 */
static size_t partition_refine(struct partition *p)
{
    size_t n = 0, n_class;

    for (uint32_t i = 0; i < p->n_touched; i++) {
        const uint32_t class = p->touched[i], end = p->first[class] + p->marked[class];

        for (uint32_t at = p->first[class]; at < end; at++) {
            const uint32_t state = p->elements[at];

            p->all[n++] =
                (struct signed_state){signature_of(&p->a->states[state], p->classes), class, state};
        }
        if (end < p->past[class])
            p->unmarked[class] =
                signature_of(&p->a->states[p->elements[p->past[class] - 1]], p->classes);
    }
    qsort(p->all, n, sizeof(*p->all), signed_state_compare);
    p->n_touched = p->n_moved = 0;
    for (size_t i = 0; i < n; i += n_class) {
        for (n_class = 1; i + n_class < n && p->all[i + n_class].class == p->all[i].class;)
            n_class++;
        partition_split(p, p->all + i, n_class);
    }
    for (uint32_t i = 0; i < p->n_moved; i++)
        for (uint32_t k = p->begins[p->moved[i]]; k < p->begins[p->moved[i] + 1]; k++)
            partition_mark(p, p->sources[k]);
    return n;
}

/* Which states lead to each one. */
static void partition_find_sources(struct partition *p)
{
    const struct automaton *a = p->a;
    const size_t n = a->n_states;

    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < a->states[i].n_edges; k++)
            p->begins[a->states[i].edges[k].target]++;
    for (size_t i = 1; i <= n; i++)
        p->begins[i] += p->begins[i - 1];
    for (size_t i = 0; i < n; i++) /* begins move down to where they belong */
        for (uint32_t k = 0; k < a->states[i].n_edges; k++)
            p->sources[--p->begins[a->states[i].edges[k].target]] = (uint32_t)i;
}

/* Two classes, the states that are ends and the others; all are marked. */
static void partition_begin(struct partition *p)
{
    const uint32_t n = (uint32_t)p->a->n_states;
    uint32_t at = 0;

    for (unsigned is_end = 0; is_end < 2; is_end++) {
        p->first[p->n_classes] = at;
        for (uint32_t i = 0; i < n; i++)
            if (p->a->states[i].is_end == is_end) {
                p->classes[i] = p->n_classes;
                p->elements[at] = i;
                p->places[i] = at++;
            }
        p->past[p->n_classes] = at;
        if (at > p->first[p->n_classes])
            p->n_classes++;
    }
    for (uint32_t i = 0; i < n; i++)
        partition_mark(p, i);
}

/* Numbers the classes in the order in which they are reached, and makes a state of each. */
static void merge_classes(struct automaton *a, const uint32_t *classes, uint32_t *numbers,
                          uint32_t *members, struct automaton_state *states)
{
    size_t n = 1;

    memset(numbers, 0xFF, a->n_states * sizeof(*numbers));
    numbers[classes[0]] = 0;
    members[0] = 0;
    for (size_t i = 0; i < n; i++) {
        struct automaton_state *s = &a->states[members[i]];
        uint32_t n_edges = 0;

        for (uint32_t k = 0; k < s->n_edges; k++) {
            const uint32_t target = s->edges[k].target, class = classes[target];

            if (numbers[class] == UINT32_MAX) {
                members[n] = target;
                numbers[class] = (uint32_t)n++;
            }
            edges_add(s->edges, &n_edges,
                      (struct automaton_edge){s->edges[k].first, s->edges[k].last, numbers[class]});
        }
        states[i] = (struct automaton_state){s->edges, n_edges, s->is_end};
    }
    a->states = states;
    a->n_states = n;
}

enum status automaton_minimize(struct automaton *a, struct arena *arena, struct error *err)
{
    const size_t n = a->n_states;
    struct partition p = {.a = a};
    bool *is_alive = try_alloc(n + 1, sizeof(*is_alive));
    struct automaton_state *states = arena_alloc(arena, n + 1, sizeof(*states));
    enum status rc = STATUS_OK;
    size_t n_looks = 0;

    if (is_alive == NULL || states == NULL || !partition_alloc(&p, n)) {
        rc = automaton_no_memory(err);
    } else {
        mark_alive(a, is_alive);
        drop_dead(a, is_alive);
        if (a->n_states > 0) {
            partition_find_sources(&p);
            partition_begin(&p);
            while (p.n_touched > 0 && n_looks < MAX_SPLITS)
                n_looks += partition_refine(&p);
            for (uint32_t i = 0; p.n_touched > 0 && i < n; i++)
                p.classes[i] = i; /* it would take too long: nothing is merged */
            merge_classes(a, p.classes, p.first, p.past, states);
        }
    }
    partition_free(&p);
    free(is_alive);
    return rc;
}

/* --- use --- */

uint32_t automaton_step(const struct automaton *a, uint32_t state, uint32_t code)
{
    const struct automaton_state *s = &a->states[state];
    uint32_t low = 0, high = s->n_edges;

    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;

        if (s->edges[mid].last < code)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n_edges && s->edges[low].first <= code ? s->edges[low].target : AUTOMATON_DEAD;
}

bool automaton_matches(const struct automaton *a, const char *text, size_t len)
{
    uint32_t state = a->n_states > 0 ? 0 : AUTOMATON_DEAD, code;

    while (state != AUTOMATON_DEAD && len > 0) {
        size_t n = utf8_decode(text, len, &code);

        if (n == 0)
            return false;
        state = automaton_step(a, state, code);
        text += n;
        len -= n;
    }
    return state != AUTOMATON_DEAD && a->states[state].is_end;
}

/* The longest text by the states in topological order: where a circle is left over, texts have any
 * length, since an end is reached from each state. */
static size_t longest_of(const struct automaton *a, uint32_t *n_before, uint32_t *order,
                         size_t *longest)
{
    size_t n = 0, most = 0;

    for (size_t i = 0; i < a->n_states; i++)
        for (uint32_t k = 0; k < a->states[i].n_edges; k++)
            n_before[a->states[i].edges[k].target]++;
    if (n_before[0] == 0)
        order[n++] = 0;
    for (size_t i = 0; i < n; i++) {
        const struct automaton_state *s = &a->states[order[i]];

        most = longest[order[i]] > most ? longest[order[i]] : most;
        for (uint32_t k = 0; k < s->n_edges; k++) {
            const uint32_t target = s->edges[k].target;

            if (longest[target] < longest[order[i]] + 1)
                longest[target] = longest[order[i]] + 1;
            if (--n_before[target] == 0)
                order[n++] = target;
        }
    }
    return n == a->n_states ? most : SIZE_MAX;
}

/* The states are in the order of a search breadth first. */
static size_t shortest_of(const struct automaton *a, size_t *depth)
{
    size_t least = SIZE_MAX;

    memset(depth, 0xFF, a->n_states * sizeof(*depth));
    depth[0] = 0;
    for (size_t i = 0; i < a->n_states; i++) {
        const struct automaton_state *s = &a->states[i];

        least = s->is_end && depth[i] < least ? depth[i] : least;
        for (uint32_t k = 0; k < s->n_edges; k++)
            if (depth[s->edges[k].target] == SIZE_MAX)
                depth[s->edges[k].target] = depth[i] + 1;
    }
    return least;
}

enum status automaton_lengths(const struct automaton *a, size_t *ret_least, size_t *ret_most,
                              struct error *err)
{
    size_t *sizes = try_alloc(a->n_states + 1, sizeof(*sizes));
    uint32_t *counts = try_alloc(2 * a->n_states + 1, sizeof(*counts));
    enum status rc = STATUS_OK;

    if (sizes == NULL || counts == NULL) {
        rc = automaton_no_memory(err);
    } else {
        *ret_most = longest_of(a, counts, counts + a->n_states, sizes);
        *ret_least = shortest_of(a, sizes);
    }
    free(sizes);
    free(counts);
    return rc;
}

static char *edge_put_hex(char *to, uint32_t byte)
{
    static const char digits[] = "0123456789abcdef";

    *to++ = digits[byte >> 4 & 15];
    *to++ = digits[byte & 15];
    return to;
}

static char *edge_put_number(char *to, uint32_t number)
{
    char digits[16];
    size_t n = 0;

    do
        digits[n++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    while (n > 0)
        *to++ = digits[--n];
    return to;
}

/* A grammar may have a hundred thousand edges, so they are written without a format. */
enum status automaton_put(struct buf *b, const struct automaton *a)
{
    enum status rc = buf_append_text(b, "*@");

    for (size_t i = 0; rc == STATUS_OK && i < a->n_states; i++) {
        const struct automaton_state *s = &a->states[i];

        if (i > 0)
            rc = buf_append_text(b, ";");
        if (rc == STATUS_OK && s->is_end)
            rc = buf_append_text(b, "!");
        for (uint32_t k = 0; rc == STATUS_OK && k < s->n_edges; k++) {
            char text[24],
                *end = edge_put_hex(edge_put_hex(text, s->edges[k].first), s->edges[k].last);

            end = edge_put_number(end, s->edges[k].target);
            *end++ = ',';
            rc = buf_append(b, text, (size_t)(end - text));
        }
    }
    return rc;
}
