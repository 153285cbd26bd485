/* A conversation as a message: what is known of it, and its transcript by pages. */
#include <stdio.h>
#include <string.h>

#include "proto/codec.h"
#include "server/access/access.h"
#include "server/api/parley/turn_parts.h"
#include "server/api/parley/wire.h"
#include "server/api/parley/wire_parts.h"
#include "server/api/parley/wire_sampling.h"

static enum status fill_metadata(Parley__V1__Conversation *out, const struct pair *pairs, size_t n,
                                 struct arena *arena)
{
    Parley__V1__Conversation__MetadataEntry *entries;

    if (n == 0)
        return STATUS_OK;
    entries = arena_alloc(arena, n, sizeof(entries[0]));
    out->metadata = arena_alloc(arena, n, sizeof(out->metadata[0]));
    if (entries == NULL || out->metadata == NULL)
        return STATUS_EXHAUSTED;
    out->n_metadata = n;
    for (size_t i = 0; i < n; i++) {
        parley__v1__conversation__metadata_entry__init(&entries[i]);
        entries[i].key = (char *)pairs[i].key;
        entries[i].value = (char *)pairs[i].value;
        out->metadata[i] = &entries[i];
    }
    return STATUS_OK;
}

/* Without keys the owner has no name, and the message none. */
static enum status fill_owner(Parley__V1__Conversation *out, const struct principal *owner,
                              struct arena *arena)
{
    if (owner->name[0] == '\0')
        return STATUS_OK;
    out->principal = arena_alloc(arena, 1, sizeof(*out->principal));
    if (out->principal == NULL)
        return STATUS_EXHAUSTED;
    parley__v1__principal__init(out->principal);
    out->principal->name = (char *)owner->name;
    return STATUS_OK;
}

/* p may be NULL. */
static enum status fill_sampling(Parley__V1__Sampling **out, const struct sampling_overrides *p,
                                 struct arena *arena)
{
    return p == NULL ? STATUS_OK : wire_sampling_message(out, &p->values, p->given, arena);
}

static void fill_limits(Parley__V1__ConversationLimits *out, const struct limits *limits)
{
    parley__v1__conversation_limits__init(out);
    out->max_turns = limits->max_turns;
    out->max_tokens = limits->max_tokens;
    out->priority = limits->priority;
}

enum status wire_conversation(Parley__V1__Conversation **out, const struct conversation *c,
                              const struct principal *owner, struct arena *arena, struct error *err)
{
    Parley__V1__Conversation *m = arena_alloc(arena, 1, sizeof(*m));
    char *id = arena_alloc(arena, 2, CONVERSATION_ID_CHARS);
    Parley__V1__ConversationLimits *limits = arena_alloc(arena, 1, sizeof(*limits));
    struct clone_info info = {0};

    if (m == NULL || id == NULL || limits == NULL)
        goto no_memory;
    clone_describe(c->host.clone, &info);
    parley__v1__conversation__init(m);
    conversation_id_format(&c->id, id);
    m->conversation = id;
    m->model = c->host.model->name;
    m->version = (char *)c->host.model->info.version;
    m->system = (char *)c->host.options->system;
    m->turns = c->host.n_turns;
    m->state = c->host.n_live > 0 ? PARLEY__V1__CONVERSATION_STATE__CONVERSATION_STATE_BUSY
                                  : PARLEY__V1__CONVERSATION_STATE__CONVERSATION_STATE_IDLE;
    m->queued = c->host.n_live > 0 ? c->host.n_live - 1u : 0;
    if (c->has_parent) {
        conversation_id_format(&c->parent, id + CONVERSATION_ID_CHARS);
        m->parent = id + CONVERSATION_ID_CHARS;
    }
    m->context_tokens = (uint32_t)info.n_tokens;
    m->kv_pages = (uint32_t)info.n_pages;
    m->kv_pages_shared = (uint32_t)info.n_pages_shared;
    m->idle_ms = conversation_idle_us(c) / 1000;
    m->ttl_ms = conversation_ttl_ms(c);
    m->has_own_ttl = c->host.options->ttl_ms != 0;
    m->opened_unix_ms = c->opened_unix_ms;
    m->continued_inexactly = c->is_inexact;
    m->generation = c->host.generation;
    fill_limits(limits, &c->host.options->limits);
    m->limits = limits;
    if ((c->metadata != NULL &&
         fill_metadata(m, c->metadata->pairs, c->metadata->n_pairs, arena) != STATUS_OK) ||
        fill_owner(m, owner, arena) != STATUS_OK ||
        fill_sampling(&m->sampling, c->host.options->overrides, arena) != STATUS_OK)
        goto no_memory;
    *out = m;
    return STATUS_OK;
no_memory:
    return error_no_memory(err, 0, "what is known of a conversation");
}

/* Of one that the journal has alone. */
static enum status wire_stored_conversation(Parley__V1__Conversation **out,
                                            const struct journal_row *row,
                                            const struct body_terms *t, uint64_t idle_ms,
                                            const struct principal *owner, struct arena *arena,
                                            struct error *err)
{
    Parley__V1__Conversation *m = arena_alloc(arena, 1, sizeof(*m));
    char *ids = arena_alloc(arena, 2, CONVERSATION_ID_CHARS);
    Parley__V1__ConversationLimits *limits = arena_alloc(arena, 1, sizeof(*limits));
    struct conversation_id id;

    if (m == NULL || ids == NULL || limits == NULL)
        goto no_memory;
    parley__v1__conversation__init(m);
    memcpy(id.bytes, row->id, sizeof(id.bytes));
    conversation_id_format(&id, ids);
    m->conversation = ids;
    if (row->has_parent) {
        memcpy(id.bytes, row->parent, sizeof(id.bytes));
        conversation_id_format(&id, ids + CONVERSATION_ID_CHARS);
        m->parent = ids + CONVERSATION_ID_CHARS;
    }
    m->model = (char *)t->model;
    m->version = (char *)t->version;
    m->system = arena_strndup(arena, t->system, t->system_len);
    m->turns = row->turns;
    m->state = PARLEY__V1__CONVERSATION_STATE__CONVERSATION_STATE_IDLE;
    m->idle_ms = idle_ms;
    m->ttl_ms = t->ttl_ms;
    m->has_own_ttl = t->ttl_ms != 0;
    m->opened_unix_ms = row->opened_unix_ms;
    m->generation = row->generation;
    fill_limits(limits, &t->limits);
    m->limits = limits;
    if (m->system == NULL || fill_metadata(m, t->metadata, t->n_metadata, arena) != STATUS_OK ||
        fill_owner(m, owner, arena) != STATUS_OK ||
        fill_sampling(&m->sampling, t->overrides, arena) != STATUS_OK)
        goto no_memory;
    *out = m;
    return STATUS_OK;
no_memory:
    return error_no_memory(err, sizeof(*m), "what is known of a conversation");
}

enum status wire_listed_conversation(Parley__V1__Conversation **out,
                                     const struct conversations *all, const struct journal_row *row,
                                     const struct principal *owner, struct arena *arena,
                                     struct error *err)
{
    const uint64_t now_ms = conversations_unix_ms(all);
    const uint64_t idle_ms = now_ms > row->last_unix_ms ? now_ms - row->last_unix_ms : 0;
    const struct conversation *c;
    struct conversation_id id;
    struct body_terms terms;
    enum status rc;

    memcpy(id.bytes, row->id, sizeof(id.bytes));
    c = conversations_get(all, &id);
    if (c != NULL)
        return wire_conversation(out, c, owner, arena, err);
    rc = body_read_terms(&terms, row->body, row->size_bytes, arena, err);
    if (rc != STATUS_OK)
        return rc;
    return wire_stored_conversation(out, row, &terms, idle_ms, owner, arena, err);
}

/* --- the transcript --- */

/* A page's token is the generation and the last turn of the page before: "2-100". */
enum { PAGE_TOKEN_CHARS = 2 * 10 + 2 };

/* *out is the number of the page's first turn. */
static enum status transcript_start(uint32_t *out, const struct conversation *c, const char *token,
                                    struct error *err)
{
    char again[PAGE_TOKEN_CHARS];
    unsigned generation, turn;

    if (token[0] == '\0') {
        *out = 1;
        return STATUS_OK;
    }
    if (sscanf(token, "%10u-%10u", &generation, &turn) != 2)
        return error_field(err, "page_token", "is not a token of an earlier response");
    (void)snprintf(again, sizeof(again), "%u-%u", generation, turn);
    if (strcmp(again, token) != 0)
        return error_field(err, "page_token", "is not a token of an earlier response");
    if (generation != c->host.generation || turn >= c->host.n_turns) {
        (void)error_field(err, "page_token",
                          "is of turns that were rewound: begin with the first page");
        return err->status = STATUS_RANGE;
    }
    *out = turn + 1;
    return STATUS_OK;
}

/* Turns first to first + n - 1, oldest first. */
static void collect_turns(const struct completed_turn **out, const struct conversation *c,
                          uint32_t first, size_t n)
{
    const struct completed_turn *r = completed_turn_find(c->host.newest, first + (uint32_t)n - 1);

    for (; n > 0; r = r->before)
        out[--n] = r;
}

/* Appends turns until the message would have more than WIRE_PAGE_BYTES. */
static enum status append_turns(Parley__V1__Conversation *m,
                                const struct completed_turn *const *turns, size_t n,
                                const struct turn_parts *parts, struct arena *arena)
{
    enum { HEAD_BYTES = 8 }; /* a turn's tag and length, at most */
    size_t n_bytes = codec_size(&m->base);

    for (size_t i = 0; i < n; i++) {
        Parley__V1__TranscriptTurn *turn;

        if (wire_transcript_turn(&turn, turns[i], parts, arena) != STATUS_OK)
            return STATUS_EXHAUSTED;
        n_bytes += codec_size(&turn->base) + HEAD_BYTES;
        if (i > 0 && n_bytes > WIRE_PAGE_BYTES)
            break;
        m->transcript[m->n_transcript++] = turn;
    }
    return STATUS_OK;
}

enum status wire_transcript(Parley__V1__Conversation *m, const struct conversation *c,
                            uint32_t page_size, const char *page_token, struct arena *arena,
                            struct error *err)
{
    size_t n = page_size == 0 ? WIRE_PAGE_TURNS : page_size;
    const struct completed_turn **turns;
    uint32_t first = 1, last;
    struct turn_parts parts;
    enum status rc;
    char *token;

    rc = transcript_start(&first, c, page_token, err);
    if (rc != STATUS_OK)
        return rc;
    n = n > WIRE_PAGE_TURNS_MAX ? WIRE_PAGE_TURNS_MAX : n;
    if (n > c->host.n_turns - first + 1)
        n = c->host.n_turns - first + 1;
    turns = arena_alloc(arena, n, sizeof(turns[0]));
    m->transcript = arena_alloc(arena, n, sizeof(m->transcript[0]));
    token = arena_alloc(arena, PAGE_TOKEN_CHARS, 1);
    if (turns == NULL || m->transcript == NULL || token == NULL)
        return error_no_memory(err, 0, "a transcript");
    collect_turns(turns, c, first, n);
    turn_parts_init(&parts, c->host.model->info.text.reply_format, true);
    if (append_turns(m, turns, n, &parts, arena) != STATUS_OK)
        return error_no_memory(err, 0, "a transcript");
    last = first + (uint32_t)m->n_transcript - 1;
    if (last < c->host.n_turns) {
        (void)snprintf(token, PAGE_TOKEN_CHARS, "%u-%u", c->host.generation, last);
        m->next_page_token = token;
    }
    return STATUS_OK;
}
