#include "client/cli/bench/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"

enum { AGENT_FIRST_TOKENS = 23900, CYCLE = 13 };

/* What a tool's result has, and a reply; turn after turn, from the first again. */
static const uint32_t results[CYCLE] = {320, 800,  4100, 560, 2000, 6900, 1160,
                                        400, 3000, 9800, 920, 2500, 480};
static const uint32_t replies[CYCLE] = {210, 380, 110, 490, 180, 300, 860,
                                        140, 290, 640, 170, 420, 100};

static uint32_t shape_scale(uint32_t n_tokens, double scale)
{
    return (uint32_t)fmax(1, round(n_tokens * scale));
}

enum status shape_make(struct trace *out, const char *name, struct error *err)
{
    static const char agent[] = "agent";
    const size_t len = strlen(agent);
    double scale = 1;

    *out = (struct trace){0};
    if (strncmp(name, agent, len) != 0 || (name[len] != '\0' && name[len] != ':'))
        return error_set(err, STATUS_INVALID, "'%.40s' is no shape, it must be agent or agent:X",
                         name);
    if (name[len] == ':' &&
        (!number_read_real(&scale, name + len + 1) || !(scale > 0 && scale <= 100)))
        return error_set(err, STATUS_INVALID,
                         "the X of '%.40s' must be a number above 0, of at most 100", name);
    out->items = xalloc(sizeof(*out->items));
    out->n = 1;
    out->max_turns = SHAPE_AGENT_TURNS;
    out->items[0].n_turns = SHAPE_AGENT_TURNS;
    out->items[0].turns = xalloc(SHAPE_AGENT_TURNS * sizeof(*out->items[0].turns));
    for (uint32_t i = 0; i < SHAPE_AGENT_TURNS; i++)
        out->items[0].turns[i] =
            (struct trace_turn){.input_tokens = shape_scale(
                                    i == 0 ? AGENT_FIRST_TOKENS : results[(i - 1) % CYCLE], scale),
                                .output_tokens = shape_scale(replies[i % CYCLE], scale)};
    return STATUS_OK;
}
