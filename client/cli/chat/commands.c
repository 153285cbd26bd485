/* Has a function for each command of a chat, and the table of the commands with their help. */
#include "client/cli/chat/commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/suggest.h"
#include "cli/output/console.h"
#include "cli/output/table.h"
#include "client/cli/chat/branches.h"
#include "client/cli/chat/chat_state.h"
#include "client/cli/chat/saved.h"
#include "client/cli/chat/transcript.h"
#include "parley/v1/models.pb-c.h"

struct command {
    const char *name, *args, *help;
    enum chat_next (*run)(struct chat *c, const char *args);
    bool takes_lines; /* its argument is a text of one or more lines */
    /* Adds the words that its argument may be; NULL: there are none. */
    void (*complete)(struct chat *c, prompt_add_fn add, void *of);
};

enum {
    COMPLETE_MS = 1000, /* time limit of the call for Tab */
    BRANCHES_WORDED = 24,
    BRANCH_WORDS = 40,
    BRANCH_DEPTH_SHOWN = 8,
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
        console_error("there %s only %u turn%s to take back", c->n_turns == 1 ? "is" : "are",
                      c->n_turns, c->n_turns == 1 ? "" : "s");
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
        console_error("/save needs a file name; its end says how: .txt, .md, .html, or .jsonl, "
                      "which /load reads");
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

/* --- branches --- */

/* What a branch is about: the last message to it. */
static void branch_words(char out[TRANSCRIPT_WORDS_BYTES], const struct chat *c, const char *id)
{
    Parley__V1__Conversation *found;
    const Parley__V1__TranscriptTurn *last;
    struct parley_error ignored; /* the conversation may be closed by now */

    *out = '\0';
    if (transcript_get(&found, c->channel, id, true, &ignored) != PARLEY_OK)
        return;
    last = found->n_transcript == 0 ? NULL : found->transcript[found->n_transcript - 1];
    if (last != NULL && last->n_messages > 0)
        transcript_words(out, last->messages[last->n_messages - 1]->text, BRANCH_WORDS);
    parley__v1__conversation__free_unpacked(found, NULL);
}

static void print_branch(const struct chat *c, const struct branch *b, size_t number)
{
    char idle[32], words[TRANSCRIPT_WORDS_BYTES] = "";
    const bool is_here = strcmp(b->id, c->conversation) == 0;

    if (number <= BRANCHES_WORDED)
        branch_words(words, c, b->id);
    console_line("%c%3zu  %.8s  %*s%u turn%s, %s ago%s%s", is_here ? '*' : ' ', number, b->id,
                 (int)(b->depth < BRANCH_DEPTH_SHOWN ? 2 * b->depth : 2 * BRANCH_DEPTH_SHOWN), "",
                 b->turns, b->turns == 1 ? "" : "s", table_time(idle, b->idle_ms),
                 *words == '\0' ? "" : ": ", words);
}

/* The branch of a number of the tree, or else what a number does not say: an id or a name. */
static const char *branch_named(const struct branch *all, size_t n, const char *text)
{
    uint64_t number;

    if (number_read(&number, text, n) && number > 0)
        return all[number - 1].id;
    return text;
}

static enum chat_next command_branch(struct chat *c, const char *args)
{
    struct branch *all;
    struct parley_error err;
    size_t n;

    if (!chat_has_conversation(c))
        return CHAT_GOES_ON;
    if (branches_get(&all, &n, c->channel, c->conversation, &err) != PARLEY_OK) {
        (void)connection_complain(&err);
        return CHAT_GOES_ON;
    }
    if (*args != '\0') {
        if (chat_go_to(c, branch_named(all, n, args)))
            console_line("you are now in %s, after turn %u", c->conversation, c->n_turns);
    } else {
        for (size_t i = 0; i < n; i++)
            print_branch(c, &all[i], i + 1);
        if (n > 1)
            console_line("'/branch 2' goes to number 2; * is where you are");
        else
            console_line("/fork makes a branch of it");
    }
    free(all);
    return CHAT_GOES_ON;
}

/* --- loading --- */

static void load_file(struct chat *c, const char *path)
{
    struct parley_opened opened;
    struct error err;

    if (saved_open(&opened, c->channel, c->chosen_model != NULL ? c->chosen_model : c->wanted_model,
                   path, &err) != STATUS_OK) {
        console_error("%s", err.text);
        return;
    }
    if (!chat_go_to(c, opened.conversation))
        return;
    c->is_mine = true;
    console_line("a new conversation with the %u turn%s of %s", c->n_turns,
                 c->n_turns == 1 ? "" : "s", path);
}

static enum chat_next command_load(struct chat *c, const char *args)
{
    if (*args == '\0')
        console_error("/load needs a file of '/save NAME.jsonl', or a conversation: its id or the "
                      "beginning of it; 'parley conversations' lists them");
    else if (access(args, F_OK) == 0)
        load_file(c, args);
    else if (strchr(args, '/') != NULL || strchr(args, '.') != NULL)
        console_error("%s: %s", args, strerror(ENOENT));
    else if (chat_go_to(c, args))
        console_line("you are now in %s, after turn %u", c->conversation, c->n_turns);
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
    const struct sampling_options before = c->sampling;
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
    if (options_set(&group, text, *value == '\0' ? NULL : value, &err) != STATUS_OK ||
        sampling_options_check(&c->sampling, &err) != STATUS_OK) {
        c->sampling = before;
        console_error("%s", err.text);
    }
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

static void complete_option(struct chat *c, prompt_add_fn add, void *of)
{
    for (const struct option_row *row = sampling_rows; row->name != NULL; row++)
        add(of, row->name);
}

static void complete_model(struct chat *c, prompt_add_fn add, void *of)
{
    Parley__V1__ModelsListRequest request = PARLEY__V1__MODELS_LIST_REQUEST__INIT;
    const Parley__V1__ModelsListResponse *list;
    ProtobufCMessage *answer;
    struct parley_error ignored; /* then nothing is completed */

    if (connection_call(&answer, c->channel, "/parley.v1.Models/List", &request.base,
                        &parley__v1__models_list_response__descriptor, COMPLETE_MS,
                        &ignored) != PARLEY_OK)
        return;
    list = (const Parley__V1__ModelsListResponse *)answer;
    for (size_t i = 0; i < list->n_models; i++)
        add(of, list->models[i]->name);
    protobuf_c_message_free_unpacked(answer, NULL);
}

static const struct command commands[] = {
    {"fork", "[TURN]", "go on in a copy of this conversation, as it was after TURN", command_fork,
     false, NULL},
    {"rewind", "[TURNS]", "take back the last turn, or so many", command_rewind, false, NULL},
    {"retry", "", "answer the last message again, with the next seed", command_retry, false, NULL},
    {"clear", "", "a new conversation with the same model and system prompt", command_clear, false,
     NULL},
    {"model", "[NAME]", "a new conversation with this model, or says which it is", command_model,
     false, complete_model},
    {"set", "OPTION VALUE", "change a sampling option from the next message on", command_set, false,
     complete_option},
    {"show", "", "the model, the conversation, the system prompt, options", command_show, false,
     NULL},
    {"branch", "[NUMBER]", "the tree of this conversation's forks, or go to NUMBER", command_branch,
     false, NULL},
    {"save", "FILE", "write what was said to a file: .txt, .md, .html, .jsonl", command_save, false,
     NULL},
    {"load", "FILE | ID", "go on with a saved .jsonl file or another conversation", command_load,
     false, NULL},
    {"system", "TEXT", "a new conversation with this system prompt", command_system, true, NULL},
    {"help", "", "this list", command_help, false, NULL},
    {"quit", "", "leave; Ctrl-D does, too", command_quit, false, NULL},
    /* What other programs call them; /help does not list these. */
    {"regenerate", "", NULL, command_retry, false, NULL},
    {"new", "", NULL, command_clear, false, NULL},
    {"bye", "", NULL, command_quit, false, NULL},
    {"exit", "", NULL, command_quit, false, NULL},
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

size_t chat_complete(void *arg, const char *text, prompt_add_fn add, void *of)
{
    const size_t len = name_length(text), from = len + strspn(text + len, " \t");
    const struct command *command;

    if (*text != '/')
        return PROMPT_NO_COMPLETION;
    if (text[len] == '\0') {
        for (size_t i = 0; i < N_COMMANDS; i++)
            if (commands[i].help != NULL || len > 1)
                add(of, commands[i].name);
        return 1;
    }
    command = commands_find(text);
    if (command != NULL && command->complete != NULL && strpbrk(text + from, " \t") == NULL)
        command->complete(arg, add, of);
    return from;
}
