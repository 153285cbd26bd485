/* The commit of refs/main names a snapshot; its files are listed, and chosen as those of the hub
 * are. */
#include "base/fetch/hub_cache.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fetch/hub_files.h"
#include "base/fetch/hub_path.h"
#include "base/fetch/model_name.h"

enum { PATH_SIZE = 4096, FOLDERS_MAX_DEPTH = 8 };

enum status hub_cache_folder(char **out, const struct model_name *name, struct error *err)
{
    char *root = hub_home("HF_HUB_CACHE", "hub");

    if (root == NULL)
        return error_set(err, STATUS_PRECONDITION,
                         "the hub's cache has no place: set HF_HUB_CACHE to a folder");
    *out = hub_path("%s/models--%s--%s", root, name->owner, name->repo);
    free(root);
    return STATUS_OK;
}

/* --- find --- */

static bool is_commit(const char *text, size_t len)
{
    return len == HUB_COMMIT_CHARS && strspn(text, "0123456789abcdef") >= HUB_COMMIT_CHARS;
}

/* Reads refs/main. */
static bool read_main(char out[HUB_COMMIT_CHARS + 1], const char *folder)
{
    char *path = hub_path("%s/refs/main", folder), text[HUB_COMMIT_CHARS + 4] = "";
    FILE *file = fopen(path, "re");
    size_t n = file == NULL ? 0 : fread(text, 1, sizeof(text) - 1, file);

    if (file != NULL)
        (void)fclose(file); /* only read */
    free(path);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' '))
        n--;
    if (!is_commit(text, n))
        return false;
    memcpy(out, text, n);
    out[n] = '\0';
    return true;
}

/* A folder that is being listed, for those in it. */
struct listed_folder {
    const struct listed_folder *parent;
    dev_t device;
    ino_t inode;
};

/* Whether f is this folder, or in it. */
static bool listed_folder_is_in(const struct listed_folder *f, const struct stat *st)
{
    while (f != NULL && (f->device != st->st_dev || f->inode != st->st_ino))
        f = f->parent;
    return f != NULL;
}

/* Adds the files below root, whose paths there begin with prefix; a link must lead to a file, or to
 * a folder that it is not in. */
static void list_files(struct hub_files *f, const char *root, const char *prefix,
                       const struct listed_folder *parent, int depth)
{
    char *folder = hub_path("%s/%s", root, prefix);
    DIR *dir = opendir(folder);
    struct listed_folder here = {.parent = parent};
    const struct dirent *entry;
    struct stat st;

    if (dir != NULL && fstat(dirfd(dir), &st) == 0) {
        here.device = st.st_dev;
        here.inode = st.st_ino;
    }
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char *name = hub_path("%s%s%s", prefix, prefix[0] == '\0' ? "" : "/", entry->d_name);
        char *path = hub_path("%s/%s", root, name);

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            stat(path, &st) != 0)
            ;
        else if (S_ISDIR(st.st_mode) && depth < FOLDERS_MAX_DEPTH &&
                 !listed_folder_is_in(&here, &st))
            list_files(f, root, name, &here, depth + 1);
        else if (S_ISREG(st.st_mode))
            (void)hub_files_add(f, name); /* NULL: a name that no file of the hub has */
        free(path);
        free(name);
    }
    if (dir != NULL)
        (void)closedir(dir); /* only read */
    free(folder);
}

/* A folder's index names all files of the weights. */
static enum status check_index(const struct hub_files *f, const char *snapshot, struct error *err)
{
    char *path = hub_path("%s/model.safetensors.index.json", snapshot);
    json_t *index = json_load_file(path, 0, NULL), *file;
    const char *tensor;
    enum status rc = STATUS_OK;

    free(path);
    json_object_foreach(json_object_get(index, "weight_map"), tensor, file)
    {
        if (rc == STATUS_OK && json_is_string(file) &&
            hub_files_find(f, json_string_value(file)) == NULL)
            rc = error_set(err, STATUS_NOT_FOUND, "%.100s is missing", json_string_value(file));
    }
    json_decref(index);
    return rc;
}

/* *ret_file is the name of the file to open, or "" for the folder; both are set on success. */
static enum status choose_in(char **ret_snapshot, const char **ret_file, struct hub_files *out,
                             const char *folder, const char *part, struct error *err)
{
    char commit[HUB_COMMIT_CHARS + 1], *snapshot;

    if (!read_main(commit, folder))
        return error_set(err, STATUS_NOT_FOUND, "nothing of it is there");
    snapshot = hub_path("%s/snapshots/%s", folder, commit);
    list_files(out, snapshot, "", NULL, 0);
    if (hub_files_choose(out, part, ret_file, err) != STATUS_OK) {
        free(snapshot);
        return err->status;
    }
    *ret_snapshot = snapshot;
    return STATUS_OK;
}

enum status hub_cache_choose(struct hub_files *out, const char *folder, const char *part,
                             struct error *err)
{
    const char *file;
    char *snapshot;

    if (choose_in(&snapshot, &file, out, folder, part, err) != STATUS_OK)
        return err->status;
    free(snapshot);
    return STATUS_OK;
}

static enum status hub_cache_find_in(char **out, const char *folder, const char *part,
                                     struct error *err)
{
    struct hub_files files = {0};
    char *snapshot = NULL;
    const char *file;
    enum status rc = choose_in(&snapshot, &file, &files, folder, part, err);

    if (rc == STATUS_OK && file[0] == '\0')
        rc = check_index(&files, snapshot, err);
    if (rc == STATUS_OK)
        *out = file[0] == '\0' ? xstrdup(snapshot) : hub_path("%s/%s", snapshot, file);
    hub_files_deinit(&files);
    free(snapshot);
    return rc;
}

enum status hub_cache_find(char **out, const struct model_name *name, struct error *err)
{
    char *folder = NULL;
    enum status rc = hub_cache_folder(&folder, name, err);

    if (rc != STATUS_OK)
        return rc;
    rc = hub_cache_find_in(out, folder, name->part, err);
    if (rc != STATUS_OK)
        (void)error_prefix(err, "hf:%.40s/%.50s%s%.30s in the hub's cache", name->owner, name->repo,
                           name->part[0] == '\0' ? "" : ":", name->part);
    free(folder);
    return rc;
}
