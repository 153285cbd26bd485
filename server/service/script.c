/* Plays a worker's code. One message is with the worker at a time: that a parley begins, or what
 * the person whom it has asked says. Its answer is the acts that people hear, and what is next. A
 * text of somebody who was not asked is not delivered, and its writer is told so: nothing is
 * queued.
 *
 * Failures: where the worker cannot answer now, people are told so, and the next text asks it
 * again. A worker that fails, or whose answer makes no sense, ends the task. */
#include "server/service/script.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json_writer.h"
#include "server/json/fields.h"
#include "server/service/scene.h"
#include "server/service/user.h"

enum {
    SCRIPT_MAX_ACTS = 256,   /* of an answer */
    SCRIPT_MAX_PARLEYS = 64, /* in which nobody is asked; then the world asks nobody at all */
    SCRIPT_MESSAGE_MAX_BYTES = 1 << 20,
    /* Of what one answer tells one person: what has been said before it has room beside it. */
    SCRIPT_TOLD_MAX_BYTES = SERVICE_UNTAKEN_MAX_BYTES / 2,
};

static const char prefix[] = "attached:";
static const char wait_text[] = "Please wait: it is not your turn. This message was not delivered.";

/* --- its name --- */

bool script_has_name(const char *name)
{
    const size_t n = sizeof(prefix) - 1;

    return strncmp(name, prefix, n) == 0 && name[n] != '\0' && name[n] != ':';
}

void script_set_agent(struct service_pool_plan *pool, const char *name)
{
    const char *model = name + sizeof(prefix) - 1;
    const size_t n = strcspn(model, ":");
    struct json_writer w;
    struct buf spec;

    pool->own_model = xstrdup(model);
    pool->own_model[n] = '\0';
    buf_init(&spec, SCRIPT_MESSAGE_MAX_BYTES);
    w = json_writer_begin(&spec);
    json_begin_object(&w, NULL);
    json_write_text(&w, "argument", model[n] == ':' ? model + n + 1 : "");
    json_write_bool(&w, "script", true);
    json_write_bool(&w, "whole", true);
    json_end_object(&w);
    pool->own_system = xstrdup(json_writer_end(&w) == STATUS_OK ? spec.data : "");
    buf_deinit(&spec);
}

/* --- what it is told --- */

void script_begin(struct scene *s)
{
    for (size_t i = 0; i < s->n_people; i++)
        scene_tell(s, s->people[i], s->script->welcome);
    scene_order(s, "{\"do\":\"parley\"}");
}

static void script_tell(struct scene *s, const struct service_user *u, const char *text,
                        const char *payload)
{
    struct json_writer w;
    struct error err;
    struct buf message;

    buf_init(&message, SCRIPT_MESSAGE_MAX_BYTES);
    w = json_writer_begin(&message);
    json_begin_object(&w, NULL);
    json_write_text(&w, "who", scene_name(s, u));
    json_begin_object(&w, "act");
    json_write_text(&w, "id", scene_name(s, u));
    json_write_text(&w, "text", text);
    if (payload != NULL)
        json_write_json(&w, "payload", payload, strlen(payload));
    json_write_bool(&w, "episode_done", false);
    json_end_object(&w);
    json_end_object(&w);
    s->at = 0;
    if (json_writer_end(&w) == STATUS_OK) {
        scene_order(s, message.data);
    } else {
        (void)error_no_memory(&err, message.len, "a message to the world");
        scene_fail(s, &err);
    }
    buf_deinit(&message);
}

static void script_close(struct scene *s, const struct service_user *by)
{
    for (size_t i = 0; i < s->n_people; i++)
        if (s->people[i] != by)
            scene_tell(s, s->people[i], s->script->closing);
    scene_end(s);
}

void script_said(struct scene *s, struct service_user *u, const char *text, const char *payload)
{
    if (strcasecmp(text, "EXIT") == 0) {
        script_close(s, u);
    } else if (s->at > 0 && s->at <= s->n_people && s->people[s->at - 1] == u) {
        scene_log(s, u, text);
        script_tell(s, u, text, payload);
    } else {
        scene_offer(s, u, wait_text, NULL, 0);
        if (s->at == 0 && !s->is_asked) /* it could not answer */
            scene_ask(s);
    }
}

void script_left(struct scene *s, const struct service_user *u, const char *name)
{
    script_close(s, NULL);
}

/* --- what it says --- */

/* An answer of the worker: its order, and the acts that it has made. */
struct script_answer {
    json_t *order;
    json_t *acts[SCRIPT_MAX_ACTS]; /* [n_acts] */
    bool is_logged[SCRIPT_MAX_ACTS];
    size_t n_acts;
    size_t told_bytes[SERVICE_MAX_PEOPLE]; /* [n_people of the scene] */
};

static void script_answer_close(struct script_answer *a)
{
    json_decref(a->order);
    for (size_t i = 0; i < a->n_acts; i++)
        json_decref(a->acts[i]);
    free(a);
}

static enum status script_answer_read(struct script_answer *a, const char *text, struct error *err)
{
    const char *end = text + strcspn(text, "\n");

    if (fields_parse(&a->order, text, (size_t)(end - text), err) != STATUS_OK)
        return err->status;
    for (text = end + (*end != '\0'); *text != '\0'; text = end + (*end != '\0')) {
        end = text + strcspn(text, "\n");
        if (a->n_acts == SCRIPT_MAX_ACTS)
            return error_set(err, STATUS_INVALID, "it has more than %d acts", SCRIPT_MAX_ACTS);
        if (fields_parse(&a->acts[a->n_acts], text, (size_t)(end - text), err) != STATUS_OK)
            return err->status;
        a->n_acts++;
    }
    return STATUS_OK;
}

/* SIZE_MAX: nobody has the name. */
static size_t script_person(const struct scene *s, const char *name)
{
    for (size_t i = 0; i < s->n_people; i++)
        if (name != NULL && strcmp(s->people[i]->role, name) == 0)
            return i;
    return SIZE_MAX;
}

static enum status script_unknown(const json_t *name, struct error *err)
{
    return error_set(err, STATUS_INVALID,
                     "there is nobody called '%.60s': the task's roles must be the names of the "
                     "world's participants, who are all human",
                     json_is_string(name) ? json_string_value(name) : "");
}

static enum status script_replies(const char **out, size_t *ret_n, const json_t *act,
                                  struct error *err)
{
    const json_t *list = NULL;

    if (field_array(&list, act, "quick_replies", err) != STATUS_OK)
        return err->status;
    if (json_array_size(list) > SERVICE_MAX_CHOICES)
        return error_field(err, "quick_replies", "has more than %d texts", SERVICE_MAX_CHOICES);
    for (*ret_n = 0; *ret_n < json_array_size(list); ++*ret_n) {
        const json_t *one = json_array_get(list, *ret_n);

        if (!field_is_plain_text(one))
            return error_field(err, "quick_replies", "has what is no text");
        out[*ret_n] = json_string_value(one);
    }
    return STATUS_OK;
}

/* The world is at fault that says more at once than a connection may leave, not the person. */
static enum status script_tell_person(struct script_answer *a, size_t at, struct service_user *u,
                                      const char *text, const char *payload,
                                      const char *const *quick_replies, size_t n, struct error *err)
{
    const size_t size = service_message_size_bytes(text, payload, quick_replies, n);

    if (size > SERVICE_TOLD_MAX_BYTES)
        return error_set(err, STATUS_INVALID, "'%.60s' hears an act of more than %d bytes", u->role,
                         SERVICE_TOLD_MAX_BYTES);
    a->told_bytes[at] += size;
    if (a->told_bytes[at] > SCRIPT_TOLD_MAX_BYTES)
        return error_set(err, STATUS_INVALID, "'%.60s' hears more than %d bytes at once", u->role,
                         SCRIPT_TOLD_MAX_BYTES);
    service_user_tell(u, text, payload, quick_replies, n);
    return STATUS_OK;
}

/* Tells the person an act, with the name of who has said it. */
static enum status script_hear(struct scene *s, struct script_answer *a, size_t at,
                               const json_t *act, struct error *err)
{
    struct service_user *u = s->people[at];
    const char *text = "", *id = NULL, *quick[SERVICE_MAX_CHOICES];
    const json_t *payload = NULL;
    enum status rc = STATUS_OK;
    char *json = NULL;
    struct buf named;
    size_t n = 0;

    if (field_text(&text, act, "text", err) != STATUS_OK ||
        field_text(&id, act, "id", err) != STATUS_OK ||
        field_object(&payload, act, "payload", err) != STATUS_OK ||
        script_replies(quick, &n, act, err) != STATUS_OK)
        return err->status;
    if (strlen(text) > SERVICE_TEXT_MAX_BYTES)
        return error_field(err, "text", "has more than %d bytes", SERVICE_TEXT_MAX_BYTES);
    if (payload != NULL && (json = json_dumps(payload, 0)) == NULL)
        return error_no_memory(err, 0, "a payload");
    buf_init(&named, SERVICE_UNTAKEN_MAX_BYTES);
    if (id != NULL && scene_has_names(s) && text[0] != '\0' &&
        buf_printf(&named, "%s: %s", id, text) == STATUS_OK)
        text = named.data; /* without memory it goes without the name */
    if (text[0] != '\0' || json == NULL)
        rc = script_tell_person(a, at, u, text, NULL, quick, n, err);
    if (rc == STATUS_OK && json != NULL)
        rc = script_tell_person(a, at, u, "", json, NULL, 0, err);
    buf_deinit(&named);
    free(json);
    return rc;
}

/* What people say is in the log already. */
static void script_log(struct scene *s, struct script_answer *a, size_t i)
{
    const char *id = json_string_value(json_object_get(a->acts[i], "id"));
    const char *text = json_string_value(json_object_get(a->acts[i], "text"));

    if (!a->is_logged[i] && script_person(s, id) == SIZE_MAX && text != NULL && text[0] != '\0')
        scene_log(s, NULL, text);
    a->is_logged[i] = true;
}

static enum status script_hears(struct scene *s, struct script_answer *a, struct error *err)
{
    const json_t *hears = NULL;

    if (field_array(&hears, a->order, "hears", err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < json_array_size(hears); i++) {
        const json_t *pair = json_array_get(hears, i), *name = json_array_get(pair, 0);
        const size_t at = script_person(s, json_string_value(name));
        int64_t act;

        if (at == SIZE_MAX)
            return script_unknown(name, err);
        if (!field_is_whole(json_array_get(pair, 1), &act) || act < 0 || (uint64_t)act >= a->n_acts)
            return error_set(err, STATUS_INVALID, "'%.60s' hears an act that there is not",
                             json_string_value(name));
        if (script_hear(s, a, at, a->acts[act], err) != STATUS_OK)
            return err->status;
        script_log(s, a, (size_t)act);
    }
    return STATUS_OK;
}

static enum status script_then(struct scene *s, const struct script_answer *a, struct error *err)
{
    const json_t *who = json_object_get(a->order, "who");
    const char *then = NULL;
    size_t at;

    if (field_text(&then, a->order, "then", err) != STATUS_OK)
        return err->status;
    if (then != NULL && strcmp(then, "ask") == 0) {
        at = script_person(s, json_string_value(who));
        if (at == SIZE_MAX)
            return script_unknown(who, err);
        s->at = at + 1;
        s->n_turns = 0;
    } else if (then != NULL && strcmp(then, "parley") == 0) {
        if (++s->n_turns > SCRIPT_MAX_PARLEYS)
            return error_set(err, STATUS_INVALID, "it has asked nobody in %d parleys",
                             SCRIPT_MAX_PARLEYS);
        scene_order(s, "{\"do\":\"parley\"}");
    } else if (then != NULL && (strcmp(then, "episode") == 0 || strcmp(then, "world") == 0)) {
        scene_end(s);
    } else {
        return error_set(err, STATUS_INVALID, "it does not say what is next");
    }
    return STATUS_OK;
}

void script_answered(struct scene *s, const char *text)
{
    struct script_answer *a = xalloc(sizeof(*a));
    struct error err;

    *a = (struct script_answer){.n_acts = 0};
    if (script_answer_read(a, text, &err) != STATUS_OK || script_hears(s, a, &err) != STATUS_OK ||
        script_then(s, a, &err) != STATUS_OK) {
        (void)error_prefix(&err, "the answer of '%.40s'", s->pool->plan->model);
        scene_fail(s, &err);
    }
    script_answer_close(a);
}
