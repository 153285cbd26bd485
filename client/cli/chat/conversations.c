/* parley conversations: has a function for each action, and the table of the actions. The first
 * argument names the action. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/suggest.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "cli/output/table.h"
#include "client/cli/chat/export.h"
#include "client/cli/chat/listing.h"
#include "client/cli/chat/transcript.h"
#include "client/cli/chat/watch.h"
#include "client/cli/connection.h"
#include "client/cli/output/message_json.h"
#include "client/cli/verbs.h"
#include "proto/words.h"

struct conversation_list {
    const struct verb *verb;
    struct connection_options connection;
    const char *model, *format;
    enum transcript_layout layout; /* of format */
    uint32_t limit, at_turn;
    uint32_t turn; /* the argument of rewind and cancel */
    struct parley_channel *channel;
    struct text_table table; /* of list */
    uint32_t n_listed;
};

enum {
    WORDS_COLUMNS = 40,
    LIST_COLUMNS = 100,
    LISTED = 50, /* conversations, unless --limit says how many */
    /* Rows of which the first words are asked for: the server reads such a conversation into memory
     * if it is only stored. */
    MAX_WORDED = LISTED,
};

static const struct option_row conversations_rows[] = {
    {"limit", "N", "list at most N; 0: all (50)", OPTION_U32,
     offsetof(struct conversation_list, limit), 0},
    {"model", "NAME", "list only conversations of this model", OPTION_TEXT,
     offsetof(struct conversation_list, model), 0},
    {"at-turn", "N", "fork after turn N; 0: at the beginning (the last one)", OPTION_U32,
     offsetof(struct conversation_list, at_turn), 0},
    {"format", "FORMAT", "show as text, markdown or html (text)", OPTION_TEXT,
     offsetof(struct conversation_list, format), 0},
    {0},
};

/* An action by its name; args are the arguments after the name. */
struct action {
    const char *name, *args;
    int n_min, n_max;
    int n_ids; /* how many of the arguments, at most, name a conversation */
    enum exit_code (*run)(struct conversation_list *c, int n, char **args);
    const char *turn; /* what the second argument numbers, if it does; no turn has the number 0 */
    bool may_be_0;
};

/* 0 where the server's clock is ahead. */
static uint64_t age_of(uint64_t opened_unix_ms)
{
    struct timespec now;
    uint64_t now_ms;

    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail on Linux */
    now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    return now_ms > opened_unix_ms ? now_ms - opened_unix_ms : 0;
}

static void conversations_add_row(struct conversation_list *c,
                                  const Parley__V1__Conversation *found)
{
    char age[32], idle[32], state[WORD_CHARS], words[TRANSCRIPT_WORDS_BYTES] = "";
    const uint64_t age_ms = age_of(found->opened_unix_ms);
    struct text_table *t = &c->table;

    if (c->n_listed < MAX_WORDED)
        transcript_first_words(words, c->channel, found->conversation, WORDS_COLUMNS);
    table_cell(t, "%s", found->conversation);
    table_cell(t, "%s", found->model);
    table_cell(t, "%u", found->turns);
    table_cell(t, "%u", found->context_tokens);
    table_cell(t, "%s",
               enum_word(state, &parley__v1__conversation_state__descriptor, (int)found->state));
    table_cell(t, "%s", table_age(idle, found->idle_ms));
    table_cell(t, "%s", found->opened_unix_ms == 0 ? "-" : table_age(age, age_ms));
    table_cell(t, "%.8s", *found->parent == '\0' ? "-" : found->parent);
    table_cell(t, "%s", words);
}

static bool conversations_list_one(void *arg, const Parley__V1__Conversation *found)
{
    struct conversation_list *c = arg;

    if (c->connection.is_json)
        (void)out_json(message_json(&found->base)); /* out_end reports a failure */
    else
        conversations_add_row(c, found);
    c->n_listed++;
    return true;
}

/* An id on a terminal may be cut, since its first digits do wherever one is asked for; what reads a
 * pipe gets all of it. */
static void fit_list(struct text_table *t)
{
    const size_t n = console_columns(STDOUT_FILENO);

    table_fit(t, n == 0 || n > LIST_COLUMNS ? LIST_COLUMNS : n, n == 0);
}

static enum exit_code conversations_list(struct conversation_list *c, int n_args, char **args)
{
    static const char *const header[] = {"CONVERSATION", "MODEL", "TURNS",  "TOKENS",      "STATE",
                                         "IDLE",         "AGE",   "PARENT", "FIRST WORDS", ""};
    struct parley_error err;
    uint32_t total = 0;
    enum parley_status rc;

    table_init(&c->table, header);
    rc = listing_each(c->channel, c->model, c->limit, conversations_list_one, c, &total, &err);
    if (rc == PARLEY_OK && !c->connection.is_json) {
        fit_list(&c->table);
        table_print(&c->table);
        if (c->n_listed < total)
            console_line("%u of %u; --limit 0 lists all", c->n_listed, total);
    }
    table_deinit(&c->table);
    return rc == PARLEY_OK ? EXIT_DONE : connection_complain(&err);
}

static void print_facts(const Parley__V1__Conversation *c)
{
    char idle[32], ttl[32], state[WORD_CHARS];

    printf("conversation %s\n", c->conversation);
    printf("  model    %s (%.12s)\n", c->model, c->version);
    printf("  turns    %u, %s, %u waiting\n", c->turns,
           enum_word(state, &parley__v1__conversation_state__descriptor, (int)c->state), c->queued);
    printf("  context  %u tokens in %u pages, %u of them shared\n", c->context_tokens, c->kv_pages,
           c->kv_pages_shared);
    if (c->ttl_ms == 0)
        printf("  idle     %s\n", table_time(idle, c->idle_ms));
    else
        printf("  idle     %s of %s\n", table_time(idle, c->idle_ms), table_time(ttl, c->ttl_ms));
    if (*c->parent != '\0')
        printf("  parent   %s\n", c->parent);
    if (c->principal != NULL)
        printf("  owner    %s\n", c->principal->name);
    printf("\n");
}

static enum exit_code conversations_show(struct conversation_list *c, int n_args, char **args)
{
    Parley__V1__Conversation *found;
    struct parley_error err;

    if (transcript_get(&found, c->channel, args[0], true, &err) != PARLEY_OK)
        return connection_complain(&err);
    if (c->connection.is_json) {
        (void)out_json(message_json(&found->base)); /* out_end reports a failure */
    } else {
        if (c->layout == TRANSCRIPT_TEXT)
            print_facts(found);
        (void)transcript_write(found, c->layout, stdout); /* as for json */
    }
    parley__v1__conversation__free_unpacked(found, NULL);
    return EXIT_DONE;
}

static enum exit_code conversations_fork(struct conversation_list *c, int n_args, char **args)
{
    Parley__V1__ConversationsForkRequest request = PARLEY__V1__CONVERSATIONS_FORK_REQUEST__INIT;
    ProtobufCMessage *answer;
    struct parley_error err;

    request.conversation = args[0];
    if (c->at_turn != PARLEY_ALL_TURNS) {
        request.at_case = PARLEY__V1__CONVERSATIONS_FORK_REQUEST__AT_AT_TURN;
        request.at_turn = c->at_turn;
    }
    if (connection_call(&answer, c->channel, "/parley.v1.Conversations/Fork", &request.base,
                        &parley__v1__conversations_fork_response__descriptor, 0, &err) != PARLEY_OK)
        return connection_complain(&err);
    if (c->connection.is_json)
        (void)out_json(message_json(answer)); /* out_end reports a failure */
    else
        printf("%s\n", ((const Parley__V1__ConversationsForkResponse *)answer)->conversation);
    protobuf_c_message_free_unpacked(answer, NULL);
    return EXIT_DONE;
}

static enum exit_code conversations_close(struct conversation_list *c, int n_args, char **args)
{
    struct parley_error err;

    for (int i = 0; i < n_args; i++) {
        if (parley_close(c->channel, args[i], &err) != PARLEY_OK)
            return connection_complain(&err);
        if (c->connection.is_json)
            (void)out_json(json_pack("{ss}", "closed", args[i])); /* out_end reports a failure */
    }
    return EXIT_DONE;
}

static enum exit_code conversations_rewind(struct conversation_list *c, int n_args, char **args)
{
    struct parley_error err;
    uint32_t turns;

    if (parley_rewind(c->channel, args[0], c->turn, &turns, &err) != PARLEY_OK)
        return connection_complain(&err);
    if (c->connection.is_json)
        (void)out_json(json_pack("{ss,si}", "conversation", args[0], "turns", (int)turns));
    return EXIT_DONE;
}

static enum exit_code conversations_cancel(struct conversation_list *c, int n_args, char **args)
{
    struct parley_error err;
    uint32_t n_cancelled;

    if (parley_cancel_turn(c->channel, args[0], c->turn, &n_cancelled, &err) != PARLEY_OK)
        return connection_complain(&err);
    if (c->connection.is_json)
        (void)out_json(
            json_pack("{ss,si}", "conversation", args[0], "cancelled", (int)n_cancelled));
    return EXIT_DONE;
}

static enum exit_code conversations_watch(struct conversation_list *c, int n_args, char **args)
{
    struct parley_error err;

    if (watch_run(c->channel, n_args == 0 ? NULL : args[0], c->connection.is_json, &err) !=
        PARLEY_OK)
        return connection_complain(&err);
    return EXIT_DONE;
}

static enum exit_code conversations_export(struct conversation_list *c, int n_args, char **args)
{
    struct parley_error err;

    for (int i = 0; i < n_args; i++)
        if (export_one(c->channel, args[i], &err) != PARLEY_OK)
            return connection_complain(&err);
    return n_args == 0 ? export_all(c->channel, c->model) : EXIT_DONE;
}

static enum exit_code conversations_import(struct conversation_list *c, int n_args, char **args)
{
    return import_run(c->channel);
}

static const struct action actions[] = {
    {"list", "", 0, 0, 0, conversations_list, NULL, false},
    {"show", "ID", 1, 1, 1, conversations_show, NULL, false},
    {"fork", "ID", 1, 1, 1, conversations_fork, NULL, false},
    {"rewind", "ID TURN", 2, 2, 1, conversations_rewind, "the last turn to keep", true},
    {"cancel", "ID [TURN]", 1, 2, 1, conversations_cancel, "a turn", false},
    {"close", "ID…", 1, 1000, 1000, conversations_close, NULL, false},
    {"watch", "[ID]", 0, 1, 1, conversations_watch, NULL, false},
    {"export", "[ID…]", 0, 1000, 1000, conversations_export, NULL, false},
    {"import", "< FILE", 0, 0, 0, conversations_import, NULL, false},
};

static const struct action *find_action(const char *name)
{
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
        if (strcmp(actions[i].name, name) == 0)
            return &actions[i];
    return NULL;
}

static enum exit_code no_such_action(const struct verb *verb, const char *name)
{
    struct suggest near;

    suggest_init(&near, name);
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
        suggest_try(&near, actions[i].name);
    if (near.word != NULL)
        return options_misuse(verb, "there is no command '%s', did you mean '%s'?", name,
                              near.word);
    return options_misuse(verb, "there is no command '%s', it must be one of %s", name, verb->args);
}

static bool read_turn(uint32_t *out, const char *text, bool may_be_0)
{
    uint64_t n;

    if (!number_read(&n, text, UINT32_MAX) || (n == 0 && !may_be_0))
        return false;
    *out = (uint32_t)n;
    return true;
}

/* Makes ids of the arguments that name conversations. */
static bool find_ids(char (*ids)[LISTING_ID_CHARS], const struct conversation_list *c, int n,
                     char **args)
{
    struct parley_error err;

    for (int i = 0; i < n; i++) {
        if (listing_resolve(ids[i], c->channel, args[i], &err) != PARLEY_OK) {
            (void)connection_complain(&err);
            return false;
        }
        args[i] = ids[i];
    }
    return true;
}

static enum exit_code conversations_act(struct conversation_list *c, const struct action *action,
                                        int n, char **args)
{
    const int n_ids = n < action->n_ids ? n : action->n_ids;
    char(*ids)[LISTING_ID_CHARS] = xalloc((size_t)(n_ids + 1) * sizeof(*ids));
    enum exit_code code = EXIT_FAILED;

    c->channel = connection_open(&c->connection, &code);
    if (c->channel != NULL && find_ids(ids, c, n_ids, args))
        code = action->run(c, n, args);
    if (c->channel != NULL)
        parley_channel_close(c->channel);
    free(ids);
    return code;
}

enum exit_code conversations_run(const struct verb *verb, int argc, char **argv)
{
    struct conversation_list c = {.verb = verb,
                                  .connection = connection_defaults(),
                                  .limit = LISTED,
                                  .at_turn = PARLEY_ALL_TURNS};
    const struct option_group groups[] = {{conversations_rows, &c, NULL},
                                          {connection_rows, &c.connection, NULL}};
    const struct action *action;
    enum exit_code code;
    int first, n;

    if (!options_read(verb, groups, 2, argc, argv, 0, argc, &first, &code))
        return code;
    action = find_action(first == argc ? "list" : argv[first]);
    if (action == NULL)
        return no_such_action(verb, argv[first]);
    n = first == argc ? 0 : argc - first - 1;
    if (n < action->n_min || n > action->n_max)
        return options_misuse(verb, "%s takes %s", action->name,
                              *action->args == '\0' ? "no argument" : action->args);
    if (c.format != NULL && !transcript_layout_read(&c.layout, c.format))
        return options_misuse(verb, "--format must be text, markdown or html, not '%s'", c.format);
    if (c.format != NULL && (strcmp(action->name, "show") != 0 || c.connection.is_json))
        return options_misuse(verb, "--format is for show, without --json");
    if (action->turn != NULL && n > 1 && !read_turn(&c.turn, argv[first + 2], action->may_be_0))
        return options_misuse(verb, "%s needs the number of %s, '%s' is not one", action->name,
                              action->turn, argv[first + 2]);
    return conversations_act(&c, action, n, argv + first + 1);
}
