/* The built-in worlds: menu, form, tell, echo, relay and chat. Each is a few functions that look at
 * a text and act in their scene. */
#include "server/service/worlds.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/service/scene.h"
#include "server/service/script.h"
#include "server/service/world.h"

static const char done_word[] = "[DONE]", reset_word[] = "[RESET]", exit_word[] = "EXIT";

static bool is_exit_word(const char *text)
{
    return strcasecmp(text, exit_word) == 0;
}

/* --- menu --- */

static void menu_offer(struct scene *s, const char *text, bool is_first)
{
    const struct service_plan *plan = s->service->config.plan;
    const char *offers[SERVICE_MAX_POOLS + 1];
    size_t n = 0;

    for (; n < plan->n_pools; n++)
        offers[n] = plan->pools[n].title;
    if (s->script->exit != NULL && (is_first || s->script->keeps_exit))
        offers[n++] = s->script->exit;
    scene_offer(s, s->people[0], text, offers, n);
}

static void menu_begin(struct scene *s)
{
    menu_offer(s, s->script->welcome, true);
}

static size_t menu_find(const struct scene *s, const char *text)
{
    const struct service_plan *plan = s->service->config.plan;

    for (size_t i = 0; i < plan->n_pools; i++)
        if (strcmp(text, plan->pools[i].title) == 0)
            return i;
    for (size_t i = 0; i < plan->n_pools && s->script->ignores_case; i++)
        if (strcasecmp(text, plan->pools[i].title) == 0)
            return i;
    return SIZE_MAX;
}

static void menu_say_moving(struct scene *s, struct service_user *u, const char *to)
{
    char text[SERVICE_TEXT_MAX_BYTES];

    if (s->script->moving == NULL)
        return;
    (void)snprintf(text, sizeof(text), "%s%s", s->script->moving, to);
    scene_offer(s, u, text, NULL, 0);
}

static void menu_said(struct scene *s, struct service_user *u, const char *text,
                      const char *payload)
{
    const size_t pool = menu_find(s, text);

    if (pool != SIZE_MAX) {
        menu_say_moving(s, u, s->service->config.plan->pools[pool].title);
        scene_go_to(s, pool);
    } else if (s->script->has_exit &&
               (s->script->ignores_case ? is_exit_word(text) : strcmp(text, exit_word) == 0)) {
        menu_say_moving(s, u, exit_word);
        scene_exit(s);
    } else {
        menu_offer(s, s->script->invalid, false);
    }
}

/* --- form --- */

static void form_ask(struct scene *s)
{
    const struct service_question *q = &s->script->questions[s->at];

    if (s->at < s->script->n_questions) {
        scene_offer(s, s->people[0], q->text, q->choices, q->n_choices);
        return;
    }
    scene_tell(s, s->people[0], s->script->closing);
    scene_end(s);
}

static void form_begin(struct scene *s)
{
    scene_tell(s, s->people[0], s->script->welcome);
    form_ask(s);
}

static bool is_choice(const struct service_question *q, const char *text)
{
    for (size_t i = 0; i < q->n_choices; i++)
        if (strcmp(q->choices[i], text) == 0)
            return true;
    return false;
}

/* A wrong answer to a strict question is no answer: the question stays open. */
static void form_said(struct scene *s, struct service_user *u, const char *text,
                      const char *payload)
{
    const struct service_question *q = &s->script->questions[s->at];

    if (is_exit_word(text)) {
        scene_leave(s);
        return;
    }
    if (q->is_strict && !is_choice(q, text)) {
        scene_offer(s, u, s->script->invalid, q->choices, q->n_choices);
        return;
    }
    if (strlen(text) > SERVICE_ANSWER_MAX_BYTES) {
        scene_offer(s, u, "That is too long. Please answer in fewer words.", q->choices,
                    q->n_choices);
        return;
    }
    scene_keep(s, u, q->key, text);
    s->at++;
    form_ask(s);
}

/* --- tasks --- */

static void task_welcome(struct scene *s)
{
    for (size_t i = 0; i < s->n_people; i++)
        scene_tell(s, s->people[i], s->script->welcome);
}

static void tell_begin(struct scene *s)
{
    task_welcome(s);
    scene_end(s);
}

static bool is_end_word(const char *text)
{
    return strstr(text, done_word) != NULL || is_exit_word(text);
}

static void echo_said(struct scene *s, struct service_user *u, const char *text,
                      const char *payload)
{
    if (is_end_word(text))
        scene_end(s);
    else
        scene_show(s, u, text[0] != '\0' || payload == NULL ? text : NULL, payload);
}

static void relay_close(struct scene *s, const struct service_user *by)
{
    for (size_t i = 0; i < s->n_people; i++)
        if (s->people[i] != by)
            scene_tell(s, s->people[i], s->script->closing);
    scene_end(s);
}

static void relay_said(struct scene *s, struct service_user *u, const char *text,
                       const char *payload)
{
    if (is_end_word(text)) {
        relay_close(s, u);
    } else if (s->agent != NULL && strstr(text, reset_word) != NULL) {
        scene_reset_agent(s);
        for (size_t i = 0; i < s->n_people && !s->is_over; i++)
            scene_offer(s, s->people[i], "[History Cleared]", NULL, 0);
    } else {
        scene_relay(s, u, text, payload);
        if (s->agent != NULL && text[0] != '\0') /* an agent hears no payloads */
            scene_hear(s, u, text);
    }
}

static void relay_answered(struct scene *s, const char *text)
{
    struct error err;

    if (strlen(text) <= SERVICE_TOLD_MAX_BYTES) {
        scene_relay(s, NULL, text, NULL);
        return;
    }
    (void)error_set(&err, STATUS_INVALID, "the answer of '%.40s' has more than %d bytes",
                    scene_name(s, NULL), SERVICE_TOLD_MAX_BYTES);
    scene_fail(s, &err);
}

static void relay_left(struct scene *s, const struct service_user *u, const char *name)
{
    if (s->n_people < (s->agent == NULL ? 2 : 1))
        relay_close(s, NULL);
    else
        for (size_t i = 0; i < s->n_people; i++) {
            char text[4 * SERVICE_NAME_MAX_CHARS + 32];

            (void)snprintf(text, sizeof(text), "%s has left.", name);
            scene_offer(s, s->people[i], text, NULL, 0);
        }
}

static const struct service_world worlds[] = {
    {.name = "menu",
     .kind = SCENE_MENU,
     .min_people = 1,
     .max_people = 1,
     .begin = menu_begin,
     .said = menu_said},
    {.name = "form",
     .kind = SCENE_FORM,
     .min_people = 1,
     .max_people = 1,
     .begin = form_begin,
     .said = form_said},
    {.name = "tell",
     .kind = SCENE_TASK,
     .min_people = 1,
     .max_people = SERVICE_MAX_PEOPLE,
     .begin = tell_begin},
    {.name = "echo",
     .kind = SCENE_TASK,
     .min_people = 1,
     .max_people = 1,
     .begin = task_welcome,
     .said = echo_said},
    {.name = "relay",
     .kind = SCENE_TASK,
     .min_people = 2,
     .max_people = SERVICE_MAX_PEOPLE,
     .begin = task_welcome,
     .said = relay_said,
     .left = relay_left},
    {.name = "chat",
     .kind = SCENE_TASK,
     .has_agent = true,
     .min_people = 1,
     .max_people = SERVICE_MAX_PEOPLE,
     .begin = task_welcome,
     .said = relay_said,
     .answered = relay_answered,
     .left = relay_left},
    {.name = "attached:NAME",
     .kind = SCENE_TASK,
     .has_agent = true,
     .is_script = true,
     .min_people = 1,
     .max_people = SERVICE_MAX_PEOPLE,
     .begin = script_begin,
     .said = script_said,
     .answered = script_answered,
     .left = script_left},
};

enum { N_WORLDS = sizeof(worlds) / sizeof(worlds[0]) };

const struct service_world *service_world_find(enum scene_kind kind, const char *name)
{
    for (size_t i = 0; i < N_WORLDS; i++)
        if (worlds[i].kind == kind &&
            (worlds[i].is_script ? script_has_name(name) : strcmp(worlds[i].name, name) == 0))
            return &worlds[i];
    return NULL;
}

void service_world_list(enum scene_kind kind, char *out, size_t size)
{
    size_t at = 0;

    out[0] = '\0';
    for (size_t i = 0; i < N_WORLDS && at < size; i++)
        if (worlds[i].kind == kind)
            at +=
                (size_t)snprintf(out + at, size - at, "%s%s", at == 0 ? "" : ", ", worlds[i].name);
}
