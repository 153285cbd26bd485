/* The verb "chat": a conversation at the keyboard or over a pipe. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/output/console.h"
#include "cli/output/interrupt.h"
#include "cli/output/out.h"
#include "cli/output/prompt.h"
#include "client/cli/chat/chat_state.h"
#include "client/cli/chat/commands.h"
#include "client/cli/chat/room.h"
#include "client/cli/chat/turn.h"
#include "client/cli/chat/turn_json.h"
#include "client/cli/verbs.h"

enum { SETTINGS_MAX_BYTES = 1 << 20 };

static const struct option_row chat_rows[] = {
    {"model", "NAME", "the model to use (the server's default)", OPTION_TEXT,
     offsetof(struct chat, wanted_model), 0},
    {"system", "TEXT", "the system prompt (the model's own)", OPTION_TEXT,
     offsetof(struct chat, first_system), 0},
    {"conversation", "ID", "continue this conversation: its id, the beginning of it, or its name",
     OPTION_TEXT, offsetof(struct chat, wanted_conversation), 0},
    {"room", "NAME", "write to the people in this room, in place of a model", OPTION_TEXT,
     offsetof(struct chat, room), 0},
    {"name", "NAME", "with --room: the name that the others see (made up)", OPTION_TEXT,
     offsetof(struct chat, person), 0},
    {0},
};

static bool chat_show(void *arg, const char *text, size_t len)
{
    struct chat *c = arg;

    c->is_lost = false;
    console_clear();
    return reply_view_write(&c->view, text, len);
}

static void show_progress(void *arg, uint32_t done, uint32_t total)
{
    console_progress("reading the prompt: %u of %u tokens", done, total);
}

static void show_lost(void *arg, bool is_lost)
{
    struct chat *c = arg;

    if (is_lost) {
        c->is_lost = true; /* until more of the reply comes */
        reply_view_pause(&c->view);
        console_progress("reconnecting to %s …", c->connection.server);
    } else {
        console_clear();
        reply_view_resume(&c->view);
    }
}

static void show_figures(const struct cli_turn *x)
{
    double rate = cli_turn_rate(x);
    const char *how = strcmp(x->finish_reason, "stop") == 0 ? "" : x->finish_reason;
    char tail[64] = "";

    if (strcmp(how, "length") == 0)
        how = "cut at the limit";
    else if (strcmp(how, "cancelled") == 0)
        how = "stopped";
    if (*how != '\0')
        (void)snprintf(tail, sizeof(tail), " · %s", how);
    if (rate > 0.0)
        console_quiet("%.2f s to the first token · %.1f tokens/s · %u tokens%s",
                      (double)x->first_us / 1e6, rate, x->usage.completion_tokens, tail);
    else
        console_quiet("%.2f s to the first token%s", (double)x->first_us / 1e6, tail);
}

/* Prints why a turn failed, and what the person can do. */
static void chat_complain(struct chat *c, const struct cli_turn *x)
{
    (void)connection_complain(&x->err);
    if (x->err.status == PARLEY_NOT_FOUND) {
        *c->conversation = '\0';
        console_line("the server does not know this conversation any more; your next message opens "
                     "a new one");
    } else if (x->err.status == PARLEY_OUT_OF_RANGE) {
        console_line("/rewind takes turns back, /system begins anew");
    }
}

/* One turn; false when it failed. */
static bool chat_say(struct chat *c, const char *text)
{
    const struct parley_message message = {.role = "user", .text = text};
    const struct parley_sampling *sampling = sampling_options_get(&c->sampling);
    struct parley_turn turn = {.conversation = c->conversation,
                               .messages = &message,
                               .n_messages = 1,
                               .sampling = sampling};
    struct cli_turn x = {.channel = c->channel,
                         .turn = &turn,
                         .show = c->connection.is_json ? NULL : chat_show,
                         .keeps_tokens = c->connection.is_json,
                         .progress = show_progress,
                         .lost = show_lost,
                         .arg = c};
    bool is_good;

    if (c->is_in_doubt && *c->conversation != '\0')
        chat_count_turns(c);
    c->is_in_doubt = false;
    if (*c->conversation == '\0' && !chat_begin(c))
        return false;
    turn.turn = c->n_turns + 1;
    c->is_lost = false;
    reply_view_begin(&c->view);
    is_good = cli_turn_run(&x) == PARLEY_OK && x.is_done;
    console_clear();
    if (!c->connection.is_json)
        reply_view_end(&c->view, is_good || x.was_stopped);
    else if (is_good)
        is_good = out_json(turn_json(&x, c->model, c->version)) && out_flush();
    if (is_good) {
        c->n_turns = x.turn_done;
        show_figures(&x);
    } else {
        if (x.was_stopped)
            console_quiet("stopped");
        else
            chat_complain(c, &x);
        c->is_in_doubt = c->is_lost || x.err.status == PARLEY_UNAVAILABLE;
        if (*c->conversation != '\0' && !c->is_in_doubt)
            chat_count_turns(c);
    }
    cli_turn_deinit(&x);
    return is_good;
}

static bool chat_is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

/* At a terminal. */
static enum exit_code run_terminal(struct chat *c)
{
    struct line_prompt *prompt = NULL;
    struct error err;
    const char *text;
    bool has_warned = false;

    if (prompt_open(&prompt, &err) != STATUS_OK) {
        console_error("%s", err.text);
        return EXIT_FAILED;
    }
    prompt_set_completion(prompt, chat_complete, c);
    console_quiet("%s at %s · /help lists the commands, Ctrl-D leaves", c->model,
                  c->connection.server);
    for (enum chat_next next = CHAT_GOES_ON; next == CHAT_GOES_ON;) {
        enum prompt_end end = prompt_read(prompt, &text);

        if (end == PROMPT_QUIT || (end == PROMPT_NOTHING && has_warned))
            break;
        has_warned = end == PROMPT_NOTHING || end == PROMPT_CLEARED;
        if (end == PROMPT_NOTHING)
            console_quiet("Ctrl-C again leaves, and so does Ctrl-D");
        if (end == PROMPT_TOO_LONG)
            console_error("that is more than %d bytes", PROMPT_MAX_BYTES);
        if (end != PROMPT_TEXT || chat_is_blank(text))
            continue;
        if (chat_is_command(text))
            next = chat_command(c, text);
        else
            (void)chat_say(c, text); /* a failure was printed; the chat continues */
        if (next == CHAT_SAYS) {
            (void)chat_say(c, c->again); /* as above */
            next = CHAT_GOES_ON;
        }
        if (!out_flush())
            next = CHAT_QUITS;
    }
    prompt_close(prompt);
    return EXIT_DONE;
}

/* Over a pipe: each line is a turn. The first failure ends the chat, since later lines may refer
 * to the missing reply. */
static enum exit_code run_lines(struct chat *c)
{
    enum exit_code code = EXIT_DONE;
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;

    interrupt_release(); /* between turns Ctrl-C ends the program */
    while (code == EXIT_DONE && (len = getline(&line, &cap, stdin)) >= 0) {
        if (len > 0 && line[len - 1] == '\n')
            line[--len] = '\0';
        if (len > 0 && line[len - 1] == '\r')
            line[--len] = '\0';
        if (strlen(line) < (size_t)len) {
            console_error("a line of the input has a NUL byte in it");
            code = EXIT_FAILED;
        } else if (!chat_is_blank(line)) {
            interrupt_catch();
            code = chat_say(c, line) ? EXIT_DONE : EXIT_FAILED;
            interrupt_release();
        }
    }
    if (code == EXIT_DONE && ferror(stdin) != 0) {
        console_error("cannot read stdin: %s", strerror(errno));
        code = EXIT_FAILED;
    }
    free(line);
    return code;
}

static enum exit_code chat_in_room(const struct chat *c)
{
    struct parley_channel *channel;
    enum exit_code code;

    interrupt_catch();
    channel = connection_open(&c->connection, &code);
    if (channel == NULL)
        return code;
    code = room_run(channel, c->room, c->person == NULL ? "" : c->person,
                    connection_patience_ms(&c->connection));
    parley_channel_close(channel);
    return code;
}

enum exit_code chat_run(const struct verb *verb, int argc, char **argv)
{
    struct chat c = {.connection = connection_defaults()};
    const struct option_group groups[] = {{chat_rows, &c, NULL},
                                          {sampling_rows, &c.sampling, &c.sampling.sampling.set},
                                          {connection_rows, &c.connection, NULL}};
    struct error err;
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 3, argc, argv, 0, 0, &first, &code))
        return code;
    if (sampling_options_check(&c.sampling, &err) != STATUS_OK)
        return options_misuse(verb, "%s", err.text);
    if (c.connection.is_json && (c.room != NULL || isatty(STDIN_FILENO) != 0))
        return options_misuse(verb, "--json is for a chat over a pipe: echo hello | parley chat "
                                    "--json");
    if (c.wanted_conversation != NULL && (c.first_system != NULL || c.wanted_model != NULL))
        return options_misuse(
            verb,
            "--conversation excludes --model and --system: the conversation has both already");
    if (c.room != NULL && (c.wanted_conversation != NULL || c.first_system != NULL ||
                           c.wanted_model != NULL || c.sampling.sampling.set != 0))
        return options_misuse(verb, "--room excludes --conversation, --model, --system and the "
                                    "options of replies: people write there");
    if (c.person != NULL && c.room == NULL)
        return options_misuse(verb, "--name is for --room");
    if (c.room != NULL)
        return chat_in_room(&c);
    interrupt_catch();
    arena_init(&c.settings, SETTINGS_MAX_BYTES);
    c.system = c.first_system == NULL ? NULL : xstrdup(c.first_system);
    c.channel = connection_open(&c.connection, &code);
    if (c.channel != NULL &&
        (c.wanted_conversation == NULL ? chat_begin(&c) : chat_go_to(&c, c.wanted_conversation)))
        code = isatty(STDIN_FILENO) != 0 ? run_terminal(&c) : run_lines(&c);
    else if (c.channel != NULL)
        code = EXIT_FAILED;
    if (c.channel != NULL) {
        chat_leave(&c);
        parley_channel_close(c.channel);
    }
    free(c.system);
    free(c.chosen_model);
    free(c.again);
    arena_deinit(&c.settings);
    return code;
}
