#include <stdio.h>
#include <string.h>

#include "cli/output/out.h"
#include "cli/output/table.h"
#include "client/cli/connection.h"
#include "client/cli/models/remove.h"
#include "client/cli/output/message_json.h"
#include "client/cli/verbs.h"
#include "parley/v1/models.pb-c.h"
#include "proto/words.h"

static void print_models(const Parley__V1__ModelsListResponse *list)
{
    static const char *const header[] = {
        "NAME", "KIND", "STATE", "BACKEND", "CONTEXT", "WEIGHTS", "VERSION", "CONVERSATIONS", ""};
    struct text_table t;
    char bytes[24];

    table_init(&t, header);
    for (size_t i = 0; i < list->n_models; i++) {
        const Parley__V1__Model *m = list->models[i];
        char kind[WORD_CHARS], state[WORD_CHARS];

        table_cell(&t, "%s%s", m->name, m->is_default ? " *" : "");
        (void)enum_word(kind, &parley__v1__model_kind__descriptor, (int)m->kind);
        (void)enum_word(state, &parley__v1__model_state__descriptor, (int)m->state);
        table_cell(&t, "%s%s%s", kind, *m->architecture == '\0' ? "" : " ", m->architecture);
        table_cell(&t, "%s%s%s", state, *m->error == '\0' ? "" : ": ", m->error);
        table_cell(&t, "%s", *m->backend == '\0' ? "-" : m->backend);
        if (m->context == 0)
            table_cell(&t, "-");
        else
            table_cell(&t, "%u", m->context);
        table_cell(&t, "%s", m->weight_bytes == 0 ? "-" : table_bytes(bytes, m->weight_bytes));
        table_cell(&t, "%.12s", m->version);
        table_cell(&t, "%u", m->conversations);
    }
    table_print(&t);
    table_deinit(&t);
}

static enum exit_code models(struct parley_channel *channel, bool is_json)
{
    Parley__V1__ModelsListRequest request = PARLEY__V1__MODELS_LIST_REQUEST__INIT;
    const Parley__V1__ModelsListResponse *list;
    ProtobufCMessage *answer;
    struct parley_error err;

    if (connection_call(&answer, channel, "/parley.v1.Models/List", &request.base,
                        &parley__v1__models_list_response__descriptor, 0, &err) != PARLEY_OK)
        return connection_complain(&err);
    list = (const Parley__V1__ModelsListResponse *)answer;
    if (!is_json)
        print_models(list);
    for (size_t i = 0; is_json && i < list->n_models; i++)
        (void)out_json(message_json(&list->models[i]->base)); /* out_end reports a failure */
    protobuf_c_message_free_unpacked(answer, NULL);
    return EXIT_DONE;
}

enum exit_code models_run(const struct verb *verb, int argc, char **argv, models_list_fn list_files)
{
    struct connection_options connection = connection_defaults();
    const struct option_group groups[] = {{connection_rows, &connection, NULL}};
    struct parley_channel *channel;
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 1, argc, argv, 0, 100, &first, &code))
        return code;
    if (argc - first > 1 && strcmp(argv[first], "rm") == 0)
        return models_remove(argv + first + 1, argc - first - 1);
    if (first < argc && strcmp(argv[first], "list") != 0)
        return options_misuse(verb,
                              strcmp(argv[first], "rm") == 0
                                  ? "'%s' needs the NAME of a model in the hub's cache"
                                  : "there is no command '%s', it must be 'list DIR' or 'rm NAME'",
                              argv[first]);
    if (first < argc && argc - first != 2)
        return options_misuse(verb, "'list' needs one DIR, a folder with models");
    if (first < argc)
        return list_files(argv[first + 1], connection.is_json);
    channel = connection_open(&connection, &code);
    if (channel == NULL)
        return code;
    code = models(channel, connection.is_json);
    parley_channel_close(channel);
    return code;
}
