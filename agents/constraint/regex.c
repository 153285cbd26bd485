/* Parses to a tree, in which repetitions are counted. Writes the tree as a nondeterministic
 * automaton, with a copy for each repetition. Its sets of states are the states of a machine, whose
 * automaton is the result. ^ and $ are steps without a character, which are possible only before
 * the first one and after the last. */
#include "agents/constraint/regex.h"

#include <stdlib.h>
#include <string.h>

#include "agents/constraint/char_property.h"
#include "base/utf8.h"

enum {
    MAX_DEPTH = 32,
    MAX_REPEAT = 4096,
    WHOLE_MORE = 32, /* repetitions of a pattern that matches whole texts, beyond the least */
    MAX_STEPS = 8 * AUTOMATON_MAX_KEY - 8, /* a bit each in a state's key */
    MAX_SYMBOLS = 1 << 14,
    WORD_RANGES = 4, /* of \w */
    UNBOUNDED = -1,
};

enum node_kind {
    NODE_EMPTY,
    NODE_SET,
    NODE_START,
    NODE_END,
    NODE_EDGE, /* of a word: \b */
    NODE_NO_EDGE,
    NODE_BOTH,
    NODE_EITHER,
    NODE_REPEAT
};

struct node {
    enum node_kind kind;
    const struct char_set *set;
    const struct node *left, *right;
    int least, most;          /* of a repetition of left; UNBOUNDED */
    const struct node *older; /* of a set: the one that was made before */
};

/* A look-ahead at the expression's beginning. */
struct ahead {
    const struct node *node;
    bool is_excluded;
};

struct regex_parser {
    const char *at, *end;
    struct arena *arena;
    struct error *err;
    size_t *work;
    unsigned depth;
    bool is_at_start; /* only ^ and look-aheads were read */
    bool has_start;   /* ^ was, outside of groups */
    bool has_edges;   /* of words */
    struct ahead ahead[REGEX_MAX_AHEAD];
    size_t n_ahead;
    const struct node *sets; /* all, the last one first */
    /* what is being read: a set, a member of it, the end of a range */
    struct char_range rooms[3][CHAR_SET_MAX];
};

/* One of the parser's sets, which is empty at first. */
static struct char_set regex_set(struct regex_parser *p, size_t which)
{
    return (struct char_set){p->rooms[which], 0, CHAR_SET_MAX};
}

static const struct node *regex_refuse(struct regex_parser *p, const char *what)
{
    (void)error_set(p->err, STATUS_UNIMPLEMENTED, "has %s", what);
    return NULL;
}

static const struct node *node_of(struct regex_parser *p, struct node n)
{
    struct node *out = arena_alloc(p->arena, 1, sizeof(*out));

    if (out == NULL) {
        (void)error_no_memory(p->err, 0, "a regular expression");
        return NULL;
    }
    *out = n;
    return out;
}

static const struct node *node_join(struct regex_parser *p, enum node_kind kind,
                                    const struct node *left, const struct node *right)
{
    if (left == NULL || right == NULL)
        return NULL;
    return node_of(p, (struct node){.kind = kind, .left = left, .right = right});
}

static const struct node *node_of_set(struct regex_parser *p, const struct char_set *set)
{
    struct char_set *copy = arena_alloc(p->arena, 1, sizeof(*copy));
    struct char_range *ranges = arena_alloc(p->arena, set->n + 1, sizeof(*ranges));
    const struct node *out;

    if (copy == NULL || ranges == NULL) {
        (void)error_no_memory(p->err, 0, "a regular expression");
        return NULL;
    }
    memcpy(ranges, set->ranges, set->n * sizeof(*ranges));
    *copy = (struct char_set){ranges, set->n, set->n};
    out = node_of(p, (struct node){.kind = NODE_SET, .set = copy, .older = p->sets});
    if (out != NULL)
        p->sets = out;
    return out;
}

static const struct node *node_of_char(struct regex_parser *p, uint32_t code)
{
    struct char_range range = {code, code};

    return node_of_set(p, &(struct char_set){&range, 1, 1});
}

static const struct node *node_repeat(struct regex_parser *p, const struct node *left, int least,
                                      int most)
{
    if (left == NULL)
        return NULL;
    return node_of(p,
                   (struct node){.kind = NODE_REPEAT, .left = left, .least = least, .most = most});
}

static const struct node *node_any_text(struct regex_parser *p)
{
    struct char_range room[2];
    struct char_set any = {room, 0, 2};

    (void)!char_set_add(&any, 0, CHAR_LAST); /* there is room */
    return node_repeat(p, node_of_set(p, &any), 0, UNBOUNDED);
}

/* --- characters --- */

/* \d, \w, \s and their opposites, as ECMAScript has them. */
static bool set_of_letter(char letter, struct char_set *out)
{
    bool is_known = true;

    out->n = 0;
    switch (letter | 0x20) {
    case 'd':
        is_known = char_set_add(out, '0', '9');
        break;
    case 'w':
        is_known = char_set_add(out, '0', '9') && char_set_add(out, 'A', 'Z') &&
                   char_set_add(out, '_', '_') && char_set_add(out, 'a', 'z');
        break;
    case 's':
        is_known = char_set_add(out, '\t', '\r') && char_set_add(out, ' ', ' ') &&
                   char_set_add(out, 0xA0, 0xA0) && char_set_add(out, 0x1680, 0x1680) &&
                   char_set_add(out, 0x2000, 0x200A) && char_set_add(out, 0x2028, 0x2029) &&
                   char_set_add(out, 0x202F, 0x202F) && char_set_add(out, 0x205F, 0x205F) &&
                   char_set_add(out, 0x3000, 0x3000) && char_set_add(out, 0xFEFF, 0xFEFF);
        break;
    default:
        return false;
    }
    return is_known && ((letter & 0x20) != 0 || char_set_invert(out));
}

static bool regex_take_hex(struct regex_parser *p, size_t n, uint32_t *out)
{
    uint32_t code = 0;

    if ((size_t)(p->end - p->at) < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const char c = (char)(p->at[i] | 0x20);

        if ((c < '0' || c > '9') && (c < 'a' || c > 'f'))
            return false;
        code = code << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    p->at += n;
    *out = code;
    return true;
}

/* \u1234, \u{12345}, and a pair of surrogates. */
static bool regex_take_unicode(struct regex_parser *p, uint32_t *out)
{
    uint32_t low;

    if (p->at < p->end && *p->at == '{') {
        const char *close = memchr(p->at, '}', (size_t)(p->end - p->at));

        p->at++;
        if (close == NULL || close - p->at < 1 || close - p->at > 6 ||
            !regex_take_hex(p, (size_t)(close - p->at), out))
            return false;
        p->at++;
    } else if (!regex_take_hex(p, 4, out)) {
        return false;
    }
    if (*out >= 0xD800 && *out < 0xDC00 && p->end - p->at >= 6 && p->at[0] == '\\' &&
        p->at[1] == 'u') {
        p->at += 2;
        if (!regex_take_hex(p, 4, &low) || low < 0xDC00 || low > 0xDFFF)
            return false;
        *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    }
    return *out <= CHAR_LAST && (*out < CHAR_FIRST_SURROGATE || *out > CHAR_LAST_SURROGATE);
}

/* What follows a backslash and stands for one character. */
static bool regex_take_escaped(struct regex_parser *p, uint32_t *out)
{
    static const char letters[] = "fnrtv", codes[] = "\f\n\r\t\v";
    const char c = *p->at;
    const char *letter = c != '\0' ? strchr(letters, c) : NULL;

    p->at++;
    if (letter != NULL) {
        *out = (uint32_t)codes[letter - letters];
        return true;
    }
    if (c == 'x')
        return regex_take_hex(p, 2, out);
    if (c == 'u')
        return regex_take_unicode(p, out);
    if (c == 'c' && p->at < p->end) {
        *out = (uint32_t)*p->at++ & 0x1F;
        return true;
    }
    *out = (uint32_t)c;
    if (c == '0')
        *out = 0;
    /* a letter or a digit would have a meaning of its own */
    return c == '0' || ((unsigned char)c < 0x80 && (c < '0' || c > '9') &&
                        ((c | 0x20) < 'a' || (c | 0x20) > 'z'));
}

static bool regex_take_code(struct regex_parser *p, uint32_t *out)
{
    const size_t n = utf8_decode(p->at, (size_t)(p->end - p->at), out);

    p->at += n;
    return n > 0;
}

/* \p{…} or \P{…}, of which the letter comes next. */
static bool regex_take_property(struct regex_parser *p, struct char_set *out)
{
    const bool is_inverted = *p->at++ == 'P';
    const char *name = p->at + 1, *close = NULL;

    if (p->at < p->end && *p->at == '{')
        close = memchr(name, '}', (size_t)(p->end - name));
    if (close == NULL)
        return regex_refuse(p, "a property of characters (\\p) without {}") != NULL;
    p->at = close + 1;
    if (char_property_set(out, name, (size_t)(close - name), p->work, p->err) != STATUS_OK)
        return false;
    return !is_inverted || char_set_invert(out) ||
           regex_refuse(p, "a character class with this many ranges") != NULL;
}

/* A member of a class: a character, or a set that is added. */
static bool class_take_member(struct regex_parser *p, struct char_set *s, uint32_t *ret_code,
                              bool *ret_is_set)
{
    struct char_set set = regex_set(p, 1);

    *ret_is_set = false;
    if (*p->at != '\\')
        return regex_take_code(p, ret_code);
    if (++p->at == p->end)
        return regex_refuse(p, "a backslash at the end") != NULL;
    *ret_is_set = *p->at == 'p' || *p->at == 'P';
    if (*ret_is_set && !regex_take_property(p, &set))
        return false;
    if (!*ret_is_set && set_of_letter(*p->at, &set)) {
        p->at++;
        *ret_is_set = true;
    }
    if (*ret_is_set) {
        return char_set_add_all(s, &set) ||
               regex_refuse(p, "a character class with this many ranges") != NULL;
    }
    if (*p->at == 'b') {
        p->at++;
        *ret_code = '\b';
        return true;
    }
    return regex_take_escaped(p, ret_code) ||
           regex_refuse(p, "an escape that has no automaton in a character class") != NULL;
}

/* A member, or a range of two. */
static bool class_take(struct regex_parser *p, struct char_set *s)
{
    uint32_t first, last;
    bool is_set;

    if (!class_take_member(p, s, &first, &is_set))
        return false;
    if (is_set)
        return true;
    last = first;
    if (p->end - p->at > 1 && p->at[0] == '-' && p->at[1] != ']') {
        struct char_set second = regex_set(p, 2);

        p->at++;
        if (!class_take_member(p, &second, &last, &is_set))
            return false;
        if (is_set) { /* [a-\d] has three members */
            last = first;
            if (!char_set_add(s, '-', '-') || !char_set_add_all(s, &second))
                return regex_refuse(p, "a character class with this many ranges") != NULL;
        }
        if (last < first)
            return regex_refuse(p, "a range that ends before it begins") != NULL;
    }
    return char_set_add(s, first, last) ||
           regex_refuse(p, "a character class with this many ranges") != NULL;
}

static const struct node *regex_take_class(struct regex_parser *p)
{
    const bool is_inverted = p->at < p->end && *p->at == '^';
    struct char_set s = regex_set(p, 0);

    p->at += is_inverted;
    while (p->at < p->end && *p->at != ']')
        if (!class_take(p, &s))
            return NULL;
    if (p->at == p->end)
        return regex_refuse(p, "a character class without an end");
    p->at++;
    if (is_inverted && !char_set_invert(&s))
        return regex_refuse(p, "a character class with this many ranges");
    return node_of_set(p, &s);
}

/* --- groups --- */

static const struct node *regex_take_either(struct regex_parser *p);

/* The inside of a group, and its end. */
static const struct node *regex_take_inside(struct regex_parser *p)
{
    const struct node *inside;

    if (++p->depth > MAX_DEPTH)
        return regex_refuse(p, "groups nested too deeply");
    inside = regex_take_either(p);
    if (inside == NULL)
        return NULL;
    if (p->at == p->end)
        return regex_refuse(p, "a group without an end");
    p->at++;
    p->depth--;
    return inside;
}

/* A look-ahead, which may stand only at the beginning of the whole expression. */
static const struct node *regex_take_ahead(struct regex_parser *p)
{
    const bool is_excluded = p->at[1] == '!';
    const struct node *inside;

    if (!p->is_at_start || !p->has_start || p->depth > 0 || p->n_ahead == REGEX_MAX_AHEAD)
        return regex_refuse(p, "a look-ahead that is not behind a ^ at its beginning");
    p->at += 2;
    inside = regex_take_inside(p);
    if (inside == NULL)
        return NULL;
    if (p->at < p->end && memchr("*+?{", *p->at, 4) != NULL)
        return regex_refuse(p, "a look-ahead that is repeated");
    p->is_at_start = true; /* another one may follow */
    p->ahead[p->n_ahead++] = (struct ahead){inside, is_excluded};
    return node_of(p, (struct node){.kind = NODE_EMPTY});
}

static const struct node *regex_take_group(struct regex_parser *p)
{
    if (p->end - p->at > 1 && p->at[0] == '?') {
        const char *name = p->at + 1, *close;

        if (*name == '=' || *name == '!')
            return regex_take_ahead(p);
        name += *name == 'P'; /* as Python writes it */
        if (*p->at == '?' && p->at[1] == ':') {
            p->at += 2;
        } else if (name + 1 < p->end && *name == '<' && name[1] != '=' && name[1] != '!' &&
                   (close = memchr(name, '>', (size_t)(p->end - name))) != NULL) {
            p->at = close + 1;
        } else {
            return regex_refuse(p, "look-behind, or a group with flags");
        }
    }
    return regex_take_inside(p);
}

static const struct node *regex_take_backslash(struct regex_parser *p)
{
    struct char_set s = regex_set(p, 0);
    uint32_t code;

    if (p->at == p->end)
        return regex_refuse(p, "a backslash at the end");
    if (set_of_letter(*p->at, &s)) {
        p->at++;
        return node_of_set(p, &s);
    }
    if (*p->at == 'b' || *p->at == 'B') {
        p->at++;
        p->has_edges = true;
        return node_of(p, (struct node){.kind = p->at[-1] == 'b' ? NODE_EDGE : NODE_NO_EDGE});
    }
    if (*p->at == 'p' || *p->at == 'P')
        return regex_take_property(p, &s) ? node_of_set(p, &s) : NULL;
    if (*p->at == 'k' || (*p->at >= '1' && *p->at <= '9'))
        return regex_refuse(p, "a back reference");
    if (*p->at == 'A' || *p->at == 'Z' || *p->at == 'z') { /* not ECMAScript's: Python's */
        p->at++;
        return node_of(p, (struct node){.kind = p->at[-1] == 'A' ? NODE_START : NODE_END});
    }
    if (!regex_take_escaped(p, &code))
        return regex_refuse(p, "an escape that has no automaton");
    return node_of_char(p, code);
}

static bool regex_take_count(struct regex_parser *p, int *out)
{
    const char *start = p->at;

    for (*out = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        *out = *out > MAX_REPEAT ? *out : *out * 10 + (*p->at - '0');
    return p->at > start;
}

/* {n}, {n,} or {n,m}. False: the brace is a character. */
static bool regex_take_braces(struct regex_parser *p, int *ret_least, int *ret_most)
{
    const char *start = p->at++;

    if (!regex_take_count(p, ret_least)) {
        p->at = start;
        return false;
    }
    *ret_most = *ret_least;
    if (p->at < p->end && *p->at == ',') {
        p->at++;
        if (!regex_take_count(p, ret_most))
            *ret_most = UNBOUNDED;
    }
    if (p->at == p->end || *p->at != '}') {
        p->at = start;
        return false;
    }
    p->at++;
    return true;
}

static const struct node *regex_take_atom(struct regex_parser *p)
{
    struct char_set s = regex_set(p, 0);
    uint32_t code;
    int least, most;

    switch (*p->at) {
    case '(':
        p->at++;
        return regex_take_group(p);
    case '[':
        p->at++;
        return regex_take_class(p);
    case '\\':
        p->at++;
        return regex_take_backslash(p);
    case '^':
    case '$':
        p->at++;
        return node_of(p, (struct node){.kind = p->at[-1] == '^' ? NODE_START : NODE_END});
    case '.':
        p->at++;
        (void)!(char_set_add(&s, '\n', '\n') && char_set_add(&s, '\r', '\r') &&
                char_set_add(&s, 0x2028, 0x2029) && char_set_invert(&s)); /* there is room */
        return node_of_set(p, &s);
    case '{':
        if (regex_take_braces(p, &least, &most))
            return regex_refuse(p, "a repetition of nothing, or of a repetition");
        p->at++;
        return node_of_char(p, '{');
    case '*':
    case '+':
    case '?':
        return regex_refuse(p, "a repetition of nothing");
    default:
        if (!regex_take_code(p, &code))
            return regex_refuse(p, "text that is not UTF-8");
        return node_of_char(p, code);
    }
}

static const struct node *regex_take_piece(struct regex_parser *p)
{
    const struct node *atom = regex_take_atom(p);
    int least, most;

    if (atom == NULL || p->at == p->end)
        return atom;
    switch (*p->at) {
    case '*':
    case '+':
        least = *p->at++ == '+';
        most = UNBOUNDED;
        break;
    case '?':
        p->at++;
        least = 0;
        most = 1;
        break;
    case '{':
        if (regex_take_braces(p, &least, &most))
            break;
        return atom;
    default:
        return atom;
    }
    if (p->at < p->end && *p->at == '?')
        p->at++; /* a lazy one: it does not matter which match is found */
    if (least > MAX_REPEAT || most > MAX_REPEAT || (most != UNBOUNDED && most < least))
        return regex_refuse(p, "a repetition of more than 4096 or of fewer than its least number");
    return node_repeat(p, atom, least, most);
}

static const struct node *regex_take_sequence(struct regex_parser *p)
{
    const struct node *all = node_of(p, (struct node){.kind = NODE_EMPTY});

    while (all != NULL && p->at < p->end && *p->at != '|' && *p->at != ')') {
        const struct node *piece = regex_take_piece(p);

        if (piece != NULL && piece->kind == NODE_START && p->depth == 0)
            p->has_start = true;
        else if (piece != NULL && piece->kind != NODE_EMPTY)
            p->is_at_start = false;
        all = node_join(p, NODE_BOTH, all, piece);
    }
    return all;
}

static const struct node *regex_take_either(struct regex_parser *p)
{
    const struct node *all = regex_take_sequence(p);

    while (all != NULL && p->at < p->end && *p->at == '|') {
        p->at++;
        if (p->depth == 0)
            p->is_at_start = false;
        if (p->n_ahead > 0 && p->depth == 0)
            return regex_refuse(p, "a look-ahead in an alternative");
        all = node_join(p, NODE_EITHER, all, regex_take_sequence(p));
    }
    return all;
}

static const struct node *regex_parse(struct regex_parser *p)
{
    const struct node *all;

    if (!utf8_is_valid(p->at, (size_t)(p->end - p->at)))
        return regex_refuse(p, "text that is not UTF-8");
    p->is_at_start = true;
    all = regex_take_either(p);
    if (all != NULL && p->at < p->end)
        return regex_refuse(p, "a closing parenthesis without an opening one");
    return all;
}

/* --- as a nondeterministic automaton --- */

enum step_kind { STEP_MATCH, STEP_SET, STEP_START, STEP_END, STEP_EDGE, STEP_NO_EDGE, STEP_FORK };

struct step {
    enum step_kind kind;
    const struct char_set *set;
    uint32_t next, other; /* other: of a fork */
};

struct steps {
    struct step *all; /* [MAX_STEPS] */
    uint32_t n;
    bool is_full;
    int most_more;        /* repetitions beyond the least, where they are bounded */
    bool has_edges;       /* of words */
    struct char_set word; /* then: the characters of words */
    struct char_range word_room[WORD_RANGES];
};

static uint32_t steps_add(struct steps *s, struct step one)
{
    if (s->n == MAX_STEPS) {
        s->is_full = true;
        return 0;
    }
    s->all[s->n] = one;
    return s->n++;
}

static uint32_t steps_write(struct steps *s, const struct node *node, uint32_t next);

static uint32_t steps_write_repeat(struct steps *s, const struct node *node, uint32_t next)
{
    const int most =
        node->most - node->least > s->most_more ? node->least + s->most_more : node->most;
    uint32_t at = next;

    if (node->most == UNBOUNDED) {
        at = steps_add(s, (struct step){.kind = STEP_FORK, .other = next});
        if (!s->is_full)
            s->all[at].next = steps_write(s, node->left, at);
    }
    for (int i = node->least; node->most != UNBOUNDED && i < most && !s->is_full; i++)
        at = steps_add(s, (struct step){.kind = STEP_FORK,
                                        .next = steps_write(s, node->left, at),
                                        .other = next});
    for (int i = 0; i < node->least && !s->is_full; i++)
        at = steps_write(s, node->left, at);
    return at;
}

/* Alternatives lean to the left, too. */
static uint32_t steps_write_either(struct steps *s, const struct node *node, uint32_t next)
{
    uint32_t at = steps_write(s, node->right, next);

    for (node = node->left; !s->is_full; node = node->left) {
        const bool is_last = node->kind != NODE_EITHER;
        const uint32_t one = steps_write(s, is_last ? node : node->right, next);

        at = steps_add(s, (struct step){.kind = STEP_FORK, .next = one, .other = at});
        if (is_last)
            break;
    }
    return at;
}

/* Steps that match the node and then go on with next; returns the first. */
static uint32_t steps_write(struct steps *s, const struct node *node, uint32_t next)
{
    if (s->is_full)
        return 0;
    switch (node->kind) {
    case NODE_EMPTY:
        return next;
    case NODE_SET:
        return steps_add(s, (struct step){.kind = STEP_SET, .set = node->set, .next = next});
    case NODE_START:
        return steps_add(s, (struct step){.kind = STEP_START, .next = next});
    case NODE_END:
        return steps_add(s, (struct step){.kind = STEP_END, .next = next});
    case NODE_EDGE:
    case NODE_NO_EDGE:
        return steps_add(s,
                         (struct step){.kind = node->kind == NODE_EDGE ? STEP_EDGE : STEP_NO_EDGE,
                                       .next = next});
    case NODE_BOTH:
        /* a sequence leans to the left: not as deep as it is long */
        for (; node->kind == NODE_BOTH; node = node->left)
            next = steps_write(s, node->right, next);
        return steps_write(s, node, next);
    case NODE_EITHER:
        return steps_write_either(s, node, next);
    case NODE_REPEAT:
        break;
    }
    return steps_write_repeat(s, node, next);
}

/* --- as a deterministic one --- */

/* Runs of characters that no set divides, and of each the class of those that are in the same
 * sets. */
struct symbols {
    uint32_t *begins, *classes; /* [n] */
    size_t n;
};

static int symbol_compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static bool symbols_spend(struct regex_parser *p, size_t n_elements)
{
    const size_t cost = n_elements / 16;

    if (*p->work < cost)
        return regex_refuse(p, "too many character classes") != NULL;
    *p->work -= cost;
    return true;
}

/* Where each run begins. */
static bool symbols_divide(struct symbols *out, struct regex_parser *p)
{
    size_t n = 1, n_kept = 1;

    for (const struct node *at = p->sets; at != NULL; at = at->older)
        n += 2 * at->set->n;
    if (!symbols_spend(p, n))
        return false;
    out->begins = arena_alloc(p->arena, n, sizeof(*out->begins));
    if (out->begins == NULL)
        return error_no_memory(p->err, 0, "a regular expression") == STATUS_OK;
    n = 0;
    out->begins[n++] = 0;
    for (const struct node *at = p->sets; at != NULL; at = at->older)
        for (size_t i = 0; i < at->set->n; i++) {
            out->begins[n++] = at->set->ranges[i].first;
            out->begins[n++] = at->set->ranges[i].last + 1;
        }
    qsort(out->begins, n, sizeof(*out->begins), symbol_compare);
    for (size_t i = 1; i < n; i++)
        if (out->begins[i] != out->begins[n_kept - 1] && out->begins[i] <= CHAR_LAST)
            out->begins[n_kept++] = out->begins[i];
    out->n = n_kept;
    return n_kept <= MAX_SYMBOLS || regex_refuse(p, "too many character classes") != NULL;
}

/* Divides each class by whether its runs are in the set. fresh [n]: of each class the one for those
 * that are, 0 if there is none yet. */
static uint32_t symbols_split(struct symbols *s, const struct char_set *set, uint32_t n_classes,
                              uint32_t *fresh)
{
    size_t at = 0;

    memset(fresh, 0, n_classes * sizeof(*fresh));
    for (size_t i = 0; i < set->n; i++) {
        while (at < s->n && s->begins[at] < set->ranges[i].first)
            at++;
        for (; at < s->n && s->begins[at] <= set->ranges[i].last; at++) {
            uint32_t *class = &s->classes[at];

            if (fresh[*class] == 0)
                fresh[*class] = n_classes++;
            *class = fresh[*class];
        }
    }
    return n_classes;
}

/* False: the parser's error says why. */
static bool symbols_make(struct symbols *out, struct regex_parser *p)
{
    uint32_t *fresh, *numbers, n_classes = 1;

    if (!symbols_divide(out, p))
        return false;
    out->classes = arena_alloc(p->arena, out->n, sizeof(*out->classes));
    /* a set divides each class in two at most, and no run is in two classes */
    fresh = arena_alloc(p->arena, 3 * out->n + 1, sizeof(*fresh));
    numbers = arena_alloc(p->arena, 3 * out->n + 1, sizeof(*numbers));
    if (out->classes == NULL || fresh == NULL || numbers == NULL)
        return error_no_memory(p->err, 0, "a regular expression") == STATUS_OK;
    memset(out->classes, 0, out->n * sizeof(*out->classes));
    for (const struct node *at = p->sets; at != NULL; at = at->older) {
        uint32_t n = 0;

        if (!symbols_spend(p, out->n))
            return false;
        n_classes = symbols_split(out, at->set, n_classes, fresh);
        /* those that are left without a run go */
        memset(numbers, 0, n_classes * sizeof(*numbers));
        for (size_t i = 0; i < out->n; i++) {
            uint32_t *number = &numbers[out->classes[i]];

            if (*number == 0)
                *number = ++n;
            out->classes[i] = *number - 1;
        }
        n_classes = n;
    }
    return true;
}

struct steps_machine {
    const struct steps *steps;
    uint32_t first;
    unsigned char kept[AUTOMATON_MAX_KEY]; /* the steps that tell states apart: those that wait for
                                              a character or for the end */
    size_t n_bytes;                        /* of a key */
};

static bool key_has(const unsigned char *key, uint32_t step)
{
    return (key[step / 8] >> step % 8 & 1) != 0;
}

static void key_set(unsigned char *key, uint32_t step)
{
    key[step / 8] |= (unsigned char)(1u << step % 8);
}

/* What is known of a place between two characters. */
struct step_place {
    bool is_start, is_end, is_edge, is_no_edge; /* neither of the last: the next one is not known */
};

static bool place_lets_pass(const struct step_place *p, enum step_kind kind)
{
    return (kind == STEP_START && p->is_start) || (kind == STEP_END && p->is_end) ||
           (kind == STEP_EDGE && p->is_edge) || (kind == STEP_NO_EDGE && p->is_no_edge);
}

/* Adds what can be reached from a step without a character. */
static void key_close(const struct steps *s, uint32_t step, struct step_place place,
                      unsigned char *seen)
{
    uint32_t waiting[MAX_STEPS]; /* each step is put there once */
    size_t n = 0;

    if (key_has(seen, step))
        return;
    key_set(seen, step);
    waiting[n++] = step;
    while (n > 0) {
        const struct step *at = &s->all[waiting[--n]];
        const uint32_t next[2] = {at->next, at->other};
        size_t n_next = at->kind == STEP_FORK ? 2 : 0;

        if (place_lets_pass(&place, at->kind))
            n_next = 1;
        for (size_t i = 0; i < n_next; i++)
            if (!key_has(seen, next[i])) {
                key_set(seen, next[i]);
                waiting[n++] = next[i];
            }
    }
}

static void key_keep(const struct steps_machine *m, const unsigned char *seen,
                     unsigned char *ret_key)
{
    for (size_t i = 0; i < m->n_bytes; i++)
        ret_key[i] = seen[i] & m->kept[i];
}

/* Where the expression has edges of words, two bits behind those of the steps say whether a word's
 * character came last, and whether none came at all. */
static bool key_is_word(const struct steps *s, const unsigned char *key)
{
    return s->has_edges && key_has(key, s->n);
}

/* Copies the key and adds what lies behind its edges, where a word's character follows or not. */
static void key_pass_edges(const struct steps_machine *m, const unsigned char *key, bool is_word,
                           bool is_end, unsigned char *ret_seen)
{
    const struct steps *s = m->steps;
    const bool is_edge = key_is_word(s, key) != is_word;
    const struct step_place place = {.is_start = s->has_edges && key_has(key, s->n + 1),
                                     .is_end = is_end,
                                     .is_edge = is_edge,
                                     .is_no_edge = !is_edge};

    memset(ret_seen, 0, m->n_bytes);
    for (uint32_t i = 0; i < s->n; i++)
        if (key_has(key, i) && !place_lets_pass(&place, s->all[i].kind))
            key_set(ret_seen, i);
    for (uint32_t i = 0; i < s->n; i++)
        if (key_has(key, i) && place_lets_pass(&place, s->all[i].kind))
            key_close(s, i, place, ret_seen);
}

static void steps_start(const void *self, void *ret_key)
{
    const struct steps_machine *m = self;
    unsigned char seen[AUTOMATON_MAX_KEY];

    memset(seen, 0, m->n_bytes);
    key_close(m->steps, m->first, (struct step_place){.is_start = true}, seen);
    key_keep(m, seen, ret_key);
    if (m->steps->has_edges)
        key_set(ret_key, m->steps->n + 1);
}

static bool steps_step(const void *self, const void *key, uint32_t code, void *ret_key)
{
    const struct steps_machine *m = self;
    const struct steps *s = m->steps;
    const unsigned char *at = key;
    unsigned char seen[AUTOMATON_MAX_KEY], passed[AUTOMATON_MAX_KEY];
    const bool is_word = s->has_edges && char_set_has(&s->word, code);
    bool is_alive = false;

    if (s->has_edges) {
        key_pass_edges(m, key, is_word, false, passed);
        at = passed;
    }
    memset(seen, 0, m->n_bytes);
    for (uint32_t byte = 0; byte < m->n_bytes; byte++)
        for (uint32_t i = byte * 8; i < s->n && at[byte] >> (i - byte * 8) != 0; i++)
            if (key_has(at, i) && s->all[i].kind == STEP_SET && char_set_has(s->all[i].set, code)) {
                key_close(s, s->all[i].next, (struct step_place){0}, seen);
                is_alive = true;
            }
    if (is_alive)
        key_keep(m, seen, ret_key);
    if (is_alive && is_word)
        key_set(ret_key, s->n);
    return is_alive;
}

static bool steps_is_end(const void *self, const void *key)
{
    const struct steps_machine *m = self;
    const struct steps *s = m->steps;
    unsigned char seen[AUTOMATON_MAX_KEY];
    bool is_end = false;

    key_pass_edges(m, key, false, true, seen);
    for (uint32_t i = 0; !is_end && i < s->n; i++)
        is_end = key_has(seen, i) && s->all[i].kind == STEP_MATCH;
    return is_end;
}

/* Which texts of a node are wanted. */
struct regex_scope {
    bool is_free_before, is_free_behind; /* they may go on there */
    int most_more;                       /* as struct steps has it */
};

static enum status regex_automaton(struct automaton *out, struct regex_parser *p,
                                   const struct symbols *symbols, const struct node *node,
                                   struct regex_scope scope)
{
    struct steps *s = arena_alloc(p->arena, 1, sizeof(*s));
    struct steps_machine self = {.steps = s};
    uint32_t match;

    if (scope.is_free_before)
        node = node_join(p, NODE_BOTH, node_any_text(p), node);
    if (scope.is_free_behind)
        node = node_join(p, NODE_BOTH, node, node_any_text(p));
    if (s != NULL)
        s->all = arena_alloc(p->arena, MAX_STEPS, sizeof(*s->all));
    if (node == NULL || s == NULL || s->all == NULL)
        return error_no_memory(p->err, 0, "a regular expression");
    s->most_more = scope.most_more;
    s->has_edges = p->has_edges;
    s->word = (struct char_set){s->word_room, 0, WORD_RANGES};
    (void)!set_of_letter('w', &s->word); /* there is room */
    match = steps_add(s, (struct step){.kind = STEP_MATCH});
    self.first = steps_write(s, node, match);
    if (s->is_full) {
        (void)regex_refuse(p, "too many repetitions or characters for an automaton");
        return p->err->status;
    }
    self.n_bytes = (s->n + 1) / 8 + 1;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->all[i].kind != STEP_FORK && s->all[i].kind != STEP_START)
            key_set(self.kept, i);
    return automaton_of_machine(out,
                                &(struct machine){.symbols = symbols->begins,
                                                  .classes = symbols->classes,
                                                  .n_symbols = symbols->n,
                                                  .last = CHAR_LAST,
                                                  .key_bytes = self.n_bytes,
                                                  .step_work = 4 + s->n / 64,
                                                  .work = p->work,
                                                  .start = steps_start,
                                                  .step = steps_step,
                                                  .is_end = steps_is_end,
                                                  .self = &self},
                                AUTOMATON_MAX_STATES, p->arena, p->err);
}

static enum status regex_make(struct regex *out, const char *pattern, size_t len, bool is_whole,
                              size_t *work, struct arena *arena, struct error *err)
{
    const struct regex_scope found = {!is_whole, !is_whole, is_whole ? WHOLE_MORE : MAX_REPEAT},
                             ahead = {false, true, MAX_REPEAT};
    struct regex_parser p = {
        .at = pattern, .end = pattern + len, .arena = arena, .err = err, .work = work};
    const struct node *all = regex_parse(&p);
    struct char_range room[WORD_RANGES];
    struct char_set word = {room, 0, WORD_RANGES};
    struct symbols symbols = {0};
    enum status rc;

    (void)!set_of_letter('w', &word); /* there is room */
    /* what stands around the expression divides characters, too */
    if (all == NULL || node_any_text(&p) == NULL ||
        (p.has_edges && node_of_set(&p, &word) == NULL) || !symbols_make(&symbols, &p))
        return err->status;
    rc = regex_automaton(&out->parts[0].automaton, &p, &symbols, all, found);
    out->parts[0].is_excluded = false;
    out->n_parts = 1;
    for (size_t i = 0; rc == STATUS_OK && i < p.n_ahead; i++) {
        struct regex_part *part = &out->parts[out->n_parts++];

        part->is_excluded = p.ahead[i].is_excluded;
        rc = regex_automaton(&part->automaton, &p, &symbols, p.ahead[i].node, ahead);
    }
    return rc;
}

enum status regex_compile(struct regex *out, const char *pattern, size_t len, size_t *work,
                          struct arena *arena, struct error *err)
{
    return regex_make(out, pattern, len, false, work, arena, err);
}

enum status regex_compile_whole(struct regex *out, const char *pattern, size_t len, size_t *work,
                                struct arena *arena, struct error *err)
{
    return regex_make(out, pattern, len, true, work, arena, err);
}

/* The only part of a sequence that is not empty. */
static const struct node *node_behind(const struct node **at)
{
    while (*at != NULL && (*at)->kind == NODE_BOTH) {
        const struct node *right = (*at)->right;

        *at = (*at)->left;
        if (right->kind != NODE_EMPTY)
            return right;
    }
    return NULL;
}

/* The inside of groups that have nothing else. */
static const struct node *node_inside(const struct node *node)
{
    while (node != NULL && node->kind == NODE_BOTH) {
        const struct node *rest = node;

        node = node_behind(&rest);
        if (node != NULL && (node_behind(&rest) != NULL || rest->kind != NODE_EMPTY))
            return NULL;
    }
    return node;
}

bool regex_is_repeated_set(const char *pattern, size_t len, size_t *work, struct char_set *ret_set,
                           size_t *ret_least, size_t *ret_most)
{
    struct error err;
    struct arena arena;
    struct regex_parser p = {
        .at = pattern, .end = pattern + len, .arena = &arena, .err = &err, .work = work};
    const struct node *at, *end, *middle, *start;
    bool is_one;

    arena_init(&arena, 16 << 20);
    at = regex_parse(&p);
    end = node_behind(&at);
    middle = node_inside(node_behind(&at));
    start = node_behind(&at);
    is_one = p.n_ahead == 0 && start != NULL && start->kind == NODE_START &&
             end->kind == NODE_END && node_behind(&at) == NULL && at != NULL &&
             at->kind == NODE_EMPTY && middle != NULL && middle->kind == NODE_REPEAT &&
             middle->left->kind == NODE_SET && middle->left->set->n <= ret_set->room;
    if (is_one) {
        ret_set->n = middle->left->set->n;
        memcpy(ret_set->ranges, middle->left->set->ranges, ret_set->n * sizeof(*ret_set->ranges));
        *ret_least = (size_t)middle->least;
        *ret_most = middle->most == UNBOUNDED ? SIZE_MAX : (size_t)middle->most;
    }
    arena_deinit(&arena);
    return is_one;
}
