/* What worlds do in their scenes, and the log of a task in ParlAI's Conversations format. */
#include "server/service/scene.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json_writer.h"
#include "base/name.h"
#include "server/service/keeping.h"
#include "server/service/user.h"
#include "server/service/world.h"

/* --- the log --- */

/* Groups are ParlAI's: one is over when somebody speaks a second time. The log lacks its last "]]".
 */
static enum status scene_log_append(struct scene *s, const char *name, const char *text,
                                    bool is_new_group)
{
    struct json_writer w;
    enum status rc = buf_append_text(s->log, s->log->len == 0 ? "[["
                                             : is_new_group   ? "], ["
                                                              : ", ");

    if (rc != STATUS_OK)
        return rc;
    w = json_writer_begin_spaced(s->log);
    json_begin_object(&w, NULL);
    json_write_text(&w, "id", name);
    json_write_text(&w, "text", text);
    json_end_object(&w);
    return json_writer_end(&w);
}

bool scene_log_act(struct scene *s, const char *name, const char *text, bool is_new_group)
{
    const size_t before = s->log->len;

    if (scene_log_append(s, name, text, is_new_group) == STATUS_OK)
        return true;
    s->log->len = before;
    s->is_log_cut = true;
    return false;
}

void scene_log(struct scene *s, const struct service_user *from, const char *text)
{
    uint64_t bit = (uint64_t)1 << (SERVICE_MAX_PEOPLE - 1); /* the agent's */

    if (s->log == NULL || s->is_log_cut)
        return;
    for (size_t i = 0; i < s->n_people && from != NULL; i++)
        if (s->people[i] == from)
            bit = (uint64_t)1 << i;
    if (scene_log_act(s, scene_name(s, from), text, (s->spoken & bit) != 0))
        scene_keep_line(s, scene_name(s, from), text, (s->spoken & bit) != 0);
    else
        scene_changed(s);
    s->spoken = (s->spoken & bit) != 0 ? bit : s->spoken | bit;
}

/* --- telling --- */

/* Appends text with {KEY} replaced by the person's answers; a KEY without an answer stays. */
static enum status scene_fill_in(struct buf *out, const struct service_user *u, const char *text)
{
    enum status rc = STATUS_OK;

    while (rc == STATUS_OK && *text != '\0') {
        const char *open = strchr(text, '{'), *close = open == NULL ? NULL : strchr(open, '}');
        const char *value = NULL;
        char key[64];

        if (close == NULL)
            return buf_append_text(out, text);
        if ((size_t)(close - open) <= sizeof(key)) {
            (void)snprintf(key, sizeof(key), "%.*s", (int)(close - open - 1), open + 1);
            value = service_user_answer(u, key);
        }
        rc = buf_append(out, text, (size_t)((value == NULL ? open + 1 : open) - text));
        if (rc == STATUS_OK && value != NULL)
            rc = buf_append_text(out, value);
        text = value == NULL ? open + 1 : close + 1;
    }
    return rc;
}

void scene_tell(struct scene *s, struct service_user *u, const char *text)
{
    struct buf filled;

    if (text == NULL)
        return;
    buf_init(&filled, SERVICE_UNTAKEN_MAX_BYTES);
    if (scene_fill_in(&filled, u, text) == STATUS_OK)
        service_user_tell(u, filled.data == NULL ? "" : filled.data, NULL, NULL, 0);
    else
        service_user_doom(u, SERVICE_END_MEMORY);
    buf_deinit(&filled);
}

void scene_offer(struct scene *s, struct service_user *u, const char *text,
                 const char *const *quick_replies, size_t n)
{
    if (text != NULL)
        service_user_tell(u, text, NULL, quick_replies, n);
}

void scene_show(struct scene *s, struct service_user *u, const char *text, const char *payload)
{
    if (text != NULL)
        service_user_tell(u, text, NULL, NULL, 0);
    if (payload != NULL)
        service_user_tell(u, "", payload, NULL, 0);
}

const char *scene_name(const struct scene *s, const struct service_user *u)
{
    if (u != NULL)
        return u->role;
    return s->pool->plan->agent_name;
}

bool scene_has_names(const struct scene *s)
{
    switch (s->pool->plan->names) {
    case SERVICE_NAMES_ALWAYS:
        return true;
    case SERVICE_NAMES_NEVER:
        return false;
    case SERVICE_NAMES_AUTO:
        break;
    }
    return s->pool->plan->n_people + (s->agent == NULL ? 0 : 1) > 2;
}

void scene_relay(struct scene *s, const struct service_user *from, const char *text,
                 const char *payload)
{
    const char *said = text;
    struct buf named;

    scene_log(s, from, text);
    buf_init(&named, SERVICE_UNTAKEN_MAX_BYTES);
    if (scene_has_names(s) && buf_printf(&named, "%s: %s", scene_name(s, from), text) == STATUS_OK)
        text = named.data; /* without memory it goes without the name */
    for (size_t i = 0; i < s->n_people; i++)
        if (s->people[i] != from)
            scene_show(s, s->people[i], said[0] != '\0' || payload == NULL ? text : NULL, payload);
    buf_deinit(&named);
}

/* --- the agent --- */

static bool scene_is_agents_turn(const struct scene *s, const char *text)
{
    const struct service_pool_plan *plan = s->pool->plan;

    switch (plan->policy) {
    case SERVICE_ANSWERS_ALL:
        return true;
    case SERVICE_ANSWERS_NAME:
        return name_is_in(text, plan->agent_name);
    case SERVICE_ANSWERS_COUNT:
        break;
    }
    return s->n_said >= plan->policy_n;
}

#define BUSY_HEARD " What was said is heard: do not repeat it, write again later, or EXIT to leave."

static const char *scene_busy_text(const struct error *err)
{
    if (err->status == STATUS_EXHAUSTED)
        return "There are too many talks now." BUSY_HEARD;
    switch (err->reason) {
    case REASON_MODEL_NOT_READY:
        return "The model is not ready." BUSY_HEARD;
    case REASON_JOURNAL_FAILING:
        return "The server cannot store texts now." BUSY_HEARD;
    case REASON_SERVER_DRAINING:
        return "The server is shutting down: nothing is answered any more.";
    default:
        return "There is no answer now." BUSY_HEARD;
    }
}

/* What was heard waits for the next text. */
static void scene_say_busy(struct scene *s, const struct error *err)
{
    for (size_t i = 0; i < s->n_people; i++)
        service_user_tell(s->people[i], scene_busy_text(err), NULL, NULL, 0);
}

void scene_ask(struct scene *s)
{
    struct error err;

    s->n_said = 0;
    s->is_due = false;
    s->asked = s->n_heard;
    s->asked_bytes = s->heard_bytes;
    if (s->service->config.agents->ask(s->agent, &err) == STATUS_OK)
        s->is_asked = true;
    else if (err.status == STATUS_EXHAUSTED || err.status == STATUS_UNAVAILABLE)
        scene_say_busy(s, &err);
    else
        scene_fail(s, &err);
}

/* Returns whether the agent has it. */
static bool scene_give(struct scene *s, const char *name, const char *text)
{
    struct error err;

    if (s->is_over)
        return false;
    if (scene_keep_heard(s, name, text, &err) == STATUS_OK &&
        s->service->config.agents->hear(s->agent, name, text, &err) == STATUS_OK)
        return true;
    scene_fail(s, &err);
    return false;
}

void scene_order(struct scene *s, const char *message)
{
    if (scene_give(s, NULL, message))
        scene_ask(s);
}

void scene_hear(struct scene *s, const struct service_user *from, const char *text)
{
    if (!scene_give(s, scene_has_names(s) ? scene_name(s, from) : NULL, text))
        return;
    s->n_said++;
    if (!scene_is_agents_turn(s, text))
        return;
    if (s->is_asked)
        s->is_due = true;
    else
        scene_ask(s);
}

void scene_reset_agent(struct scene *s)
{
    struct error err;

    s->n_said = 0;
    s->is_asked = s->is_due = false;
    scene_unkeep_heard(s, s->n_heard);
    if (s->service->config.agents->reset(s->agent, &err) != STATUS_OK)
        scene_fail(s, &err);
}

/* An agent that sees "Name: text" of others often begins its own text with its name. */
static const char *scene_skip_own_name(const struct scene *s, const char *text)
{
    const char *name = scene_name(s, NULL);
    const size_t len = strlen(name);

    if (!scene_has_names(s) || strncmp(text, name, len) != 0 || text[len] != ':')
        return text;
    text += len + 1;
    return text + strspn(text, " \n");
}

static void scene_forget_asked(struct scene *s)
{
    s->is_asked = false;
    scene_unkeep_heard(s, s->asked);
}

static void scene_ask_if_due(struct scene *s)
{
    if (s->is_due && !s->is_over)
        scene_ask(s);
}

void scene_answered(struct scene *s, const char *text)
{
    scene_forget_asked(s);
    s->script->world->answered(s, scene_skip_own_name(s, text));
    scene_ask_if_due(s);
}

void scene_unanswered(struct scene *s, const struct error *err)
{
    if (s->script->world->is_script) {
        scene_fail(s, err);
        return;
    }
    scene_forget_asked(s);
    scene_say_busy(s, err);
    scene_ask_if_due(s);
}

/* --- its end --- */

void scene_end(struct scene *s)
{
    s->is_over = true;
}

void scene_leave(struct scene *s)
{
    s->is_over = s->is_left = true;
}

void scene_exit(struct scene *s)
{
    s->is_over = s->is_exit = true;
}

void scene_go_to(struct scene *s, size_t pool)
{
    s->is_over = true;
    s->to = pool;
}

void scene_keep(struct scene *s, struct service_user *u, const char *key, const char *value)
{
    service_user_keep(u, key, value);
}

void scene_write_log(const struct scene *s)
{
    const struct service_config *config = &s->service->config;
    struct json_writer w;
    struct buf line;

    if (s->log == NULL || s->log->len == 0)
        return;
    buf_init(&line, 2 * SERVICE_LOG_MAX_BYTES);
    w = json_writer_begin_spaced(&line);
    json_begin_object(&w, NULL);
    json_write_name(&w, "dialog", strlen("dialog"));
    json_write_json(&w, NULL, NULL, 0); /* what comes next */
    json_writer_fail(&w, buf_append(&line, s->log->data, s->log->len));
    json_writer_fail(&w, buf_append_text(&line, "]]"));
    json_write_empty_array(&w, "context");
    json_write_text(&w, "metadata_path", config->metadata_path);
    json_write_text(&w, "task", s->pool->plan->name);
    json_write_bool(&w, "is_complete", !s->is_log_cut);
    json_end_object(&w);
    if (json_writer_end(&w) == STATUS_OK && buf_append_text(&line, "\n") == STATUS_OK)
        config->log(config->log_arg, line.data, line.len);
    buf_deinit(&line);
}
