#include "cli/output/json_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/output/console.h"
#include "cli/output/out.h"

void json_lines_deinit(struct json_lines *l)
{
    free(l->text);
    *l = (struct json_lines){0};
}

static enum status json_lines_grow(struct json_lines *l, struct error *err)
{
    const size_t cap = l->cap == 0 ? 4096 : 2 * l->cap;
    char *text;

    if (l->len == JSON_LINE_MAX_BYTES)
        return error_set(err, STATUS_INVALID, "a line may have at most %d MiB, it has more",
                         JSON_LINE_MAX_BYTES >> 20);
    text = try_realloc(l->text, cap, 1);
    if (text == NULL)
        return error_no_memory(err, cap, "a line");
    l->text = text;
    l->cap = cap;
    return STATUS_OK;
}

/* Behind the string that begins at text[at]. */
static size_t json_lines_pass_string(const struct json_lines *l, size_t at)
{
    for (at++; at < l->len && l->text[at] != '"'; at++)
        at += l->text[at] == '\\';
    return at + 1;
}

/* How many values the line has, if it is JSON. In memory each is larger than its text. */
static size_t json_lines_n_values(const struct json_lines *l)
{
    size_t n = 1;
    char before = '\0'; /* outside of strings and white space */

    for (size_t at = 0; at < l->len;) {
        const char c = l->text[at];

        at = c == '"' ? json_lines_pass_string(l, at) : at + 1;
        n += c == ',' || c == '[' || c == '{';
        n -= (c == ']' && before == '[') || (c == '}' && before == '{'); /* it is empty */
        if (strchr(" \t\r\n", c) == NULL)
            before = c;
    }
    return n;
}

static enum status json_lines_read(struct json_lines *l, struct error *err)
{
    int c = 0;

    l->len = 0;
    errno = 0;
    while (c != '\n' && (c = getc_unlocked(l->in)) != EOF) {
        if (l->len == l->cap && json_lines_grow(l, err) != STATUS_OK)
            return err->status;
        l->text[l->len++] = (char)c;
    }
    if (c == EOF && ferror(l->in) != 0)
        return error_set(err, STATUS_UNKNOWN, "%s", strerror(errno));
    if (json_lines_n_values(l) > JSON_LINE_MAX_VALUES)
        return error_set(err, STATUS_INVALID, "a line may have at most %d values, it has more",
                         JSON_LINE_MAX_VALUES);
    return STATUS_OK;
}

/* Behind the marks of byte order and the white space at the begin of the line. */
static const char *json_lines_value(const struct json_lines *l, size_t *ret_len)
{
    static const char mark[] = "\xef\xbb\xbf";
    const char *at = l->text, *end = l->text + l->len;

    for (;;) {
        if (at < end && strchr(" \t\r\n", *at) != NULL && *at != '\0')
            at++;
        else if ((size_t)(end - at) >= strlen(mark) && memcmp(at, mark, strlen(mark)) == 0)
            at += strlen(mark);
        else
            break;
    }
    *ret_len = (size_t)(end - at);
    return at;
}

/* What the line is, where it is no JSON because the file is of another kind; NULL: unknown. */
static const char *json_lines_kind(const struct json_lines *l)
{
    static const struct {
        char begin[8];
        const char *kind;
    } kinds[] = {
        {"\x1f\x8b", "it is compressed: unpack it first, as gunzip does"},
        {"\x28\xb5\x2f\xfd", "it is compressed: unpack it first, as unzstd does"},
        {"\xff\xfe", "it is UTF-16: make UTF-8 of it first, as iconv -f UTF-16 -t UTF-8 does"},
        {"\xfe\xff", "it is UTF-16: make UTF-8 of it first, as iconv -f UTF-16 -t UTF-8 does"},
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && l->number == 1; i++)
        if (l->len >= strlen(kinds[i].begin) &&
            memcmp(l->text, kinds[i].begin, strlen(kinds[i].begin)) == 0)
            return kinds[i].kind;
    return NULL;
}

enum status json_lines_next(struct json_lines *l, json_t **out, size_t flags, struct error *err)
{
    const char *value, *kind;
    json_error_t why;
    size_t len;

    *out = NULL;
    do {
        l->number++;
        if (json_lines_read(l, err) != STATUS_OK)
            return err->status;
        value = json_lines_value(l, &len);
    } while (l->len > 0 && len == 0);
    if (l->len == 0) {
        l->number--; /* there is none */
        return STATUS_OK;
    }
    *out = json_loadb(value, len, flags, &why);
    if (*out != NULL)
        return STATUS_OK;
    kind = json_lines_kind(l);
    return error_set(err, STATUS_INVALID, "%s", kind == NULL ? why.text : kind);
}

enum exit_code json_lines_run(json_lines_fn answer, void *arg)
{
    struct json_lines lines = {.in = stdin};
    enum exit_code code = EXIT_DONE;
    json_t *line = NULL, *out;
    struct error err;

    while (code == EXIT_DONE) {
        enum status rc = json_lines_next(&lines, &line, JSON_ALLOW_NUL, &err);

        if (rc == STATUS_OK && line == NULL)
            break;
        out = NULL;
        if (rc == STATUS_OK)
            rc = answer(&out, arg, line, &err);
        json_decref(line);
        line = NULL;
        if (rc != STATUS_OK)
            console_error("line %zu of stdin: %s", lines.number, err.text);
        if (rc != STATUS_OK || !out_json(out))
            code = EXIT_FAILED;
    }
    json_lines_deinit(&lines);
    return code;
}
