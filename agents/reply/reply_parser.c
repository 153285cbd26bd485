/* held is the text that is not decided yet. Each state takes what it can from its front and may
 * hand over to another state; when none gets further, more text is needed. */
#include "agents/reply/reply_parser.h"

#include <stdlib.h>
#include <string.h>

#include "agents/reply/call_text.h"
#include "agents/reply/json_scan.h"
#include "base/alloc.h"

enum parser_state {
    PARSE_TEXT,      /* searches for a mark */
    PARSE_THOUGHT,   /* searches for the end of the thought */
    PARSE_HEADER,    /* of a message in channels: searches for its end */
    PARSE_CALL,      /* after the opening mark: reads a call up to its arguments */
    PARSE_ARGUMENTS, /* follows the arguments to their end, and hands them out */
    PARSE_OBJECT,    /* the rest of the object around the arguments */
    PARSE_REST,      /* the closing mark, or the next call */
    PARSE_NOTHING,   /* only one call was requested, and it is complete */
};

enum {
    MAX_HELD_SPACE = 256, /* white space before a mark, which is not text */
    MAX_HEADER = 512,     /* of a message in channels; a longer one is text */
    MAX_PARSED_BYTES = 64 << 20,
    SLICE_BYTES = 4096,
};

struct parsed {
    enum reply_part_kind kind;
    uint32_t call;
    size_t end; /* in out */
};

struct reply_parser {
    const struct reply_format *format;
    struct reply_places places;
    const struct call_format *calls; /* NULL: does not search for calls */
    const struct thought_format *thoughts;
    json_t *tools;
    bool may_be_bare, is_single, streams, is_json;
    enum parser_state state;
    struct buf held, out, parts; /* parts: struct parsed */
    struct buf thought_ranges;   /* struct reply_range */
    size_t n_added;              /* bytes of the reply so far, of which held are the last */
    size_t n_read,
        read_to;     /* the number of parts that were read, and the end of the last one in out */
    size_t mark_len; /* PARSE_CALL: of the opening mark, and white space, at the front of held */
    /* PARSE_ARGUMENTS: the name, where the arguments begin, and how far they have been followed,
     * all in held. PARSE_OBJECT: scanned alone. */
    size_t name_at, name_len, arguments_at, scanned;
    struct json_scan scan;
    uint32_t n_calls;
    size_t header_len; /* PARSE_ARGUMENTS: of the header before them, in held; 0: none */
    bool has_text;     /* so a call without a mark cannot begin any more */
    bool skips_space;  /* at the front of held */
    bool may_reopen;   /* the prompt has opened the thought, and the model may do so again */
    bool is_in_call, is_over, is_bare;
    char before;   /* the last character of text that was given; 0: none */
    bool is_short; /* out of memory */
};

/* --- parts --- */

static struct parsed *parser_last(struct reply_parser *p)
{
    return p->parts.len == 0 ? NULL : (struct parsed *)(void *)(p->parts.data + p->parts.len) - 1;
}

static void parser_put(struct reply_parser *p, enum reply_part_kind kind, const char *text,
                       size_t len)
{
    const uint32_t call = p->n_calls == 0 ? 0 : p->n_calls - 1;
    struct parsed *last = parser_last(p), part = {kind, call, p->out.len + len};

    if (p->is_short || (len == 0 && kind != REPLY_CALL))
        return;
    if (buf_append(&p->out, text, len) != STATUS_OK)
        p->is_short = true;
    else if (last != NULL && last->kind == kind && last->call == call && kind != REPLY_CALL)
        last->end = p->out.len;
    else if (buf_append(&p->parts, &part, sizeof(part)) != STATUS_OK)
        p->is_short = true;
}

/* A thought of so many bytes is the front of held. */
static void parser_note_thought(struct reply_parser *p, size_t len)
{
    const size_t at = p->n_added - p->held.len,
                 n = p->thought_ranges.len / sizeof(struct reply_range);
    const struct reply_range range = {at, at + len};
    struct reply_range *last =
        n == 0 ? NULL : (struct reply_range *)(void *)p->thought_ranges.data + n - 1;

    if (len == 0 || p->is_short)
        return;
    if (last != NULL && last->to == at)
        last->to = range.to;
    else
        p->is_short = buf_append(&p->thought_ranges, &range, sizeof(range)) != STATUS_OK;
}

const struct reply_range *reply_parser_thoughts(const struct reply_parser *p, size_t *ret_n)
{
    *ret_n = p->thought_ranges.len / sizeof(struct reply_range);
    return (const struct reply_range *)(const void *)p->thought_ranges.data;
}

/* Hands out the front of held. */
static void parser_give(struct reply_parser *p, enum reply_part_kind kind, size_t len)
{
    for (size_t i = 0; kind == REPLY_TEXT && !p->has_text && i < len; i++)
        p->has_text = !call_text_is_space(p->held.data[i]);
    if (kind == REPLY_THOUGHT)
        parser_note_thought(p, len);
    if (kind == REPLY_TEXT && len > 0)
        p->before = p->held.data[len - 1];
    parser_put(p, kind, p->held.data, len);
    buf_consume(&p->held, len);
}

bool reply_parser_peek(const struct reply_parser *p, struct reply_part *out)
{
    const struct parsed *parts = (const struct parsed *)(const void *)p->parts.data;

    if (p->n_read * sizeof(*parts) == p->parts.len)
        return false;
    parts += p->n_read;
    *out = (struct reply_part){parts->kind, parts->call, p->out.data + p->read_to,
                               parts->end - p->read_to};
    return true;
}

bool reply_parser_next(struct reply_parser *p, struct reply_part *out)
{
    if (!reply_parser_peek(p, out))
        return false;
    p->n_read++;
    p->read_to += out->len;
    return true;
}

uint32_t reply_parser_n_calls(const struct reply_parser *p)
{
    return p->n_calls;
}

bool reply_parser_is_in_call(const struct reply_parser *p)
{
    return p->is_in_call;
}

/* --- marks --- */

/* How many of the last bytes of held could be the beginning of mark. */
static size_t parser_beginning(const struct reply_parser *p, const char *mark)
{
    const size_t n = strlen(mark);

    for (size_t len = n == 0 ? 0 : n - 1; len > 0; len--)
        if (len <= p->held.len && memcmp(p->held.data + p->held.len - len, mark, len) == 0)
            return len;
    return 0;
}

/* Whether the mark's letters, which are at this place of held, are a delimiter. */
static bool parser_is_mark(const struct reply_parser *p, const char *mark, size_t at)
{
    const struct reply_control *control =
        p->places.has == NULL ? NULL : reply_format_control(p->format, mark);

    return control == NULL || p->places.has(p->places.arg, control->id,
                                            p->n_added - p->held.len + at, strlen(control->text));
}

/* Whether held begins with mark; *ret_is_open if more text may make it so. */
static bool parser_begins_with(const struct reply_parser *p, const char *mark, bool *ret_is_open)
{
    const size_t n = strlen(mark), most = n < p->held.len ? n : p->held.len;

    if (n == 0 || most == 0 || memcmp(p->held.data, mark, most) != 0)
        return false;
    *ret_is_open = *ret_is_open || (most < n && !p->is_over);
    return most == n && parser_is_mark(p, mark, 0);
}

static size_t parser_space(const struct reply_parser *p)
{
    size_t n = 0;

    while (n < p->held.len && call_text_is_space(p->held.data[n]))
        n++;
    return n;
}

/* How many of the first len bytes of held remain without the space that they end in. */
static size_t without_space(const struct reply_parser *p, size_t len)
{
    const size_t least = len > MAX_HELD_SPACE ? len - MAX_HELD_SPACE : 0;

    while (len > least && call_text_is_space(p->held.data[len - 1]))
        len--;
    return len;
}

/* --- states; each returns whether it got further --- */

struct found_mark {
    size_t at, len; /* at == SIZE_MAX: no mark */
    enum parser_state next;
    size_t n_open; /* how many last bytes may be the beginning of a mark */
};

/* A mark that is quoted is spoken of. */
static bool parser_is_quoted(const struct reply_parser *p, size_t at)
{
    const char before = at == 0 ? p->before : p->held.data[at - 1];

    return before == '`' || before == '"' || before == '\'';
}

static void look_for(const struct reply_parser *p, struct found_mark *f, const char *mark,
                     enum parser_state next)
{
    const size_t n = strlen(mark), n_open = parser_beginning(p, mark);
    size_t at = 0;

    f->n_open = n_open > f->n_open ? n_open : f->n_open;
    for (const char *found; at < f->at; at++) {
        found = memmem(p->held.data + at, p->held.len - at, mark, n);
        if (found == NULL)
            return;
        at = (size_t)(found - p->held.data);
        if (at < f->at && parser_is_mark(p, mark, at) &&
            (p->state == PARSE_THOUGHT || !parser_is_quoted(p, at))) {
            *f = (struct found_mark){at, n, next, f->n_open};
            return;
        }
    }
}

/* Messages of gpt-oss ("harmony") are a header, <|message|>, the text, and <|end|>, <|call|> or
 * <|return|>. The header names the role, a channel and perhaps a recipient, which is a call of a
 * tool; the recipient may stand behind the role or behind any channel. */
static const char harmony_message[] = "<|message|>", harmony_channel[] = "<|channel|>";
static const struct {
    const char *text;
    enum parser_state next;
} harmony_marks[] = {
    {"<|channel|>", PARSE_HEADER}, {"<|start|>", PARSE_HEADER}, {"<|end|>", PARSE_TEXT},
    {"<|call|>", PARSE_TEXT},      {"<|return|>", PARSE_TEXT},
};
enum { N_HARMONY_MARKS = sizeof(harmony_marks) / sizeof(harmony_marks[0]) };

static bool parser_has_headers(const struct reply_parser *p)
{
    return p->thoughts != NULL && p->thoughts->has_headers && !p->is_json;
}

static struct found_mark parser_look(const struct reply_parser *p)
{
    struct found_mark f = {.at = SIZE_MAX};

    if (p->calls != NULL && p->calls->open[0] != '\0')
        look_for(p, &f, p->calls->open, PARSE_CALL);
    if (parser_has_headers(p)) {
        f = (struct found_mark){.at = SIZE_MAX};
        for (size_t i = 0; i < N_HARMONY_MARKS; i++)
            look_for(p, &f, harmony_marks[i].text, harmony_marks[i].next);
        return f;
    }
    if (p->thoughts != NULL && p->thoughts->is_anywhere && !p->is_json) {
        look_for(p, &f, p->thoughts->open, PARSE_THOUGHT);
        for (size_t i = 0; i < 2 && p->thoughts->between[i] != NULL; i++)
            look_for(p, &f, p->thoughts->between[i], PARSE_TEXT);
    }
    return f;
}

/* The white space before a mark is no text, unless the mark turns out to be text, too. */
static bool parser_at_mark(struct reply_parser *p, const struct found_mark *f)
{
    const size_t n_text = without_space(p, f->at);

    parser_give(p, REPLY_TEXT, n_text);
    p->before = '\0';
    p->state = f->next;
    p->mark_len = f->at - n_text + f->len;
    if (f->next == PARSE_HEADER) {
        buf_consume(&p->held, f->at - n_text);
    } else if (f->next != PARSE_CALL) {
        buf_consume(&p->held, p->mark_len);
        p->skips_space = true;
    }
    return true;
}

/* A reply that begins with an object may be a call as a whole. */
static bool parser_may_begin_bare(const struct reply_parser *p)
{
    return p->may_be_bare && !p->has_text && p->held.len > 0 && p->held.data[0] == '{';
}

/* Before all text, behind n bytes of white space: whether a thought begins there, or one of the
 * texts around it. *ret_is_open: more text may make it so. */
static bool parser_at_thought(struct reply_parser *p, size_t n, struct found_mark *out,
                              bool *ret_is_open)
{
    const struct thought_format *t = p->thoughts;
    const size_t left = p->held.len - n;

    if (t == NULL || (t->is_anywhere && !p->is_json) || p->has_text || p->n_calls > 0 || left == 0)
        return false;
    for (size_t i = 0; i < 3; i++) {
        const char *mark = i == 0 ? t->open : t->between[i - 1];
        const size_t len = mark == NULL ? 0 : strlen(mark), most = len < left ? len : left;

        if (len == 0 || memcmp(p->held.data + n, mark, most) != 0)
            continue;
        *out = (struct found_mark){n, len, i == 0 ? PARSE_THOUGHT : PARSE_TEXT, 0};
        if (most == len && parser_is_mark(p, mark, n))
            return true;
        *ret_is_open = *ret_is_open || (most < len && !p->is_over);
    }
    return false;
}

/* The end of a name of a tool at from. */
static size_t header_name_end(const char *text, size_t from, size_t len)
{
    while (from < len && text[from] != '<' && !call_text_is_space(text[from]))
        from++;
    return from;
}

/* The header, of len bytes, names a tool as its recipient: the last one counts. */
static bool parser_find_recipient(struct reply_parser *p, size_t len)
{
    static const char to[] = "to=";
    const char *text = p->held.data, *prefix;
    size_t n_prefix;
    bool is_found = false;

    if (p->calls == NULL)
        return false;
    prefix = p->calls->prefix;
    n_prefix = strlen(prefix);
    for (size_t at = 0; at + sizeof(to) - 1 <= len; at++) {
        size_t from = at + sizeof(to) - 1, end;

        if (memcmp(text + at, to, sizeof(to) - 1) != 0)
            continue;
        if (len - from >= n_prefix && memcmp(text + from, prefix, n_prefix) == 0)
            from += n_prefix;
        end = header_name_end(text, from, len);
        if (call_text_tool(p->tools, text + from, end - from) == NULL)
            continue;
        p->name_at = from;
        p->name_len = end - from;
        is_found = true;
    }
    return is_found;
}

/* Whether the last channel of the header is that of thoughts. */
static bool parser_header_thinks(const struct reply_parser *p, size_t len)
{
    static const char analysis[] = "analysis";
    const size_t n = sizeof(harmony_channel) - 1;
    bool thinks = false;

    for (size_t at = 0; at + n <= len; at++)
        if (memcmp(p->held.data + at, harmony_channel, n) == 0)
            thinks = len - at - n >= sizeof(analysis) - 1 &&
                     memcmp(p->held.data + at + n, analysis, sizeof(analysis) - 1) == 0;
    return thinks;
}

/* held begins with a header: a call, a thought or text follows it. */
static bool parser_header(struct reply_parser *p)
{
    const size_t n = sizeof(harmony_message) - 1;
    const char *end =
        p->held.len == 0 ? NULL : memmem(p->held.data, p->held.len, harmony_message, n);
    const size_t len = end == NULL ? p->held.len : (size_t)(end - p->held.data);

    if (len > MAX_HEADER) {
        p->state = PARSE_TEXT;
        parser_give(p, REPLY_TEXT, p->mark_len);
        return true;
    }
    if (end == NULL) {
        if (p->is_over) /* the reply ends in it, so it says nothing */
            buf_clear(&p->held);
        return false;
    }
    if (parser_find_recipient(p, len)) {
        size_t at = len + n;

        while (at < p->held.len && call_text_is_space(p->held.data[at]))
            at++;
        if (at == p->held.len && !p->is_over)
            return false;
        if (at < p->held.len && p->held.data[at] == '{') {
            p->header_len = p->mark_len = p->arguments_at = p->scanned = at;
            p->scan = (struct json_scan){0};
            p->state = PARSE_ARGUMENTS;
            return true;
        }
    }
    p->state = parser_header_thinks(p, len) ? PARSE_THOUGHT : PARSE_TEXT;
    buf_consume(&p->held, len + n);
    p->skips_space = true;
    return true;
}

/* A reply that begins with its recipient: the prompt has ended with the role. */
static bool parser_begins_with_recipient(const struct reply_parser *p, bool *ret_is_open)
{
    static const char to[] = "to=";
    const size_t n = parser_space(p), left = p->held.len - n;
    const size_t most = left < sizeof(to) - 1 ? left : sizeof(to) - 1;

    if (!parser_has_headers(p) || p->calls == NULL || p->has_text || p->n_calls > 0 ||
        p->n_added != p->held.len || left == 0 || memcmp(p->held.data + n, to, most) != 0)
        return false;
    *ret_is_open = *ret_is_open || (most < sizeof(to) - 1 && !p->is_over);
    return most == sizeof(to) - 1;
}

static bool parser_text(struct reply_parser *p)
{
    bool is_open = false;
    struct found_mark f;
    size_t n;

    if (p->skips_space) {
        buf_consume(&p->held, parser_space(p));
        if (p->held.len == 0)
            return false;
        p->skips_space = false;
    }
    n = parser_space(p);
    if (parser_at_thought(p, n, &f, &is_open))
        return parser_at_mark(p, &f);
    if (parser_begins_with_recipient(p, &is_open)) {
        p->mark_len = 0;
        p->state = PARSE_HEADER;
        return true;
    }
    if (is_open)
        return false;
    if (p->may_be_bare && !p->has_text && !p->is_over) {
        if (n == p->held.len)
            return false;
        if (p->held.data[n] == '{')
            buf_consume(&p->held, n);
    }
    if (parser_may_begin_bare(p)) {
        p->is_bare = true;
        p->mark_len = 0;
        p->state = PARSE_CALL;
        return true;
    }
    f = parser_look(p);
    if (f.at != SIZE_MAX)
        return parser_at_mark(p, &f);
    n = p->held.len;
    if (!p->is_over && (p->calls != NULL || p->thoughts != NULL))
        n = without_space(p, n - f.n_open);
    parser_give(p, REPLY_TEXT, n);
    return false;
}

/* True where the model opens the thought that the prompt has opened: its open is no part of it. */
static bool parser_reopens(struct reply_parser *p, bool *ret_is_open)
{
    const char *open = p->thoughts->open;
    const size_t len = strlen(open), most = len < p->held.len ? len : p->held.len;

    if (!p->may_reopen || memcmp(p->held.data, open, most) != 0) {
        p->may_reopen = false;
        return false;
    }
    *ret_is_open = most < len && !p->is_over;
    p->may_reopen = *ret_is_open;
    return most == len && parser_is_mark(p, open, 0);
}

static bool parser_thought(struct reply_parser *p)
{
    struct found_mark f = {.at = SIZE_MAX};
    size_t n = p->skips_space ? parser_space(p) : 0;
    bool is_open = false;

    buf_consume(&p->held, n);
    if (p->held.len == 0)
        return false;
    if (parser_reopens(p, &is_open)) {
        buf_consume(&p->held, strlen(p->thoughts->open));
        return true;
    }
    if (is_open)
        return false;
    p->skips_space = false;
    look_for(p, &f, p->thoughts->close, PARSE_TEXT);
    for (size_t i = 0; parser_has_headers(p) && i < N_HARMONY_MARKS; i++)
        look_for(p, &f, harmony_marks[i].text, harmony_marks[i].next);
    if (f.at == SIZE_MAX) {
        n = p->is_over ? p->held.len : p->held.len - f.n_open;
        parser_give(p, REPLY_THOUGHT, p->is_over ? n : without_space(p, n));
        return false;
    }
    n = without_space(p, f.at);
    parser_give(p, REPLY_THOUGHT, n);
    buf_consume(&p->held, f.at - n + (f.next == PARSE_HEADER ? 0 : f.len));
    p->mark_len = f.len;
    p->skips_space = true;
    p->state = f.next;
    return true;
}

/* It is no call: its open is text, as what follows may be. */
static bool parser_give_up_call(struct reply_parser *p)
{
    p->has_text = true;
    p->is_bare = false;
    if (p->header_len > 0)
        buf_consume(&p->held, p->header_len); /* the message is text, its header is none */
    else
        parser_give(p, REPLY_TEXT, p->mark_len);
    p->header_len = 0;
    p->state = PARSE_TEXT;
    return true;
}

static const struct call_format *parser_format(const struct reply_parser *p)
{
    static const struct call_format object = {.shape = CALL_OBJECT};

    return p->is_bare ? &object : p->calls;
}

static bool parser_read_call(struct reply_parser *p)
{
    const struct call_format *format = parser_format(p);
    const size_t most = format->shape == CALL_PARAMETERS || format->shape == CALL_PAIRS ||
                                format->shape == CALL_PYTHON || format->shape == CALL_BRACES
                            ? REPLY_MAX_MARKED_BYTES
                            : REPLY_MAX_HEAD_BYTES;
    const size_t len = p->held.len - p->mark_len;
    struct call_text c = {0};
    enum call_read rc = CALL_UNDECIDED;
    struct buf arguments;

    buf_init(&arguments, MAX_PARSED_BYTES);
    if (len > 0)
        rc = call_text_read(&c, format, p->held.data + p->mark_len, len < most ? len : most,
                            p->tools, &arguments, &p->is_short);
    if (rc == CALL_BEGINS) {
        p->name_at = (size_t)(c.name - p->held.data);
        p->name_len = c.name_len;
        p->arguments_at = p->scanned = p->mark_len + c.end;
        p->scan = (struct json_scan){0};
        p->state = PARSE_ARGUMENTS;
    } else if (rc == CALL_IS_WHOLE) {
        p->n_calls++;
        parser_put(p, REPLY_CALL, c.name, c.name_len);
        parser_put(p, REPLY_ARGUMENTS, arguments.data, arguments.len);
        buf_consume(&p->held, p->mark_len + c.end);
        p->state = PARSE_REST;
    }
    buf_deinit(&arguments);
    if (rc == CALL_UNDECIDED && len < most && !p->is_over)
        return false;
    return rc == CALL_BEGINS || rc == CALL_IS_WHOLE || parser_give_up_call(p);
}

/* Follows the value from p->scanned on. */
static enum json_scanned parser_scan(struct reply_parser *p)
{
    enum json_scanned is = JSON_SCAN_MORE;

    while (is == JSON_SCAN_MORE && p->scanned < p->held.len)
        is = json_scan_add(&p->scan, p->held.data[p->scanned++]);
    return is;
}

/* Gives the call's name. */
static void parser_begin_call(struct reply_parser *p)
{
    p->n_calls++;
    p->header_len = 0;
    parser_put(p, REPLY_CALL, p->held.data + p->name_at, p->name_len);
    buf_consume(&p->held, p->arguments_at);
    p->scanned -= p->arguments_at;
    p->is_in_call = true;
}

/* Held back until they are a whole object, or given as they come. What is none is text. */
static bool parser_arguments(struct reply_parser *p)
{
    const enum json_scanned is = parser_scan(p);
    const enum call_shape shape = parser_format(p)->shape;

    if (!p->is_in_call && (is == JSON_SCAN_WRONG || (is == JSON_SCAN_MORE && p->is_over)))
        return parser_give_up_call(p);
    if (is == JSON_SCAN_MORE && !p->streams)
        return false;
    if (!p->is_in_call)
        parser_begin_call(p);
    if (is == JSON_SCAN_WRONG)
        p->scanned =
            p->held.len; /* the constraint allows none, and the reply is in a call for ever */
    parser_give(p, REPLY_ARGUMENTS, p->scanned);
    p->scanned = 0;
    if (is != JSON_SCAN_WHOLE)
        return false;
    p->is_in_call = false;
    json_scan_in_object(&p->scan);
    p->state = shape == CALL_OBJECT || shape == CALL_LIST ? PARSE_OBJECT : PARSE_REST;
    return true;
}

/* Further members are no part of any text. Models leave the last brace out, too: then the object
 * ends where it is no JSON any more. */
static bool parser_object(struct reply_parser *p)
{
    const enum json_scanned is = parser_scan(p);

    if (is == JSON_SCAN_WHOLE || (is == JSON_SCAN_MORE && p->is_over))
        buf_consume(&p->held, p->scanned);
    else if (is == JSON_SCAN_MORE)
        return false;
    p->scanned = 0;
    p->state = PARSE_REST;
    return true;
}

/* After a call: whether another one begins at the front of held. */
static bool parser_at_next(struct reply_parser *p, bool *ret_is_open)
{
    const struct call_format *f = parser_format(p);

    if (p->is_bare || f->shape == CALL_LIST || f->shape == CALL_PYTHON) {
        p->mark_len = p->held.data[0] == ',' || (p->is_bare && p->held.data[0] == ';');
        return p->mark_len > 0 || (p->is_bare && p->held.data[0] == '{');
    }
    return f->shape == CALL_NAMED && parser_begins_with(p, f->before, ret_is_open);
}

static bool parser_rest(struct reply_parser *p)
{
    const struct call_format *f = parser_format(p);
    bool is_open = false;

    if (p->is_single) {
        p->state = PARSE_NOTHING;
        return true;
    }
    buf_consume(&p->held, parser_space(p));
    if (p->held.len == 0)
        return false;
    if (f->shape == CALL_NAMED && parser_begins_with(p, f->after, &is_open)) {
        buf_consume(&p->held, strlen(f->after));
        return true;
    }
    if ((f->shape == CALL_LIST || f->shape == CALL_PYTHON) && p->held.data[0] == ']') {
        buf_consume(&p->held, 1);
        return true;
    }
    p->mark_len = 0;
    if (parser_at_next(p, &is_open)) {
        p->state = PARSE_CALL;
        return true;
    }
    if (!p->is_bare && parser_begins_with(p, f->close, &is_open))
        buf_consume(&p->held, strlen(f->close));
    else if (is_open)
        return false;
    p->skips_space = true;
    p->state = PARSE_TEXT;
    return true;
}

static enum status parser_run(struct reply_parser *p, struct error *err)
{
    bool goes_on = true;

    while (goes_on && !p->is_short) {
        switch (p->state) {
        case PARSE_TEXT:
            goes_on = p->held.len > 0 && parser_text(p);
            break;
        case PARSE_THOUGHT:
            goes_on = parser_thought(p);
            break;
        case PARSE_HEADER:
            goes_on = parser_header(p);
            break;
        case PARSE_CALL:
            goes_on = parser_read_call(p);
            break;
        case PARSE_ARGUMENTS:
            goes_on = parser_arguments(p);
            break;
        case PARSE_OBJECT:
            goes_on = parser_object(p);
            break;
        case PARSE_REST:
            goes_on = parser_rest(p);
            break;
        case PARSE_NOTHING:
            buf_clear(&p->held);
            goes_on = false;
            break;
        }
    }
    return p->is_short ? error_no_memory(err, p->held.len, "a reply's parts") : STATUS_OK;
}

static void parser_forget(struct reply_parser *p)
{
    buf_clear(&p->out);
    buf_clear(&p->parts);
    p->n_read = p->read_to = 0;
}

/* In slices, so that held stays short: its front is dropped often. */
enum status reply_parser_add(struct reply_parser *p, const char *text, size_t len,
                             struct error *err)
{
    enum status rc = STATUS_OK;

    parser_forget(p);
    for (size_t n; rc == STATUS_OK && len > 0; text += n, len -= n) {
        n = len < SLICE_BYTES ? len : SLICE_BYTES;
        p->n_added += n;
        rc = buf_append(&p->held, text, n) == STATUS_OK
                 ? parser_run(p, err)
                 : error_no_memory(err, n, "a reply's parts");
    }
    return rc;
}

enum status reply_parser_end(struct reply_parser *p, struct error *err)
{
    parser_forget(p);
    p->is_over = true;
    return parser_run(p, err);
}

/* --- life --- */

enum status reply_parser_open(struct reply_parser **out, const struct reply_parser_config *config,
                              struct error *err)
{
    struct reply_parser *p = try_alloc(1, sizeof(*p));

    if (p == NULL)
        return error_no_memory(err, sizeof(*p), "a reply's parts");
    p->format = config->format;
    p->places = config->places;
    buf_init(&p->held, MAX_PARSED_BYTES);
    buf_init(&p->out, MAX_PARSED_BYTES);
    buf_init(&p->parts, MAX_PARSED_BYTES);
    buf_init(&p->thought_ranges, MAX_PARSED_BYTES);
    if (p->format != NULL && config->tools.len > 0 && !config->is_json) {
        p->tools = json_loadb(config->tools.text, config->tools.len, JSON_ALLOW_NUL, NULL);
        if (p->tools == NULL) {
            reply_parser_close(p);
            return error_no_memory(err, config->tools.len, "the tools");
        }
        p->calls = p->format->calls;
        p->may_be_bare = config->is_forced || p->calls->may_be_bare;
        p->is_single = config->is_single;
        p->streams = config->is_forced && config->streams_calls;
    }
    p->is_json = config->is_json;
    if (p->format != NULL && !config->keeps_thoughts)
        p->thoughts = p->format->thoughts;
    if (p->thoughts != NULL && p->format->begins_in_thought[config->thinking]) {
        p->state = PARSE_THOUGHT;
        p->skips_space = p->may_reopen = true;
    }
    *out = p;
    return STATUS_OK;
}

void reply_parser_close(struct reply_parser *p)
{
    if (p == NULL)
        return;
    json_decref(p->tools);
    buf_deinit(&p->held);
    buf_deinit(&p->out);
    buf_deinit(&p->parts);
    buf_deinit(&p->thought_ranges);
    free(p);
}
