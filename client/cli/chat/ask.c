/* Asks one question in a conversation of its own and prints the reply. The question is the words of
 * the command line, and what a file or a pipe on stdin gives. */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/output/console.h"
#include "cli/output/interrupt.h"
#include "cli/output/out.h"
#include "client/cli/chat/turn.h"
#include "client/cli/chat/turn_json.h"
#include "client/cli/connection.h"
#include "client/cli/options/sampling.h"
#include "client/cli/verbs.h"

enum { MAX_TEXT_BYTES = 64 << 20 };

struct ask_verb {
    struct connection_options connection;
    struct sampling_options sampling;
    const char *model, *system;
    uint32_t n_logprobs;
    unsigned set;
};

enum { ASK_LOGPROBS = 1 };

static const struct option_row ask_rows[] = {
    {"model", "NAME", "the model to use (the server's default)", OPTION_TEXT,
     offsetof(struct ask_verb, model), 0},
    {"system", "TEXT", "the system prompt (the model's own)", OPTION_TEXT,
     offsetof(struct ask_verb, system), 0},
    {"logprobs", "N",
     "with --json: also each token's log-probability and the N likeliest tokens, 1 to 20",
     OPTION_U32, offsetof(struct ask_verb, n_logprobs), ASK_LOGPROBS},
    {0},
};

static bool ask_show_event(void *arg, const char *text, size_t len)
{
    return out_foreign(text, len) && out_flush();
}

static enum exit_code ask_finish(const struct cli_turn *x, const struct ask_verb *a,
                                 const struct parley_opened *opened)
{
    if (!a->connection.is_json && x->n_shown > 0)
        (void)out_text("\n", 1); /* out_end reports a failure */
    if (x->err.status != PARLEY_OK && !x->was_stopped)
        return connection_complain(&x->err);
    if (!x->is_done) {
        console_error(x->was_stopped
                          ? "stopped"
                          : "the server closed the connection before the end of the reply");
        return EXIT_FAILED;
    }
    if (a->connection.is_json)
        (void)out_json(
            turn_json(x, opened->model, opened->version)); /* out_end reports a failure */
    else if (x->n_shown == 0)
        (void)out_text("\n", 1);
    return x->was_stopped ? EXIT_FAILED : EXIT_DONE;
}

static enum exit_code ask_send(struct parley_channel *channel, struct ask_verb *a, const char *text)
{
    const struct parley_open what = {.model = a->model, .system = a->system};
    const struct parley_message message = {.role = "user", .text = text};
    struct parley_opened opened;
    struct parley_error err;
    struct parley_turn turn = {.conversation = opened.conversation,
                               .turn = 1,
                               .messages = &message,
                               .n_messages = 1,
                               .sampling = sampling_options_get(&a->sampling),
                               .want_logprobs = (int)a->n_logprobs};
    struct cli_turn x = {.channel = channel,
                         .turn = &turn,
                         .show = a->connection.is_json ? NULL : ask_show_event,
                         .keeps_tokens = true};
    enum exit_code code;

    if (parley_conversation_open(channel, &what, &opened, &err) != PARLEY_OK)
        return connection_complain(&err);
    (void)cli_turn_run(&x); /* finish checks x.err */
    code = ask_finish(&x, a, &opened);
    (void)parley_close(channel, opened.conversation,
                       &err); /* may fail: the conversation then expires when idle */
    cli_turn_deinit(&x);
    return code;
}

/* Returns whether stdin was given for the question: a file or a pipe, no terminal and no device. */
static bool is_stdin_given(void)
{
    struct stat st;

    return fstat(STDIN_FILENO, &st) == 0 && (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode));
}

/* Appends all of stdin, without its last newline. */
static bool read_stdin(struct buf *text)
{
    const size_t from = text->len;
    char bytes[16384];
    size_t n;

    while ((n = fread(bytes, 1, sizeof(bytes), stdin)) > 0)
        if (buf_append(text, bytes, n) != STATUS_OK) {
            console_error("the text on stdin is longer than 64 MiB");
            return false;
        }
    if (ferror(stdin) != 0) {
        console_error("cannot read stdin: %s", strerror(errno));
        return false;
    }
    if (text->len > from && memchr(text->data + from, '\0', text->len - from) != NULL) {
        console_error("the text on stdin has a NUL byte in it");
        return false;
    }
    if (text->len > from && text->data[text->len - 1] == '\n')
        text->data[--text->len] = '\0';
    return true;
}

/* The question: the words of the command line, then, as a paragraph of its own, what stdin gives.
 * "-" alone is stdin, whatever it is. */
static bool read_question(struct buf *text, int n_words, char **words)
{
    const bool is_stdin_alone = n_words == 1 && strcmp(words[0], "-") == 0;
    size_t len;
    bool is_whole = true;

    for (int i = 0; i < n_words && !is_stdin_alone; i++)
        is_whole = is_whole && (i == 0 || buf_append(text, " ", 1) == STATUS_OK) &&
                   buf_append_text(text, words[i]) == STATUS_OK;
    if (is_stdin_alone)
        return read_stdin(text);
    if (is_whole && is_stdin_given()) {
        is_whole = buf_append_text(text, "\n\n") == STATUS_OK;
        len = text->len;
        if (!is_whole || !read_stdin(text))
            return false;
        if (text->len == len) /* nothing came: the words alone are the question */
            text->data[text->len -= 2] = '\0';
    }
    if (!is_whole)
        console_error("the question is longer than 64 MiB");
    return is_whole;
}

enum exit_code ask_run(const struct verb *verb, int argc, char **argv)
{
    struct ask_verb a = {.connection = connection_defaults()};
    const struct option_group groups[] = {{ask_rows, &a, &a.set},
                                          {sampling_rows, &a.sampling, &a.sampling.sampling.set},
                                          {connection_rows, &a.connection, NULL}};
    struct parley_channel *channel = NULL;
    struct buf text;
    struct error err;
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 3, argc, argv, 1, INT_MAX, &first, &code))
        return code;
    if ((a.set & ASK_LOGPROBS) != 0 && (a.n_logprobs < 1 || a.n_logprobs > 20))
        return options_misuse(verb, "--logprobs is %u, it must be from 1 to 20", a.n_logprobs);
    if (sampling_options_check(&a.sampling, &err) != STATUS_OK)
        return options_misuse(verb, "%s", err.text);
    buf_init(&text, MAX_TEXT_BYTES);
    code = EXIT_FAILED;
    if (!read_question(&text, argc - first, argv + first))
        goto out;
    interrupt_catch();
    channel = connection_open(&a.connection, &code);
    if (channel == NULL)
        goto out;
    code = ask_send(channel, &a, text.data == NULL ? "" : text.data);
out:
    if (channel != NULL)
        parley_channel_close(channel);
    buf_deinit(&text);
    return code;
}
