#include "client/cli/prompt.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "client/cli/interrupt.h"

/* libedit reads characters through us, so that a poll may wait for a key and for Ctrl-C at once:
 * its own handling of signals would swallow the first one. */

enum { MAX_HISTORY = 1000, MAX_LINE_BYTES = 1 << 20 };

static const wchar_t replacement = 0xfffd;

struct prompt {
    EditLine *line_editor;
    History *history;
    struct buf line;
    struct termios before; /* how the terminal was found */
    mbstate_t part;        /* of a character */
    bool was_interrupted, was_empty;
};

static volatile sig_atomic_t was_resized, was_continued;

static void on_resize(int number)
{
    (void)number;
    was_resized = 1;
}

static void on_continue(int number)
{
    (void)number;
    was_continued = 1;
}

static const char *prompt_text(EditLine *editor)
{
    (void)editor;
    return "> ";
}

/* After a signal that interrupted the poll: the window has another size, or the program was
 * stopped and the shell has had the terminal meanwhile. */
static void redraw(EditLine *editor)
{
    if (was_resized != 0) {
        was_resized = 0;
        el_resize(editor);
    }
    if (was_continued != 0) {
        was_continued = 0;
        (void)el_set(editor, EL_PREP_TERM, 0);
        (void)el_set(editor, EL_PREP_TERM, 1);
        (void)el_set(editor, EL_REFRESH);
    }
}

/* Returns 1 with a character, 0 at the end of the input, -1 for an interrupt. */
static int read_character(EditLine *editor, wchar_t *out)
{
    struct prompt *p;
    char byte;

    if (el_get(editor, EL_CLIENTDATA, &p) != 0)
        return -1;
    for (;;) {
        struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = interrupt_fd(), .events = POLLIN}};

        if (poll(fds, 2, -1) < 0) {
            redraw(editor);
            continue;
        }
        if (interrupt_take()) {
            const LineInfo *info = el_line(editor);

            p->was_interrupted = true;
            p->was_empty = info->lastchar == info->buffer;
            return -1;
        }
        if (read(STDIN_FILENO, &byte, 1) != 1)
            return 0;
        switch (mbrtowc(out, &byte, 1, &p->part)) {
        case (size_t)-2: /* more to come */
            break;
        case (size_t)-1:
            p->part = (mbstate_t){0};
            *out = replacement;
            return 1;
        default:
            return 1;
        }
    }
}

/* Text is UTF-8 even where the locale says nothing of it (LANG not set, as in containers). */
static void choose_locale(void)
{
    if (setlocale(LC_CTYPE, "") == NULL || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        (void)setlocale(LC_CTYPE, "C.UTF-8"); /* without it, only ASCII can be typed */
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_resize};

    (void)sigaction(SIGWINCH, &action, NULL); /* fail only for a wrong number */
    action.sa_handler = on_continue;
    (void)sigaction(SIGCONT, &action, NULL);
}

/* Between prompts: what is typed ahead waits for the next one, and is not shown in the middle of a
 * reply. */
static void hush(const struct prompt *p)
{
    struct termios quiet = p->before;

    /* not by lines either: an end of file that is typed meanwhile would be eaten, not kept */
    quiet.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet); /* only for the looks */
}

enum status prompt_open(struct prompt **out, struct error *err)
{
    struct prompt *p = xalloc(sizeof *p);
    HistEvent event;

    if (tcgetattr(STDIN_FILENO, &p->before) != 0) {
        free(p);
        return error_set(err, STATUS_UNKNOWN, "the terminal: %s", strerror(errno));
    }
    choose_locale();
    catch_signals();
    buf_init(&p->line, MAX_LINE_BYTES);
    p->history = history_init();
    p->line_editor = el_init("parley", stdin, isatty(STDOUT_FILENO) != 0 ? stdout : stderr, stderr);
    if (p->history == NULL || p->line_editor == NULL || tcgetattr(STDIN_FILENO, &p->before) != 0) {
        prompt_close(p);
        return error_set(err, STATUS_EXHAUSTED, "the terminal cannot be set up for editing");
    }
    (void)history(p->history, &event, H_SETSIZE, MAX_HISTORY); /* those are all settings of ours */
    (void)history(p->history, &event, H_SETUNIQUE, 1);
    (void)el_set(p->line_editor, EL_CLIENTDATA, p);
    (void)el_set(p->line_editor, EL_PROMPT, prompt_text);
    (void)el_set(p->line_editor, EL_EDITOR, "emacs");
    (void)el_set(p->line_editor, EL_SIGNAL, 0);
    (void)el_set(p->line_editor, EL_HIST, history, p->history);
    (void)el_set(p->line_editor, EL_GETCFN, read_character);
    (void)el_source(p->line_editor, NULL); /* ~/.editrc, if there is one */
    *out = p;
    return STATUS_OK;
}

void prompt_close(struct prompt *p)
{
    if (p == NULL)
        return;
    if (p->line_editor != NULL) {
        el_end(p->line_editor);
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &p->before); /* the terminal may be gone */
    }
    if (p->history != NULL)
        history_end(p->history);
    buf_deinit(&p->line);
    free(p);
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t")] == '\0';
}

enum prompt_end prompt_read(struct prompt *p, const char **ret_line)
{
    HistEvent event;
    const char *line;
    int len = 0;

    p->was_interrupted = false;
    /* libedit shows the prompt first, and what is typed meanwhile would be the terminal's */
    (void)el_set(p->line_editor, EL_PREP_TERM, 1);
    line = el_gets(p->line_editor, &len);
    hush(p);
    if (p->was_interrupted) {
        (void)fputs("^C\n", stderr);
        return p->was_empty ? PROMPT_NOTHING : PROMPT_CLEARED;
    }
    if (line == NULL || len <= 0) {
        (void)fputc('\n', stderr);
        return PROMPT_QUIT;
    }
    buf_clear(&p->line);
    if (buf_append(&p->line, line, strcspn(line, "\n")) != STATUS_OK ||
        buf_append(&p->line, "", 1) != STATUS_OK)
        return PROMPT_CLEARED; /* longer than a line may be */
    if (!is_blank(p->line.data))
        (void)history(p->history, &event, H_ENTER, p->line.data); /* only a convenience */
    *ret_line = p->line.data;
    return PROMPT_LINE;
}
