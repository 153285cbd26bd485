#include "server/check_folders.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/log.h"
#include "server/config/config.h"
#include "server/journal/postgres.h"
#include "server/model/models.h"

enum { PATH_LOGGED_BYTES = 512 };

static void folder_warn(const char *option, const char *path, const char *why)
{
    char quoted[PATH_LOGGED_BYTES];

    log_warn("check", "%s=%s warning=\"%s\"", option, log_quote(quoted, sizeof(quoted), path), why);
}

/* As this process's user: files may be made in the folder, and those in it be read. */
static enum status check_writable(const char *path, const struct stat *st, struct error *err)
{
    if (faccessat(AT_FDCWD, path, R_OK | W_OK | X_OK, AT_EACCESS) == 0)
        return STATUS_OK;
    if (errno == EROFS)
        return error_set(err, STATUS_PRECONDITION, "%s is on a read-only file system", path);
    if (errno == EACCES)
        return error_set(
            err, STATUS_PRECONDITION,
            "user %u may not write in %s, which belongs to user %u and has the mode %03o",
            (unsigned)geteuid(), path, (unsigned)st->st_uid, (unsigned)(st->st_mode & 0777));
    return error_set(err, STATUS_PRECONDITION, "%s: %s", path, strerror(errno));
}

/* A start makes it in this folder. */
static enum status check_parent(const char *path, struct error *err)
{
    char *parent = xstrdup(path), *slash;
    struct stat st;
    enum status rc;
    size_t len = strlen(parent);

    while (len > 1 && parent[len - 1] == '/')
        parent[--len] = '\0';
    slash = strrchr(parent, '/');
    if (slash == NULL)
        memcpy(parent, ".", len > 0 ? 2 : 1);
    else
        slash[slash == parent ? 1 : 0] = '\0';
    if (stat(parent, &st) != 0)
        rc = error_set(err, STATUS_PRECONDITION, "%s: %s", parent, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        rc = error_set(err, STATUS_PRECONDITION, "%s is not a folder", parent);
    else
        rc = check_writable(parent, &st, err);
    free(parent);
    return rc == STATUS_OK ? rc : error_prefix(err, "%s cannot be made", path);
}

static bool is_of_network(const char *path)
{
    struct statfs fs;

    if (statfs(path, &fs) != 0)
        return false;
    switch ((unsigned long)fs.f_type & 0xffffffff) {
    case NFS_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case CIFS_SUPER_MAGIC:
    case SMB2_SUPER_MAGIC:
        return true;
    default:
        return false;
    }
}

enum status check_data_folder(const struct config *config, struct error *err)
{
    const char *path = config->data;
    struct stat st;
    enum status rc = STATUS_OK;

    if (path == NULL)
        return STATUS_OK;
    if (postgres_is_url(path))
        rc = journal_postgres.look(path, err);
    else if (stat(path, &st) != 0)
        rc = errno == ENOENT ? check_parent(path, err)
                             : error_set(err, STATUS_PRECONDITION, "%s: %s", path, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        rc = error_set(err, STATUS_PRECONDITION, "%s is not a folder", path);
    else if ((rc = check_writable(path, &st, err)) == STATUS_OK &&
             (rc = journal_sqlite.look(path, err)) == STATUS_OK) {
        if (st.st_uid != geteuid())
            folder_warn("data", path,
                        "it belongs to another user, who may not read what this one writes");
        if (is_of_network(path))
            folder_warn("data", path,
                        "it is on a network file system, where a journal may be lost");
    }
    return rc == STATUS_OK ? rc : error_prefix(err, "--data");
}

enum status check_model_dir(const struct config *config, struct error *err)
{
    const struct models_config of = {.env = &env_real, .model_dir = config->model_dir};
    struct models models;
    enum status rc;

    if (config->model_dir == NULL)
        return STATUS_OK;
    models_init(&models, &of);
    rc = models_scan(&models, err);
    if (rc == STATUS_OK && models.n_entries == 0)
        folder_warn("model_dir", config->model_dir, "there is no model in it");
    models_deinit(&models);
    return rc == STATUS_OK ? rc : error_prefix(err, "--model-dir");
}
