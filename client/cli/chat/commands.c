/* Has a function for each command of a chat, and the table of the commands with their help. */
#include "client/cli/chat/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/suggest.h"
#include "cli/output/console.h"
#include "client/cli/chat/chat_state.h"
#include "client/cli/chat/transcript.h"

struct command {
    const char *name, *args, *help;
    enum chat_next (*run)(struct chat *c, const char *args);
    bool takes_lines; /* its argument is a text of one or more lines */
};

/* Reads an optional number; false, with an error printed, for anything else. */
static bool command_read_number(uint32_t *out, uint32_t without, const char *text)
{
    uint64_t number = without;

    if (*text != '\0' && !number_read(&number, text, UINT32_MAX)) {
        console_error("'%s' is not a number of turns", text);
        return false;
    }
    *out = (uint32_t)number;
    return true;
}

static bool chat_has_conversation(const struct chat *c)
{
    if (*c->conversation == '\0')
        console_error("there is no conversation yet; say something first");
    return *c->conversation != '\0';
}

static enum chat_next command_fork(struct chat *c, const char *args)
{
    Parley__V1__ConversationsForkRequest request = PARLEY__V1__CONVERSATIONS_FORK_REQUEST__INIT;
    Parley__V1__ConversationsForkResponse *answer;
    ProtobufCMessage *message;
    struct parley_error err;
    uint32_t at_turn;

    if (!chat_has_conversation(c) || !command_read_number(&at_turn, PARLEY_ALL_TURNS, args))
        return CHAT_GOES_ON;
    request.conversation = c->conversation;
    if (at_turn != PARLEY_ALL_TURNS) {
        request.at_case = PARLEY__V1__CONVERSATIONS_FORK_REQUEST__AT_AT_TURN;
        request.at_turn = at_turn;
    }
    if (connection_call(&message, c->channel, "/parley.v1.Conversations/Fork", &request.base,
                        &parley__v1__conversations_fork_response__descriptor, 0,
                        &err) != PARLEY_OK) {
        (void)connection_complain(&err);
        return CHAT_GOES_ON;
    }
    answer = (Parley__V1__ConversationsForkResponse *)message;
    console_line("forked after turn %u; you are now in %s, and %s is unchanged", answer->turns,
                 answer->conversation, c->conversation);
    if (strlen(answer->conversation) < sizeof(c->conversation))
        memcpy(c->conversation, answer->conversation, strlen(answer->conversation) + 1);
    c->n_turns = answer->turns;
    c->is_mine = true;
    protobuf_c_message_free_unpacked(message, NULL);
    return CHAT_GOES_ON;
}

static enum chat_next command_rewind(struct chat *c, const char *args)
{
    struct parley_error err;
    uint32_t n_back, turns;

    if (!chat_has_conversation(c) || !command_read_number(&n_back, 1, args))
        return CHAT_GOES_ON;
    if (n_back > c->n_turns) {
        console_error("there are only %u turns to take back", c->n_turns);
        return CHAT_GOES_ON;
    }
    if (parley_rewind(c->channel, c->conversation, c->n_turns - n_back, &turns, &err) !=
        PARLEY_OK) {
        (void)connection_complain(&err);
        return CHAT_GOES_ON;
    }
    c->n_turns = turns;
    if (turns == 0)
        console_line("back to the start");
    else
        console_line("back to the end of turn %u", turns);
    return CHAT_GOES_ON;
}

static enum chat_next command_save(struct chat *c, const char *args)
{
    Parley__V1__Conversation *found;
    struct parley_error err;
    struct error why;

    if (!chat_has_conversation(c))
        return CHAT_GOES_ON;
    if (*args == '\0') {
        console_error("/save needs a file name; a name that ends in .jsonl gets JSON lines");
        return CHAT_GOES_ON;
    }
    if (transcript_get(&found, c->channel, c->conversation, true, &err) != PARLEY_OK) {
        (void)connection_complain(&err);
        return CHAT_GOES_ON;
    }
    if (transcript_save(found, args, &why) == STATUS_OK)
        console_line("saved %zu turn%s to %s", found->n_transcript,
                     found->n_transcript == 1 ? "" : "s", args);
    else
        console_error("%s", why.text);
    parley__v1__conversation__free_unpacked(found, NULL);
    return CHAT_GOES_ON;
}

static enum chat_next command_system(struct chat *c, const char *args)
{
    char *before = c->system;

    if (*args == '\0') {
        console_error("/system needs the text of a system prompt");
        return CHAT_GOES_ON;
    }
    c->system = xstrdup(args);
    if (chat_begin(c)) {
        free(before);
        console_line("a new conversation with that system prompt");
    } else {
        free(c->system);
        c->system = before;
    }
    return CHAT_GOES_ON;
}

/* Takes the last turn back and says its message again, with the next seed: another reply. */
static enum chat_next command_retry(struct chat *c, const char *args)
{
    Parley__V1__Conversation *found;
    const Parley__V1__TranscriptTurn *last;
    struct parley_error err;
    uint32_t turns;

    if (!chat_has_conversation(c))
        return CHAT_GOES_ON;
    if (transcript_get(&found, c->channel, c->conversation, true, &err) != PARLEY_OK) {
        (void)connection_complain(&err);
        return CHAT_GOES_ON;
    }
    last = found->n_transcript == 0 ? NULL : found->transcript[found->n_transcript - 1];
    free(c->again);
    c->again = last == NULL || last->n_messages != 1 ? NULL : xstrdup(last->messages[0]->text);
    turns = last == NULL ? 0 : last->turn;
    parley__v1__conversation__free_unpacked(found, NULL);
    if (c->again == NULL) {
        console_error("there is no message of yours to answer again");
        return CHAT_GOES_ON;
    }
    if (parley_rewind(c->channel, c->conversation, turns - 1, &turns, &err) != PARLEY_OK) {
        (void)connection_complain(&err);
        return CHAT_GOES_ON;
    }
    c->n_turns = turns;
    c->sampling.sampling.seed++;
    c->sampling.sampling.set |= PARLEY_SEED;
    return CHAT_SAYS;
}

static enum chat_next command_clear(struct chat *c, const char *args)
{
    if (chat_begin(c))
        console_line("a new conversation");
    return CHAT_GOES_ON;
}

static enum chat_next command_model(struct chat *c, const char *args)
{
    char *before = c->chosen_model;

    if (*args == '\0') {
        console_line("%s; '/model NAME' begins a new conversation with another, 'parley models' "
                     "lists them",
                     c->model);
        return CHAT_GOES_ON;
    }
    c->chosen_model = xstrdup(args);
    if (chat_begin(c)) {
        free(before);
        console_line("a new conversation with %s", c->model);
    } else {
        free(c->chosen_model);
        c->chosen_model = before;
    }
    return CHAT_GOES_ON;
}

static struct option_group sampling_group(struct chat *c)
{
    return (struct option_group){sampling_rows, &c->sampling, &c->sampling.sampling.set};
}

static enum chat_next command_set(struct chat *c, const char *args)
{
    const struct option_group group = sampling_group(c);
    char *text = arena_strndup(&c->settings, args, strlen(args));
    size_t len = strcspn(args, " \t");
    struct error err;
    const char *value;

    if (*args == '\0' || text == NULL) {
        console_error("/set needs the name of a sampling option and a value, as in '/set "
                      "temperature 0.5'; 'parley help chat' lists them");
        return CHAT_GOES_ON;
    }
    value = text + len + strspn(text + len, " \t");
    text[len] = '\0';
    if (options_set(&group, text, *value == '\0' ? NULL : value, &err) != STATUS_OK)
        console_error("%s", err.text);
    return CHAT_GOES_ON;
}

static enum chat_next command_show(struct chat *c, const char *args)
{
    const struct option_group group = sampling_group(c);
    char value[256];

    console_line("model         %s", c->model);
    console_line("server        %s", c->connection.server);
    if (*c->conversation != '\0')
        console_line("conversation  %s, %u turn%s", c->conversation, c->n_turns,
                     c->n_turns == 1 ? "" : "s");
    console_line("system        %s", c->system == NULL ? "(the model's own)" : c->system);
    for (const struct option_row *row = group.rows; row->name != NULL; row++) {
        options_show(value, sizeof(value), &group, row);
        if (*value != '\0')
            console_line("%-12s  %s", row->name, value);
    }
    return CHAT_GOES_ON;
}

static enum chat_next command_quit(struct chat *c, const char *args)
{
    return CHAT_QUITS;
}

static enum chat_next command_help(struct chat *c, const char *args);

static const struct command commands[] = {
    {"fork", "[TURN]", "go on in a copy of this conversation, as it was after TURN", command_fork,
     false},
    {"rewind", "[TURNS]", "take back the last turn, or so many", command_rewind, false},
    {"retry", "", "answer the last message again, with the next seed", command_retry, false},
    {"clear", "", "a new conversation with the same model and system prompt", command_clear, false},
    {"model", "[NAME]", "a new conversation with this model; without NAME: which it is",
     command_model, false},
    {"set", "OPTION VALUE", "change a sampling option from the next message on", command_set,
     false},
    {"show", "", "the model, the conversation, the system prompt and the options set", command_show,
     false},
    {"save", "FILE", "write what was said to a new file; .jsonl: as JSON lines", command_save,
     false},
    {"system", "TEXT", "a new conversation with this system prompt", command_system, true},
    {"help", "", "this list", command_help, false},
    {"quit", "", "leave; Ctrl-D does, too", command_quit, false},
    /* What other programs call them; /help does not list these. */
    {"regenerate", "", NULL, command_retry, false},
    {"new", "", NULL, command_clear, false},
    {"bye", "", NULL, command_quit, false},
    {"exit", "", NULL, command_quit, false},
};

enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static enum chat_next command_help(struct chat *c, const char *args)
{
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const struct command *command = &commands[i];

        if (command->help == NULL)
            continue;
        console_line("/%s %-*s  %s", command->name, (int)(18 - strlen(command->name)),
                     command->args, command->help);
    }
    console_line(
        "Alt-Enter, or a \\ at the end of a line, begins another line of the same message;");
    console_line("pasted lines are one message, too.");
    console_line("Ctrl-C stops a reply; at the prompt it clears the message, twice it leaves.");
    return CHAT_GOES_ON;
}

static size_t name_length(const char *text)
{
    return strcspn(text, " \t\n");
}

/* NULL: no command has that name. */
static const struct command *commands_find(const char *text)
{
    size_t len = name_length(text);

    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strlen(commands[i].name) == len - 1 &&
            strncmp(commands[i].name, text + 1, len - 1) == 0)
            return &commands[i];
    return NULL;
}

static void complain_of_name(const char *text)
{
    char name[SUGGEST_MAX_BYTES];
    struct suggest near;

    (void)snprintf(name, sizeof(name), "%.*s", (int)name_length(text) - 1,
                   text + 1); /* a longer one is near to none */
    suggest_init(&near, name);
    for (size_t i = 0; i < N_COMMANDS; i++)
        suggest_try(&near, commands[i].name);
    if (near.word != NULL)
        console_error("there is no command '/%s', did you mean '/%s'?", name, near.word);
    else
        console_error("there is no command '/%s'; /help lists them", name);
}

bool chat_is_command(const char *text)
{
    const struct command *command;

    if (*text != '/')
        return false;
    if (strchr(text, '\n') == NULL)
        return true;
    command = commands_find(text);
    return command != NULL && command->takes_lines;
}

enum chat_next chat_command(struct chat *c, const char *text)
{
    const struct command *command = commands_find(text);
    const char *args = text + name_length(text);

    if (command != NULL)
        return command->run(c, args + strspn(args, " \t\n"));
    complain_of_name(text);
    return CHAT_GOES_ON;
}
