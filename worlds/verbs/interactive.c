/* The verb "interactive": a person talks with an agent in a world, as a task does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/output/console.h"
#include "cli/output/interrupt.h"
#include "cli/output/out.h"
#include "cli/output/prompt.h"
#include "worlds/participant/participant.h"
#include "worlds/verbs/data.h"
#include "worlds/verbs/verbs.h"
#include "worlds/verbs/world_file.h"
#include "worlds/verbs/world_log.h"

struct interactive {
    struct data_options data;
    struct participant_options agent;
    const char *world_logs, *world;
    struct world_file *file; /* of --world; NULL: a person and an agent */
    struct world_log *log;   /* NULL: none */
    bool is_json, is_single_turn;
};

static const struct option_row interactive_rows[] = {
    {"single-turn", NULL, "treat each message as a conversation", OPTION_FLAG,
     offsetof(struct interactive, is_single_turn), 0},
    {"world-logs|wlog", "FILE", "write what was said, one conversation per line", OPTION_TEXT,
     offsetof(struct interactive, world_logs), 0},
    {"world", "FILE|attached:NAME",
     "a custom world: a JSON file, or an attached worker; its first participant is the human",
     OPTION_TEXT, offsetof(struct interactive, world), 0},
    {"json", NULL, "print one JSON object per reply", OPTION_FLAG,
     offsetof(struct interactive, is_json), 0},
    {0},
};

/* --- the person as a participant --- */

struct human {
    struct participant base;
    const char *line; /* the participant's next message */
    bool ends_episode;
};

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
    static const char id[] = "localHuman"; /* ParlAI's name */
    const struct human *h = container_of(c->original, struct human, base);
    struct text text = {"", 0};

    if (human_text(&text, h->line, out->arena, err) != STATUS_OK ||
        act_set(out, ACT_ID, value_text((struct text){id, strlen(id)}), err) != STATUS_OK ||
        act_set(out, ACT_TEXT, value_text(text), err) != STATUS_OK)
        return err->status;
    return act_set(out, ACT_EPISODE_DONE, value_bool(h->ends_episode), err);
}

static void human_close(struct participant *p)
{
}

static const struct participant_type human_type = {
    .name = "human",
    .clone_size = sizeof(struct participant_clone),
    .close = human_close,
    .act = human_act,
};

/* --- the lines --- */

struct line_source {
    struct line_prompt *prompt; /* NULL: stdin is no terminal */
    char *line;
    size_t cap;
};

/* The next line, valid until the next call; NULL at the end. */
static const char *next_line(struct line_source *s)
{
    const char *text = NULL;
    ssize_t n;

    while (s->prompt != NULL) {
        const enum prompt_end end = prompt_read(s->prompt, &text);

        if (end == PROMPT_QUIT || end == PROMPT_NOTHING)
            return NULL;
        if (end == PROMPT_TOO_LONG)
            console_line("the message is longer than %d bytes", PROMPT_MAX_BYTES);
        if (end == PROMPT_TEXT && *text != '\0')
            return text;
    }
    n = getline(&s->line, &s->cap, stdin);
    if (n < 0)
        return NULL;
    while (n > 0 && (s->line[n - 1] == '\n' || s->line[n - 1] == '\r'))
        s->line[--n] = '\0';
    return s->line;
}

static void tell_reply(const struct interactive *x, const struct act *act)
{
    const struct text text = act_text(act);
    const struct value *id = act_get(act, ACT_ID);

    if (x->is_json) {
        (void)out_json(json_pack(
            "{s:s%,s:s%}", "id", id != NULL ? id->text.text : "", id != NULL ? id->text.len : 0,
            "text", text.text != NULL ? text.text : "", text.len)); /* out_end reports a failure */
    } else {
        if (id != NULL)
            printf("[%.*s]: ", (int)id->text.len, id->text.text);
        if (text.len > 0)
            (void)out_foreign(text.text, text.len);
        printf("\n");
    }
}

/* What the person hears. */
static void tell_replies(const struct interactive *x, const struct world_graph *graph,
                         const struct world *w)
{
    struct world_row row;

    if (world_n_rows(w) == 0)
        return;
    world_row(w, 0, &row);
    for (size_t i = 1; i < row.n_acts; i++)
        if (graph == NULL || (graph->hears[0] >> i & 1) != 0)
            tell_reply(x, &row.acts[i]);
    (void)out_flush();
}

static enum status interactive_talk(const struct interactive *x, const struct data_world *world,
                                    struct human *human, struct line_source *lines,
                                    struct error *err)
{
    struct world *w = world->world;
    enum status rc = STATUS_OK;

    while (rc == STATUS_OK && (human->line = next_line(lines)) != NULL &&
           strstr(human->line, "[EXIT]") == NULL) {
        if (strstr(human->line, "[DONE]") != NULL) {
            world_reset(w);
            world_log_end(x->log);
            console_line("[a new conversation begins]");
            continue;
        }
        if (!utf8_is_valid(human->line, strlen(human->line))) {
            console_line("the message is not UTF-8");
            continue;
        }
        human->ends_episode = x->is_single_turn;
        rc = world_parley(w, err);
        if (rc == STATUS_OK)
            tell_replies(x, world->config.graph, w);
    }
    return rc;
}

static enum status interactive_open(struct interactive *x, struct data_world *w, struct error *err)
{
    if (x->world == NULL)
        return data_agent_open(w, &x->data, &x->agent, err);
    if (world_file_open(&x->file, x->world, &x->data, err) != STATUS_OK ||
        world_file_expect(x->file, FIRST_HUMAN, err) != STATUS_OK)
        return err->status;
    return world_file_cast(x->file, &w->config, &x->data, &x->agent, err);
}

static enum status interactive_open_and_talk(struct interactive *x, struct line_source *lines,
                                             struct error *err)
{
    struct human human = {0};
    struct participant *task = &human.base;
    struct data_world w = {.config = {.tasks = &task, .n_tasks = 1, .seed = x->data.seed}};
    struct error log_err;
    enum status rc;

    participant_init(&human.base, &human_type);
    arena_init(&w.arena, 1 << 20);
    rc = interactive_open(x, &w, err);
    if (rc == STATUS_OK && x->world_logs != NULL)
        rc = world_log_open(&x->log, x->world_logs, err);
    if (x->log != NULL) {
        w.config.watch = world_log_watch;
        w.config.watch_arg = x->log;
    }
    if (rc == STATUS_OK)
        rc = data_world_open(&w, err);
    if (rc == STATUS_OK) {
        console_line("[DONE] ends the conversation and begins another, [EXIT] or Ctrl-D ends all");
        rc = interactive_talk(x, &w, &human, lines, err);
    }
    data_world_close(&w);
    world_file_close(x->file);
    if (world_log_close(x->log, &log_err) != STATUS_OK && rc == STATUS_OK) {
        *err = log_err;
        rc = err->status;
    }
    return rc;
}

enum exit_code interactive_run(const struct verb *verb, int argc, char **argv)
{
    struct interactive x = {0};
    const struct option_group groups[] = {{participant_option_rows, &x.agent, NULL},
                                          {data_server_rows, &x.data.connection, NULL},
                                          {interactive_rows, &x, NULL}};
    struct line_source lines = {0};
    struct error err;
    enum exit_code code;
    enum status rc = STATUS_OK;
    int first;

    data_options_init(&x.data, "valid");
    participant_options_init(&x.agent);
    if (!options_read(verb, groups, sizeof(groups) / sizeof(groups[0]), argc, argv, 0, 0, &first,
                      &code))
        return code;
    if (x.agent.agent == NULL && x.agent.model == NULL && x.agent.plugin == NULL && x.world == NULL)
        x.agent.agent = "lm";
    if (isatty(STDIN_FILENO) != 0) {
        interrupt_catch();
        rc = prompt_open(&lines.prompt, &err);
    }
    if (rc == STATUS_OK)
        rc = interactive_open_and_talk(&x, &lines, &err);
    if (lines.prompt != NULL) {
        prompt_close(lines.prompt);
        interrupt_release();
    }
    free(lines.line);
    if (rc != STATUS_OK)
        console_error("%s", err.text);
    return rc == STATUS_OK ? EXIT_DONE : EXIT_FAILED;
}
