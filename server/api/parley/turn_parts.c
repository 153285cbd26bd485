/* Divides the text of a reply by the parser of its model's format, for one reader of the turn.
 * Events of the wire are filled with what the parser has ready. */
#include "server/api/parley/turn_parts.h"

#include <string.h>

#include "agents/reply/whole_reply.h"
#include "server/api/parley/wire_parts.h"
#include "server/api/tools.h"

void turn_parts_init(struct turn_parts *p, const struct reply_format *format, bool wants_thoughts)
{
    *p = (struct turn_parts){.has_format = format != NULL, .wants_thoughts = wants_thoughts};
    if (format != NULL)
        p->format = *format;
}

void turn_parts_close(struct turn_parts *p)
{
    reply_parser_close(p->parser);
    p->parser = NULL;
}

static bool parts_divide(const struct turn_parts *p, const struct stored_request *asked,
                         struct reply_parser_config *out)
{
    return tools_divide(out, asked, p->has_format ? &p->format : NULL) &&
           (out->tools.len > 0 || p->wants_thoughts);
}

/* --- events --- */

/* The text that r has behind it, without the last len bytes, was read by someone else. */
static enum status parts_begin(struct turn_parts *p, const struct turn_reader *r, size_t len)
{
    const struct stored_request *asked =
        r->turn != NULL ? turn_request_of(r->turn) : r->completed->request;
    const char *text = r->turn != NULL ? r->turn->agent.reply.text.data : r->completed->text;
    struct reply_parser_config config;
    struct reply_part ignored;
    enum status rc;

    if (p->is_begun)
        return STATUS_OK;
    p->is_begun = true;
    p->seed = asked->tool_use.seed;
    if (!parts_divide(p, asked, &config))
        return STATUS_OK;
    config.streams_calls = true;
    config.places = (struct reply_places){reader_has_token, r};
    rc = reply_parser_open(&p->parser, &config, &p->err);
    if (rc == STATUS_OK && r->text_at > len)
        rc = reply_parser_add(p->parser, text, r->text_at - len, &p->err);
    while (rc == STATUS_OK && reply_parser_next(p->parser, &ignored))
        continue;
    return rc;
}

static enum status parts_take(struct turn_parts *p, const struct turn_reader *r,
                              struct turn_event *event)
{
    struct reply_part part;
    enum status rc = parts_begin(p, r, event->kind == EVENT_PIECE ? event->piece.len : 0);

    if (rc != STATUS_OK || p->parser == NULL)
        return rc;
    if (event->kind == EVENT_PIECE)
        return reply_parser_add(p->parser, event->piece.text, event->piece.len, &p->err);
    if (reply_parser_is_in_call(p->parser))
        return tools_cut_call(&p->err, event->finish);
    rc = reply_parser_end(p->parser, &p->err);
    if (rc == STATUS_OK && reply_parser_peek(p->parser, &part)) {
        p->end = *event;
        p->has_end = true;
        *event = (struct turn_event){.kind = EVENT_PIECE, .number = event->number};
        event->piece.text = "";
    }
    return rc;
}

bool turn_parts_next(struct turn_parts *p, struct turn_reader *r, struct turn_event *out)
{
    if (p->has_end) {
        *out = p->end;
        p->has_end = false;
        return true;
    }
    if (!reader_next(r, out))
        return false;
    if ((out->kind == EVENT_PIECE || out->kind == EVENT_DONE) && parts_take(p, r, out) != STATUS_OK)
        *out = (struct turn_event){.kind = EVENT_FAILED, .err = &p->err};
    return true;
}

bool turn_parts_has_more(const struct turn_parts *p, const struct turn_reader *r)
{
    return p->has_end || reader_has_more(r);
}

uint32_t turn_parts_n_calls(const struct turn_parts *p)
{
    return p == NULL || p->parser == NULL ? 0 : reply_parser_n_calls(p->parser);
}

/* --- pieces --- */

static enum status append_delta(struct buf *list, const struct reply_part *part, uint64_t seed,
                                struct arena *arena)
{
    Parley__V1__ToolCallDelta *delta = arena_alloc(arena, 1, sizeof(*delta));
    char *text = wire_copy(part->text, part->len, arena);
    char *id = arena_alloc(arena, CALL_ID_CHARS, 1);
    char *key = arena_alloc(arena, CALL_KEY_CHARS, 1);

    if (delta == NULL || text == NULL || id == NULL || key == NULL)
        return STATUS_EXHAUSTED;
    parley__v1__tool_call_delta__init(delta);
    delta->index = part->call;
    if (part->kind == REPLY_CALL) {
        call_id_format(id, seed, part->call);
        delta->id = id;
        call_key_format(key, seed, part->call);
        delta->idempotency_key = key;
        delta->name = text;
    } else {
        delta->arguments = text;
    }
    return buf_append(list, &delta, sizeof(delta));
}

struct piece_parts {
    struct buf text, thoughts, deltas;
};

static enum status gather(struct piece_parts *g, struct turn_parts *p, struct arena *arena)
{
    struct reply_part part;
    enum status rc = STATUS_OK;

    while (rc == STATUS_OK && reply_parser_next(p->parser, &part)) {
        if (part.kind == REPLY_TEXT)
            rc = buf_append(&g->text, part.text, part.len);
        else if (part.kind == REPLY_THOUGHT)
            rc = buf_append(&g->thoughts, part.text, part.len);
        else
            rc = append_delta(&g->deltas, &part, p->seed, arena);
    }
    return rc;
}

static enum status put_gathered(Parley__V1__TurnPiece *out, const struct piece_parts *g,
                                struct arena *arena)
{
    out->text = wire_copy(g->text.data, g->text.len, arena);
    out->reasoning = wire_copy(g->thoughts.data, g->thoughts.len, arena);
    out->n_tool_calls = g->deltas.len / sizeof(out->tool_calls[0]);
    out->tool_calls = arena_alloc(arena, out->n_tool_calls, sizeof(out->tool_calls[0]));
    if (out->text == NULL || out->reasoning == NULL || out->tool_calls == NULL)
        return STATUS_EXHAUSTED;
    if (g->deltas.len > 0)
        memcpy(out->tool_calls, g->deltas.data, g->deltas.len);
    return STATUS_OK;
}

enum status turn_parts_fill(Parley__V1__TurnPiece *out, struct turn_parts *p, struct arena *arena)
{
    struct piece_parts g;
    enum status rc;

    buf_init(&g.text, SIZE_MAX);
    buf_init(&g.thoughts, SIZE_MAX);
    buf_init(&g.deltas, SIZE_MAX);
    rc = gather(&g, p, arena);
    if (rc == STATUS_OK)
        rc = put_gathered(out, &g, arena);
    buf_deinit(&g.text);
    buf_deinit(&g.thoughts);
    buf_deinit(&g.deltas);
    return rc;
}

/* --- a whole reply --- */

static enum status put_calls_of(Parley__V1__Message *out, const struct whole_reply *reply,
                                uint64_t seed, struct arena *arena)
{
    Parley__V1__ToolCall *calls = arena_alloc(arena, reply->n_calls, sizeof(calls[0]));
    char(*ids)[CALL_ID_CHARS] = arena_alloc(arena, reply->n_calls, sizeof(ids[0]));
    char(*keys)[CALL_KEY_CHARS] = arena_alloc(arena, reply->n_calls, sizeof(keys[0]));

    out->tool_calls = arena_alloc(arena, reply->n_calls, sizeof(out->tool_calls[0]));
    if (calls == NULL || ids == NULL || keys == NULL || out->tool_calls == NULL)
        return STATUS_EXHAUSTED;
    for (uint32_t i = 0; i < reply->n_calls; i++) {
        struct tool_call call;

        whole_reply_call(reply, i, &call);
        call_id_format(ids[i], seed, i);
        call_key_format(keys[i], seed, i);
        parley__v1__tool_call__init(&calls[i]);
        calls[i].id = ids[i];
        calls[i].idempotency_key = keys[i];
        calls[i].name = wire_copy(call.name.text, call.name.len, arena);
        calls[i].arguments = wire_copy(call.arguments.text, call.arguments.len, arena);
        if (calls[i].name == NULL || calls[i].arguments == NULL)
            return STATUS_EXHAUSTED;
        out->tool_calls[out->n_tool_calls++] = &calls[i];
    }
    return STATUS_OK;
}

uint32_t turn_parts_n_thought(const struct turn_parts *p, const struct completed_turn *r)
{
    return tools_thought_tokens(r, p->has_format ? &p->format : NULL);
}

enum status turn_parts_message(Parley__V1__Message *out, const struct turn_parts *p,
                               const struct completed_turn *r, struct arena *arena)
{
    struct reply_parser_config config;
    struct whole_reply reply;
    struct error ignored;
    enum status rc;

    if (!parts_divide(p, r->request, &config))
        return STATUS_OK;
    config.places = (struct reply_places){completed_turn_has_token, r};
    rc = whole_reply_read(&reply, &config, r->text, r->len, &ignored);
    if (rc != STATUS_OK)
        return rc;
    out->text = wire_copy(reply.text.data, reply.text.len, arena);
    out->reasoning = wire_copy(reply.thoughts.data, reply.thoughts.len, arena);
    rc = out->text == NULL || out->reasoning == NULL
             ? STATUS_EXHAUSTED
             : put_calls_of(out, &reply, r->request->tool_use.seed, arena);
    whole_reply_deinit(&reply);
    return rc;
}
