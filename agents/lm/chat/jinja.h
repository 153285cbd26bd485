/* Jinja2 as chat templates are rendered by it: trim_blocks, lstrip_blocks, loop controls, the
 * functions raise_exception and strftime_now, tojson without HTML escapes. A template is compiled
 * once and rendered often, within bounds of steps and memory. Not there: inheritance, includes,
 * recursive loops. */
#ifndef AGENTS_LM_CHAT_JINJA_H
#define AGENTS_LM_CHAT_JINJA_H

#include <stddef.h>

#include "agents/lm/chat/jinja_value.h"

struct jinja;

enum { JINJA_MAX_SOURCE_BYTES = 1 << 20 };

/* INVALID, with its line, if the template is not correct. */
enum status jinja_open(struct jinja **out, const char *text, size_t len,
                       struct error *err) MUST_CHECK;
void jinja_close(struct jinja *t); /* NULL is fine */

/* Begins a render with memory from arena, whose limit bounds it. Borrows all until the render ends;
 * now is the local time that strftime_now shows. Failures set *err. */
bool jinja_begin(struct jinja_run *out, const struct jinja *t, struct arena *arena,
                 const struct tm *now, uint64_t max_steps, struct error *err) MUST_CHECK;
/* A variable of the template; one that it does not use is left out. */
void jinja_set(struct jinja_run *r, const char *name, struct jinja_value value);
bool jinja_uses(const struct jinja *t, const char *name);
/* *out is valid as long as the arena. INVALID: the template raised an exception, cannot go on, or
 * passed a bound. */
enum status jinja_render(struct jinja_run *r, struct jinja_text *out) MUST_CHECK;

#endif
