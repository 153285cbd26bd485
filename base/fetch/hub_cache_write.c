#include "base/fetch/hub_cache_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fetch/hub_path.h"
#include "base/folders.h"

enum status hub_cache_make_folders(const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash == NULL ? 0 : (size_t)(slash - path), at = 0;
    int failed = folders_make(path, len, 0777, &at); /* the umask decides, as for others */

    if (failed == 0)
        return STATUS_OK;
    return error_set(err, STATUS_DENIED, "cannot make the folder %.*s: %s",
                     at < 120 ? (int)at : 120, path, strerror(failed));
}

/* The lock's path: beside the repository's folder, in .locks. */
static char *lock_path(const char *folder, const char *etag)
{
    const char *slash = strrchr(folder, '/');

    return hub_path("%.*s/.locks/%s/%s.lock", (int)(slash - folder), folder, slash + 1, etag);
}

/* What flock says on some network shares. */
static bool is_without_locks(int error)
{
    return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS;
}

enum status hub_cache_lock(int *ret_fd, const char *folder, const char *etag, struct error *err)
{
    char *path = lock_path(folder, etag);
    bool is_locked = false;
    int fd = -1;

    if (hub_cache_make_folders(path, err) == STATUS_OK) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            (void)error_set(err, STATUS_DENIED, "%.150s: %s", path, strerror(errno));
        else if ((is_locked = flock(fd, LOCK_EX | LOCK_NB) == 0) || is_without_locks(errno))
            *err = (struct error){0};
        else if (errno == EWOULDBLOCK)
            (void)error_set(err, STATUS_EXISTS, "another program fetches it (%.150s)", path);
        else
            (void)error_set(err, STATUS_DENIED, "cannot lock %.150s: %s", path, strerror(errno));
    }
    free(path);
    if (!is_locked && fd >= 0) {
        (void)close(fd);
        fd = -1;
    }
    *ret_fd = fd;
    return err->status;
}

char *hub_cache_blob(const char *folder, const char *etag, const char *suffix)
{
    return hub_path("%s/blobs/%s%s", folder, etag, suffix);
}

bool hub_cache_has_blob(const char *folder, const char *etag)
{
    char *path = hub_cache_blob(folder, etag, "");
    bool is_there = access(path, R_OK) == 0;

    free(path);
    return is_there;
}

bool hub_cache_has_file(const char *folder, const char *commit, const char *file,
                        uint64_t size_bytes)
{
    char *path = hub_path("%s/snapshots/%s/%s", folder, commit, file);
    struct stat st;
    bool is_there = lstat(path, &st) == 0 && S_ISREG(st.st_mode);

    free(path);
    return is_there && (uint64_t)st.st_size == size_bytes;
}

/* A name beside the repository's folders that no other program has: two that end a pull at once
 * would take each other's file away. */
static char *fresh_path(const char *folder)
{
    uint64_t drawn = 0;

    (void)!getrandom(&drawn, sizeof(drawn), 0); /* so few bytes always come */
    return hub_path("%s/.%016" PRIx64 ".new", folder, drawn);
}

/* What symlink says on FAT, and on some network shares. */
static bool is_without_links(int error)
{
    return error == EPERM || error == EOPNOTSUPP || error == ENOSYS;
}

enum status hub_cache_link(const char *folder, const char *commit, const char *file,
                           const char *etag, struct error *err)
{
    char *link = hub_path("%s/snapshots/%s/%s", folder, commit, file), *fresh = fresh_path(folder);
    char *target = hub_path("../../blobs/%s", etag), *deeper;
    char *blob = hub_cache_blob(folder, etag, "");
    bool is_linked;

    for (const char *at = file; *at != '\0'; at++) {
        if (*at != '/')
            continue;
        deeper = hub_path("../%s", target);
        free(target);
        target = deeper;
    }
    if (hub_cache_make_folders(link, err) == STATUS_OK) {
        *err = (struct error){0};
        if (symlink(target, fresh) == 0)
            is_linked = rename(fresh, link) == 0;
        else
            is_linked = is_without_links(errno) && rename(blob, link) == 0;
        if (!is_linked) {
            (void)error_set(err, STATUS_DENIED, "cannot link %.150s: %s", link, strerror(errno));
            (void)unlink(fresh);
        }
    }
    free(blob);
    free(target);
    free(fresh);
    free(link);
    return err->status;
}

enum status hub_cache_set_main(const char *folder, const char *commit, struct error *err)
{
    char *path = hub_path("%s/refs/main", folder), *fresh = fresh_path(folder);
    bool is_written;
    FILE *file;

    if (hub_cache_make_folders(path, err) == STATUS_OK) {
        *err = (struct error){0};
        file = fopen(fresh, "we");
        is_written = file != NULL && fputs(commit, file) >= 0 && fflush(file) == 0 &&
                     fsync(fileno(file)) == 0; /* else a power cut may leave it empty */
        if (file != NULL && fclose(file) != 0)
            is_written = false;
        if (!is_written || rename(fresh, path) != 0) {
            (void)error_set(err, STATUS_DENIED, "cannot write %.150s: %s", path, strerror(errno));
            (void)unlink(fresh);
        }
    }
    free(fresh);
    free(path);
    return err->status;
}
