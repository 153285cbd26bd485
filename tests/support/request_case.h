/* A request's JSON, parsed for a test of what reads it: its body, and the arena for the results. */
#ifndef TESTS_SUPPORT_REQUEST_CASE_H
#define TESTS_SUPPORT_REQUEST_CASE_H

#include <jansson.h>
#include <string.h>

#include "base/arena.h"
#include "server/json/fields.h"
#include "tests/fault/sweep.h"

enum { REQUEST_CASE_BYTES = 8 << 20 };

struct request_case {
    struct arena arena;
    json_t *body;
    struct error err;
};

/* On failure, too, closed by request_case_close. */
static inline enum status request_case_open(struct request_case *c, const char *text)
{
    *c = (struct request_case){0};
    arena_init(&c->arena, REQUEST_CASE_BYTES);
    return fields_parse(&c->body, text, strlen(text), &c->err);
}

static inline void request_case_close(struct request_case *c)
{
    json_decref(c->body);
    arena_deinit(&c->arena);
}

/* Lets each allocation of once, which reads the text, fail in turn; returns how many there are. */
static inline long request_case_sweep(enum status (*once)(void *text), const char *text)
{
    fields_init();
    return sweep(once, (void *)(size_t)text);
}

#endif
