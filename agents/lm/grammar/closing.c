/* Goes on byte by byte: of those that the engine takes the first in an order in which what closes
 * comes first. That is not always the shortest way, but one of a few bytes more. Each way has an
 * end, since lists and objects are closed once their required parts are there; but a pattern may
 * take what comes first in the order for ever: then another order is tried. */
#include "agents/lm/grammar/closing.h"

#include <stdint.h>
#include <string.h>

#include "agents/lm/grammar/module.h"

enum {
    MAX_STRING_BYTES = 96, /* the most bytes that are added to a string that must not end yet */
    MAX_TRIES = 20000,     /* the most bytes that are tried in the engine: some milliseconds */
};

struct closing {
    const struct grammar_module *module;
    void *engine;
    struct json_place place;
    char *text;
    size_t len, cap;
    size_t n_steps; /* how many steps the engine has accepted */
    size_t n_tries;
};

static bool closing_take(struct closing *c, const char *bytes, size_t len)
{
    if (len > c->cap - c->len || c->n_tries++ >= MAX_TRIES ||
        !c->module->matcher_accept_text(c->engine, bytes, len))
        return false;
    memcpy(c->text + c->len, bytes, len);
    c->len += len;
    c->n_steps++;
    for (size_t i = 0; i < len; i++)
        (void)json_place_add(&c->place, bytes[i]);
    return true;
}

static bool closing_may_take(struct closing *c, char byte)
{
    if (c->n_tries++ >= MAX_TRIES || !c->module->matcher_accept_text(c->engine, &byte, 1))
        return false;
    c->module->matcher_take_back(c->engine, 1);
    return true;
}

/* The first byte in this order that may come; what came last only if nothing else may. */
static bool closing_take_first(struct closing *c, const char *order)
{
    const char last = c->len > 0 ? c->text[c->len - 1] : '\0';

    for (const char *at = order; *at != '\0'; at++)
        if (*at != last && closing_take(c, at, 1))
            return true;
    return last != '\0' && strchr(order, last) != NULL && closing_take(c, &last, 1);
}

/* What must come next in any case. */
static bool closing_take_forced(struct closing *c)
{
    char text[64];
    size_t len = c->module->matcher_forced(c->engine, text, sizeof(text));

    return len > 0 && closing_take(c, text, len);
}

/* Ends a string that may not end here, by at most so many bytes in this order; takes them back
 * where they come to no end. */
static bool closing_try_string(struct closing *c, const char *order, size_t max_bytes)
{
    const struct closing before = *c;

    while (c->len - before.len < max_bytes) {
        if (closing_take(c, "\"", 1))
            return true;
        if (!closing_take_forced(c) && !closing_take_first(c, order))
            break;
        if (!c->place.is_in_string) /* the forced text has ended the string */
            return true;
    }
    c->module->matcher_take_back(c->engine, c->n_steps - before.n_steps);
    c->len = before.len;
    c->n_steps = before.n_steps;
    c->place = before.place;
    return false;
}

static bool closing_end_string(struct closing *c)
{
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define REST " !#$%&'()*,;<=>?[]^`{|}~"
    /* What may be taken for ever, and what then goes on: a fraction of a second and 'Z', the name
     * in an address and '@'. */
    static const char marks_first[] = "@Z:/-+_.0123456789" LETTERS REST;
    static const char marks_last[] = "0123456789" LETTERS REST "@Z:/-+_.";

    if (closing_may_take(c, ' ') && closing_may_take(c, '.'))
        return closing_try_string(c, ".", SIZE_MAX); /* a text of a minimum length */
    return closing_try_string(c, marks_first, MAX_STRING_BYTES) ||
           closing_try_string(c, marks_last, MAX_STRING_BYTES);
#undef LETTERS
#undef REST
}

static bool closing_go_on(struct closing *c)
{
    /* One of these may follow any first byte of UTF-8. */
    static const char rest_of_character[] = "\x80\xA0\x90";

    if (c->place.is_escaped)
        return closing_take_first(c, "n/0123456789");
    if (c->place.is_in_string)
        return closing_take(c, "\"", 1) || closing_take_first(c, rest_of_character) ||
               closing_end_string(c);
    return closing_take_first(c, "}],") || closing_take_forced(c) ||
           closing_take_first(c, "n0123456789tf\"-[{.e+ :");
}

size_t closing_find(const struct grammar_module *module, void *engine, struct json_place place,
                    char *text, size_t cap)
{
    struct closing c = {
        .module = module, .engine = engine, .place = place, .text = text, .cap = cap};
    bool is_found = module->matcher_may_end(engine);

    while (!is_found && closing_go_on(&c))
        is_found = module->matcher_may_end(engine);
    module->matcher_take_back(engine, c.n_steps);
    return is_found ? c.len : SIZE_MAX;
}
