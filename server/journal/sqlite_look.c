/* Reads the head of the database's file by itself: a connection of SQLite would make files beside
 * it, perhaps as another user than the daemon's. What a log beside it has is not seen. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/journal/sqlite_parts.h"

enum { HEAD_BYTES = 100, VERSION_AT = 60, APPLICATION_AT = 68, LOOK_PATH_MAX = 4096 };

static uint32_t sqlite_big_endian(const unsigned char at[4])
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static enum status look_at_head(const char *path, const unsigned char *head, size_t len,
                                struct error *err)
{
    static const char magic[16] = "SQLite format 3";
    uint32_t version, application;

    if (len == 0)
        return STATUS_OK; /* nothing was kept yet */
    if (len < HEAD_BYTES || memcmp(head, magic, sizeof(magic)) != 0)
        return error_set(err, STATUS_PRECONDITION, "%s is not a journal of parleyd", path);
    version = sqlite_big_endian(head + VERSION_AT);
    application = sqlite_big_endian(head + APPLICATION_AT);
    if (version == 0 && application == 0)
        return STATUS_OK; /* all of it is in its log */
    if (application != (uint32_t)sqlite_application_id)
        return error_set(err, STATUS_PRECONDITION, "%s is not a journal of parleyd", path);
    if (version > (uint32_t)sqlite_schema_version)
        return error_set(err, STATUS_PRECONDITION,
                         "%s has schema %u, this parleyd writes schema %d: use the parleyd that "
                         "wrote it, or a newer one",
                         path, (unsigned)version, sqlite_schema_version);
    return STATUS_OK;
}

static enum status look_at_file(const char *dir, const char *name, bool is_database,
                                struct error *err)
{
    unsigned char head[HEAD_BYTES];
    char path[LOOK_PATH_MAX];
    ssize_t len = 0;
    int fd;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
        return error_set(err, STATUS_INVALID, "%.60s…: the path is too long", dir);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return STATUS_OK;
    if (fd < 0)
        return error_set(err, STATUS_PRECONDITION, "%s: %s", path, strerror(errno));
    if (is_database)
        len = read(fd, head, sizeof(head));
    (void)close(fd); /* only read */
    if (len < 0)
        return error_set(err, STATUS_PRECONDITION, "%s: %s", path, strerror(errno));
    return is_database ? look_at_head(path, head, (size_t)len, err) : STATUS_OK;
}

enum status sqlite_look(const char *dir, struct error *err)
{
    static const char *const beside[] = {"journal.db-wal", "journal.db-shm", "lock"};

    for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++)
        if (look_at_file(dir, beside[i], false, err) != STATUS_OK)
            return err->status;
    if (sqlite_files_check_log(dir, err) != STATUS_OK)
        return err->status;
    return look_at_file(dir, "journal.db", true, err);
}
