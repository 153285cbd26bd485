/* `parley models list DIR`: the model files of a folder. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/lm/inspection.h"
#include "agents/verbs/inspect.h"
#include "agents/verbs/verbs.h"
#include "base/alloc.h"
#include "base/shard_name.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "cli/output/table.h"

enum { ENDING_LEN = 5 };

static bool is_gguf(const char *file)
{
    size_t len = strlen(file);

    return len > ENDING_LEN && strcmp(file + len - ENDING_LEN, ".gguf") == 0;
}

/* Whether it is NAME.gguf, but no further file of a split model, or may be a folder. */
static int may_be_model(const struct dirent *entry)
{
    struct shard_name shard;

    return entry->d_name[0] != '.' &&
           (!is_gguf(entry->d_name) || !shard_name_parse(&shard, entry->d_name, ".gguf") ||
            shard.number == 1);
}

static bool has_config(const char *path)
{
    size_t room = strlen(path) + sizeof("/config.json");
    char *config = xalloc(room);
    bool is_there;

    (void)snprintf(config, room, "%s/config.json", path);
    is_there = access(config, F_OK) == 0;
    free(config);
    return is_there;
}

static void list_good(struct text_table *t, const char *name, const struct lm_inspection *x)
{
    char bytes[24];

    table_cell(t, "%s", name);
    table_cell(t, "%s", x->architecture);
    table_cell(t, "%.2f B", (double)x->n_parameters / 1e9);
    table_cell(t, "%s", x->mix);
    table_cell(t, "%s", table_bytes(bytes, x->size_bytes));
    table_cell(t, "%" PRIu64, x->context);
    table_cell(t, "%s", table_bytes(bytes, x->memory_bytes));
    if (x->why.status == STATUS_OK)
        table_cell(t, "yes");
    else
        table_cell(t, "no: %s", x->why.text);
}

static void list_bad(struct text_table *t, const char *name, const struct error *err)
{
    table_cell(t, "%s", name);
    for (int i = 0; i < 6; i++)
        table_cell(t, "-");
    table_cell(t, "no: %s", err->text);
}

/* The name under which --model-dir serves it. */
static char *served_name(const char *file)
{
    char *name = xstrdup(file);
    struct shard_name shard;

    if (!is_gguf(file))
        return name;
    name[shard_name_parse(&shard, file, ".gguf") ? shard.prefix_len : strlen(file) - ENDING_LEN] =
        '\0';
    return name;
}

static void list_file(struct text_table *t, const char *folder, const char *file, bool is_json)
{
    size_t room = strlen(folder) + strlen(file) + 2;
    char *path = xalloc(room), *name = served_name(file);
    struct lm_inspection x;
    struct error err;
    enum status rc;

    (void)snprintf(path, room, "%s/%s", folder, file);
    if (!is_gguf(file) && !has_config(path)) {
        free(name);
        free(path);
        return;
    }
    rc = lm_inspect(&x, path, &err);
    if (is_json && rc == STATUS_OK) {
        json_t *json = inspection_json(path, &x);

        (void)json_object_del(json, "template_text"); /* it is long, and inspect shows it */
        (void)out_json(json);                         /* out_end reports a failure */
    } else if (is_json) {
        (void)out_json(json_pack("{s:s, s:b, s:s}", "file", path, "loads", 0, "why", err.text));
    } else if (rc == STATUS_OK) {
        list_good(t, name, &x);
    } else {
        list_bad(t, name, &err);
    }
    if (rc == STATUS_OK)
        lm_inspection_deinit(&x);
    free(name);
    free(path);
}

enum exit_code models_list_run(const char *folder, bool is_json)
{
    static const char *const header[] = {"NAME",    "ARCHITECTURE", "PARAMETERS", "TYPES", "SIZE",
                                         "CONTEXT", "MEMORY",       "LOADS HERE", ""};
    struct dirent **entries;
    struct text_table t;
    int n = scandir(folder, &entries, may_be_model, alphasort);

    if (n < 0) {
        console_error("%s: %s", folder, strerror(errno));
        return EXIT_FAILED;
    }
    table_init(&t, header);
    for (int i = 0; i < n; i++) {
        list_file(&t, folder, entries[i]->d_name, is_json);
        free(entries[i]);
    }
    free(entries);
    if (!is_json)
        table_print(&t);
    table_deinit(&t);
    return EXIT_DONE;
}
