/* A separate connection makes the backup. It only reads one snapshot of the committed data, while
 * the process that uses the directory continues to write. It never checkpoints, since SQLite up
 * to 3.51.2 may spoil the file when two connections do. The file gets its name when it is whole and
 * synchronised. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "server/journal/sqlite_parts.h"

enum { BACKUP_BUSY_MS = 5000, BACKUP_PATH_MAX = 4096 };

static enum status backup_failed(sqlite3 *db, struct error *err)
{
    return error_set(err, STATUS_UNAVAILABLE, "the journal cannot be copied: %s",
                     db == NULL ? "no memory" : sqlite3_errmsg(db));
}

/* Copies the database of one path to the other, compact. */
static enum status backup_copy(const char *from, const char *to, struct error *err)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    enum status rc = STATUS_OK;

    if (sqlite3_open_v2(from, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(db, BACKUP_BUSY_MS) != SQLITE_OK ||
        sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL) != SQLITE_OK ||
        sqlite3_wal_autocheckpoint(db, 0) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "VACUUM INTO ?1", -1, &st, NULL) != SQLITE_OK ||
        sqlite3_bind_text(st, 1, to, -1, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_step(st) != SQLITE_DONE)
        rc = backup_failed(db, err);
    (void)sqlite3_finalize(st); /* repeats the error of the step */
    (void)sqlite3_close(db);    /* no statement is left, so it cannot fail */
    return rc;
}

/* Has the disk what was written to a file, or in a directory. */
static enum status backup_sync(const char *path, int flags, struct error *err)
{
    int fd = open(path, flags | O_CLOEXEC);
    enum status rc = STATUS_OK;

    if (fd < 0 || fsync(fd) != 0)
        rc = error_set(err, STATUS_UNAVAILABLE, "%s: %s", path, strerror(errno));
    if (fd >= 0)
        (void)close(fd); /* it is synchronised */
    return rc;
}

static enum status backup_name(const char *part, const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash == NULL ? xstrdup(".") : xstrdup(path);
    enum status rc = backup_sync(part, O_RDONLY, err);

    if (slash != NULL)
        dir[slash - path + 1] = '\0';
    if (rc == STATUS_OK && link(part, path) != 0) /* which replaces nothing */
        rc = error_set(err, errno == EEXIST ? STATUS_EXISTS : STATUS_UNAVAILABLE, "%s: %s", path,
                       strerror(errno));
    if (rc == STATUS_OK)
        rc = backup_sync(dir, O_RDONLY | O_DIRECTORY, err);
    free(dir);
    return rc;
}

/* Its owner's alone, as the journal is; SQLite writes to a file that is empty. */
static enum status backup_create(const char *part, struct error *err)
{
    int fd;

    (void)unlink(part); /* of an attempt that was cut off */
    fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set(err, STATUS_UNAVAILABLE, "%s: %s", part, strerror(errno));
    (void)close(fd); /* nothing was written to it */
    return STATUS_OK;
}

enum status sqlite_backup(const char *dir, const char *path, struct error *err)
{
    char from[BACKUP_PATH_MAX], part[BACKUP_PATH_MAX];
    enum status rc;

    if ((size_t)snprintf(from, sizeof(from), "%s/journal.db", dir) >= sizeof(from) ||
        (size_t)snprintf(part, sizeof(part), "%s.part", path) >= sizeof(part))
        return error_set(err, STATUS_INVALID, "the path is too long");
    if (access(from, R_OK | W_OK) != 0)
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", from, strerror(errno));
    if (access(path, F_OK) == 0)
        return error_set(err, STATUS_EXISTS, "%s: the file exists", path);
    rc = backup_create(part, err);
    if (rc == STATUS_OK)
        rc = backup_copy(from, part, err);
    if (rc == STATUS_OK)
        rc = backup_name(part, path, err);
    (void)unlink(part);
    return rc;
}
