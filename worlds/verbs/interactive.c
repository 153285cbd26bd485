/* The verb "interactive": a person talks with an agent, or persons and agents in a world. */
#include <stddef.h>

#include "cli/output/console.h"
#include "worlds/participant/participant.h"
#include "worlds/verbs/data.h"
#include "worlds/verbs/human.h"
#include "worlds/verbs/verbs.h"
#include "worlds/verbs/world_file.h"
#include "worlds/verbs/world_log.h"

struct interactive {
    struct data_options data;
    struct participant_options agent;
    const char *world_logs, *world;
    struct world_file *file; /* of --world; NULL: a person and an agent */
    struct human_terminal *terminal;
    struct participant *person; /* without --world */
    struct world_log *log;      /* NULL: none */
    bool is_json, is_single_turn;
};

static const struct option_row interactive_rows[] = {
    {"single-turn", NULL, "treat each message as a conversation", OPTION_FLAG,
     offsetof(struct interactive, is_single_turn), 0},
    {"world-logs|wlog", "FILE", "write what was said, one conversation per line", OPTION_TEXT,
     offsetof(struct interactive, world_logs), 0},
    {"world", "FILE|attached:NAME",
     "a custom world: a JSON file, or an attached worker; with a human in it, or several",
     OPTION_TEXT, offsetof(struct interactive, world), 0},
    {"json", NULL, "print one JSON object per reply", OPTION_FLAG,
     offsetof(struct interactive, is_json), 0},
    {0},
};

/* Whether a wish of the person ended the parley. [DONE] begins another conversation. */
static bool interactive_goes_on(const struct interactive *x, struct world *w, enum status rc,
                                bool *ret_leaves)
{
    const enum human_wish wish = human_terminal_wish(x->terminal);

    *ret_leaves = rc != STATUS_OK && wish == HUMAN_LEAVES;
    if (rc == STATUS_OK || wish != HUMAN_BEGINS_ANEW)
        return rc == STATUS_OK;
    world_reset(w);
    world_log_end(x->log);
    console_line("[a new conversation begins]");
    return true;
}

static enum status interactive_talk(const struct interactive *x, struct world *w, struct error *err)
{
    for (;;) {
        const enum status rc = world_parley(w, err);
        bool leaves;

        if (!interactive_goes_on(x, w, rc, &leaves))
            return leaves ? STATUS_OK : rc;
        if (rc == STATUS_OK && world_epoch_done(w))
            return STATUS_OK;
    }
}

static enum status interactive_open(struct interactive *x, struct data_world *w, struct error *err)
{
    if (x->world == NULL) {
        const enum status rc = human_open(&x->person, x->terminal, NULL, false, err);

        w->config.tasks = &x->person;
        w->config.n_tasks = 1;
        return rc == STATUS_OK ? data_agent_open(w, &x->data, &x->agent, err) : rc;
    }
    if (world_file_open(&x->file, x->world, &x->data, err) != STATUS_OK ||
        world_file_expect(x->file, WORLD_NEEDS_HUMAN, err) != STATUS_OK)
        return err->status;
    return world_file_cast(x->file, &w->config, &x->data, &x->agent, err);
}

static enum status interactive_open_and_talk(struct interactive *x, struct error *err)
{
    const struct human_options human = {.is_json = x->is_json, .is_single_turn = x->is_single_turn};
    struct data_world w = {.config = {.seed = x->data.seed}};
    struct error log_err;
    enum status rc;

    arena_init(&w.arena, 1 << 20);
    rc = human_terminal_open(&x->terminal, &human, err);
    x->data.terminal = x->terminal;
    if (rc == STATUS_OK)
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
        rc = interactive_talk(x, w.world, err);
    }
    data_world_close(&w);
    world_file_close(x->file);
    participant_unref(x->person);
    human_terminal_close(x->terminal);
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
    struct error err;
    enum exit_code code;
    enum status rc;
    int first;

    data_options_init(&x.data, "valid");
    participant_options_init(&x.agent);
    if (!options_read(verb, groups, sizeof(groups) / sizeof(groups[0]), argc, argv, 0, 0, &first,
                      &code))
        return code;
    if (x.agent.agent == NULL && x.agent.model == NULL && x.agent.plugin == NULL && x.world == NULL)
        x.agent.agent = "lm";
    rc = interactive_open_and_talk(&x, &err);
    return data_end(rc, &err);
}
