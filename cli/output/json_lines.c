#include "cli/output/json_lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output/console.h"
#include "cli/output/out.h"

static enum status answer_line(json_t **out, json_lines_fn answer, void *arg, const char *text,
                               size_t len, struct error *err)
{
    json_error_t why;
    json_t *line = json_loadb(text, len, JSON_ALLOW_NUL, &why);
    enum status rc;

    if (line == NULL)
        return error_set(err, STATUS_INVALID, "%s", why.text);
    rc = answer(out, arg, line, err);
    json_decref(line);
    return rc;
}

enum exit_code json_lines_run(json_lines_fn answer, void *arg)
{
    enum exit_code code = EXIT_DONE;
    size_t cap = 0, number = 0;
    char *text = NULL;
    ssize_t len;

    while (code == EXIT_DONE && (len = getline(&text, &cap, stdin)) >= 0) {
        struct error err;
        json_t *out = NULL;

        number++;
        if (answer_line(&out, answer, arg, text, (size_t)len, &err) != STATUS_OK) {
            console_error("line %zu of stdin: %s", number, err.text);
            code = EXIT_FAILED;
        } else if (!out_json(out)) {
            code = EXIT_FAILED;
        }
    }
    if (code == EXIT_DONE && ferror(stdin) != 0) {
        console_error("cannot read stdin: %s", strerror(errno));
        code = EXIT_FAILED;
    }
    free(text);
    return code;
}
