/* Export prints conversations, their turns and their stored records as JSON lines. Import reads
 * such lines, opens the conversations, and adds the turns that the server lacks. */
#include "client/cli/chat/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output/console.h"
#include "cli/output/json_lines.h"
#include "cli/output/out.h"
#include "client/cli/chat/transcript.h"
#include "client/cli/connection.h"
#include "client/cli/output/message_json.h"
#include "client/cli/proof/records.h"
#include "proto/codec.h"
#include "proto/json/protobuf_json.h"

/* --- export --- */

static bool export_line(const char *type, json_t *line)
{
    (void)json_object_del(line, "transcript");
    (void)json_object_del(line, "next_page_token");
    (void)json_object_set_new(line, "type", json_string(type));
    return out_json(line);
}

/* Fetches the conversation and its records, of one state: turns may end meanwhile. A conversation
 * that is not stored has no records. */
static enum parley_status export_get(Parley__V1__Conversation **out, struct records *records,
                                     struct parley_channel *channel, const char *conversation,
                                     struct parley_error *err)
{
    enum { TRIES = 100 };
    enum parley_status rc;

    for (int i = 1;; i++) {
        rc = transcript_get(out, channel, conversation, true, err);
        if (rc != PARLEY_OK)
            return rc;
        rc = records_get(records, channel, conversation, err);
        if (rc == PARLEY_FAILED_PRECONDITION || rc == PARLEY_UNIMPLEMENTED) /* an older server */
            return PARLEY_OK;
        if (rc == PARLEY_OK && (i == TRIES || records_n_turns(records) == (*out)->n_transcript))
            return PARLEY_OK;
        parley__v1__conversation__free_unpacked(*out, NULL);
        records_deinit(records);
        if (rc != PARLEY_OK)
            return rc;
    }
}

enum parley_status export_one(struct parley_channel *channel, const char *conversation,
                              struct parley_error *err)
{
    Parley__V1__Conversation *c;
    struct records records;
    enum parley_status rc = export_get(&c, &records, channel, conversation, err);
    bool is_written;

    if (rc != PARLEY_OK)
        return rc;
    /* out_end reports what could not be written */
    is_written = export_line("conversation", message_json(&c->base));
    for (size_t i = 0; i < c->n_transcript && is_written; i++)
        is_written = export_line("turn", message_json(&c->transcript[i]->base));
    for (size_t i = 0; i < records.n && is_written; i++)
        is_written = export_line("record", record_line(records.all[i]));
    parley__v1__conversation__free_unpacked(c, NULL);
    records_deinit(&records);
    return PARLEY_OK;
}

/* Whether the others would fail, too. */
static bool export_is_over(const struct parley_error *err)
{
    return err->status == PARLEY_UNAVAILABLE || err->status == PARLEY_DEADLINE_EXCEEDED ||
           err->status == PARLEY_CANCELLED || err->status == PARLEY_UNAUTHENTICATED ||
           err->status == PARLEY_PERMISSION_DENIED;
}

/* *ret_code becomes EXIT_FAILED where one is left out. False: none can be exported any more. */
static bool export_page(struct parley_channel *channel,
                        const Parley__V1__ConversationsListResponse *page, enum exit_code *ret_code)
{
    struct parley_error err;

    for (size_t i = 0; i < page->n_conversations; i++) {
        const char *id = page->conversations[i]->conversation;

        if (export_one(channel, id, &err) == PARLEY_OK)
            continue;
        if (strcmp(err.reason, "CONVERSATION_NOT_FOUND") == 0) {
            console_line("conversation %s was closed meanwhile", id);
            continue;
        }
        console_error("conversation %s is not exported: %s", id, err.text);
        *ret_code = EXIT_FAILED;
        if (export_is_over(&err))
            return false;
    }
    return true;
}

enum exit_code export_all(struct parley_channel *channel, const char *model)
{
    enum { EXPORT_PAGE = 100 };
    char token[256] = "";
    enum exit_code code = EXIT_DONE;
    bool goes_on;

    do {
        Parley__V1__ConversationsListRequest request = PARLEY__V1__CONVERSATIONS_LIST_REQUEST__INIT;
        const Parley__V1__ConversationsListResponse *page;
        ProtobufCMessage *answer;
        struct parley_error err;

        request.page_size = EXPORT_PAGE;
        request.page_token = token;
        request.model = (char *)(model == NULL ? "" : model);
        if (connection_call(&answer, channel, "/parley.v1.Conversations/List", &request.base,
                            &parley__v1__conversations_list_response__descriptor, 0,
                            &err) != PARLEY_OK)
            return connection_complain(&err);
        page = (const Parley__V1__ConversationsListResponse *)answer;
        goes_on = export_page(channel, page, &code);
        (void)snprintf(token, sizeof(token), "%s", page->next_page_token);
        protobuf_c_message_free_unpacked(answer, NULL);
    } while (goes_on && *token != '\0');
    return code;
}

/* --- import --- */

/* What the turns of a call have at most, unless one alone has more; far below what a server takes
 * by default: 4 MiB, and 16,384 fields. */
enum { IMPORT_CALL_BYTES = 1 << 20, IMPORT_CALL_FIELDS = 8192 };

enum { IMPORT_MESSAGE_BYTES = 512 << 20 };

struct import {
    struct parley_channel *channel;
    char *conversation; /* the conversation to which turns are added; NULL: none yet */
    char *was;          /* its id in the export */
    /* The conversation as an earlier import left it; NULL: it is new. */
    Parley__V1__Conversation *before;
    struct import_batch batch; /* not sent yet */
    size_t n_turns, n_added;
    size_t n_conversations, n_new; /* of all */
};

/* A call whose request is made of JSON in protobuf's mapping. The caller frees *out by
 * protobuf_c_message_free_unpacked. */
static enum status import_call(ProtobufCMessage **out, struct parley_channel *channel,
                               const char *method, const ProtobufCMessageDescriptor *request,
                               const json_t *json, const ProtobufCMessageDescriptor *response,
                               struct error *err)
{
    ProtobufCMessage *message = NULL;
    struct parley_error why;
    struct arena arena;
    enum status rc;

    arena_init(&arena, IMPORT_MESSAGE_BYTES);
    rc = protobuf_json_read(&message, request, json, CODEC_ANY_FIELDS, &arena, err);
    if (rc == STATUS_OK &&
        connection_call(out, channel, method, message, response, 0, &why) != PARLEY_OK)
        rc = error_set(err, (enum status)why.status, "%s", why.text);
    arena_deinit(&arena);
    return rc;
}

/* At least the fields of the message that is made of it. */
static size_t import_fields(const json_t *value)
{
    const char *name;
    json_t *member;
    size_t n = 0, i;

    json_object_foreach((json_t *)value, name, member) n += 1 + import_fields(member);
    json_array_foreach(value, i, member) n += 1 + import_fields(member);
    return n;
}

struct import_batch import_batch_make(void)
{
    return (struct import_batch){.turns = json_array()};
}

void import_batch_deinit(struct import_batch *b)
{
    json_decref(b->turns);
    *b = (struct import_batch){0};
}

bool import_batch_add(struct import_batch *b, json_t *turn)
{
    const size_t n_bytes = json_dumpb(turn, NULL, 0, JSON_COMPACT), n_fields = import_fields(turn);

    if (json_array_size(b->turns) > 0 &&
        (b->n_bytes + n_bytes > IMPORT_CALL_BYTES || b->n_fields + n_fields > IMPORT_CALL_FIELDS))
        return false;
    (void)json_array_append(b->turns, turn);
    b->n_bytes += n_bytes;
    b->n_fields += n_fields;
    return true;
}

enum status import_batch_send(struct import_batch *b, struct parley_channel *channel,
                              const char *conversation, size_t *ret_turns, struct error *err)
{
    json_t *request = json_pack("{ss,sO}", "conversation", conversation, "turns", b->turns);
    ProtobufCMessage *answer;
    enum status rc = import_call(&answer, channel, "/parley.v1.Conversations/Import",
                                 &parley__v1__conversations_import_request__descriptor, request,
                                 &parley__v1__conversations_import_response__descriptor, err);

    json_decref(request);
    if (rc != STATUS_OK)
        return rc;
    *ret_turns = ((const Parley__V1__ConversationsImportResponse *)answer)->turns;
    protobuf_c_message_free_unpacked(answer, NULL);
    (void)json_array_clear(b->turns);
    b->n_bytes = b->n_fields = 0;
    return STATUS_OK;
}

static enum status import_flush(struct import *i, struct error *err)
{
    const size_t n = json_array_size(i->batch.turns);
    enum status rc = STATUS_OK;

    if (n > 0)
        rc = import_batch_send(&i->batch, i->channel, i->conversation, &i->n_turns, err);
    if (rc == STATUS_OK)
        i->n_added += n;
    return rc;
}

static void import_forget(struct import *i)
{
    if (i->before != NULL)
        parley__v1__conversation__free_unpacked(i->before, NULL);
    free(i->conversation);
    free(i->was);
    i->before = NULL;
    i->conversation = i->was = NULL;
    i->n_turns = i->n_added = 0;
}

/* The conversation is complete. */
static enum status import_end(struct import *i, struct error *err)
{
    enum status rc;

    if (i->conversation == NULL)
        return STATUS_OK;
    rc = import_flush(i, err);
    if (rc == STATUS_OK &&
        !out_json(json_pack("{ss,ss,sI,sI}", "conversation", i->conversation, "was", i->was,
                            "turns", (json_int_t)i->n_turns, "added", (json_int_t)i->n_added)))
        rc = error_set(err, STATUS_UNAVAILABLE, "stdout cannot be written");
    i->n_conversations++;
    i->n_new += i->before == NULL;
    import_forget(i);
    return rc;
}

/* What the conversation's request is: what was asked for it, and an id by which a second import
 * finds what the first has opened. */
static json_t *import_open_request(const json_t *line, const char *was)
{
    static const char *const kept[] = {"model", "system", "sampling", "limits", "metadata"};
    json_t *request = json_object();

    for (size_t k = 0; k < sizeof(kept) / sizeof(kept[0]); k++)
        if (json_object_get(line, kept[k]) != NULL)
            (void)json_object_set(request, kept[k], json_object_get(line, kept[k]));
    /* A server's own ttl stays with that server. */
    if (json_is_true(json_object_get(line, "has_own_ttl")))
        (void)json_object_set(request, "ttl_ms", json_object_get(line, "ttl_ms"));
    if (*was != '\0')
        (void)json_object_set_new(request, "request_id", json_sprintf("import-%.100s", was));
    return request;
}

/* What an earlier import has made of the conversation. */
static enum status import_look_up(struct import *i, struct error *err)
{
    struct parley_error why;

    if (*i->was == '\0')
        return STATUS_OK;
    if (transcript_get(&i->before, i->channel, i->conversation, true, &why) != PARLEY_OK)
        return error_set(err, (enum status)why.status, "%s", why.text);
    i->n_turns = i->before->n_transcript;
    if (i->n_turns == 0) {
        parley__v1__conversation__free_unpacked(i->before, NULL);
        i->before = NULL;
    }
    return STATUS_OK;
}

static enum status import_open(struct import *i, const json_t *line, struct error *err)
{
    const char *was = json_string_value(json_object_get(line, "conversation"));
    ProtobufCMessage *answer;
    json_t *request;
    enum status rc = import_end(i, err);

    if (rc != STATUS_OK)
        return rc;
    was = was == NULL ? "" : was;
    request = import_open_request(line, was);
    rc = import_call(&answer, i->channel, "/parley.v1.Conversations/Open",
                     &parley__v1__conversations_open_request__descriptor, request,
                     &parley__v1__conversations_open_response__descriptor, err);
    json_decref(request);
    if (rc == STATUS_EXISTS)
        return error_set(err, rc,
                         "conversation %s was imported before with other options: close what was "
                         "made of it, then import it again",
                         was);
    if (rc != STATUS_OK)
        return rc;
    i->conversation = strdup(((const Parley__V1__ConversationsOpenResponse *)answer)->conversation);
    i->was = strdup(was);
    protobuf_c_message_free_unpacked(answer, NULL);
    if (i->conversation == NULL || i->was == NULL)
        abort(); /* no memory for an id */
    return import_look_up(i, err);
}

/* Export has enums as people write them. */
static json_t *import_finish_reason(const json_t *word)
{
    char name[64] = "FINISH_REASON_";
    size_t at = strlen(name);

    if (!json_is_string(word))
        return json_deep_copy(word);
    for (const char *c = json_string_value(word); *c != '\0' && at + 1 < sizeof(name); c++)
        name[at++] = *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c; /* in any locale */
    name[at] = '\0';
    return json_string(name);
}

/* Whether what was said in a turn is the same. */
static bool import_is_same(const Parley__V1__TranscriptTurn *turn, const json_t *line)
{
    static const char *const said[] = {"turn", "messages", "reply"};
    json_t *there = message_json(&turn->base);
    bool is_same = true;

    for (size_t k = 0; k < sizeof(said) / sizeof(said[0]); k++) {
        const json_t *a = json_object_get(there, said[k]), *b = json_object_get(line, said[k]);

        is_same = is_same && (a == b || (a != NULL && b != NULL && message_json_is_same(a, b)));
    }
    json_decref(there);
    return is_same;
}

/* *ret_has: the turn was added by an earlier import. */
static enum status import_find(const struct import *i, const json_t *line, bool *ret_has,
                               struct error *err)
{
    const json_int_t number = json_integer_value(json_object_get(line, "turn"));

    *ret_has = i->before != NULL && number > 0 && (size_t)number <= i->before->n_transcript;
    if (!*ret_has || import_is_same(i->before->transcript[number - 1], line))
        return STATUS_OK;
    return error_set(err, STATUS_EXISTS,
                     "conversation %s was imported before as %s, which has another turn %d: close "
                     "that, then import it again",
                     i->was, i->conversation, (int)number);
}

static enum status import_turn(struct import *i, const json_t *line, struct error *err)
{
    enum status rc = STATUS_OK;
    json_t *turn;
    bool has_it;

    if (i->conversation == NULL)
        return error_set(err, STATUS_INVALID, "a turn comes before the first conversation");
    if (import_find(i, line, &has_it, err) != STATUS_OK)
        return err->status;
    if (has_it)
        return STATUS_OK;
    turn = json_copy((json_t *)line); /* only read */
    (void)json_object_del(turn, "type");
    if (json_object_get(turn, "finish_reason") != NULL)
        (void)json_object_set_new(turn, "finish_reason",
                                  import_finish_reason(json_object_get(turn, "finish_reason")));
    if (!import_batch_add(&i->batch, turn)) {
        rc = import_flush(i, err);
        if (rc == STATUS_OK)
            (void)import_batch_add(&i->batch, turn); /* it is empty now */
    }
    json_decref(turn);
    return rc;
}

static enum status import_line(struct import *i, const json_t *line, struct error *err)
{
    const char *type = json_string_value(json_object_get(line, "type"));

    if (type != NULL && strcmp(type, "conversation") == 0)
        return import_open(i, line, err);
    if (type != NULL && strcmp(type, "turn") == 0)
        return import_turn(i, line, err);
    if (type != NULL && strcmp(type, "record") == 0)
        return STATUS_OK; /* another server's; this one makes its own */
    return error_set(err, STATUS_INVALID,
                     "its type is '%.40s', it must be conversation, turn or record",
                     type == NULL ? "" : type);
}

static enum exit_code import_lines(struct import *i)
{
    struct json_lines lines = {.in = stdin};
    struct error err = {0};
    bool is_over = false;

    while (err.status == STATUS_OK && !is_over) {
        json_t *line = NULL;

        if (json_lines_next(&lines, &line, 0, &err) == STATUS_OK) {
            is_over = line == NULL;
            (void)!(is_over ? import_end(i, &err) : import_line(i, line, &err)); /* as err says */
        }
        json_decref(line);
    }
    if (err.status != STATUS_OK)
        console_error("line %zu of stdin: %s", lines.number, err.text);
    else if (i->n_new < i->n_conversations)
        console_line("%zu of %zu conversations were there from an earlier import",
                     i->n_conversations - i->n_new, i->n_conversations);
    json_lines_deinit(&lines);
    return err.status == STATUS_OK ? EXIT_DONE : EXIT_FAILED;
}

enum exit_code import_run(struct parley_channel *channel)
{
    struct import i = {.channel = channel, .batch = import_batch_make()};
    enum exit_code code = import_lines(&i);

    import_batch_deinit(&i.batch);
    import_forget(&i);
    return code;
}
