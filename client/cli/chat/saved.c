#include "client/cli/chat/saved.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output/json_lines.h"
#include "client/cli/chat/export.h"

/* A file as it is read: the turns as Import takes them. */
struct saved_file {
    json_t *turns;
    char *system; /* NULL: none */
};

/* A turn of the file's number; a new one where it is not the last one's. */
static json_t *saved_turn(struct saved_file *s, json_int_t number)
{
    const size_t n = json_array_size(s->turns);
    json_t *turn = n == 0 ? NULL : json_array_get(s->turns, n - 1);

    if (turn != NULL && json_integer_value(json_object_get(turn, "turn")) == number)
        return turn;
    if (number != (json_int_t)n + 1)
        return NULL;
    turn = json_pack("{si,s[],ss}", "turn", (int)number, "messages", "finish_reason",
                     "FINISH_REASON_OBSERVED"); /* until its reply comes */
    (void)json_array_append_new(s->turns, turn);
    return turn;
}

static enum status saved_take(struct saved_file *s, const json_t *line, struct error *err)
{
    const char *role = json_string_value(json_object_get(line, "role"));
    const char *text = json_string_value(json_object_get(line, "text"));
    const json_t *number = json_object_get(line, "turn");
    json_t *turn;

    if (role == NULL || text == NULL || !json_is_integer(number))
        return error_set(err, STATUS_INVALID,
                         "it must have turn, role and text; '/save NAME.jsonl' writes such a file");
    if (json_integer_value(number) == 0 && strcmp(role, "system") == 0 && s->system == NULL &&
        json_array_size(s->turns) == 0) {
        s->system = strdup(text);
        return s->system != NULL ? STATUS_OK : error_no_memory(err, strlen(text), "a prompt");
    }
    turn = saved_turn(s, json_integer_value(number));
    if (turn == NULL)
        return error_set(err, STATUS_INVALID, "its turn is %lld, turns must go on from 1",
                         (long long)json_integer_value(number));
    if (json_object_get(turn, "reply") != NULL)
        return error_set(err, STATUS_INVALID, "it comes after the reply of its turn");
    if (strcmp(role, "assistant") != 0) {
        (void)json_array_append_new(json_object_get(turn, "messages"),
                                    json_pack("{ss,ss}", "role", role, "text", text));
        return STATUS_OK;
    }
    (void)json_object_set_new(turn, "reply", json_string(text));
    (void)json_object_set_new(turn, "finish_reason", json_string("FINISH_REASON_STOP"));
    return STATUS_OK;
}

static enum status saved_read(struct saved_file *s, const char *path, struct error *err)
{
    struct json_lines lines = {.in = fopen(path, "re")};
    FILE *in = lines.in;
    enum status rc = STATUS_OK;
    bool is_over = false;

    if (in == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    while (rc == STATUS_OK && !is_over) {
        json_t *line = NULL;

        rc = json_lines_next(&lines, &line, 0, err);
        if (rc == STATUS_INVALID)
            (void)error_prefix(err, "it is no JSON, as '/save NAME.jsonl' writes it");
        is_over = line == NULL;
        if (rc == STATUS_OK && !is_over)
            rc = saved_take(s, line, err);
        json_decref(line);
    }
    if (rc != STATUS_OK)
        rc = error_prefix(err, "%s, line %zu", path, lines.number);
    else if (json_array_size(s->turns) == 0)
        rc = error_set(err, STATUS_INVALID, "%s has no turn", path);
    json_lines_deinit(&lines);
    (void)fclose(in); /* only read */
    return rc;
}

static enum status saved_import(const struct saved_file *s, struct parley_channel *channel,
                                const char *conversation, struct error *err)
{
    const size_t n = json_array_size(s->turns);
    struct import_batch batch = import_batch_make();
    enum status rc = STATUS_OK;
    size_t n_turns;

    for (size_t at = 0; rc == STATUS_OK && at < n;) {
        while (at < n && import_batch_add(&batch, json_array_get(s->turns, at)))
            at++;
        rc = import_batch_send(&batch, channel, conversation, &n_turns, err);
    }
    import_batch_deinit(&batch);
    return rc;
}

enum status saved_open(struct parley_opened *out, struct parley_channel *channel, const char *model,
                       const char *path, struct error *err)
{
    struct saved_file s = {.turns = json_array()};
    struct parley_open what = {.model = model};
    struct parley_error why;
    struct parley_opened opened;
    enum status rc = saved_read(&s, path, err);

    what.system = s.system;
    if (rc == STATUS_OK && parley_conversation_open(channel, &what, &opened, &why) != PARLEY_OK)
        rc = error_set(err, (enum status)why.status, "%s", why.text);
    if (rc == STATUS_OK) {
        rc = saved_import(&s, channel, opened.conversation, err);
        if (rc == STATUS_OK)
            *out = opened;
        else
            (void)parley_close(channel, opened.conversation, &why); /* else it expires when idle */
    }
    json_decref(s.turns);
    free(s.system);
    return rc;
}
