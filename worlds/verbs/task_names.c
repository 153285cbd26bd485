#include "worlds/verbs/task_names.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"

enum { TASK_NAMES_BYTES = 1 << 20, BABI_TASKS = 20 };

static const char *const fold_names[] = {
    [FOLD_TRAIN] = "train", [FOLD_VALID] = "valid", [FOLD_TEST] = "test"};

static bool task_name_is(const char *task, size_t len, const char *name)
{
    return strlen(name) == len && strncasecmp(task, name, len) == 0;
}

static enum status task_names_append(struct buf *out, const char *form, const char *path,
                                     struct error *err)
{
    if (buf_printf(out, "%s%s:%s", out->len > 0 ? "," : "", form, path) == STATUS_OK)
        return STATUS_OK;
    return error_no_memory(err, out->len, "tasks");
}

/* Question n of bAbI, where ParlAI's build step puts it. */
static enum status task_names_add_babi(struct buf *out, const struct task_places *places,
                                       bool is_large, unsigned n, enum fold fold, struct error *err)
{
    char path[1024];
    const int len =
        snprintf(path, sizeof(path), "%s/bAbI/tasks_1-20_v1-2/en-valid%s-nosf/qa%u_%s.txt",
                 places->data_path, is_large ? "-10k" : "", n, fold_names[fold]);

    if (len < 0 || (size_t)len >= sizeof(path))
        return error_set(err, STATUS_INVALID, "--datapath is longer than %zu bytes", sizeof(path));
    if (access(path, R_OK) != 0)
        return error_set(err, STATUS_NOT_FOUND,
                         "%.200s is not there: --datapath names ParlAI's folder of data, where "
                         "'parlai display_data --task babi:task1k:1' downloads all of bAbI",
                         path);
    return task_names_append(out, "fbdialog", path, err);
}

/* *ret_is: the task is one of bAbI, and was added. */
static enum status task_names_babi(bool *ret_is, struct buf *out, const char *task, size_t len,
                                   const struct task_places *places, enum fold fold,
                                   struct error *err)
{
    char text[32];
    unsigned n = 0;
    int n_read = 0;
    enum status rc = STATUS_OK;

    *ret_is = false;
    if (len >= sizeof(text))
        return STATUS_OK;
    for (size_t i = 0; i <= len; i++)
        text[i] = i == len ? '\0' : (char)(task[i] | (task[i] >= 'A' && task[i] <= 'Z' ? 32 : 0));
    if (task_name_is(task, len, "babi") || task_name_is(task, len, "babi:all1k") ||
        task_name_is(task, len, "babi:all10k")) {
        *ret_is = true;
        for (n = 1; rc == STATUS_OK && n <= BABI_TASKS; n++)
            rc = task_names_add_babi(out, places, strstr(text, "10k") != NULL, n, fold, err);
        return rc;
    }
    if ((sscanf(text, "babi:task1k:%2u%n", &n, &n_read) != 1 &&
         sscanf(text, "babi:task10k:%2u%n", &n, &n_read) != 1) ||
        (size_t)n_read != len || n < 1 || n > BABI_TASKS)
        return STATUS_OK;
    *ret_is = true;
    return task_names_add_babi(out, places, strstr(text, "task10k") != NULL, n, fold, err);
}

static enum status task_names_from_file(struct buf *out, const char *form,
                                        const struct task_places *places, enum fold fold,
                                        struct error *err)
{
    char path[1024];
    int len;

    if (places->file_path == NULL)
        return error_set(err, STATUS_INVALID,
                         "fromfile needs --fromfile-datapath FILE; '%s:FILE' is the same task",
                         form);
    len = snprintf(path, sizeof(path), "%s%s%s%s", places->file_path,
                   places->has_datatype_extension ? "_" : "",
                   places->has_datatype_extension ? fold_names[fold] : "",
                   places->has_datatype_extension ? ".txt" : "");
    if (len < 0 || (size_t)len >= sizeof(path))
        return error_set(err, STATUS_INVALID, "--fromfile-datapath is longer than %zu bytes",
                         sizeof(path));
    return task_names_append(out, form, path, err);
}

static enum status task_names_one(struct buf *out, const char *task, size_t len,
                                  const struct task_places *places, enum fold fold,
                                  struct error *err)
{
    bool is_babi;

    if (task_name_is(task, len, "fromfile") || task_name_is(task, len, "fromfile:parlaiformat"))
        return task_names_from_file(out, "parlai", places, fold, err);
    if (task_name_is(task, len, "fromfile:fbformat"))
        return task_names_from_file(out, "fbdialog", places, fold, err);
    if (task_names_babi(&is_babi, out, task, len, places, fold, err) != STATUS_OK)
        return err->status;
    if (is_babi)
        return STATUS_OK;
    if (buf_printf(out, "%s%.*s", out->len > 0 ? "," : "", (int)len, task) != STATUS_OK)
        return error_no_memory(err, len, "tasks");
    return STATUS_OK;
}

enum status task_names_resolve(const char **out, const char *tasks,
                               const struct task_places *places, enum fold fold,
                               struct arena *arena, struct error *err)
{
    struct buf list;
    enum status rc = STATUS_OK;

    *out = tasks;
    if (strncasecmp(tasks, "babi", 4) != 0 && strncasecmp(tasks, "fromfile", 8) != 0 &&
        strchr(tasks, ',') == NULL)
        return STATUS_OK;
    buf_init(&list, TASK_NAMES_BYTES);
    for (const char *at = tasks;; at++) {
        const size_t len = strcspn(at, ",");

        if (len == 0) /* an empty name: tasks_split says so */
            goto done;
        rc = task_names_one(&list, at, len, places, fold, err);
        at += len;
        if (rc != STATUS_OK || *at == '\0')
            break;
    }
    if (rc == STATUS_OK && (*out = arena_strndup(arena, list.data, list.len)) == NULL)
        rc = error_no_memory(err, list.len, "tasks");
done:
    buf_deinit(&list);
    return rc;
}
