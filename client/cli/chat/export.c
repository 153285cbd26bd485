#include "client/cli/chat/export.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/bench/proto_json.h"
#include "client/cli/chat/transcript.h"
#include "client/cli/connection.h"
#include "client/cli/output/console.h"
#include "client/cli/output/message_json.h"
#include "client/cli/output/out.h"

/* --- export --- */

static bool export_line(const char *type, const ProtobufCMessage *message)
{
    json_t *line = message_json(message);

    (void)json_object_del(line, "transcript");
    (void)json_object_del(line, "next_page_token");
    (void)json_object_set_new(line, "type", json_string(type));
    return out_json(line);
}

enum parley_status export_one(struct parley_channel *channel, const char *conversation,
                              struct parley_error *err)
{
    Parley__V1__Conversation *c;
    enum parley_status rc = transcript_get(&c, channel, conversation, true, err);

    if (rc != PARLEY_OK)
        return rc;
    /* out_end reports what could not be written */
    if (export_line("conversation", &c->base))
        for (size_t i = 0; i < c->n_transcript; i++)
            if (!export_line("turn", &c->transcript[i]->base))
                break;
    parley__v1__conversation__free_unpacked(c, NULL);
    return PARLEY_OK;
}

enum parley_status export_all(struct parley_channel *channel, const char *model,
                              struct parley_error *err)
{
    enum { EXPORT_PAGE = 100 };
    char token[256] = "";
    enum parley_status rc = PARLEY_OK;

    do {
        Parley__V1__ConversationsListRequest request = PARLEY__V1__CONVERSATIONS_LIST_REQUEST__INIT;
        const Parley__V1__ConversationsListResponse *page;
        ProtobufCMessage *answer;

        request.page_size = EXPORT_PAGE;
        request.page_token = token;
        request.model = (char *)(model == NULL ? "" : model);
        rc = connection_call(&answer, channel, "/parley.v1.Conversations/List", &request.base,
                             &parley__v1__conversations_list_response__descriptor, 0, err);
        if (rc != PARLEY_OK)
            return rc;
        page = (const Parley__V1__ConversationsListResponse *)answer;
        for (size_t i = 0; i < page->n_conversations && rc == PARLEY_OK; i++) {
            rc = export_one(channel, page->conversations[i]->conversation, err);
            if (rc == PARLEY_NOT_FOUND)
                rc = PARLEY_OK;
        }
        (void)snprintf(token, sizeof token, "%s", page->next_page_token);
        protobuf_c_message_free_unpacked(answer, NULL);
    } while (rc == PARLEY_OK && *token != '\0');
    return rc;
}

/* --- import --- */

/* Turns go in calls of at most so many bytes of JSON, far below what a server takes. */
enum { IMPORT_CALL_BYTES = 1 << 20 };

struct import {
    struct parley_channel *channel;
    struct proto_schema schema;
    char *conversation; /* the conversation to which turns are added; NULL: none yet */
    char *was;          /* its id in the export */
    json_t *turns;      /* not sent yet */
    size_t n_bytes, n_turns;
};

/* A call whose request is made of JSON. The caller frees *out. */
static enum status import_call(ProtobufCMessage **out, struct import *i, const char *method,
                               const ProtobufCMessageDescriptor *request, const json_t *json,
                               const ProtobufCMessageDescriptor *response, struct error *err)
{
    ProtobufCMessage *message = NULL;
    struct parley_error why;
    enum status rc;
    struct buf bytes;

    buf_init(&bytes, (size_t)64 << 20);
    rc = proto_json_encode(&bytes, &i->schema, request->name, json, err);
    if (rc == STATUS_OK) {
        message = protobuf_c_message_unpack(request, NULL, bytes.len, (const uint8_t *)bytes.data);
        if (message == NULL)
            rc = error_set(err, STATUS_INVALID, "a line cannot be sent");
    }
    if (rc == STATUS_OK &&
        connection_call(out, i->channel, method, message, response, 0, &why) != PARLEY_OK)
        rc = error_set(err, (enum status)why.status, "%s", why.text);
    if (message != NULL)
        protobuf_c_message_free_unpacked(message, NULL);
    buf_deinit(&bytes);
    return rc;
}

static enum status import_flush(struct import *i, struct error *err)
{
    ProtobufCMessage *answer;
    enum status rc;
    json_t *request;

    if (json_array_size(i->turns) == 0)
        return STATUS_OK;
    request = json_pack("{ss,sO}", "conversation", i->conversation, "turns", i->turns);
    rc = import_call(&answer, i, "/parley.v1.Conversations/Import",
                     &parley__v1__conversations_import_request__descriptor, request,
                     &parley__v1__conversations_import_response__descriptor, err);
    json_decref(request);
    if (rc != STATUS_OK)
        return rc;
    i->n_turns = ((const Parley__V1__ConversationsImportResponse *)answer)->turns;
    protobuf_c_message_free_unpacked(answer, NULL);
    (void)json_array_clear(i->turns);
    i->n_bytes = 0;
    return STATUS_OK;
}

/* The conversation is complete. */
static enum status import_end(struct import *i, struct error *err)
{
    enum status rc;

    if (i->conversation == NULL)
        return STATUS_OK;
    rc = import_flush(i, err);
    if (rc == STATUS_OK && !out_json(json_pack("{ss,ss,sI}", "conversation", i->conversation, "was",
                                               i->was, "turns", (json_int_t)i->n_turns)))
        rc = error_set(err, STATUS_UNAVAILABLE, "stdout cannot be written");
    free(i->conversation);
    free(i->was);
    i->conversation = i->was = NULL;
    i->n_turns = 0;
    return rc;
}

static enum status import_open(struct import *i, const json_t *line, struct error *err)
{
    static const char *const kept[] = {"model",  "system", "sampling",
                                       "limits", "ttl_ms", "metadata"};
    const char *was = json_string_value(json_object_get(line, "conversation"));
    ProtobufCMessage *answer;
    json_t *request;
    enum status rc = import_end(i, err);

    if (rc != STATUS_OK)
        return rc;
    request = json_object();
    for (size_t k = 0; k < sizeof kept / sizeof kept[0]; k++)
        if (json_object_get(line, kept[k]) != NULL)
            (void)json_object_set(request, kept[k], json_object_get(line, kept[k]));
    rc = import_call(&answer, i, "/parley.v1.Conversations/Open",
                     &parley__v1__conversations_open_request__descriptor, request,
                     &parley__v1__conversations_open_response__descriptor, err);
    json_decref(request);
    if (rc != STATUS_OK)
        return rc;
    i->conversation = strdup(((const Parley__V1__ConversationsOpenResponse *)answer)->conversation);
    i->was = strdup(was == NULL ? "" : was);
    protobuf_c_message_free_unpacked(answer, NULL);
    if (i->conversation == NULL || i->was == NULL)
        abort(); /* no memory for an id */
    return STATUS_OK;
}

/* Export has enums as people write them. */
static json_t *import_finish_reason(const json_t *word)
{
    char name[64] = "FINISH_REASON_";
    size_t at = strlen(name);

    if (!json_is_string(word))
        return json_deep_copy(word);
    for (const char *c = json_string_value(word); *c != '\0' && at + 1 < sizeof name; c++)
        name[at++] = (char)toupper((unsigned char)*c);
    name[at] = '\0';
    return json_string(name);
}

static enum status import_turn(struct import *i, const json_t *line, struct error *err)
{
    json_t *turn = json_copy((json_t *)line); /* only read */
    char *text;

    if (i->conversation == NULL) {
        json_decref(turn);
        return error_set(err, STATUS_INVALID, "a turn comes before the first conversation");
    }
    (void)json_object_del(turn, "type");
    if (json_object_get(turn, "finish_reason") != NULL)
        (void)json_object_set_new(turn, "finish_reason",
                                  import_finish_reason(json_object_get(turn, "finish_reason")));
    text = json_dumps(turn, JSON_COMPACT);
    i->n_bytes += text == NULL ? 0 : strlen(text);
    free(text);
    (void)json_array_append_new(i->turns, turn);
    return i->n_bytes < IMPORT_CALL_BYTES ? STATUS_OK : import_flush(i, err);
}

static enum status import_line(struct import *i, const json_t *line, struct error *err)
{
    const char *type = json_string_value(json_object_get(line, "type"));

    if (type != NULL && strcmp(type, "conversation") == 0)
        return import_open(i, line, err);
    if (type != NULL && strcmp(type, "turn") == 0)
        return import_turn(i, line, err);
    return error_set(err, STATUS_INVALID, "its type is '%.40s', it must be conversation or turn",
                     type == NULL ? "" : type);
}

static enum exit_code import_lines(struct import *i)
{
    size_t cap = 0, number = 0;
    char *text = NULL;
    struct error err = {0};
    ssize_t len;

    while (err.status == STATUS_OK && (len = getline(&text, &cap, stdin)) >= 0) {
        json_error_t why;
        json_t *line = json_loadb(text, (size_t)len, 0, &why);

        number++;
        if (line == NULL)
            (void)error_set(&err, STATUS_INVALID, "%s", why.text);
        else
            (void)!import_line(i, line, &err); /* the failure is in err */
        json_decref(line);
    }
    free(text);
    if (err.status == STATUS_OK)
        (void)!import_end(i, &err); /* the failure is in err */
    if (err.status == STATUS_OK)
        return EXIT_DONE;
    console_error("line %zu of stdin: %s", number, err.text);
    return EXIT_FAILED;
}

enum exit_code import_run(struct parley_channel *channel)
{
    struct import i = {.channel = channel, .turns = json_array()};
    struct error err;
    enum exit_code code = EXIT_FAILED;

    proto_schema_init(&i.schema);
    if (proto_schema_read(&i.schema, channel, "parley.v1.Conversations", &err) == STATUS_OK)
        code = import_lines(&i);
    else
        console_error("%s", err.text);
    proto_schema_deinit(&i.schema);
    json_decref(i.turns);
    free(i.conversation);
    free(i.was);
    return code;
}
