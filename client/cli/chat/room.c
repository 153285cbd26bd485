/* Shows a room's entries as they come, and says what is typed, or each line of a pipe. At a
 * terminal the entries are printed above the line that is being typed. */
#include "client/cli/chat/room.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "cli/output/console.h"
#include "cli/output/interrupt.h"
#include "cli/output/out.h"
#include "cli/output/prompt.h"
#include "client/cli/chat/attendance.h"
#include "client/cli/connection.h"

enum { LINE_MAX_BYTES = 1 << 20 };

struct room_chat {
    struct attendance attendance;
    bool is_terminal; /* what is typed stands there already: it is not printed again */
    bool was_refused, is_stdout_lost;
    char typing[256]; /* who types */
};

/* --- what is printed --- */

/* A colour of a terminal for a person: one of six, by the id. */
static void print_name(const char *name, const char *id)
{
    char escape[16];
    unsigned sum = 0;

    if (!out_has_colours()) {
        (void)out_foreign(name, strlen(name)); /* out_flush reports a failure, here and below */
        return;
    }
    for (const char *c = id; *c != '\0'; c++)
        sum = 31 * sum + (unsigned char)*c;
    (void)snprintf(escape, sizeof(escape), "\033[1;%um", 31 + sum % 6);
    (void)out_text(escape, strlen(escape));
    (void)out_foreign(name, strlen(name));
    (void)out_text("\033[0m", 4);
}

static void print_room_words(const char *text)
{
    (void)out_text(text, strlen(text));
}

/* Each further line of a text is indented, so that none looks like an entry. */
static void print_said(const Parley__V1__RoomEntry *e)
{
    print_room_words(": ");
    for (const char *line = e->text, *end; line != NULL; line = end == NULL ? NULL : end + 1) {
        end = strchr(line, '\n');
        (void)out_foreign(line, end == NULL ? strlen(line) : (size_t)(end - line));
        if (end != NULL)
            print_room_words("\n  ");
    }
    for (size_t i = 0; i < e->n_quick_replies; i++) {
        print_room_words(i == 0 ? "  [" : " [");
        (void)out_foreign(e->quick_replies[i], strlen(e->quick_replies[i]));
        print_room_words("]");
    }
}

static void on_room_entry(void *arg, const Parley__V1__RoomEntry *e, uint32_t n_missed, bool is_own)
{
    struct room_chat *c = arg;

    if (n_missed > 0)
        console_line("%u entries are missing: the room had dropped them", n_missed);
    if (is_own && c->is_terminal)
        return;
    if (e->kind != PARLEY__V1__ROOM_ENTRY_KIND__ROOM_ENTRY_KIND_SAID)
        print_room_words("* ");
    print_name(e->name, e->participant);
    if (e->kind == PARLEY__V1__ROOM_ENTRY_KIND__ROOM_ENTRY_KIND_SAID) {
        print_said(e);
    } else if (e->kind == PARLEY__V1__ROOM_ENTRY_KIND__ROOM_ENTRY_KIND_JOINED) {
        print_room_words(" joined");
    } else {
        print_room_words(" ");
        (void)out_foreign(e->text, strlen(e->text));
    }
    print_room_words("\n");
}

static void on_room_refused(void *arg, const Parley__V1__RoomError *e)
{
    struct room_chat *c = arg;

    c->was_refused = true;
    console_error("%s [%s]", e->message, e->code);
}

static void print_people(const struct attendance *a)
{
    for (size_t i = 0; i < a->n_people; i++) {
        const struct attendance_person *p = &a->people[i];

        print_name(p->name, p->id);
        if (strcmp(p->id, a->id) == 0)
            print_room_words(" (you)");
        if (p->is_away)
            print_room_words(" (away)");
        if (p->is_agent)
            print_room_words(" (agent)");
        if (p->is_typing && strcmp(p->id, a->id) != 0)
            print_room_words(" (types)");
        print_room_words("\n");
    }
}

/* The end, for a person: that was asked for, or an error. */
static enum exit_code room_chat_over(const struct room_chat *c)
{
    const struct attendance *a = &c->attendance;

    if (a->err.status != PARLEY_OK)
        return connection_complain(&a->err);
    if (attendance_has_unsaid(a)) {
        console_error("the last words may not be in the room: the server was not heard any more");
        return EXIT_FAILED;
    }
    if (!a->is_leaving)
        console_line("you are not in the room any more: %s", a->why);
    return c->is_stdout_lost || c->was_refused ? EXIT_FAILED : EXIT_DONE;
}

/* False: it has ended. */
static bool room_chat_step(struct room_chat *c)
{
    attendance_step(&c->attendance);
    if (!out_flush()) { /* nobody reads it any more */
        c->is_stdout_lost = true;
        attendance_leave(&c->attendance);
    }
    return !c->attendance.has_ended;
}

/* Waits until the person has left; another Ctrl-C ends the wait. */
static void room_chat_leave(struct room_chat *c)
{
    struct attendance *a = &c->attendance;

    attendance_leave(a);
    while (room_chat_step(c)) {
        struct pollfd fds[2] = {{.fd = a->fd, .events = POLLIN},
                                {.fd = interrupt_fd(), .events = POLLIN}};

        (void)poll(fds, 2, -1); /* a signal only ends the wait early */
        if (interrupt_take())
            break;
    }
}

/* --- at a terminal --- */

static bool on_room_news(void *arg)
{
    return room_chat_step(arg);
}

static void on_room_typing(void *arg, bool is_text)
{
    struct room_chat *c = arg;

    attendance_type(&c->attendance, is_text);
}

/* Who types, before the prompt. */
static const char *room_chat_label(void *arg)
{
    struct room_chat *c = arg;
    const struct attendance *a = &c->attendance;
    size_t n = 0;

    for (size_t i = 0; i < a->n_people; i++)
        if (a->people[i].is_typing && strcmp(a->people[i].id, a->id) != 0)
            n++;
    *c->typing = '\0';
    if (n == 0)
        return "> ";
    if (n > 1)
        (void)snprintf(c->typing, sizeof(c->typing), "(%zu people type) > ", n);
    for (size_t i = 0; n == 1 && i < a->n_people; i++)
        if (a->people[i].is_typing && strcmp(a->people[i].id, a->id) != 0)
            (void)snprintf(c->typing, sizeof(c->typing), "(%s types) > ", a->people[i].name);
    return c->typing;
}

static void print_room_help(void)
{
    console_line("/who                    who is here");
    console_line("/invite [MODEL [NAME]]  an agent comes, and answers who says its name");
    console_line("/dismiss NAME           an agent goes");
    console_line("/stop                   end what agents are saying");
    console_line("/leave                  leave the room; so do Ctrl-D, and Ctrl-C twice");
    console_line("/help                   this list");
    console_line("//...                   say a text that begins with /");
    console_line("Alt-Enter, or a \\ at the end of a line, begins another line of the text.");
}

static void room_chat_invite(struct room_chat *c, char *words)
{
    char *rest = NULL, *agent = strtok_r(words, " ", &rest);

    while (rest != NULL && *rest == ' ')
        rest++;
    attendance_invite(&c->attendance, agent == NULL ? "" : agent, rest == NULL ? "" : rest);
}

static void room_chat_dismiss(struct room_chat *c, const char *name)
{
    for (size_t i = 0; i < c->attendance.n_people; i++) {
        const struct attendance_person *p = &c->attendance.people[i];

        if (p->is_agent && strcmp(p->name, name) == 0) {
            attendance_dismiss(&c->attendance, p->id);
            return;
        }
    }
    console_error("no agent here is called '%.80s'; /who says who is here", name);
}

static bool is_room_word(const char *word, const char *const *words)
{
    while (*words != NULL && strcmp(word, *words) != 0)
        words++;
    return *words != NULL;
}

/* False: the person leaves. */
static bool room_chat_command(struct room_chat *c, const char *text)
{
    static const char *const ends[] = {"/leave", "/quit", "/bye", "/exit", NULL};
    char *words = xstrdup(text), *rest = words + strcspn(words, " ");
    bool stays = true;

    if (*rest != '\0')
        *rest++ = '\0';
    rest += strspn(rest, " ");
    for (size_t n = strlen(rest); n > 0 && rest[n - 1] == ' ';)
        rest[--n] = '\0';
    if (is_room_word(words, ends))
        stays = false;
    else if (strcmp(words, "/who") == 0)
        print_people(&c->attendance);
    else if (strcmp(words, "/invite") == 0)
        room_chat_invite(c, rest);
    else if (strcmp(words, "/dismiss") == 0)
        room_chat_dismiss(c, rest);
    else if (strcmp(words, "/stop") == 0)
        attendance_stop(&c->attendance);
    else if (strcmp(words, "/help") == 0)
        print_room_help();
    else
        console_error("there is no command '%.40s'; /help lists them", words);
    free(words);
    return stays;
}

/* False: the person leaves. */
static bool room_chat_typed(struct room_chat *c, const char *text)
{
    if (text[0] == '/' && text[1] != '/' && strchr(text, '\n') == NULL)
        return room_chat_command(c, text);
    attendance_say(&c->attendance, text[0] == '/' && text[1] == '/' ? text + 1 : text);
    return true;
}

static bool room_is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

static enum exit_code room_at_terminal(struct room_chat *c)
{
    const struct prompt_watch watch = {.fd = c->attendance.fd,
                                       .act = on_room_news,
                                       .typing = on_room_typing,
                                       .command = '/',
                                       .label = room_chat_label,
                                       .arg = c};
    struct line_prompt *prompt = NULL;
    struct error err;
    const char *text;
    bool has_warned = false, stays = true;

    if (prompt_open(&prompt, &err) != STATUS_OK) {
        console_error("%s", err.text);
        return EXIT_FAILED;
    }
    prompt_set_watch(prompt, &watch);
    while (stays && !c->attendance.has_ended) {
        enum prompt_end end = prompt_read(prompt, &text);

        stays = end != PROMPT_QUIT && end != PROMPT_OVER && !(end == PROMPT_NOTHING && has_warned);
        has_warned = end == PROMPT_NOTHING || end == PROMPT_CLEARED;
        if (end == PROMPT_NOTHING && stays)
            console_quiet("Ctrl-C again leaves, and so does Ctrl-D");
        if (end == PROMPT_TOO_LONG)
            console_error("that is more than %d bytes", PROMPT_MAX_BYTES);
        if (end == PROMPT_TEXT && !room_is_blank(text))
            stays = room_chat_typed(c, text);
        stays = stays && out_flush();
    }
    prompt_close(prompt);
    c->was_refused = false; /* it was said, and the chat went on */
    room_chat_leave(c);
    return room_chat_over(c);
}

/* --- over a pipe --- */

struct room_lines {
    struct buf text; /* that has been read, and not said */
    bool is_over;    /* the input has ended */
    const char *fault;
};

/* Takes the first line; false: there is no whole one yet. */
static bool room_lines_next(struct room_lines *l, struct room_chat *c)
{
    char *end = l->text.len == 0 ? NULL : memchr(l->text.data, '\n', l->text.len);
    size_t len = end == NULL ? l->text.len : (size_t)(end - l->text.data), taken = len + 1;

    if (l->text.len == 0 || (end == NULL && !l->is_over))
        return false;
    if (memchr(l->text.data, '\0', len) != NULL) {
        l->fault = "a line of the input has a NUL byte in it";
        return false;
    }
    if (len > 0 && l->text.data[len - 1] == '\r')
        len--;
    l->text.data[len] = '\0';
    if (!room_is_blank(l->text.data))
        attendance_say(&c->attendance, l->text.data);
    buf_consume(&l->text, taken < l->text.len ? taken : l->text.len);
    return true;
}

static void room_lines_read(struct room_lines *l)
{
    ssize_t n;

    if (buf_reserve(&l->text, 1 << 16) != STATUS_OK) {
        l->fault = "a line of the input is longer than 1 MiB";
        return;
    }
    n = read(STDIN_FILENO, l->text.data + l->text.len, 1 << 16);
    if (n < 0 && errno != EINTR)
        l->fault = strerror(errno);
    if (n == 0)
        l->is_over = true;
    if (n > 0)
        l->text.len += (size_t)n;
}

/* Each line is said once the one before it is in the room. After the last one, what the room has
 * up to then is printed, and the person leaves. */
static enum exit_code room_over_pipe(struct room_chat *c)
{
    struct attendance *a = &c->attendance;
    struct room_lines l = {.is_over = false};
    enum exit_code code;
    bool was_interrupted = false;

    buf_init(&l.text, LINE_MAX_BYTES + (1 << 16));
    while (room_chat_step(c) && !c->was_refused && l.fault == NULL) {
        struct pollfd fds[3] = {{.fd = a->fd, .events = POLLIN},
                                {.fd = interrupt_fd(), .events = POLLIN},
                                {.fd = -1, .events = POLLIN}};

        if (attendance_is_settled(a)) {
            if (room_lines_next(&l, c))
                continue;
            if (l.fault != NULL || l.is_over)
                break;
            fds[2].fd = STDIN_FILENO;
        }
        (void)poll(fds, 3, -1); /* a signal only ends the wait early */
        if ((was_interrupted = interrupt_take()))
            break;
        if (fds[2].revents != 0)
            room_lines_read(&l);
    }
    if (l.fault != NULL)
        console_error("%s", l.fault);
    room_chat_leave(c);
    code = room_chat_over(c);
    if (l.fault != NULL)
        code = EXIT_FAILED;
    buf_deinit(&l.text);
    if (was_interrupted) {
        interrupt_release();
        (void)raise(SIGINT); /* the shell is to see how it ended */
    }
    return code;
}

enum exit_code room_run(struct parley_channel *channel, const char *room, const char *name,
                        uint32_t patience_ms)
{
    struct room_chat c = {.attendance = {.channel = channel,
                                         .room = room,
                                         .wanted_name = name,
                                         .patience_ms = patience_ms,
                                         .entry = on_room_entry,
                                         .refused = on_room_refused},
                          .is_terminal = isatty(STDIN_FILENO) != 0};
    enum exit_code code = EXIT_FAILED;

    c.attendance.arg = &c;
    if (attendance_open(&c.attendance)) {
        if (c.is_terminal)
            console_quiet("%s · /help lists the commands, Ctrl-D leaves", room);
        code = c.is_terminal ? room_at_terminal(&c) : room_over_pipe(&c);
    }
    attendance_close(&c.attendance);
    return code;
}
