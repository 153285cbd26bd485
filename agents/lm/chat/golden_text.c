/* Reads the files of known results line by line, runs the tokenizer and the template on each line,
 * and counts what differs. The first differences are reported with their file and line. */
#include "agents/lm/chat/golden_text.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GOLDEN_MAX_MESSAGES = 64 };

/* What lines are compared with, and scratch buffers. */
struct golden_text_reader {
    const struct vocab *vocab;
    const struct chat_template *template; /* NULL: whole renders */
    const struct chat_prompter *whole;
    struct buf ids, text; /* of the current line */
};

typedef enum status (*compare_fn)(struct golden_text_reader *r, const json_t *line, bool *ret_equal,
                                  struct error *err);

static enum status golden_text_wrong(const char *what, struct error *err)
{
    return error_set(err, STATUS_DATA_LOSS, "%s", what);
}

static bool golden_text_is_text(const json_t *value, const struct buf *text)
{
    return json_string_length(value) == text->len &&
           (text->len == 0 || memcmp(json_string_value(value), text->data, text->len) == 0);
}

static bool are_ids(const json_t *array, const struct buf *ids)
{
    size_t n = ids->len / sizeof(int32_t);

    if (json_array_size(array) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        int32_t id;

        memcpy(&id, ids->data + i * sizeof(id), sizeof(id));
        if (json_integer_value(json_array_get(array, i)) != id)
            return false;
    }
    return true;
}

static enum status golden_text_reader_decode(const struct golden_text_reader *r,
                                             const json_t *array, bool has_controls,
                                             struct buf *text, struct error *err)
{
    size_t i;
    const json_t *value;

    json_array_foreach(array, i, value)
    {
        json_int_t id = json_integer_value(value);
        const char *bytes;
        size_t len;

        if (!json_is_integer(value) || id < 0 || id > INT32_MAX)
            return golden_text_wrong("ids has an entry that is not a token id", err);
        if (vocab_bytes(r->vocab, (int32_t)id, has_controls, &bytes, &len, err) != STATUS_OK)
            return err->status;
        if (buf_append(text, bytes, len) != STATUS_OK)
            return error_no_memory(err, len, "a text");
    }
    return STATUS_OK;
}

static enum status compare_tokens(struct golden_text_reader *r, const json_t *line, bool *ret_equal,
                                  struct error *err)
{
    const json_t *text = json_object_get(line, "text"), *ids = json_object_get(line, "ids");

    if (!json_is_string(text) || !json_is_array(ids))
        return golden_text_wrong("has no text or no ids", err);
    if (vocab_encode(r->vocab, json_string_value(text), json_string_length(text), &r->ids, err) !=
            STATUS_OK ||
        golden_text_reader_decode(r, ids, false, &r->text, err) != STATUS_OK)
        return err->status;
    *ret_equal = are_ids(ids, &r->ids) && golden_text_is_text(text, &r->text);
    return STATUS_OK;
}

static enum status golden_message(struct message *out, const json_t *value, struct error *err)
{
    const json_t *role = json_object_get(value, "role");
    const json_t *content = json_object_get(value, "content");

    if (!json_is_string(role) || !json_is_string(content))
        return golden_text_wrong("a message has no role or no content", err);
    *out = (struct message){.text = json_string_value(content), .len = json_string_length(content)};
    return role_parse(&out->role, json_string_value(role), err);
}

static enum status golden_text_reader_render(struct golden_text_reader *r,
                                             const struct message *messages, size_t n,
                                             struct error *err)
{
    const bool has_system = messages[0].role == ROLE_SYSTEM;
    enum status rc = chat_template_begin(r->template, has_system ? messages[0].text : NULL,
                                         has_system ? messages[0].len : 0, &r->ids, &r->text, err);

    for (size_t i = has_system; i < n && rc == STATUS_OK; i++)
        rc = chat_template_message(r->template, &messages[i], &r->ids, &r->text, err);
    return rc == STATUS_OK ? chat_template_reply_start(r->template, &r->ids, &r->text, err) : rc;
}

/* The text is that of the ids. */
static enum status golden_text_reader_render_whole(struct golden_text_reader *r,
                                                   const struct message *messages, size_t n,
                                                   const json_t *line, struct error *err)
{
    const json_t *now = json_object_get(line, "now");
    const struct chat_input in = {.messages = messages,
                                  .n_messages = n,
                                  .wants_reply = true,
                                  .now =
                                      json_is_integer(now) ? json_integer_value(now) : time(NULL)};
    size_t n_kept;
    enum status rc = chat_prompter_render(r->whole, &in, NULL, 0, &n_kept, &r->ids, err);

    for (size_t i = 0; rc == STATUS_OK && i < r->ids.len / sizeof(int32_t); i++) {
        const char *bytes;
        size_t len;
        int32_t id;

        memcpy(&id, r->ids.data + i * sizeof(id), sizeof(id));
        rc = vocab_bytes(r->vocab, id, true, &bytes, &len, err);
        if (rc == STATUS_OK && buf_append(&r->text, bytes, len) != STATUS_OK)
            rc = error_no_memory(err, len, "a text");
    }
    return rc;
}

static enum status compare_chat(struct golden_text_reader *r, const json_t *line, bool *ret_equal,
                                struct error *err)
{
    const json_t *list = json_object_get(line, "messages"), *value;
    const json_t *prompt = json_object_get(line, "prompt"), *ids = json_object_get(line, "ids");
    struct message messages[GOLDEN_MAX_MESSAGES];
    size_t n = json_array_size(list), i;
    enum status rc;

    if (n == 0 || n > GOLDEN_MAX_MESSAGES || !json_is_string(prompt) || !json_is_array(ids))
        return golden_text_wrong("has no messages, no prompt or no ids", err);
    json_array_foreach(list, i, value)
    {
        rc = golden_message(&messages[i], value, err);
        if (rc != STATUS_OK)
            return rc;
    }
    rc = r->template != NULL ? golden_text_reader_render(r, messages, n, err)
                             : golden_text_reader_render_whole(r, messages, n, line, err);
    *ret_equal = rc == STATUS_OK && are_ids(ids, &r->ids) && golden_text_is_text(prompt, &r->text);
    return rc;
}

static enum status compare_lines(struct golden_text *out, struct golden_text_reader *r, FILE *in,
                                 compare_fn compare, struct error *err)
{
    struct golden_text result = {0};
    enum status rc = STATUS_OK;
    char *text = NULL;
    size_t cap = 0;
    ssize_t len;

    while (rc == STATUS_OK && (len = getline(&text, &cap, in)) >= 0) {
        json_error_t why;
        json_t *line = json_loadb(text, (size_t)len, JSON_ALLOW_NUL, &why);
        bool is_equal = false;

        result.n++;
        buf_clear(&r->ids);
        buf_clear(&r->text);
        rc = line == NULL ? golden_text_wrong(why.text, err) : compare(r, line, &is_equal, err);
        json_decref(line);
        if (rc != STATUS_OK)
            (void)error_prefix(err, "line %zu", result.n);
        result.equal += is_equal;
        if (!is_equal && result.first_unequal == 0)
            result.first_unequal = result.n;
    }
    free(text);
    if (rc == STATUS_OK && !feof(in))
        rc = golden_text_wrong("cannot be read", err);
    if (rc == STATUS_OK)
        *out = result;
    return rc;
}

static enum status compare_file(struct golden_text *out, struct golden_text_reader r,
                                const char *path, compare_fn compare, struct error *err)
{
    FILE *in = fopen(path, "re");
    enum status rc;

    if (in == NULL)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_UNKNOWN, "%s: %s", path,
                         strerror(errno));
    buf_init(&r.ids, SIZE_MAX);
    buf_init(&r.text, SIZE_MAX);
    rc = compare_lines(out, &r, in, compare, err);
    if (rc != STATUS_OK)
        (void)error_prefix(err, "%s", path);
    buf_deinit(&r.ids);
    buf_deinit(&r.text);
    (void)fclose(in); /* closing after reading loses nothing */
    return rc;
}

enum status golden_text_tokens(struct golden_text *out, const struct vocab *v, const char *path,
                               struct error *err)
{
    return compare_file(out, (struct golden_text_reader){.vocab = v}, path, compare_tokens, err);
}

enum status golden_text_chats(struct golden_text *out, const struct vocab *v,
                              const struct chat_template *t, const struct chat_prompter *whole,
                              const char *path, struct error *err)
{
    return compare_file(out, (struct golden_text_reader){.vocab = v, .template = t, .whole = whole},
                        path, compare_chat, err);
}
