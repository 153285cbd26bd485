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
    return c == EOF && ferror(l->in) != 0 ? error_set(err, STATUS_UNKNOWN, "%s", strerror(errno))
                                          : STATUS_OK;
}

enum status json_lines_next(struct json_lines *l, json_t **out, size_t flags, struct error *err)
{
    json_error_t why;
    enum status rc;

    l->number++;
    rc = json_lines_read(l, err);
    if (rc != STATUS_OK)
        return rc;
    *out = NULL;
    if (l->len == 0) {
        l->number--; /* there is none */
        return STATUS_OK;
    }
    *out = json_loadb(l->text, l->len, flags, &why);
    return *out == NULL ? error_set(err, STATUS_INVALID, "%s", why.text) : STATUS_OK;
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
