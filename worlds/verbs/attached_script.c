/* Asks a worker's code who speaks next: a turn of a conversation for each answer. The threads of a
 * world share the channel; each slot has its own conversation. */
#include "worlds/verbs/attached_script.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json_writer.h"
#include "worlds/verbs/attached_acts.h"
#include "worlds/verbs/attached_session.h"

enum { SCRIPT_MESSAGE_BYTES = 64 << 20 };

struct attached_script {
    struct world_script script;
    struct parley_channel *channel;
    const struct world_graph *graph; /* borrowed */
    size_t n_members;
    char *name, *system; /* of the agent; of its conversations */
};

/* The script of a slot. */
struct attached_play {
    const struct attached_script *of;
    struct attached_session session; /* of this episode */
    struct buf message;
};

static uint32_t attached_script_member(const struct attached_script *s, const json_t *name)
{
    const char *text = json_string_value(name);
    const size_t len = json_string_length(name);

    for (uint32_t i = 0; text != NULL && i < s->n_members; i++)
        if (s->graph->names[i].len == len && memcmp(s->graph->names[i].text, text, len) == 0)
            return i;
    return UINT32_MAX;
}

static enum status attached_script_unknown(const json_t *name, struct error *err)
{
    const char *text = json_string_value(name);

    return error_set(err, STATUS_INVALID, "there is no participant '%.40s'",
                     text != NULL ? text : "");
}

/* --- what is asked --- */

static enum status attached_play_write(struct attached_play *p, const struct act *said,
                                       struct error *err)
{
    const struct value *who;
    struct json_writer w;
    enum status rc;

    buf_clear(&p->message);
    if (said == NULL) {
        rc = buf_append_text(&p->message, "{\"do\":\"parley\"}");
        return rc == STATUS_OK ? rc : error_no_memory(err, p->message.len, "a message");
    }
    who = act_get(said, ACT_ID);
    w = json_writer_begin(&p->message);
    json_begin_object(&w, NULL);
    json_write_string(&w, "who", who->text.text, who->text.len);
    json_write_name(&w, "act", strlen("act"));
    act_write_json(said, &w);
    json_end_object(&w);
    rc = json_writer_end(&w);
    return rc == STATUS_OK ? rc : error_no_memory(err, p->message.len, "a message");
}

static enum status attached_play_ask(struct attached_play *p, const struct act *said,
                                     const struct parley_result **out, struct error *err)
{
    if (attached_play_write(p, said, err) != STATUS_OK ||
        (p->session.conversation[0] == '\0' &&
         attached_session_begin(&p->session, p->of->name, p->of->system, err) != STATUS_OK))
        return err->status;
    return attached_session_ask(&p->session, p->message.data, out, err);
}

/* --- what it says --- */

/* The acts of the code's own, a line each. */
static enum status attached_play_read_acts(struct act **out, size_t *ret_n, const char *at,
                                           const char *end, struct arena *arena, struct error *err)
{
    size_t n = 0;
    struct act *acts;

    for (const char *c = at; c < end; c++)
        n += *c == '\n';
    acts = arena_alloc(arena, n + 1, sizeof(*acts));
    if (acts == NULL)
        return error_no_memory(err, n * sizeof(*acts), "acts");
    for (size_t i = 0; i < n; i++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));

        act_init(&acts[i], arena);
        if (attached_act_read(&acts[i], (struct text){at, (size_t)(stop - at)}, "world", err) !=
            STATUS_OK)
            return err->status;
        at = stop + 1;
    }
    *out = acts;
    *ret_n = n;
    return STATUS_OK;
}

static enum status attached_play_read_hearing(const struct attached_play *p, const json_t *pair,
                                              uint32_t spoke, const struct act *acts, size_t n_acts,
                                              struct script_hearing *out, struct error *err)
{
    const json_t *who = json_array_get(pair, 0), *what = json_array_get(pair, 1);

    *out = (struct script_hearing){.listener = attached_script_member(p->of, who)};
    if (out->listener == UINT32_MAX)
        return attached_script_unknown(who, err);
    if (json_is_integer(what)) {
        const json_int_t i = json_integer_value(what);

        if (i < 0 || (uint64_t)i >= n_acts)
            return error_set(err, STATUS_INVALID, "its reply has no act %lld", (long long)i);
        out->own = &acts[i];
        return STATUS_OK;
    }
    out->speaker = attached_script_member(p->of, what);
    if (out->speaker == UINT32_MAX)
        return attached_script_unknown(what, err);
    if ((spoke >> out->speaker & 1) == 0)
        return error_set(err, STATUS_INVALID, "'%.40s' has said nothing yet",
                         json_string_value(what));
    return STATUS_OK;
}

static enum status attached_play_read_then(const struct attached_play *p, const json_t *order,
                                           struct script_step *out, struct error *err)
{
    static const char *const thens[] = {[SCRIPT_ASK] = "ask",
                                        [SCRIPT_ENDS_PARLEY] = "parley",
                                        [SCRIPT_ENDS_EPISODE] = "episode",
                                        [SCRIPT_ENDS_WORLD] = "world"};
    const char *then = json_string_value(json_object_get(order, "then"));
    const json_t *who = json_object_get(order, "who");
    size_t i = 0;

    while (then != NULL && i < sizeof(thens) / sizeof(thens[0]) && strcmp(then, thens[i]) != 0)
        i++;
    if (then == NULL || i == sizeof(thens) / sizeof(thens[0]))
        return error_set(err, STATUS_INVALID, "its reply does not say what is next");
    out->then = (enum script_then)i;
    if (out->then != SCRIPT_ASK)
        return STATUS_OK;
    out->asked = attached_script_member(p->of, who);
    return out->asked != UINT32_MAX ? STATUS_OK : attached_script_unknown(who, err);
}

static enum status attached_play_read(const struct attached_play *p,
                                      const struct parley_result *result, uint32_t spoke,
                                      struct arena *arena, struct script_step *out,
                                      struct error *err)
{
    const char *end = result->text + result->len, *stop = memchr(result->text, '\n', result->len);
    json_t *order =
        json_loadb(result->text, (size_t)((stop != NULL ? stop : end) - result->text), 0, NULL);
    const json_t *hears = json_object_get(order, "hears");
    const size_t n = json_array_size(hears);
    struct script_hearing *hearings = arena_alloc(arena, n + 1, sizeof(*hearings));
    struct act *acts = NULL;
    size_t n_acts = 0;
    enum status rc = STATUS_OK;

    if (hearings == NULL)
        rc = error_no_memory(err, n * sizeof(*hearings), "what is heard");
    else if (!json_is_object(order))
        rc = error_set(err, STATUS_INVALID, "its reply is not a script's");
    else if (stop != NULL)
        rc = attached_play_read_acts(&acts, &n_acts, stop + 1, end, arena, err);
    for (size_t i = 0; i < n && rc == STATUS_OK; i++)
        rc = attached_play_read_hearing(p, json_array_get(hears, i), spoke, acts, n_acts,
                                        &hearings[i], err);
    if (rc == STATUS_OK)
        rc = attached_play_read_then(p, order, out, err);
    out->hearings = hearings;
    out->n_hearings = n;
    json_decref(order);
    return rc;
}

/* --- the script --- */

static enum status attached_play_next(void *slot, const struct act *said, uint32_t spoke,
                                      struct arena *arena, struct script_step *out,
                                      struct error *err)
{
    struct attached_play *p = slot;
    const struct parley_result *result = NULL;

    if (attached_play_ask(p, said, &result, err) != STATUS_OK ||
        attached_play_read(p, result, spoke, arena, out, err) != STATUS_OK)
        return err->status;
    if (out->then == SCRIPT_ENDS_EPISODE || out->then == SCRIPT_ENDS_WORLD)
        attached_session_leave(&p->session);
    return STATUS_OK;
}

static enum status attached_play_open(void **out, void *arg, struct error *err)
{
    const struct attached_script *s = arg;
    struct attached_play *p = try_alloc(1, sizeof(*p));

    if (p == NULL)
        return error_no_memory(err, sizeof(*p), "a script");
    p->of = s;
    p->session.channel = s->channel;
    buf_init(&p->message, SCRIPT_MESSAGE_BYTES);
    *out = p;
    return STATUS_OK;
}

static void attached_play_reset(void *slot)
{
    attached_session_leave(&((struct attached_play *)slot)->session);
}

static void attached_play_close(void *slot)
{
    struct attached_play *p = slot;

    attached_session_leave(&p->session);
    buf_deinit(&p->message);
    free(p);
}

enum status attached_script_open(struct attached_script **out, const char *name,
                                 const struct connection_options *connection,
                                 const struct world_graph *graph, size_t n_members,
                                 struct error *err)
{
    const size_t len = strcspn(name, ":");
    json_t *spec =
        json_pack("{s:s,s:b}", "argument", name[len] == ':' ? name + len + 1 : "", "script", 1);
    struct attached_script *s = xalloc(sizeof(*s));
    enum status rc = STATUS_OK;

    s->script = (struct world_script){.open = attached_play_open,
                                      .next = attached_play_next,
                                      .reset = attached_play_reset,
                                      .close = attached_play_close,
                                      .arg = s};
    s->graph = graph;
    s->n_members = n_members;
    s->name = xstrdup(name);
    s->name[len] = '\0';
    s->system = spec == NULL ? NULL : json_dumps(spec, JSON_COMPACT);
    json_decref(spec);
    rc = s->system == NULL ? error_set(err, STATUS_INVALID, "the argument is not UTF-8 text")
                           : attached_connect(&s->channel, connection, err);
    if (rc == STATUS_OK)
        *out = s;
    else
        attached_script_close(s);
    return rc;
}

void attached_script_close(struct attached_script *s)
{
    if (s == NULL)
        return;
    if (s->channel != NULL)
        parley_channel_close(s->channel);
    free(s->name);
    free(s->system);
    free(s);
}

const struct world_script *attached_script_of(const struct attached_script *s)
{
    return &s->script;
}
