/* Paths and names of models become models of the configuration: what is in a folder is listed, what
 * is on this machine is found, and what is not is fetched at the start. Nothing else of the
 * configuration touches models' files. */
#include "server/config/model_paths.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fetch/find.h"
#include "base/fetch/hub_path.h"
#include "base/fetch/model_name.h"
#include "base/fetch/pull.h"
#include "base/log.h"
#include "base/shard_name.h"
#include "server/config/setters.h"
#include "server/config/values.h"

const char *config_keep_text(struct config *c, char *text)
{
    c->texts = xrealloc(c->texts, (c->n_texts + 1) * sizeof(c->texts[0]));
    c->texts[c->n_texts++] = text;
    return text;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_model_folder(const char *path)
{
    char *config = hub_path("%s/config.json", path);
    bool is_there = is_folder(path) && access(config, F_OK) == 0;

    free(config);
    return is_there;
}

static enum status config_add_one(struct config *c, const char *path, struct error *err)
{
    char name[MODEL_NAME_SERVED_MAX + 1];

    model_name_served(name, path);
    for (size_t i = 0; i < c->n_models; i++)
        if (strcmp(c->models[i].name, name) == 0)
            return error_set(err, STATUS_INVALID,
                             "a model is called '%s' already; give %.100s another name by --model "
                             "NAME=PATH",
                             name, path);
    return config_add_model(c, name, strlen(name), path, err);
}

/* A GGUF file, but no further one of a split model and no projector; or what may be a folder. */
static int may_be_served(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name);
    struct shard_name shard;

    if (entry->d_name[0] == '.' || strcasestr(entry->d_name, "mmproj") != NULL)
        return 0;
    return len < 6 || strcmp(entry->d_name + len - 5, ".gguf") != 0 ||
           !shard_name_parse(&shard, entry->d_name, ".gguf") || shard.number == 1;
}

static enum status config_add_entry(struct config *c, const char *folder, const char *file,
                                    struct error *err)
{
    char *path = hub_path("%s/%s", folder, file);
    size_t len = strlen(file);
    bool is_gguf = len > 5 && strcmp(file + len - 5, ".gguf") == 0 && !is_folder(path);

    if (!is_gguf && !is_model_folder(path)) {
        free(path);
        return STATUS_OK;
    }
    return config_add_one(c, config_keep_text(c, path), err);
}

static enum status config_add_folder(struct config *c, const char *folder, struct error *err)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, may_be_served, alphasort);
    size_t n_before = c->n_models;
    enum status rc = STATUS_OK;

    if (n < 0)
        return error_set(err, STATUS_DENIED, "cannot read the folder %.100s: %s", folder,
                         strerror(errno));
    for (int i = 0; i < n; i++) {
        if (rc == STATUS_OK)
            rc = config_add_entry(c, folder, entries[i]->d_name, err);
        free(entries[i]);
    }
    free(entries);
    if (rc == STATUS_OK && c->n_models == n_before)
        return error_set(err, STATUS_NOT_FOUND,
                         "%.100s holds no model: no .gguf file, and no folder with config.json",
                         folder);
    return rc;
}

enum status config_add_path(struct config *c, const char *path, struct error *err)
{
    return is_folder(path) && !is_model_folder(path) ? config_add_folder(c, path, err)
                                                     : config_add_one(c, path, err);
}

/* Whether the text is no NAME=PATH. */
static bool is_path_alone(const char *text)
{
    const char *equals = strchr(text, '='), *slash = strchr(text, '/');

    if (model_name_is_one(text))
        return true;
    return (equals == NULL || (slash != NULL && slash < equals && access(text, F_OK) == 0)) &&
           config_is_model_path(text);
}

enum status set_model(struct config *c, const char *value, struct error *err)
{
    const char *equals = strchr(value, '=');

    if (is_path_alone(value))
        return config_add_path(c, value, err);
    if (equals == NULL || equals == value || equals[1] == '\0')
        return error_set(err, STATUS_INVALID,
                         "takes NAME=PATH, or the path of a .gguf file or a folder, not '%.100s'",
                         value);
    return config_add_model(c, value, (size_t)(equals - value), equals + 1, err);
}

void config_find_models(struct config *c)
{
    for (size_t i = 0; i < c->n_models; i++) {
        struct error ignored; /* config_check_files finds it again, and says it */
        char *path;

        if (model_name_is_one(c->models[i].path) &&
            fetch_find(&path, c->models[i].path, &ignored) == STATUS_OK)
            c->models[i].path = config_keep_text(c, path);
    }
}

/* --- fetching --- */

struct fetch_log {
    const char *model;
    unsigned tenths; /* that were logged, and one */
};

static void on_fetch_progress(void *arg, const struct pull_progress *now)
{
    struct fetch_log *log = arg;
    unsigned tenths =
        now->all_bytes > 0 ? (unsigned)(10 * (double)now->all_done / (double)now->all_bytes) : 0;

    if (now->stage != PULL_FETCHING || tenths < log->tenths)
        return;
    log->tenths = tenths + 1;
    log_info("fetching", "model=%s file=\"%s\" percent=%u megabytes=%llu", log->model, now->file,
             10 * tenths, (unsigned long long)now->all_bytes / 1000000);
}

static enum status config_fetch_model(struct config *c, struct config_model *m, struct error *err)
{
    struct fetch_log log = {.model = m->name};
    struct model_name name;
    char *path;

    if (model_name_parse(&name, m->path, err) != STATUS_OK)
        return err->status;
    if (name.kind != MODEL_NAME_HUB)
        return STATUS_OK; /* config_check_files says what is missing */
    if (pull_run(&path, &name, PULL_CONNECTIONS, on_fetch_progress, &log, err) != STATUS_OK)
        return error_prefix(err, "model '%s'", m->name);
    m->path = config_keep_text(c, path);
    return STATUS_OK;
}

enum status config_fetch_models(struct config *c, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < c->n_models && rc == STATUS_OK && !c->is_offline && !c->check; i++)
        if (model_name_is_one(c->models[i].path))
            rc = config_fetch_model(c, &c->models[i], err);
    return rc;
}
