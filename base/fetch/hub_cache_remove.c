/* Links are removed first, then the blobs without a link: a removal that is killed in between
 * leaves blobs that the next one removes. */
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

enum { ETAG_ROOM = HUB_ETAG_MAX + 1, LINK_MAX_BYTES = 4096 };

typedef void (*entry_fn)(void *arg, const char *folder, const char *name);

/* Calls each for the entries of a folder but those that begin with a dot; none is an error. */
static void each_entry(const char *folder, entry_fn each, void *arg)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, NULL);

    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.')
            each(arg, folder, entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

/* --- locks --- */

struct blob_lock {
    char etag[ETAG_ROOM];
    int fd;
};

struct blob_locks {
    const char *folder;
    struct blob_lock *all; /* [n] */
    size_t n;
    struct error *err;
};

/* A blob, or one that was fetched in part, may be fetched now: its lock says so. */
static void lock_blob(void *arg, const char *folder, const char *name)
{
    struct blob_locks *locks = arg;
    struct blob_lock lock;

    (void)snprintf(lock.etag, sizeof(lock.etag), "%.*s", (int)strcspn(name, "."), name);
    for (size_t i = 0; i < locks->n; i++)
        if (strcmp(locks->all[i].etag, lock.etag) == 0)
            return;
    if (locks->err->status != STATUS_OK)
        return;
    if (hub_cache_lock(&lock.fd, locks->folder, lock.etag, locks->err) == STATUS_OK) {
        locks->all = xrealloc(locks->all, (locks->n + 1) * sizeof(*locks->all));
        locks->all[locks->n++] = lock;
    } else if (locks->err->status == STATUS_EXISTS) {
        (void)error_set(locks->err, STATUS_UNAVAILABLE, "a program fetches it: end that first");
    }
}

/* Until unlock_blobs, also on failure. */
static enum status lock_blobs(struct blob_locks *locks, const char *folder, struct error *err)
{
    char *blobs = hub_path("%s/blobs", folder);

    *err = (struct error){0};
    locks->folder = folder;
    locks->err = err;
    each_entry(blobs, lock_blob, locks);
    free(blobs);
    return err->status;
}

static void unlock_blobs(struct blob_locks *locks)
{
    for (size_t i = 0; i < locks->n; i++)
        (void)close(locks->all[i].fd); /* which unlocks it */
    free(locks->all);
}

/* --- removing --- */

struct removal {
    const char *folder; /* of the repository */
    const struct hub_files *chosen;
    size_t n_left; /* files of snapshots that stay */
    uint64_t bytes;
    int error; /* errno of the first failure; 0: none */
};

static void remove_entry(struct removal *r, const char *path)
{
    struct stat st;

    if (lstat(path, &st) != 0)
        return; /* another program was faster */
    if (remove(path) != 0 && errno != ENOENT)
        r->error = r->error != 0 ? r->error : errno;
    else if (S_ISREG(st.st_mode))
        r->bytes += (uint64_t)st.st_blocks * 512;
}

static void remove_tree(struct removal *r, const char *path)
{
    struct dirent **entries;
    struct stat st;
    int n = lstat(path, &st) == 0 && S_ISDIR(st.st_mode) ? scandir(path, &entries, NULL, NULL) : -1;

    for (int i = 0; i < n; i++) {
        char *below = hub_path("%s/%s", path, entries[i]->d_name);

        if (strcmp(entries[i]->d_name, ".") != 0 && strcmp(entries[i]->d_name, "..") != 0)
            remove_tree(r, below);
        free(below);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    remove_entry(r, path);
}

/* Unlinks the chosen files of a snapshot, and what is then empty. */
static void remove_links(void *arg, const char *snapshots, const char *commit)
{
    struct removal *r = arg;

    for (size_t i = 0; i < r->chosen->n; i++) {
        char *path = hub_path("%s/%s/%s", snapshots, commit, r->chosen->all[i].name), *slash;

        if (r->chosen->all[i].is_chosen)
            remove_entry(r, path);
        while ((slash = strrchr(path, '/')) != NULL && strlen(path) > strlen(snapshots) + 1) {
            *slash = '\0';
            if (strlen(path) <= strlen(snapshots) || rmdir(path) != 0)
                break; /* it is not empty */
        }
        free(path);
    }
}

/* --- blobs without links --- */

struct blob_links {
    char etag[ETAG_ROOM];
    bool is_linked;
};

static void look_for_link(void *arg, const char *folder, const char *name)
{
    struct blob_links *look = arg;
    char *path = hub_path("%s/%s", folder, name), target[LINK_MAX_BYTES + 1];
    ssize_t len = readlink(path, target, LINK_MAX_BYTES);
    const char *slash;

    if (len < 0) {
        each_entry(path, look_for_link, look); /* a folder; a file has no entries */
    } else {
        target[len] = '\0';
        slash = strrchr(target, '/');
        look->is_linked = look->is_linked || (slash != NULL && strcmp(slash + 1, look->etag) == 0);
    }
    free(path);
}

static void remove_if_free(void *arg, const char *blobs, const char *name)
{
    struct removal *r = arg;
    struct blob_links look = {0};
    char *snapshots = hub_path("%s/snapshots", r->folder), *path = hub_path("%s/%s", blobs, name);

    (void)snprintf(look.etag, sizeof(look.etag), "%.*s", (int)sizeof(look.etag) - 1, name);
    each_entry(snapshots, look_for_link, &look);
    if (!look.is_linked && strchr(name, '.') == NULL) /* else it was fetched in part */
        remove_entry(r, path);
    free(path);
    free(snapshots);
}

/* Links, and the files that a cache has where links cannot be made. */
static void count_left(void *arg, const char *folder, const char *name)
{
    struct removal *r = arg;
    char *path = hub_path("%s/%s", folder, name);
    struct stat st;

    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
        each_entry(path, count_left, r);
    else
        r->n_left++;
    free(path);
}

static enum status remove_part(struct removal *r, const struct model_name *name, struct error *err)
{
    char *snapshots = hub_path("%s/snapshots", r->folder), *blobs = hub_path("%s/blobs", r->folder);
    struct hub_files files = {0};
    enum status rc = hub_cache_choose(&files, r->folder, name->part, err);

    r->chosen = &files;
    if (rc == STATUS_OK) {
        each_entry(snapshots, remove_links, r);
        each_entry(blobs, remove_if_free, r);
        each_entry(snapshots, count_left, r);
        if (r->n_left == 0)
            remove_tree(r, r->folder);
    }
    hub_files_deinit(&files);
    free(blobs);
    free(snapshots);
    return rc;
}

enum status hub_cache_remove(uint64_t *ret_bytes, const struct model_name *name, struct error *err)
{
    struct removal removal = {0};
    struct blob_locks locks = {0};
    char *folder;
    enum status rc = hub_cache_folder(&folder, name, err);

    if (rc != STATUS_OK)
        return rc;
    removal.folder = folder;
    if (access(folder, F_OK) != 0)
        rc = error_set(err, STATUS_NOT_FOUND, "nothing of it is in the hub's cache");
    if (rc == STATUS_OK)
        rc = lock_blobs(&locks, folder, err);
    if (rc == STATUS_OK && name->part[0] != '\0')
        rc = remove_part(&removal, name, err);
    else if (rc == STATUS_OK)
        remove_tree(&removal, folder);
    if (rc == STATUS_OK && removal.error != 0)
        rc = error_set(err, STATUS_DENIED, "cannot remove all of %.120s: %s", folder,
                       strerror(removal.error));
    if (rc != STATUS_OK)
        (void)error_prefix(err, "hf:%.60s/%.80s", name->owner, name->repo);
    *ret_bytes = removal.bytes;
    unlock_blobs(&locks);
    free(folder);
    return rc;
}
