/* What a person can ask of the chat itself: lines that begin with '/'. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/cli/chat.h"
#include "client/cli/notice.h"
#include "client/cli/transcript.h"

struct command {
    const char *name, *args, *help;
    enum chat_next (*run)(struct chat *c, const char *args);
};

/* An optional number; false, with an error said, for anything else. */
static bool read_number(uint32_t *out, uint32_t without, const char *text)
{
    char *end;
    unsigned long number;

    *out = without;
    if (*text == '\0')
        return true;
    errno = 0;
    number = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end != '\0' || errno == ERANGE || number > UINT32_MAX) {
        notice_error("'%s' is no number of turns", text);
        return false;
    }
    *out = (uint32_t)number;
    return true;
}

static bool has_conversation(const struct chat *c)
{
    if (*c->conversation == '\0')
        notice_error("there is no conversation yet; say something first");
    return *c->conversation != '\0';
}

static enum chat_next fork_run(struct chat *c, const char *args)
{
    Parley__V1__ForkRequest request = PARLEY__V1__FORK_REQUEST__INIT;
    Parley__V1__ForkResponse *answer;
    ProtobufCMessage *message;
    struct parley_error err;
    uint32_t at_turn;

    if (!has_conversation(c) || !read_number(&at_turn, 0, args))
        return CHAT_GOES_ON;
    request.conversation = c->conversation;
    request.at_turn = at_turn;
    if (connection_call(&message, c->channel, "/parley.v1.Conversations/Fork", &request.base,
                        &parley__v1__fork_response__descriptor, 0, &err) != PARLEY_OK) {
        (void)connection_complain(&err);
        return CHAT_GOES_ON;
    }
    answer = (Parley__V1__ForkResponse *)message;
    notice_line("forked after turn %u; this is %s now, and %s stays as it is", answer->turns,
                answer->conversation, c->conversation);
    if (strlen(answer->conversation) < sizeof c->conversation)
        memcpy(c->conversation, answer->conversation, strlen(answer->conversation) + 1);
    c->n_turns = answer->turns;
    c->is_mine = true;
    protobuf_c_message_free_unpacked(message, NULL);
    return CHAT_GOES_ON;
}

static enum chat_next rewind_run(struct chat *c, const char *args)
{
    struct parley_error err;
    uint32_t n_back, turns;

    if (!has_conversation(c) || !read_number(&n_back, 1, args))
        return CHAT_GOES_ON;
    if (n_back > c->n_turns) {
        notice_error("there are only %u turns to take back", c->n_turns);
        return CHAT_GOES_ON;
    }
    if (parley_rewind(c->channel, c->conversation, c->n_turns - n_back, &turns, &err) !=
        PARLEY_OK) {
        (void)connection_complain(&err);
        return CHAT_GOES_ON;
    }
    c->n_turns = turns;
    if (turns == 0)
        notice_line("back to the start");
    else
        notice_line("back to the end of turn %u", turns);
    return CHAT_GOES_ON;
}

static enum chat_next save_run(struct chat *c, const char *args)
{
    Parley__V1__Conversation *found;
    struct parley_error err;
    struct error why;

    if (!has_conversation(c))
        return CHAT_GOES_ON;
    if (*args == '\0') {
        notice_error("/save wants a file's name; one that ends in .jsonl gets JSON lines");
        return CHAT_GOES_ON;
    }
    if (transcript_get(&found, c->channel, c->conversation, true, &err) != PARLEY_OK) {
        (void)connection_complain(&err);
        return CHAT_GOES_ON;
    }
    if (transcript_save(found, args, &why) == STATUS_OK)
        notice_line("saved %zu turn%s to %s", found->n_transcript,
                    found->n_transcript == 1 ? "" : "s", args);
    else
        notice_error("%s", why.text);
    parley__v1__conversation__free_unpacked(found, NULL);
    return CHAT_GOES_ON;
}

static enum chat_next system_run(struct chat *c, const char *args)
{
    char *before = c->system;

    if (*args == '\0') {
        notice_error("/system wants the text of a system prompt");
        return CHAT_GOES_ON;
    }
    c->system = xstrdup(args);
    if (chat_begin(c)) {
        free(before);
        notice_line("a new conversation with that system prompt");
    } else {
        free(c->system);
        c->system = before;
    }
    return CHAT_GOES_ON;
}

static enum chat_next quit_run(struct chat *c, const char *args)
{
    (void)c;
    (void)args;
    return CHAT_QUITS;
}

static enum chat_next help_run(struct chat *c, const char *args);

static const struct command commands[] = {
    {"fork", "[TURN]", "go on in a copy of this conversation, as it was after TURN", fork_run},
    {"rewind", "[TURNS]", "take back the last turn, or so many", rewind_run},
    {"save", "FILE", "write what was said to a new file; .jsonl: as JSON lines", save_run},
    {"system", "TEXT", "a new conversation with this system prompt", system_run},
    {"help", "", "this list", help_run},
    {"quit", "", "leave; Ctrl-D does, too", quit_run},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static enum chat_next help_run(struct chat *c, const char *args)
{
    (void)c;
    (void)args;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const struct command *command = &commands[i];

        notice_line("/%s %-*s  %s", command->name, (int)(14 - strlen(command->name)), command->args,
                    command->help);
    }
    notice_line("Ctrl-C stops a reply; at the prompt it clears the line, twice it leaves.");
    return CHAT_GOES_ON;
}

enum chat_next chat_command(struct chat *c, const char *line)
{
    size_t len = strcspn(line, " \t");
    const char *args = line + len + strspn(line + len, " \t");

    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strlen(commands[i].name) == len - 1 &&
            strncmp(commands[i].name, line + 1, len - 1) == 0)
            return commands[i].run(c, args);
    notice_error("there is no command '%.*s'; /help lists them", (int)len, line);
    return CHAT_GOES_ON;
}
