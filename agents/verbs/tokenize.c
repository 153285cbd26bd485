#include <stddef.h>
#include <stdint.h>

#include "agents/lm/tokenizer/vocab.h"
#include "agents/verbs/verbs.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "cli/options/options.h"
#include "cli/output/console.h"
#include "cli/output/json_lines.h"
#include "compute/verbs/model_file.h"

/* Text to token ids and back, by the vocabulary of a model file. */

enum { MAX_BYTES = 1 << 30 };

struct tokenize {
    const char *model;
    bool is_json; /* output is always JSON; the flag is accepted for scripts */
    struct vocab *vocab;
    struct buf text;
};

static const struct option_row tokenize_rows[] = {
    {"model", "PATH", "a GGUF file (PARLEY_MODEL, else the file that './run model' fetches)",
     OPTION_TEXT, offsetof(struct tokenize, model), 0},
    {"json", NULL, "no effect: the lines are always JSON", OPTION_FLAG,
     offsetof(struct tokenize, is_json), 0},
    {0},
};

static enum status tokenize_line(json_t **out, void *arg, const json_t *line, struct error *err)
{
    struct tokenize *t = arg;
    const json_t *text = json_object_get(line, "text");
    const struct text_span span = {json_string_length(text),
                                   json_is_true(json_object_get(line, "parse_special"))};
    json_t *ids;
    enum status rc;

    if (!json_is_string(text))
        return error_set(err, STATUS_INVALID, "must be an object with a \"text\"");
    buf_clear(&t->text);
    rc = vocab_encode_spans(t->vocab, json_string_value(text), json_string_length(text), &span, 1,
                            true, &t->text, err);
    if (rc != STATUS_OK)
        return rc;
    ids = json_array();
    for (size_t i = 0; i < t->text.len / sizeof(int32_t); i++)
        (void)json_array_append_new(ids,
                                    json_integer(((const int32_t *)(const void *)t->text.data)[i]));
    *out = json_pack("{so}", "ids", ids);
    return STATUS_OK;
}

/* Appends the ids of a list. */
static enum status tokenize_take_ids(const struct tokenize *t, const json_t *list, struct buf *ids,
                                     struct error *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t number = json_integer_value(item);
        int32_t id = (int32_t)number;

        if (!json_is_integer(item) || number < 0 || (uint64_t)number >= vocab_n_tokens(t->vocab))
            return error_set(err, STATUS_INVALID, "an id is not from 0 to %zu",
                             vocab_n_tokens(t->vocab) - 1);
        if (buf_append(ids, &id, sizeof(id)) != STATUS_OK)
            return error_set(err, STATUS_EXHAUSTED, "there are too many ids");
    }
    return STATUS_OK;
}

/* Invalid UTF-8 becomes U+FFFD: ids may end inside a character. */
static enum status tokenize_text_json(json_t **out, const struct buf *text, struct error *err)
{
    struct buf clean;
    size_t n_bytes;
    enum status rc = STATUS_OK;

    buf_init(&clean, (size_t)MAX_BYTES * 3);
    for (size_t at = 0; rc == STATUS_OK && at < text->len; at += n_bytes) {
        uint32_t character;
        char bytes[4];

        n_bytes = utf8_next(text->data + at, text->len - at, &character);
        rc = buf_append(&clean, bytes, utf8_encode(character, bytes));
    }
    if (rc == STATUS_OK)
        *out = json_pack("{ss%}", "text", clean.len == 0 ? "" : clean.data, clean.len);
    else
        (void)error_set(err, rc, "the text is too long");
    buf_deinit(&clean);
    return rc;
}

static enum status detokenize_line(json_t **out, void *arg, const json_t *line, struct error *err)
{
    struct tokenize *t = arg;
    const json_t *list = json_object_get(line, "ids");
    struct buf ids;
    enum status rc;

    if (!json_is_array(list))
        return error_set(err, STATUS_INVALID, "must be an object with a list \"ids\"");
    buf_init(&ids, MAX_BYTES);
    buf_clear(&t->text);
    rc = tokenize_take_ids(t, list, &ids, err);
    if (rc == STATUS_OK)
        rc = vocab_decode(t->vocab, (const int32_t *)(const void *)ids.data,
                          ids.len / sizeof(int32_t), &t->text, err);
    if (rc == STATUS_OK)
        rc = tokenize_text_json(out, &t->text, err);
    buf_deinit(&ids);
    return rc;
}

static enum status open_vocab(struct vocab **out, const char *model, struct error *err)
{
    struct gguf *file = NULL;
    enum status rc = model_file_open(&file, model, err);

    if (rc == STATUS_OK)
        rc = vocab_open(out, file, err);
    gguf_close(file);
    return rc;
}

static enum exit_code tokenize_lines(const struct verb *verb, int argc, char **argv,
                                     json_lines_fn answer)
{
    struct tokenize t = {0};
    const struct option_group groups[] = {{tokenize_rows, &t, NULL}};
    struct error err;
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 1, argc, argv, 0, 0, &first, &code))
        return code;
    buf_init(&t.text, MAX_BYTES);
    if (open_vocab(&t.vocab, t.model, &err) == STATUS_OK) {
        code = json_lines_run(answer, &t);
    } else {
        console_error("%s", err.text);
        code = EXIT_FAILED;
    }
    vocab_close(t.vocab);
    buf_deinit(&t.text);
    return code;
}

enum exit_code tokenize_run(const struct verb *verb, int argc, char **argv)
{
    return tokenize_lines(verb, argc, argv, tokenize_line);
}

enum exit_code detokenize_run(const struct verb *verb, int argc, char **argv)
{
    return tokenize_lines(verb, argc, argv, detokenize_line);
}
