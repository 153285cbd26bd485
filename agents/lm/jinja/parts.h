/* Inside the renderer of chat templates: operations on values, tokens, the tree of a compiled
 * template, and which file has what. Private to agents/lm/jinja/. */
#ifndef AGENTS_LM_JINJA_PARTS_H
#define AGENTS_LM_JINJA_PARTS_H

#include "agents/lm/jinja/jinja.h"

/* A method that is not called yet. */
struct jinja_method {
    struct jinja_value self;
    const char *name;
};

/* A growing string. */
struct jinja_text_builder {
    char *data;       /* [cap] */
    uint8_t *origins; /* [cap] */
    size_t len, cap;
};

enum { JINJA_MAX_DEPTH = 600 };

/* Sets the error, INVALID, with the template's line; returns false. */
bool jinja_fail(struct jinja_run *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Fails because v, which is undefined, is used; names it. */
bool jinja_fail_undefined(struct jinja_run *r, struct jinja_value v);
/* Counts n_bytes of work; false if the render has used up its steps. */
bool jinja_charge(struct jinja_run *r, size_t n_bytes) MUST_CHECK;
void *jinja_take(struct jinja_run *r, size_t n, size_t size_bytes) MUST_CHECK; /* NULL: failed */
bool jinja_enter(struct jinja_run *r) MUST_CHECK; /* one level deeper; r->depth-- leaves it */

struct jinja_value jinja_int(int64_t number);
struct jinja_value jinja_float(double real);
struct jinja_value jinja_undefined(const char *name);
bool jinja_part(struct jinja_run *r, const struct jinja_text *of, size_t from, size_t to,
                struct jinja_value *out) MUST_CHECK;
struct jinja_value *jinja_map_find(const struct jinja_map *m, const char *key, size_t len);
/* *ret is NULL if there is no such key. */
bool jinja_map_get(struct jinja_run *r, const struct jinja_map *m, struct jinja_value key,
                   struct jinja_value **ret) MUST_CHECK;

bool jinja_is_true(struct jinja_value v);
bool jinja_is_text(struct jinja_value v, const char *text);
/* Also of bool, as Python counts it. */
bool jinja_is_number(struct jinja_value v);
double jinja_as_real(struct jinja_value v);
bool jinja_equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b,
                 bool *ret) MUST_CHECK;
/* *ret < 0, 0, > 0; values without order fail. */
bool jinja_compare(struct jinja_run *r, struct jinja_value a, struct jinja_value b,
                   int *ret) MUST_CHECK;
const char *jinja_kind_name(struct jinja_value v);

bool jinja_put(struct jinja_run *r, struct jinja_text_builder *b, const char *data, size_t len,
               enum jinja_origin origin) MUST_CHECK;
bool jinja_put_text(struct jinja_run *r, struct jinja_text_builder *b,
                    const struct jinja_text *t) MUST_CHECK;
/* As Python's str. */
bool jinja_put_value(struct jinja_run *r, struct jinja_text_builder *b,
                     struct jinja_value v) MUST_CHECK;
bool jinja_built(struct jinja_run *r, const struct jinja_text_builder *b,
                 struct jinja_value *out) MUST_CHECK;
/* v itself if it is a string, else its str. */
bool jinja_str(struct jinja_run *r, struct jinja_value v, struct jinja_value *out) MUST_CHECK;
/* Python's repr of a float; out has at least 32 bytes. */
void jinja_format_real(double real, char *out, size_t size_bytes);

/* The characters that Python's str.strip removes. */
bool jinja_is_space(uint32_t character);
/* Moves *from and *to past the white space around [*from, *to), or past characters of set. */
void jinja_strip_left(const char *data, size_t *from, size_t to, const struct jinja_text *set);
void jinja_strip_right(const char *data, size_t from, size_t *to, const struct jinja_text *set);
size_t jinja_n_characters(const struct jinja_text *t);

/* json.c */
struct jinja_json_style {
    const char *indent; /* of one level; NULL: one line */
    const char *item_separator, *key_separator;
    bool is_ascii, is_sorted;
};
bool jinja_put_json(struct jinja_run *r, struct jinja_text_builder *b, struct jinja_value v,
                    const struct jinja_json_style *style) MUST_CHECK;

enum jinja_token_kind {
    JINJA_T_DATA, /* text outside of tags */
    JINJA_T_PRINT,
    JINJA_T_PRINT_END,
    JINJA_T_BLOCK,
    JINJA_T_BLOCK_END,
    JINJA_T_NAME,
    JINJA_T_STRING,
    JINJA_T_INT,
    JINJA_T_FLOAT,
    JINJA_T_OPERATOR,
    JINJA_T_END,
};

struct jinja_token {
    enum jinja_token_kind kind;
    uint32_t line;
    int operator; /* its characters: JINJA_OP */
    int64_t number;
    double real;
    const char *text; /* [len] */
    size_t len;
};

#define JINJA_OP(first, second) ((first) | (second) << 8)

enum jinja_node_kind {
    JINJA_N_DATA,
    JINJA_N_PRINT,
    JINJA_N_FOR,
    JINJA_N_FOR_RECURSIVE,
    JINJA_N_IF,
    JINJA_N_SET,
    JINJA_N_SET_BLOCK,
    JINJA_N_MACRO,
    JINJA_N_CALL_BLOCK,
    JINJA_N_FILTER_BLOCK,
    JINJA_N_SCOPE, /* with */
    JINJA_N_BREAK,
    JINJA_N_CONTINUE,
    JINJA_N_CONST,
    JINJA_N_NAME,
    JINJA_N_LIST,
    JINJA_N_TUPLE,
    JINJA_N_DICT,
    JINJA_N_ATTRIBUTE,
    JINJA_N_ITEM,
    JINJA_N_SLICE,
    JINJA_N_CALL,
    JINJA_N_FILTER,
    JINJA_N_TEST,
    JINJA_N_NOT,
    JINJA_N_NEGATIVE,
    JINJA_N_POSITIVE,
    JINJA_N_AND,
    JINJA_N_OR,
    JINJA_N_BINARY,
    JINJA_N_COMPARE,
    JINJA_N_IF_ELSE,
    JINJA_N_BODY, /* what a filter block or a block set has captured */
    JINJA_N_KEYWORD,
    JINJA_N_STAR,  /* *a, the items of a as arguments */
    JINJA_N_STARS, /* **a, the pairs of a as named arguments */
};

enum { JINJA_OP_IN = 1, JINJA_OP_NOT_IN };

/* Children by kind:
 *   PRINT, NOT, NEGATIVE, POSITIVE: a. AND, OR, BINARY: a operator b.
 *   FOR, FOR_RECURSIVE: a target, b iterable, c condition, body, other. IF: a, body, other.
 *   SET: a target, b value. SET_BLOCK: a target, b the value from BODY, body.
 *   MACRO: name, items are KEYWORD (name, a default or NULL), body.
 *   CALL_BLOCK: a call, items as a macro's, body. FILTER_BLOCK: a from BODY, body.
 *   SCOPE: items are SET, body. LIST, TUPLE: items. DICT: items, key and value in turn.
 *   ATTRIBUTE: a, word. ITEM: a[b]. SLICE: a[b:c:d]. CALL: a(items). FILTER, TEST: a, word, items.
 *   COMPARE: a, then items, each KEYWORD with operator and a. IF_ELSE: a if b else c.
 *   KEYWORD: word = a. */
struct jinja_node {
    enum jinja_node_kind kind;
    int operator;
    uint32_t line;
    uint32_t name; /* of the template's names */
    const char *word;
    struct jinja_value value;
    struct jinja_node *a, *b, *c, *d, *items, *body, *other, *next;
};

struct jinja {
    struct arena arena;
    struct jinja_node *body;
    const char **names; /* [n_names] */
    uint32_t n_names, cap_names;
};

struct jinja_binding {
    uint32_t name;
    struct jinja_value value;
    struct jinja_binding *next;
};

/* Variables of a loop's pass, a macro's call or a with block. */
struct jinja_scope {
    const struct jinja_scope *parent; /* NULL: the globals */
    struct jinja_binding *first;
    const struct jinja_value *captured; /* JINJA_N_BODY's value, NULL: the parent's */
};

struct jinja_args;

/* A macro as a value: what it does when it is called, and where it was defined. */
struct jinja_macro {
    bool (*call)(struct jinja_run *r, const struct jinja_macro *self, const struct jinja_args *args,
                 struct jinja_value *out);
    const struct jinja_node *node;
    const struct jinja_scope *scope;  /* where it was defined */
    const struct jinja_value *caller; /* for caller() inside it; may be NULL */
};

struct jinja_loop {
    /* The same loop over other items, one level deeper; NULL: the loop is not recursive. */
    bool (*call)(struct jinja_run *r, const struct jinja_loop *self, struct jinja_value items,
                 struct jinja_value *out);
    const struct jinja_node *node;
    const struct jinja_scope *scope; /* where the loop stands */
    unsigned depth0;
    const struct jinja_list *items;
    size_t index0;
    struct jinja_value changed; /* the last arguments of changed() */
    bool has_changed;
};

enum { JINJA_MAX_ARGS = 16 };

struct jinja_args {
    struct jinja_value values[JINJA_MAX_ARGS]; /* [n] */
    size_t n;
    struct {
        const char *name;
        struct jinja_value value;
    } named[JINJA_MAX_ARGS]; /* [n_named] */
    size_t n_named;
};

/* lex.c: the template's tokens, the last is END. */
enum status jinja_lex(struct arena *arena, const char *text, size_t len, struct jinja_token **out,
                      struct error *err) MUST_CHECK;

/* parser.c */
struct jinja_parser {
    struct jinja *template;
    const struct jinja_token *at;
    unsigned depth, loop_depth;
    struct error *err;
};
bool jinja_parse_fail(struct jinja_parser *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
struct jinja_node *jinja_node_new(struct jinja_parser *p, enum jinja_node_kind kind); /* or NULL */
/* The number of a name; UINT32_MAX without memory. */
uint32_t jinja_name(struct jinja_parser *p, const char *text, size_t len);
const char *jinja_word(struct jinja_parser *p, const struct jinja_token *t); /* or NULL */
bool jinja_at_op(const struct jinja_parser *p, int op);
bool jinja_at_name(const struct jinja_parser *p, const char *name);
bool jinja_skip_op(struct jinja_parser *p, int op);
bool jinja_skip_name(struct jinja_parser *p, const char *name);
bool jinja_expect_op(struct jinja_parser *p, int op) MUST_CHECK;

/* expression.c: NULL is a failure. */
struct jinja_node *jinja_parse_expression(struct jinja_parser *p, bool may_be_conditional);
struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool may_be_conditional);
/* Names only: the target of a loop or an assignment. */
struct jinja_node *jinja_parse_target(struct jinja_parser *p, bool may_be_attribute);
struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *of);
struct jinja_node *jinja_parse_call_args(struct jinja_parser *p, struct jinja_node *call);

/* eval.c */
bool jinja_eval(struct jinja_run *r, const struct jinja_scope *s, const struct jinja_node *n,
                struct jinja_value *out) MUST_CHECK;

/* items.c */
/* The byte where character i of t begins; i may be past the end. */
size_t jinja_byte_of(const struct jinja_text *t, size_t i);
/* Character i of t, from the end where i is negative; *out stays as it is where t has none. */
bool jinja_text_item(struct jinja_run *r, const struct jinja_text *t, int64_t i,
                     struct jinja_value *out) MUST_CHECK;
bool jinja_get_item(struct jinja_run *r, struct jinja_value of, struct jinja_value key,
                    struct jinja_value *out) MUST_CHECK;
bool jinja_get_attribute(struct jinja_run *r, struct jinja_value of, const char *name,
                         struct jinja_value *out) MUST_CHECK;

/* operators.c */
bool jinja_iterate(struct jinja_run *r, struct jinja_value v,
                   struct jinja_value *ret_list) MUST_CHECK;
bool jinja_contains(struct jinja_run *r, struct jinja_value in, struct jinja_value what,
                    bool *ret) MUST_CHECK;
bool jinja_binary(struct jinja_run *r, int op, struct jinja_value a, struct jinja_value b,
                  struct jinja_value *out) MUST_CHECK;

/* run.c */
bool jinja_bind(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *target,
                struct jinja_value v) MUST_CHECK;

/* filters.c, tests.c, methods.c, functions.c */
struct jinja_value *jinja_arg(struct jinja_args *args, size_t i, const char *name); /* or NULL */
bool jinja_filter(struct jinja_run *r, const char *name, struct jinja_value v,
                  struct jinja_args *args, struct jinja_value *out) MUST_CHECK;
bool jinja_test(struct jinja_run *r, const char *name, struct jinja_value v,
                struct jinja_args *args, bool *ret) MUST_CHECK;
bool jinja_has_method(struct jinja_value self, const char *name);
bool jinja_call_method(struct jinja_run *r, struct jinja_value self, const char *name,
                       struct jinja_args *args, struct jinja_value *out) MUST_CHECK;
int jinja_function_named(const char *name); /* -1: none */
bool jinja_call_function(struct jinja_run *r, int function, struct jinja_args *args,
                         struct jinja_value *out) MUST_CHECK;

/* Strings, shared by filters and methods. */
bool jinja_text_arg(struct jinja_run *r, struct jinja_args *args, size_t i, const char *name,
                    const struct jinja_text **ret) MUST_CHECK; /* NULL if it is not given */
bool jinja_replace(struct jinja_run *r, const struct jinja_text *t, const struct jinja_text *from,
                   const struct jinja_text *to, int64_t most, struct jinja_value *out) MUST_CHECK;
enum jinja_case { JINJA_LOWER, JINJA_UPPER, JINJA_TITLE, JINJA_CAPITAL };
bool jinja_recase(struct jinja_run *r, const struct jinja_text *t, enum jinja_case how,
                  struct jinja_value *out) MUST_CHECK;
bool jinja_join(struct jinja_run *r, struct jinja_value items, const struct jinja_text *between,
                struct jinja_value *out) MUST_CHECK;

#endif
