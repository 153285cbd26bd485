/* Reads what a person types, prints what the person hears. [DONE], [EXIT] and the end of stdin make
 * an act fail, which takes the verb out of the world's parley; the wish says why. */
#include "worlds/verbs/human.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/list.h"
#include "base/utf8.h"
#include "cli/output/console.h"
#include "cli/output/interrupt.h"
#include "cli/output/out.h"
#include "cli/output/prompt.h"
#include "worlds/message/act.h"
#include "worlds/participant/participant.h"

struct human_terminal {
    struct human_options options;
    struct line_prompt *prompt; /* NULL: stdin is no terminal */
    char *line;
    size_t cap;
    enum human_wish wish;
};

struct human {
    struct participant base;
    struct human_terminal *terminal;
    const char *name;
    bool is_one_of_many;
};

static struct human *human_of(struct participant_clone *c)
{
    return container_of(c->original, struct human, base);
}

/* --- the terminal --- */

enum status human_terminal_open(struct human_terminal **out, const struct human_options *options,
                                struct error *err)
{
    struct human_terminal *t = xalloc(sizeof(*t));

    t->options = *options;
    if (isatty(STDIN_FILENO) != 0) {
        interrupt_catch();
        if (prompt_open(&t->prompt, err) != STATUS_OK) {
            interrupt_release();
            free(t);
            return err->status;
        }
    }
    *out = t;
    return STATUS_OK;
}

void human_terminal_close(struct human_terminal *t)
{
    if (t == NULL)
        return;
    if (t->prompt != NULL) {
        prompt_close(t->prompt);
        interrupt_release();
    }
    free(t->line);
    free(t);
}

enum human_wish human_terminal_wish(struct human_terminal *t)
{
    enum human_wish wish = HUMAN_NONE;

    if (t != NULL) {
        wish = t->wish;
        t->wish = HUMAN_NONE;
    }
    return wish;
}

/* The next line, valid until the next call; NULL at the end. */
static const char *human_terminal_line(struct human_terminal *t)
{
    const char *text = NULL;
    ssize_t n;

    while (t->prompt != NULL) {
        const enum prompt_end end = prompt_read(t->prompt, &text);

        if (end == PROMPT_QUIT || end == PROMPT_NOTHING)
            return NULL;
        if (end == PROMPT_TOO_LONG)
            console_line("the message is longer than %d bytes", PROMPT_MAX_BYTES);
        if (end == PROMPT_TEXT && *text != '\0')
            return text;
    }
    n = getline(&t->line, &t->cap, stdin);
    if (n < 0)
        return NULL;
    while (n > 0 && (t->line[n - 1] == '\n' || t->line[n - 1] == '\r'))
        t->line[--n] = '\0';
    return t->line;
}

/* The next message; NULL: the wish says what is typed in its place. */
static const char *human_terminal_message(struct human_terminal *t)
{
    for (;;) {
        const char *line = human_terminal_line(t);

        t->wish = HUMAN_NONE;
        if (line == NULL || strstr(line, "[EXIT]") != NULL)
            t->wish = HUMAN_LEAVES;
        else if (strstr(line, "[DONE]") != NULL)
            t->wish = HUMAN_BEGINS_ANEW;
        if (t->wish != HUMAN_NONE)
            return NULL;
        if (utf8_is_valid(line, strlen(line)))
            return line;
        console_line("the message is not UTF-8");
    }
}

/* --- the participant --- */

/* What is typed as \n is a newline, as in ParlAI. */
static enum status human_text(struct text *out, const char *line, struct arena *arena,
                              struct error *err)
{
    const size_t len = strlen(line);
    char *text = arena_alloc(arena, len + 1, 1);
    size_t n = 0;

    if (text == NULL)
        return error_no_memory(err, len + 1, "a message");
    for (size_t i = 0; i < len; i++) {
        const bool is_newline = line[i] == '\\' && line[i + 1] == 'n';

        text[n++] = is_newline ? '\n' : line[i];
        i += is_newline;
    }
    *out = (struct text){text, n};
    return STATUS_OK;
}

static enum status human_act(struct participant_clone *c, struct act *out, struct error *err)
{
    const struct human *h = human_of(c);
    const char *line = human_terminal_message(h->terminal);
    struct text text = {"", 0};

    if (line == NULL)
        return error_set(err, STATUS_CANCELLED, "the person has left the conversation");
    if (human_text(&text, line, out->arena, err) != STATUS_OK ||
        act_set(out, ACT_ID, value_text((struct text){h->name, strlen(h->name)}), err) !=
            STATUS_OK ||
        act_set(out, ACT_TEXT, value_text(text), err) != STATUS_OK)
        return err->status;
    return act_set(out, ACT_EPISODE_DONE, value_bool(h->terminal->options.is_single_turn), err);
}

/* {to, id, text}: to only where several persons are there. */
static void human_hear_json(const struct human *h, struct text id, struct text text)
{
    json_t *said = json_pack("{s:s%,s:s%}", "id", id.len > 0 ? id.text : "", id.len, "text",
                             text.len > 0 ? text.text : "", text.len);

    if (said != NULL && h->is_one_of_many)
        (void)json_object_set_new(said, "to", json_string(h->name)); /* out_json reports NULL */
    (void)out_json(said);                                            /* out_end reports a failure */
}

static enum status human_observe(struct participant_clone *c, const struct act *act,
                                 const struct act **ret_observation, struct error *err)
{
    const struct human *h = human_of(c);
    const struct value *id = act_get(act, ACT_ID);
    const struct text who = id != NULL && id->type == VALUE_TEXT ? id->text : (struct text){0},
                      text = act_text(act);

    *ret_observation = act;
    if (act_is_padding(act))
        return STATUS_OK;
    if (h->terminal->options.is_json) {
        human_hear_json(h, who, text);
    } else {
        if (h->is_one_of_many)
            printf("(%s) ", h->name);
        if (who.len > 0)
            printf("[%.*s]: ", (int)who.len, who.text);
        if (text.len > 0)
            (void)out_foreign(text.text, text.len);
        printf("\n");
    }
    (void)out_flush();
    return STATUS_OK;
}

static void human_close(struct participant *p)
{
    free(container_of(p, struct human, base));
}

static const struct participant_type human_type = {
    .name = "local_human",
    .clone_size = sizeof(struct participant_clone),
    .close = human_close,
    .observe = human_observe,
    .act = human_act,
};

enum status human_open(struct participant **out, struct human_terminal *t, const char *name,
                       bool is_one_of_many, struct error *err)
{
    struct human *h = try_alloc(1, sizeof(*h));

    if (h == NULL)
        return error_no_memory(err, sizeof(*h), "a person");
    participant_init(&h->base, &human_type);
    h->terminal = t;
    h->name = name != NULL ? name : "localHuman";
    h->is_one_of_many = is_one_of_many;
    *out = &h->base;
    return STATUS_OK;
}
