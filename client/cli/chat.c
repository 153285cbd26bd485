#include "client/cli/chat.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "client/cli/exchange.h"
#include "client/cli/interrupt.h"
#include "client/cli/notice.h"
#include "client/cli/out.h"
#include "client/cli/prompt.h"
#include "client/cli/transcript.h"
#include "client/cli/verb.h"

static const struct option_row chat_rows[] = {
    {"model", "NAME", "which model (the server's default)", OPTION_TEXT,
     offsetof(struct chat, wanted_model), 0},
    {"system", "TEXT", "the system prompt (the model's own)", OPTION_TEXT,
     offsetof(struct chat, first_system), 0},
    {"conversation", "ID", "go on with this one", OPTION_TEXT,
     offsetof(struct chat, wanted_conversation), 0},
    {0},
};

bool chat_begin(struct chat *c)
{
    const struct parley_open what = {.model = c->wanted_model, .system = c->system};
    struct parley_opened opened;
    struct parley_error err;

    if (parley_conversation_open(c->channel, &what, &opened, &err) != PARLEY_OK) {
        (void)connection_complain(&err);
        return false;
    }
    chat_leave(c);
    memcpy(c->conversation, opened.conversation, sizeof c->conversation);
    memcpy(c->model, opened.model, sizeof c->model);
    c->n_turns = 0;
    c->is_mine = true;
    return true;
}

/* One that was talked in at a terminal can be gone on with later, by its id, until the server's
 * time for idle ones is over; over a pipe nobody sees the id. */
void chat_leave(struct chat *c)
{
    struct parley_error err;
    bool can_be_wanted = notice_is_fancy() && isatty(STDIN_FILENO) != 0 && c->n_turns > 0;

    if (*c->conversation == '\0')
        return;
    if (can_be_wanted)
        notice_quiet("'parley chat --conversation %s' goes on with it", c->conversation);
    else if (c->is_mine)
        (void)parley_close(c->channel, c->conversation, &err); /* an idle one goes by itself */
    *c->conversation = '\0';
}

static bool resume(struct chat *c)
{
    Parley__V1__Conversation *found;
    struct parley_error err;

    if (transcript_get(&found, c->channel, c->wanted_conversation, false, &err) != PARLEY_OK) {
        (void)connection_complain(&err);
        return false;
    }
    (void)snprintf(c->conversation, sizeof c->conversation, "%s", found->conversation);
    (void)snprintf(c->model, sizeof c->model, "%s", found->model);
    c->n_turns = found->turns;
    parley__v1__conversation__free_unpacked(found, NULL);
    return true;
}

/* After a turn whose end is not known: ends what may still run, and asks how many turns count. */
static void learn_turns(struct chat *c)
{
    Parley__V1__Conversation *found;
    struct parley_error err;
    uint32_t n_cancelled;

    (void)parley_cancel(c->channel, c->conversation, &n_cancelled, &err); /* none may run */
    if (transcript_get(&found, c->channel, c->conversation, false, &err) == PARLEY_OK) {
        c->n_turns = found->turns;
        parley__v1__conversation__free_unpacked(found, NULL);
    }
}

static bool show(void *arg, const char *text, size_t len)
{
    (void)arg;
    notice_clear();
    return out_foreign(text, len) && out_flush();
}

static void show_progress(void *arg, uint32_t done, uint32_t total)
{
    (void)arg;
    notice_progress("reading the prompt: %u of %u tokens", done, total);
}

static void show_figures(const struct exchange *x)
{
    double rate = exchange_rate(x);
    const char *how = strcmp(x->finish_reason, "stop") == 0 ? "" : x->finish_reason;
    char tail[64] = "";

    if (strcmp(how, "length") == 0)
        how = "cut at the limit";
    else if (strcmp(how, "cancelled") == 0)
        how = "stopped";
    if (*how != '\0')
        (void)snprintf(tail, sizeof tail, " · %s", how);
    if (rate > 0.0)
        notice_quiet("%.2f s to the first token · %.1f tokens/s · %u tokens%s",
                     (double)x->first_us / 1e6, rate, x->usage.completion_tokens, tail);
    else
        notice_quiet("%.2f s to the first token%s", (double)x->first_us / 1e6, tail);
}

static void end_line(const struct exchange *x)
{
    bool has_newline = out_is_tty() && x->n_shown > 0 && x->reply.len > 0 &&
                       x->reply.data[x->reply.len - 1] == '\n';

    notice_clear();
    if (!has_newline)
        (void)out_text("\n", 1); /* a failure is remembered */
    (void)out_flush();
}

/* What is to be done about a turn that failed. */
static void complain(struct chat *c, const struct exchange *x)
{
    (void)connection_complain(&x->err);
    if (x->err.status == PARLEY_NOT_FOUND) {
        *c->conversation = '\0';
        notice_line("the server does not know this conversation any more; what you say next opens "
                    "a new one");
    } else if (x->err.status == PARLEY_OUT_OF_RANGE) {
        notice_line("/rewind takes turns back, /system begins anew");
    }
}

/* One turn; false when it failed. */
static bool say(struct chat *c, const char *text)
{
    const struct parley_message message = {.role = "user", .text = text};
    const struct parley_sampling *sampling = sampling_options_get(&c->sampling);
    struct parley_turn turn = {.conversation = c->conversation,
                               .messages = &message,
                               .n_messages = 1,
                               .sampling = sampling};
    struct exchange x = {
        .channel = c->channel, .turn = &turn, .show = show, .progress = show_progress};
    bool is_good;

    if (*c->conversation == '\0' && !chat_begin(c))
        return false;
    turn.turn = c->n_turns + 1;
    is_good = exchange_run(&x) == PARLEY_OK && x.is_done;
    if (is_good || x.n_shown > 0 || x.was_stopped)
        end_line(&x);
    if (is_good) {
        c->n_turns = x.turn_done;
        show_figures(&x);
    } else {
        if (x.was_stopped)
            notice_quiet("stopped");
        else
            complain(c, &x);
        if (*c->conversation != '\0')
            learn_turns(c);
    }
    exchange_deinit(&x);
    return is_good;
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r")] == '\0';
}

/* At a terminal. */
static enum exit_code talk(struct chat *c)
{
    struct prompt *prompt = NULL;
    struct error err;
    const char *line;
    bool has_warned = false;

    if (prompt_open(&prompt, &err) != STATUS_OK) {
        notice_error("%s", err.text);
        return EXIT_FAILED;
    }
    notice_quiet("%s at %s · /help lists the commands, Ctrl-D leaves", c->model,
                 c->connection.server);
    for (enum chat_next next = CHAT_GOES_ON; next == CHAT_GOES_ON;) {
        enum prompt_end end = prompt_read(prompt, &line);

        if (end == PROMPT_QUIT || (end == PROMPT_NOTHING && has_warned))
            break;
        has_warned = end == PROMPT_NOTHING || end == PROMPT_CLEARED;
        if (end == PROMPT_NOTHING)
            notice_quiet("Ctrl-C again leaves, and so does Ctrl-D");
        if (end != PROMPT_LINE || is_blank(line))
            continue;
        if (*line == '/')
            next = chat_command(c, line);
        else
            (void)say(c, line); /* what failed was said; the person decides what next */
        if (!out_flush())
            next = CHAT_QUITS;
    }
    prompt_close(prompt);
    return EXIT_DONE;
}

/* Over a pipe: each line is a turn. The first failure ends it, for what follows may build on the
 * reply that is missing. */
static enum exit_code run_lines(struct chat *c)
{
    enum exit_code code = EXIT_DONE;
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;

    interrupt_release(); /* while nothing is under way, Ctrl-C ends the program */
    while (code == EXIT_DONE && (len = getline(&line, &cap, stdin)) >= 0) {
        if (len > 0 && line[len - 1] == '\n')
            line[--len] = '\0';
        if (len > 0 && line[len - 1] == '\r')
            line[--len] = '\0';
        if (strlen(line) < (size_t)len) {
            notice_error("a line of the input has a NUL byte in it");
            code = EXIT_FAILED;
        } else if (!is_blank(line)) {
            interrupt_catch();
            code = say(c, line) ? EXIT_DONE : EXIT_FAILED;
            interrupt_release();
        }
    }
    if (code == EXIT_DONE && ferror(stdin) != 0) {
        notice_error("cannot read stdin: %s", strerror(errno));
        code = EXIT_FAILED;
    }
    free(line);
    return code;
}

enum exit_code chat_run(const struct verb *verb, int argc, char **argv)
{
    struct chat c = {.connection = connection_defaults()};
    const struct option_group groups[] = {{chat_rows, &c, NULL},
                                          {sampling_rows, &c.sampling, &c.sampling.sampling.set},
                                          {connection_rows, &c.connection, NULL}};
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 3, argc, argv, 0, 0, &first, &code))
        return code;
    if (c.connection.is_json)
        return options_misuse(verb, "there is no --json here; 'parley ask' has one");
    if (c.wanted_conversation != NULL && (c.first_system != NULL || c.wanted_model != NULL))
        return options_misuse(verb, "--conversation has its model and system prompt already");
    interrupt_catch();
    c.system = c.first_system == NULL ? NULL : xstrdup(c.first_system);
    c.channel = connection_open(&c.connection);
    if (c.channel == NULL || !(c.wanted_conversation == NULL ? chat_begin(&c) : resume(&c)))
        code = EXIT_FAILED;
    else
        code = isatty(STDIN_FILENO) != 0 ? talk(&c) : run_lines(&c);
    if (c.channel != NULL) {
        chat_leave(&c);
        parley_channel_close(c.channel);
    }
    free(c.system);
    return code;
}
