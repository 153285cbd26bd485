/* All blobs' locks must be free first. Then each blob goes under its lock, its links before it: a
 * removal that is killed leaves blobs that the next one removes, and a program that begins to fetch
 * meanwhile keeps what it fetches. Folders go only where they are empty. */
#include "base/fetch/hub_cache_remove.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fetch/hub_cache.h"
#include "base/fetch/hub_cache_write.h"
#include "base/fetch/hub_files.h"
#include "base/fetch/hub_path.h"
#include "base/fetch/model_name.h"

enum { LINK_MAX_BYTES = 4096 };

struct removal {
    const char *folder; /* of the repository */
    char *snapshots, *blobs;
    char **names; /* [n_names], of the entries of blobs; owned */
    size_t n_names;
    const struct hub_files *chosen; /* NULL: all */
    const char *blob;               /* whose links are looked for */
    bool is_linked;                 /* a link to it stays */
    size_t n_left;                  /* files of snapshots that stay */
    uint64_t bytes;
    int error; /* errno of the first failure; 0: none */
};

typedef void (*entry_fn)(struct removal *r, const char *path);

static void removal_fail(struct removal *r, int error)
{
    r->error = r->error != 0 ? r->error : error;
}

/* Calls each for the entries of a folder; a missing one has none. */
static void each_entry(struct removal *r, const char *folder, entry_fn each)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, NULL);

    if (n < 0 && errno != ENOENT)
        removal_fail(r, errno); /* what it holds is not known */
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        char *path = hub_path("%s/%s", folder, name);

        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
            each(r, path);
        free(path);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

static bool is_real_folder(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void remove_entry(struct removal *r, const char *path)
{
    struct stat st;

    if (lstat(path, &st) != 0)
        return; /* another program was faster */
    if (remove(path) != 0 && errno != ENOENT)
        removal_fail(r, errno);
    else if (S_ISREG(st.st_mode))
        r->bytes += (uint64_t)st.st_blocks * 512;
}

static void remove_tree(struct removal *r, const char *path)
{
    if (is_real_folder(path))
        each_entry(r, path, remove_tree);
    remove_entry(r, path);
}

/* What a program has put there meanwhile stays, and so does a link to a folder elsewhere. */
static void remove_if_empty(struct removal *r, const char *path)
{
    if (rmdir(path) != 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST &&
        errno != ENOTDIR)
        removal_fail(r, errno);
}

/* --- files of snapshots --- */

static bool is_to_go(const struct removal *r, const char *path)
{
    const char *commit = path + strlen(r->snapshots) + 1, *slash = strchr(commit, '/');
    const struct hub_file *file =
        r->chosen == NULL || slash == NULL ? NULL : hub_files_find(r->chosen, slash + 1);

    return r->chosen == NULL || (file != NULL && file->is_chosen);
}

/* The blob to which a link leads, for the caller to free; NULL: it is no link. */
static char *link_blob(const char *path)
{
    char target[LINK_MAX_BYTES + 1];
    ssize_t len = readlink(path, target, LINK_MAX_BYTES);

    if (len < 0)
        return NULL;
    target[len] = '\0';
    return xstrdup(last_name(target));
}

static void remove_link(struct removal *r, const char *path)
{
    char *blob = link_blob(path);

    if (blob == NULL && is_real_folder(path))
        each_entry(r, path, remove_link);
    else if (blob != NULL && strcmp(blob, r->blob) == 0 && is_to_go(r, path))
        remove_entry(r, path);
    else if (blob != NULL && strcmp(blob, r->blob) == 0)
        r->is_linked = true;
    free(blob);
}

/* Files that a cache has where links cannot be made, links that lead nowhere, and folders. */
static void remove_without_blob(struct removal *r, const char *path)
{
    char *blob = link_blob(path);

    if (blob == NULL && is_real_folder(path)) {
        each_entry(r, path, remove_without_blob);
        remove_if_empty(r, path);
    } else if (is_to_go(r, path) && (blob == NULL || !hub_cache_has_blob(r->folder, blob))) {
        remove_entry(r, path);
    }
    free(blob);
}

/* Links, and files in their place. */
static void count_left(struct removal *r, const char *path)
{
    if (last_name(path)[0] == '.')
        return;
    if (is_real_folder(path))
        each_entry(r, path, count_left);
    else
        r->n_left++;
}

/* --- blobs --- */

static void note_blob(struct removal *r, const char *path)
{
    r->names = xrealloc(r->names, (r->n_names + 1) * sizeof(*r->names));
    r->names[r->n_names++] = xstrdup(last_name(path));
}

/* A blob, and what was fetched of it in part, have one lock. *ret_fd is -1 where there are none. */
static enum status lock_blob(int *ret_fd, const struct removal *r, const char *name,
                             struct error *err)
{
    char *etag = hub_path("%.*s", (int)strcspn(name, "."), name);
    enum status rc = hub_cache_lock(ret_fd, r->folder, etag, err);

    free(etag);
    return rc;
}

static enum status check_blobs(struct removal *r, struct error *err)
{
    int fd;

    for (size_t i = 0; i < r->n_names; i++) {
        enum status rc = lock_blob(&fd, r, r->names[i], err);

        if (rc == STATUS_EXISTS)
            rc = error_set(err, STATUS_UNAVAILABLE, "a program fetches it: end that first");
        if (rc != STATUS_OK)
            return rc;
        if (fd >= 0)
            (void)close(fd); /* which unlocks it */
    }
    return STATUS_OK;
}

/* Removes the links to go, then the blob if no other link leads to it. */
static enum status remove_blob(struct removal *r, const char *name, struct error *err)
{
    char *path;
    int fd;

    if (r->chosen != NULL && strchr(name, '.') != NULL)
        return STATUS_OK; /* it was fetched in part */
    if (lock_blob(&fd, r, name, err) != STATUS_OK)
        return err->status != STATUS_EXISTS
                   ? err->status
                   : error_set(err, STATUS_UNAVAILABLE,
                               "a program began to fetch it: end that, and remove the rest by the "
                               "same command");
    r->blob = name;
    r->is_linked = false;
    each_entry(r, r->snapshots, remove_link);
    path = hub_path("%s/%s", r->blobs, name);
    if (!r->is_linked && r->error == 0)
        (r->chosen == NULL ? remove_tree : remove_entry)(r, path);
    free(path);
    if (fd >= 0)
        (void)close(fd); /* which unlocks it */
    return STATUS_OK;
}

static void remove_beside(struct removal *r, const char *path)
{
    if (strcmp(path, r->snapshots) != 0 && strcmp(path, r->blobs) != 0)
        remove_tree(r, path);
}

static enum status remove_chosen(struct removal *r, struct error *err)
{
    enum status rc = STATUS_OK;

    if (r->chosen == NULL)
        each_entry(r, r->folder, remove_beside); /* refs: no program finds it any more */
    for (size_t i = 0; i < r->n_names && rc == STATUS_OK && r->error == 0; i++)
        rc = remove_blob(r, r->names[i], err);
    if (rc != STATUS_OK || r->error != 0)
        return rc;
    each_entry(r, r->snapshots, remove_without_blob);
    if (r->chosen == NULL) {
        remove_if_empty(r, r->snapshots);
        remove_if_empty(r, r->blobs);
        remove_if_empty(r, r->folder);
    }
    return STATUS_OK;
}

static enum status remove_part(struct removal *r, const char *part, struct error *err)
{
    struct hub_files files = {0};
    enum status rc = hub_cache_choose(&files, r->folder, part, err);

    r->chosen = &files;
    if (rc == STATUS_OK)
        rc = remove_chosen(r, err);
    if (rc == STATUS_OK)
        each_entry(r, r->snapshots, count_left);
    r->chosen = NULL;
    if (rc == STATUS_OK && r->error == 0 && r->n_left == 0)
        rc = remove_chosen(r, err);
    hub_files_deinit(&files);
    return rc;
}

enum status hub_cache_remove(uint64_t *ret_bytes, const struct model_name *name, struct error *err)
{
    struct removal r = {0};
    char *folder;
    enum status rc = hub_cache_folder(&folder, name, err);

    if (rc != STATUS_OK)
        return rc;
    r.folder = folder;
    r.snapshots = hub_path("%s/snapshots", folder);
    r.blobs = hub_path("%s/blobs", folder);
    if (access(folder, F_OK) != 0)
        rc = error_set(err, STATUS_NOT_FOUND, "nothing of it is in the hub's cache");
    else
        each_entry(&r, r.blobs, note_blob);
    if (rc == STATUS_OK && r.error == 0)
        rc = check_blobs(&r, err);
    if (rc == STATUS_OK && r.error == 0)
        rc = name->part[0] != '\0' ? remove_part(&r, name->part, err) : remove_chosen(&r, err);
    if (rc == STATUS_OK && r.error != 0)
        rc = error_set(err, STATUS_DENIED, "cannot remove all of %.120s: %s", folder,
                       strerror(r.error));
    if (rc != STATUS_OK)
        (void)error_prefix(err, "hf:%.60s/%.80s", name->owner, name->repo);
    *ret_bytes = r.bytes;
    for (size_t i = 0; i < r.n_names; i++)
        free(r.names[i]);
    free(r.names);
    free(r.blobs);
    free(r.snapshots);
    free(folder);
    return rc;
}
