/* Reads a text by libedit, with keys bound to take a pasted text and to join lines. Handlers of
 * signals restore the terminal before the program ends or stops. */
#include "cli/output/prompt.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "cli/output/console.h"
#include "cli/output/interrupt.h"

/* libedit reads characters through read_character, so that a poll may wait for a key and for Ctrl-C
 * at once: libedit's own handling of signals would swallow the first one.
 *
 * libedit does not support bracketed paste, by which a terminal marks pasted text: the sequence
 * that begins a paste is bound to a function that reads up to the one that ends it, and inserts the
 * whole text. The mode is on during replies too, since a paste then waits for the next prompt; it
 * is off while the program is stopped and after it has ended. */

enum { MAX_HISTORY = 1000 };

static const wchar_t replacement = 0xfffd;
static const int leaving[] = {SIGTSTP, SIGTERM, SIGHUP, SIGQUIT};
static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l";
static const wchar_t paste_end[] = L"\033[201~";

enum { PASTE_END_LENGTH = sizeof(paste_end) / sizeof(paste_end[0]) - 1 };

struct line_prompt {
    EditLine *line_editor;
    History *history;
    struct buf text;       /* the lines so far */
    struct buf paste;      /* wchar_t */
    struct termios before; /* the terminal's settings before */
    mbstate_t part;        /* of a character */
    bool was_interrupted, was_empty, is_too_long;
    struct prompt_watch watch;
    bool has_watch, has_text, is_over;
    prompt_complete_fn complete; /* NULL: none */
    void *complete_arg;
};

/* Handlers may run on any thread, and these are what they share: a volatile sig_atomic_t is good
 * only for a handler on the thread that reads it. */
static atomic_int wake_fd = -1; /* an eventfd, for signals to wake the poll; it stays open */
static atomic_bool was_resized, was_continued;
static int paste_fd = -1;             /* the terminal; -1: it does not mark pastes */
static struct termios handler_before; /* a copy of before, for signals */

/* A signal may come just before the poll: the descriptor remembers it. */
static void prompt_wake(void)
{
    int saved = errno;
    uint64_t one = 1;

    (void)!write(wake_fd, &one, sizeof(one)); /* fails only if the counter has reached 2^64 - 1 */
    errno = saved;
}

static void on_resize(int number)
{
    was_resized = true;
    prompt_wake();
}

static void on_continue(int number)
{
    was_continued = true;
    prompt_wake();
}

static void mark_pastes(bool is_wanted)
{
    const char *sequence = is_wanted ? paste_on : paste_off;

    if (paste_fd >= 0) /* negative: the terminal is closed and needs no reset */
        (void)!write(paste_fd, sequence, sizeof(paste_on) - 1);
}

/* Restores the terminal for the shell, then stops or ends the program. */
static void prompt_leave(int number)
{
    struct sigaction action = {.sa_handler = SIG_DFL}, ours;
    sigset_t set;

    mark_pastes(false);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &handler_before);
    (void)sigaction(number, &action, &ours);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, number);
    (void)raise(number);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    (void)sigaction(number, &ours, NULL); /* the program was stopped and now continues */
    on_continue(SIGCONT);
}

/* The main thread sets the terminal, so it must also be the one to restore it: elsewhere it could
 * change the terminal again before the program stops. */
static void on_leave(int number)
{
    int saved = errno;

    if (gettid() == getpid())
        prompt_leave(number);
    else
        /* Cannot fail: the main thread lives until the end. */
        (void)tgkill(getpid(), getpid(), number);
    errno = saved;
}

static struct line_prompt *line_prompt_of(EditLine *editor)
{
    struct line_prompt *p = NULL;

    (void)el_get(editor, EL_CLIENTDATA, &p); /* fails only for a wrong name */
    return p;
}

static const char *prompt_text(EditLine *editor)
{
    const struct line_prompt *p = line_prompt_of(editor);

    if (p->text.len > 0)
        return "... ";
    return p->has_watch ? p->watch.label(p->watch.arg) : "> ";
}

/* Whether the prompt and the text are within one row of the terminal. A byte is a column at most,
 * but for controls. */
static bool is_in_one_row(EditLine *editor)
{
    const LineInfo *info = el_line(editor);
    size_t n = strlen(prompt_text(editor)) + (size_t)(info->lastchar - info->buffer);
    const size_t columns = console_columns(STDIN_FILENO);

    for (const char *c = info->buffer; c < info->lastchar; c++)
        if ((unsigned char)*c < ' ')
            return false;
    return n < (columns == 0 ? 80 : columns); /* as libedit has it */
}

/* Something has happened: the watch may print, on rows of its own. */
static void prompt_act(struct line_prompt *p, EditLine *editor)
{
    FILE *shown = isatty(STDOUT_FILENO) != 0 ? stdout : stderr;

    (void)fputs(console_is_fancy() && is_in_one_row(editor) ? "\r\033[K" : "\n", shown);
    (void)fflush(shown); /* the terminal may be gone */
    p->is_over = !p->watch.act(p->watch.arg);
    (void)el_set(editor, EL_REFRESH);
}

static void prompt_tell_typing(struct line_prompt *p, EditLine *editor)
{
    const LineInfo *info = el_line(editor);
    const bool is_empty = info->lastchar == info->buffer;
    const bool has_text = p->text.len > 0 || (!is_empty && info->buffer[0] != p->watch.command);

    if (has_text != p->has_text)
        p->watch.typing(p->watch.arg, has_text);
    p->has_text = has_text;
}

/* After a signal that woke the poll: the window has another size, or the program was stopped and
 * the shell used the terminal. */
static void redraw(EditLine *editor)
{
    if (atomic_exchange(&was_resized, false))
        el_resize(editor);
    if (atomic_exchange(&was_continued, false)) {
        (void)el_set(editor, EL_PREP_TERM, 0);
        (void)el_set(editor, EL_PREP_TERM, 1);
        mark_pastes(true);
        (void)el_set(editor, EL_REFRESH);
    }
}

/* Returns 1 with a character, 0 at the end of the input, -1 for an interrupt. */
static int read_character(EditLine *editor, wchar_t *out)
{
    struct line_prompt *p = line_prompt_of(editor);
    char byte;

    for (;;) {
        struct pollfd fds[4] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = interrupt_fd(), .events = POLLIN},
                                {.fd = wake_fd, .events = POLLIN},
                                {.fd = p->has_watch ? p->watch.fd : -1, .events = POLLIN}};
        uint64_t n_wakes;

        if (p->has_watch)
            prompt_tell_typing(p, editor);
        if (poll(fds, 4, -1) < 0)
            continue;
        if (fds[2].revents != 0) {
            (void)!read(wake_fd, &n_wakes, sizeof(n_wakes)); /* cleared before the flags are read */
            redraw(editor);
            continue;
        }
        if (interrupt_take()) {
            const LineInfo *info = el_line(editor);

            p->was_interrupted = true;
            p->was_empty = info->lastchar == info->buffer && p->text.len == 0;
            return -1;
        }
        if (fds[3].revents != 0) {
            prompt_act(p, editor);
            if (p->is_over)
                return -1;
            continue;
        }
        if (read(STDIN_FILENO, &byte, 1) != 1)
            return 0;
        switch (mbrtowc(out, &byte, 1, &p->part)) {
        case (size_t)-2: /* an incomplete character: more bytes follow */
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

/* Reads what is pasted, up to the sequence that ends it. Newlines come as \r from most terminals,
 * and as \r\n or \n\r where the text or the terminal's settings have both. All else stays as it is,
 * but NUL, which no line can have; what would control a terminal, libedit shows as ^[. */
static bool read_paste(struct line_prompt *p, EditLine *editor)
{
    wchar_t c, before = L'\0';
    size_t n_matched = 0;

    buf_clear(&p->paste);
    while (n_matched < PASTE_END_LENGTH) {
        if (read_character(editor, &c) != 1)
            return false;
        n_matched = c == paste_end[n_matched] ? n_matched + 1 : c == paste_end[0];
        if ((c == L'\n' && before == L'\r') || (c == L'\r' && before == L'\n')) {
            before = L'\0';
            continue;
        }
        before = c;
        if (c == L'\r')
            c = L'\n';
        if (c != L'\0' && buf_append(&p->paste, &c, sizeof(c)) != STATUS_OK)
            p->is_too_long = true; /* the rest is still read */
    }
    return true;
}

static unsigned char on_paste(EditLine *editor, wint_t key)
{
    struct line_prompt *p = line_prompt_of(editor);
    wchar_t *text;

    if (!read_paste(p, editor))
        return CC_EOF;
    if (p->is_too_long)
        return CC_NEWLINE;
    text = (wchar_t *)(void *)p->paste.data;
    text[p->paste.len / sizeof(*text) - PASTE_END_LENGTH] = L'\0';
    return el_winsertstr(editor, text) == 0 ? CC_REFRESH : CC_ERROR;
}

static unsigned char on_new_line(EditLine *editor, wint_t key)
{
    return el_insertstr(editor, "\n") == 0 ? CC_REFRESH : CC_ERROR;
}

/* --- Tab --- */

enum { COMPLETIONS_MAX = 256, COMPLETION_COLUMNS = 80 };

struct completions {
    char *words[COMPLETIONS_MAX]; /* [n] */
    size_t n;
    size_t n_typed;  /* bytes of each that are typed */
    size_t n_common; /* bytes that all of them begin with */
};

static void completions_add(void *of, const char *word)
{
    struct completions *all = of;

    if (all->n < COMPLETIONS_MAX)
        all->words[all->n++] = xstrdup(word);
}

static void completions_deinit(struct completions *all)
{
    for (size_t i = 0; i < all->n; i++)
        free(all->words[i]);
}

/* Keeps the words that begin with what is typed. */
static void completions_keep(struct completions *all, const char *typed)
{
    size_t n_kept = 0;

    all->n_typed = strlen(typed);
    for (size_t i = 0; i < all->n; i++) {
        char *word = all->words[i];
        size_t n = 0;

        if (strncmp(word, typed, all->n_typed) != 0) {
            free(word);
            continue;
        }
        while (n_kept > 0 && n < all->n_common && word[n] == all->words[0][n])
            n++;
        all->n_common = n_kept == 0 ? strlen(word) : n;
        all->words[n_kept++] = word;
    }
    all->n = n_kept;
}

/* Shows the words below the text, which is then shown again. */
static void completions_show(const struct completions *all)
{
    FILE *shown = isatty(STDOUT_FILENO) != 0 ? stdout : stderr;
    size_t column = 0;

    (void)fputc('\n', shown);
    for (size_t i = 0; i < all->n; i++) {
        const size_t len = strlen(all->words[i]);

        if (column > 0 && column + 2 + len > COMPLETION_COLUMNS) {
            (void)fputc('\n', shown);
            column = 0;
        }
        (void)fprintf(shown, "%s%s", column > 0 ? "  " : "", all->words[i]);
        column += len + 2;
    }
    (void)fputc('\n', shown);
    (void)fflush(shown); /* the terminal may be gone */
}

/* Inserts what all words have in common, and a space where there is one word. */
static unsigned char completions_insert(const struct completions *all, EditLine *editor)
{
    char *text;
    int rc;

    if (all->n == 0)
        return CC_ERROR;
    if (all->n > 1 && all->n_common == all->n_typed) {
        completions_show(all);
        return CC_REDISPLAY;
    }
    text = xalloc(all->n_common + 2); /* zeroed */
    memcpy(text, all->words[0] + all->n_typed, all->n_common - all->n_typed);
    if (all->n == 1)
        text[strlen(text)] = ' ';
    rc = el_insertstr(editor, text);
    free(text);
    return rc == 0 ? CC_REFRESH : CC_ERROR;
}

static unsigned char on_tab(EditLine *editor, wint_t key)
{
    struct line_prompt *p = line_prompt_of(editor);
    const LineInfo *info = el_line(editor);
    const size_t len = (size_t)(info->cursor - info->buffer);
    struct completions all = {0};
    char *text = xalloc(len + 1); /* zeroed */
    size_t from = PROMPT_NO_COMPLETION;
    unsigned char rc;

    memcpy(text, info->buffer, len);
    if (p->complete != NULL && p->text.len == 0)
        from = p->complete(p->complete_arg, text, completions_add, &all);
    if (from == PROMPT_NO_COMPLETION) {
        rc = el_insertstr(editor, "\t") == 0 ? CC_REFRESH : CC_ERROR;
    } else {
        completions_keep(&all, text + from);
        rc = completions_insert(&all, editor);
    }
    completions_deinit(&all);
    free(text);
    return rc;
}

/* Key sequences that begin with Escape can be bound only in libedit's emacs mode: in the vi mode
 * (bind -v in ~/.editrc), Escape is a command of its own. */
static void bind_keys(EditLine *editor)
{
    static const char *const new_line_keys[] = {"\\e\\n", "\\e\\r"}; /* Alt-Enter */
    const char *mode = NULL, *term = getenv("TERM");

    /* by el_wset, since el_set leaks copies of the two texts */
    (void)el_wset(editor, EL_ADDFN, L"parley-complete", L"complete the word", on_tab);
    (void)el_set(editor, EL_BIND, "\t", "parley-complete", NULL);
    if (el_get(editor, EL_EDITOR, &mode) != 0 || mode == NULL || strcmp(mode, "emacs") != 0)
        return;
    (void)el_wset(editor, EL_ADDFN, L"parley-new-line", L"begin another line", on_new_line);
    for (size_t i = 0; i < sizeof(new_line_keys) / sizeof(new_line_keys[0]); i++)
        (void)el_set(editor, EL_BIND, new_line_keys[i], "parley-new-line", NULL);
    if (term == NULL || strcmp(term, "dumb") == 0)
        return; /* a dumb terminal would show the sequence that turns paste marks on */
    (void)el_wset(editor, EL_ADDFN, L"parley-paste", L"insert what is pasted", on_paste);
    (void)el_set(editor, EL_BIND, "\\e[200~", "parley-paste", NULL);
    if (isatty(STDOUT_FILENO) != 0)
        paste_fd = STDOUT_FILENO;
    else if (isatty(STDERR_FILENO) != 0)
        paste_fd = STDERR_FILENO;
}

static void prompt_catch_signals(void)
{
    struct sigaction before, action = {.sa_handler = on_resize};

    (void)sigaction(SIGWINCH, &action, NULL); /* fail only for a wrong number */
    action.sa_handler = on_continue;
    (void)sigaction(SIGCONT, &action, NULL);
    action.sa_handler = on_leave;
    action.sa_flags = SA_RESTART;
    for (size_t i = 0; i < sizeof(leaving) / sizeof(leaving[0]); i++) {
        (void)sigaction(leaving[i], NULL, &before);
        if (before.sa_handler != SIG_IGN) /* SIGHUP is ignored, for example under nohup */
            (void)sigaction(leaving[i], &action, NULL);
    }
}

/* Between prompts: input typed ahead waits for the next prompt, and is not echoed in the middle of
 * a reply. */
static void hush(const struct line_prompt *p)
{
    struct termios quiet = p->before;

    /* no line mode either: it would swallow an end of file that is typed meanwhile */
    quiet.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet); /* only cosmetic */
}

enum status prompt_open(struct line_prompt **out, struct error *err)
{
    struct line_prompt *p = xalloc(sizeof(*p));
    HistEvent event;

    if (wake_fd < 0)
        wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake_fd < 0 || tcgetattr(STDIN_FILENO, &p->before) != 0) {
        free(p);
        return error_set(err, STATUS_UNKNOWN, "the terminal: %s", strerror(errno));
    }
    console_use_utf8();
    buf_init(&p->text, PROMPT_MAX_BYTES);
    buf_init(&p->paste, PROMPT_MAX_BYTES * sizeof(wchar_t));
    p->history = history_init();
    p->line_editor = el_init("parley", stdin, isatty(STDOUT_FILENO) != 0 ? stdout : stderr, stderr);
    if (p->history == NULL || p->line_editor == NULL || tcgetattr(STDIN_FILENO, &p->before) != 0) {
        prompt_close(p);
        return error_set(err, STATUS_EXHAUSTED, "the terminal cannot be set up for line editing");
    }
    /* Cannot fail: the settings are ours. */
    (void)history(p->history, &event, H_SETSIZE, MAX_HISTORY);
    (void)history(p->history, &event, H_SETUNIQUE, 1);
    (void)el_set(p->line_editor, EL_CLIENTDATA, p);
    (void)el_set(p->line_editor, EL_PROMPT, prompt_text);
    (void)el_set(p->line_editor, EL_EDITOR, "emacs");
    (void)el_set(p->line_editor, EL_SIGNAL, 0);
    (void)el_set(p->line_editor, EL_HIST, history, p->history);
    (void)el_set(p->line_editor, EL_GETCFN, read_character);
    (void)el_source(p->line_editor, NULL); /* ~/.editrc, if there is one */
    bind_keys(p->line_editor);
    handler_before = p->before;
    prompt_catch_signals();
    mark_pastes(true);
    *out = p;
    return STATUS_OK;
}

void prompt_close(struct line_prompt *p)
{
    if (p == NULL)
        return;
    if (p->line_editor != NULL) {
        el_end(p->line_editor);
        mark_pastes(false);
        paste_fd = -1;
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &p->before); /* the terminal may be gone */
    }
    if (p->history != NULL)
        history_end(p->history);
    buf_deinit(&p->text);
    buf_deinit(&p->paste);
    free(p);
}

void prompt_set_watch(struct line_prompt *p, const struct prompt_watch *watch)
{
    p->has_watch = watch != NULL;
    if (watch != NULL)
        p->watch = *watch;
}

void prompt_set_completion(struct line_prompt *p, prompt_complete_fn complete, void *arg)
{
    p->complete = complete;
    p->complete_arg = arg;
}

static bool prompt_is_blank(const char *text)
{
    return text[strspn(text, " \t\n")] == '\0';
}

/* Appends one more line, or several pasted lines. */
static enum prompt_end read_lines(struct line_prompt *p)
{
    const char *line;
    size_t len;
    int n_read = 0;

    /* libedit shows the prompt first, and the terminal would echo keys typed meanwhile */
    (void)el_set(p->line_editor, EL_PREP_TERM, 1);
    line = el_gets(p->line_editor, &n_read);
    hush(p);
    if (p->is_over)
        return PROMPT_OVER;
    if (p->was_interrupted) {
        (void)fputs("^C\n", stderr);
        return p->was_empty ? PROMPT_NOTHING : PROMPT_CLEARED;
    }
    if (p->is_too_long) {
        (void)fputc('\n', stderr);
        return PROMPT_TOO_LONG;
    }
    if (line == NULL || n_read <= 0) {
        (void)fputc('\n', stderr);
        return PROMPT_QUIT;
    }
    len = strlen(line);
    if (len > 0 && line[len - 1] == '\n')
        len--;
    return buf_append(&p->text, line, len) == STATUS_OK ? PROMPT_TEXT : PROMPT_TOO_LONG;
}

enum prompt_end prompt_read(struct line_prompt *p, const char **ret_text)
{
    HistEvent event;
    enum prompt_end end;
    size_t len;

    p->was_interrupted = p->is_too_long = p->is_over = false;
    buf_clear(&p->text);
    mark_pastes(true); /* the program may have been stopped during a reply */
    while ((end = read_lines(p)) == PROMPT_TEXT && p->text.len > 0 &&
           p->text.data[p->text.len - 1] == '\\')
        p->text.data[p->text.len - 1] = '\n';
    if (end != PROMPT_TEXT)
        return end;
    for (len = p->text.len; len > 0 && p->text.data[len - 1] == '\n';)
        len--;
    p->text.len = len;
    if (buf_append(&p->text, "", 1) != STATUS_OK)
        return PROMPT_TOO_LONG;
    if (!prompt_is_blank(p->text.data))
        (void)history(p->history, &event, H_ENTER, p->text.data); /* only a convenience */
    *ret_text = p->text.data;
    return PROMPT_TEXT;
}
