/* Turns that another process gives, as JSON lines: the task attached:NAME, or
 * attached:NAME:ARGUMENT. How they are fetched is the affair of the program that opens the teacher
 * (config.h, struct attached_data). */
#include <string.h>

#include "base/name.h"
#include "worlds/teachers/config.h"
#include "worlds/teachers/format.h"

/* The lines of text; *n_lines and *n_episodes count what the task has given so far. */
static enum status attached_take(struct source *s, const char *text, size_t len, size_t *n_lines,
                                 uint64_t *n_episodes, struct error *err)
{
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t n = end == NULL ? len : (size_t)(end - text);
        enum status rc;

        arena_deinit(&s->retired);
        rc = source_line(s, &jsonl_format, text, n, err);
        ++*n_lines;
        if (rc == STATUS_INVALID && s->skip_bad)
            s->n_skipped++;
        else if (rc != STATUS_OK)
            return error_prefix(err, "line %zu", *n_lines);
        else if (n > 0 && s->begins)
            ++*n_episodes;
        text += n + (end != NULL);
        len -= n + (end != NULL);
    }
    return STATUS_OK;
}

static enum status attached_read(struct source *s, const char *path, struct error *err)
{
    static const char *const folds[] = {
        [FOLD_TRAIN] = "train", [FOLD_VALID] = "valid", [FOLD_TEST] = "test"};
    const size_t len = strcspn(path, ":");
    uint64_t n_episodes = 0;
    size_t n_lines = 0, n = 1;
    const char *text;
    void *opened;
    char name[64];
    enum status rc;

    if (s->attached == NULL)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "attached:%.60s: this verb cannot use attached teachers", path);
    if (!name_is_valid(path, len, sizeof(name) - 1, NAME_MARKS))
        return error_set(
            err, STATUS_INVALID,
            "attached:%.60s: the name must have 1 to %zu letters, digits, '.', '_' and '-'", path,
            sizeof(name) - 1);
    memcpy(name, path, len);
    name[len] = '\0';
    rc = s->attached->open(&opened, s->attached->arg, name, folds[s->fold],
                           path[len] == ':' ? path + len + 1 : "", err);
    if (rc != STATUS_OK)
        return error_prefix(err, "attached:%s", name);
    while (rc == STATUS_OK && n > 0) {
        rc = s->attached->next(opened, n_episodes, s->begins, &text, &n, err);
        if (rc == STATUS_OK)
            rc = attached_take(s, text, n, &n_lines, &n_episodes, err);
    }
    s->attached->close(opened);
    return rc == STATUS_OK ? rc : error_prefix(err, "attached:%s", name);
}

const struct data_format attached_format = {.name = "attached", .read = attached_read};
