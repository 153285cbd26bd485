#include "agents/reply/whole_reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static enum status whole_reply_bound(struct whole_reply *r)
{
    return buf_append(&r->bounds, &r->calls.len, sizeof(r->calls.len));
}

static enum status whole_reply_run(struct whole_reply *r, const struct reply_part *part)
{
    const struct whole_run run = {part->kind, part->len};
    struct whole_run *last =
        r->runs.len == 0 ? NULL : (struct whole_run *)(void *)(r->runs.data + r->runs.len) - 1;

    if (part->kind == REPLY_ARGUMENTS)
        return STATUS_OK;
    if (last == NULL || last->kind != part->kind || part->kind == REPLY_CALL)
        return buf_append(&r->runs, &run, sizeof(run));
    last->len += part->len;
    return STATUS_OK;
}

/* A call's name ends with a bound at once, its arguments with the next call or the reply. */
static enum status whole_reply_take(struct whole_reply *r, const struct reply_part *part)
{
    enum status rc = whole_reply_run(r, part);

    if (rc != STATUS_OK)
        return rc;
    switch (part->kind) {
    case REPLY_TEXT:
        return buf_append(&r->text, part->text, part->len);
    case REPLY_THOUGHT:
        return buf_append(&r->thoughts, part->text, part->len);
    case REPLY_ARGUMENTS:
        return buf_append(&r->calls, part->text, part->len);
    case REPLY_CALL:
        break;
    }
    if (r->n_calls++ > 0)
        rc = whole_reply_bound(r);
    if (rc == STATUS_OK)
        rc = buf_append(&r->calls, part->text, part->len);
    return rc == STATUS_OK ? whole_reply_bound(r) : rc;
}

static enum status whole_reply_take_all(struct whole_reply *r, struct reply_parser *p)
{
    struct reply_part part;
    enum status rc = STATUS_OK;

    while (rc == STATUS_OK && reply_parser_next(p, &part))
        rc = whole_reply_take(r, &part);
    return rc;
}

enum status whole_reply_read(struct whole_reply *out, const struct reply_parser_config *config,
                             const char *text, size_t len, struct error *err)
{
    struct reply_parser_config whole = *config;
    struct whole_reply r = {0};
    struct reply_parser *p = NULL;
    enum status rc;

    buf_init(&r.text, SIZE_MAX);
    buf_init(&r.thoughts, SIZE_MAX);
    buf_init(&r.runs, SIZE_MAX);
    buf_init(&r.calls, SIZE_MAX);
    buf_init(&r.bounds, SIZE_MAX);
    *out = r;
    whole.streams_calls = false;
    rc = reply_parser_open(&p, &whole, err);
    if (rc == STATUS_OK)
        rc = reply_parser_add(p, text, len, err);
    if (rc == STATUS_OK && whole_reply_take_all(&r, p) != STATUS_OK)
        rc = error_no_memory(err, len, "a reply's parts");
    if (rc == STATUS_OK)
        rc = reply_parser_end(p, err);
    if (rc == STATUS_OK && (whole_reply_take_all(&r, p) != STATUS_OK ||
                            (r.n_calls > 0 && whole_reply_bound(&r) != STATUS_OK)))
        rc = error_no_memory(err, len, "a reply's parts");
    reply_parser_close(p);
    if (rc == STATUS_OK)
        *out = r;
    else
        whole_reply_deinit(&r);
    return rc;
}

void whole_reply_deinit(struct whole_reply *r)
{
    buf_deinit(&r->text);
    buf_deinit(&r->thoughts);
    buf_deinit(&r->runs);
    buf_deinit(&r->calls);
    buf_deinit(&r->bounds);
    r->n_calls = 0;
}

void whole_reply_call(const struct whole_reply *r, uint32_t i, struct tool_call *out)
{
    const size_t *bounds = (const size_t *)(const void *)r->bounds.data + (size_t)2 * i;
    const size_t from = i == 0 ? 0 : bounds[-1];

    *out = (struct tool_call){.name = {r->calls.data + from, bounds[0] - from},
                              .arguments = {r->calls.data + bounds[0], bounds[1] - bounds[0]}};
    if (out->arguments.len == 0)
        out->arguments = (struct text){"{}", 2};
}

enum status whole_reply_extras(const struct whole_reply *r, uint64_t seed, bool with_thoughts,
                               struct buf *out, struct error *err)
{
    struct tool_call *calls = try_alloc(r->n_calls + 1, sizeof(*calls));
    char(*ids)[CALL_ID_CHARS] = try_alloc(r->n_calls + 1, sizeof(*ids));
    struct message_extras x = {.calls = calls, .n_calls = r->n_calls};
    enum status rc = STATUS_OK;

    if (with_thoughts)
        x.thoughts = (struct text){r->thoughts.data, r->thoughts.len};
    if (calls == NULL || ids == NULL) {
        rc = error_no_memory(err, r->n_calls * sizeof(*calls), "a reply's calls");
    } else {
        for (uint32_t i = 0; i < r->n_calls; i++) {
            whole_reply_call(r, i, &calls[i]);
            call_id_format(ids[i], seed, i);
            calls[i].id = (struct text){ids[i], CALL_ID_CHARS - 1};
        }
        if (message_extras_write(out, &x) != STATUS_OK)
            rc = error_no_memory(err, r->calls.len, "a reply's calls");
    }
    free(calls);
    free(ids);
    return rc;
}
