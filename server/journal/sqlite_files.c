/* Whether the files that a connection has open are still those of their names. A file that was
 * deleted or replaced goes on to exist for those who have it open: what is written to it is gone
 * with the process. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "server/journal/sqlite_parts.h"

static const char *const suffixes[SQLITE_FILES] = {
    [FILE_DATABASE] = "/journal.db",
    [FILE_LOG] = "/journal.db-wal",
    [FILE_INDEX] = "/journal.db-shm",
    [FILE_LOCK] = "/lock",
};

void sqlite_files_init(struct sqlite_store *s, const char *dir)
{
    for (int i = 0; i < SQLITE_FILES; i++) {
        const size_t size = strlen(dir) + strlen(suffixes[i]) + 1;

        s->files[i].path = xalloc(size);
        (void)snprintf(s->files[i].path, size, "%s%s", dir, suffixes[i]); /* it fits */
    }
}

void sqlite_files_deinit(struct sqlite_store *s)
{
    for (int i = 0; i < SQLITE_FILES; i++)
        free(s->files[i].path);
}

void sqlite_files_note(struct sqlite_store *s)
{
    struct stat now;

    for (int i = 0; i < SQLITE_FILES; i++) {
        struct sqlite_file *f = &s->files[i];

        f->is_noted = stat(f->path, &now) == 0;
        f->device = f->is_noted ? (uint64_t)now.st_dev : 0;
        f->inode = f->is_noted ? (uint64_t)now.st_ino : 0;
    }
}

static enum file_fate file_look(const struct sqlite_file *f)
{
    struct stat now;

    if (!f->is_noted)
        return FILE_SAME;
    if (stat(f->path, &now) != 0)
        return FILE_MISSING;
    return (uint64_t)now.st_ino == f->inode && (uint64_t)now.st_dev == f->device ? FILE_SAME
                                                                                 : FILE_OTHER;
}

enum file_fate sqlite_files_look(const struct sqlite_store *s, int *ret_which)
{
    for (int i = 0; i < SQLITE_FILES; i++) {
        const enum file_fate fate = file_look(&s->files[i]);

        if (fate != FILE_SAME) {
            *ret_which = i;
            return fate;
        }
    }
    return FILE_SAME;
}

bool sqlite_files_can_be_folded(const struct sqlite_store *s)
{
    return file_look(&s->files[FILE_DATABASE]) == FILE_SAME &&
           file_look(&s->files[FILE_LOCK]) == FILE_SAME &&
           file_look(&s->files[FILE_LOG]) != FILE_OTHER &&
           file_look(&s->files[FILE_INDEX]) != FILE_OTHER;
}

enum status sqlite_files_check_log(const char *dir, struct error *err)
{
    char database[4096], log[4096];
    struct stat file;

    if ((size_t)snprintf(database, sizeof(database), "%s/journal.db", dir) >= sizeof(database) ||
        (size_t)snprintf(log, sizeof(log), "%s/journal.db-wal", dir) >= sizeof(log))
        return error_set(err, STATUS_INVALID, "%.60s…: the path is too long", dir);
    if (stat(database, &file) == 0 && file.st_size > 0)
        return STATUS_OK;
    if (stat(log, &file) != 0 || file.st_size == 0)
        return STATUS_OK;
    return error_set(err, STATUS_PRECONDITION,
                     "%.80s has turns, and its journal.db is missing: put journal.db back beside "
                     "it, or move journal.db-wal away to begin anew",
                     log);
}
