#include "tests/unit/server/journal/faulty_vfs.h"

#include <check.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILES = 8, MAX_UNSYNCED = 4096 };

/* A write, or, without bytes, a truncation to at. */
struct unsynced {
    char *bytes;
    size_t len;
    long at;
};

/* What the disk has of a file. */
struct disk_file {
    char path[64];
    char *image; /* [len] as synchronised; owned */
    size_t len;
    struct unsynced later[MAX_UNSYNCED]; /* [n_later], in order */
    size_t n_later;
    bool is_deleted;
};

static struct disk_file disk[MAX_FILES];
static size_t n_disk;
static bool is_watched, is_gone, is_lying;
static long until_gone;

static sqlite3_vfs *real;
static sqlite3_vfs shim;
static enum vfs_fault kind;
static long left = -1, more, n_failed;

struct shim_file {
    sqlite3_file base;
    sqlite3_file *real; /* behind this struct */
    struct disk_file *disk;
};

/* --- the disk whose power goes --- */

static void disk_forget(struct disk_file *d)
{
    for (size_t i = 0; i < d->n_later; i++)
        free(d->later[i].bytes);
    d->n_later = 0;
}

/* What the file has now is synchronised. */
static void disk_sync(struct disk_file *d)
{
    FILE *f = fopen(d->path, "rb");
    long len;

    disk_forget(d);
    free(d->image);
    d->image = NULL;
    d->len = 0;
    if (f == NULL)
        return;
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    len = ftell(f);
    ck_assert_int_ge(len, 0);
    d->len = (size_t)len;
    d->image = malloc(d->len + 1);
    ck_assert_int_eq(fseek(f, 0, SEEK_SET), 0);
    ck_assert_uint_eq(fread(d->image, 1, d->len, f), d->len);
    (void)fclose(f);
}

static void disk_note(struct disk_file *d, const void *bytes, int len, sqlite3_int64 at)
{
    struct unsynced *u;

    if (d == NULL || !is_watched)
        return;
    ck_assert_uint_lt(d->n_later, MAX_UNSYNCED);
    u = &d->later[d->n_later++];
    *u = (struct unsynced){.at = (long)at, .len = (size_t)len};
    if (bytes != NULL) {
        u->bytes = malloc(u->len);
        memcpy(u->bytes, bytes, u->len);
    }
}

static struct disk_file *disk_find(const char *path)
{
    struct disk_file *d;

    if (path == NULL || !is_watched)
        return NULL;
    for (size_t i = 0; i < n_disk; i++)
        if (!disk[i].is_deleted && strcmp(disk[i].path, path) == 0)
            return &disk[i];
    ck_assert_uint_lt(n_disk, MAX_FILES);
    d = &disk[n_disk++];
    ck_assert_uint_lt(strlen(path), sizeof(d->path));
    (void)snprintf(d->path, sizeof(d->path), "%s", path);
    disk_sync(d);
    return d;
}

/* Whether the power has gone before this write or sync. */
static bool power_goes(void)
{
    if (!is_watched || is_gone)
        return is_gone;
    is_gone = until_gone-- == 0;
    return is_gone;
}

void power_watch(long n, bool lies)
{
    is_watched = true;
    is_gone = false;
    is_lying = lies;
    until_gone = n;
}

bool power_is_gone(void)
{
    return is_gone;
}

static void disk_write(FILE *f, const struct unsynced *u, size_t len)
{
    if (u->bytes == NULL) {
        ck_assert_int_eq(ftruncate(fileno(f), u->at), 0);
        return;
    }
    ck_assert_int_eq(fseek(f, u->at, SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(u->bytes, 1, len, f), len);
    ck_assert_int_eq(fflush(f), 0);
}

/* Writes the file as the disk has it. Returns the seed for the next. */
static unsigned disk_restore(const struct disk_file *d, unsigned seed)
{
    FILE *f = fopen(d->path, "wb");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(d->image == NULL ? "" : d->image, 1, d->len, f), d->len);
    ck_assert_int_eq(fflush(f), 0);
    for (size_t i = 0; i < d->n_later && seed != 0; i++) {
        unsigned drawn = (seed = seed * 1103515245u + 12345u) >> 16;

        if (drawn % 3 != 0)
            disk_write(f, &d->later[i], d->later[i].len / (drawn % 3));
    }
    (void)fclose(f);
    return seed;
}

void power_return(unsigned seed)
{
    for (size_t i = 0; i < n_disk; i++) {
        if (!disk[i].is_deleted)
            seed = disk_restore(&disk[i], seed);
        disk_forget(&disk[i]);
        free(disk[i].image);
        memset(&disk[i], 0, sizeof(disk[i]));
    }
    n_disk = 0;
    is_watched = is_gone = is_lying = false;
}

/* --- calls that fail --- */

static sqlite3_file *real_of(sqlite3_file *f)
{
    return ((struct shim_file *)f)->real;
}

static bool fails(bool is_space)
{
    if (left < 0 || (kind != VFS_IO_ERROR && !is_space))
        return false;
    if (left > 0) {
        left--;
        return false;
    }
    n_failed++;
    if (more-- == 0)
        left = -1;
    return true;
}

static int shim_close(sqlite3_file *f)
{
    return real_of(f)->pMethods->xClose(real_of(f));
}

static int shim_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
    return real_of(f)->pMethods->xRead(real_of(f), to, n, at);
}

static int shim_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
    if (power_goes())
        return SQLITE_IOERR_WRITE;
    if (!fails(true)) {
        disk_note(((struct shim_file *)f)->disk, from, n, at);
        return real_of(f)->pMethods->xWrite(real_of(f), from, n, at);
    }
    if (kind == VFS_SHORT_WRITE)
        (void)real_of(f)->pMethods->xWrite(real_of(f), from, n / 2, at);
    return kind == VFS_IO_ERROR ? SQLITE_IOERR_WRITE : SQLITE_FULL;
}

static int shim_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    return fails(false) ? SQLITE_IOERR_TRUNCATE : real_of(f)->pMethods->xTruncate(real_of(f), size);
}

/* The data may be there or not: it is written, but the sync is said to have failed. */
static int shim_sync(sqlite3_file *f, int flags)
{
    struct disk_file *d = ((struct shim_file *)f)->disk;

    if (power_goes())
        return SQLITE_IOERR_FSYNC;
    if (d != NULL && !(is_lying && strstr(d->path, "-wal") != NULL))
        disk_sync(d);
    return fails(false) ? SQLITE_IOERR_FSYNC : real_of(f)->pMethods->xSync(real_of(f), flags);
}

static int shim_size(sqlite3_file *f, sqlite3_int64 *out)
{
    return real_of(f)->pMethods->xFileSize(real_of(f), out);
}

static int shim_lock(sqlite3_file *f, int level)
{
    return real_of(f)->pMethods->xLock(real_of(f), level);
}

static int shim_unlock(sqlite3_file *f, int level)
{
    return real_of(f)->pMethods->xUnlock(real_of(f), level);
}

static int shim_check_lock(sqlite3_file *f, int *out)
{
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), out);
}

static int shim_control(sqlite3_file *f, int op, void *arg)
{
    return real_of(f)->pMethods->xFileControl(real_of(f), op, arg);
}

static int shim_sector(sqlite3_file *f)
{
    return real_of(f)->pMethods->xSectorSize(real_of(f));
}

static int shim_device(sqlite3_file *f)
{
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}

static int shim_map(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
    return real_of(f)->pMethods->xShmMap(real_of(f), page, size, extend, out);
}

static int shim_shm_lock(sqlite3_file *f, int at, int n, int flags)
{
    return real_of(f)->pMethods->xShmLock(real_of(f), at, n, flags);
}

static void shim_barrier(sqlite3_file *f)
{
    real_of(f)->pMethods->xShmBarrier(real_of(f));
}

static int shim_unmap(sqlite3_file *f, int is_deleted)
{
    return real_of(f)->pMethods->xShmUnmap(real_of(f), is_deleted);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = shim_close,
    .xRead = shim_read,
    .xWrite = shim_write,
    .xTruncate = shim_truncate,
    .xSync = shim_sync,
    .xFileSize = shim_size,
    .xLock = shim_lock,
    .xUnlock = shim_unlock,
    .xCheckReservedLock = shim_check_lock,
    .xFileControl = shim_control,
    .xSectorSize = shim_sector,
    .xDeviceCharacteristics = shim_device,
    .xShmMap = shim_map,
    .xShmLock = shim_shm_lock,
    .xShmBarrier = shim_barrier,
    .xShmUnmap = shim_unmap,
};

static int shim_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *ret_flags)
{
    struct shim_file *s = (struct shim_file *)f;
    int rc;

    f->pMethods = NULL;
    if (is_gone || fails(false))
        return SQLITE_CANTOPEN;
    s->real = (sqlite3_file *)(s + 1);
    s->disk = disk_find(name);
    rc = real->xOpen(real, name, s->real, flags, ret_flags);
    if (rc == SQLITE_OK)
        f->pMethods = &methods;
    return rc;
}

/* The disk has no more of it: its directory is taken as synchronised. */
static int shim_delete(sqlite3_vfs *v, const char *name, int sync_dir)
{
    if (power_goes())
        return SQLITE_IOERR_DELETE;
    for (size_t i = 0; i < n_disk; i++)
        disk[i].is_deleted = disk[i].is_deleted || strcmp(disk[i].path, name) == 0;
    return real->xDelete(real, name, sync_dir);
}

void faulty_vfs_install(void)
{
    real = sqlite3_vfs_find(NULL);
    shim = *real;
    shim.zName = "faulty";
    shim.szOsFile = (int)sizeof(struct shim_file) + real->szOsFile;
    shim.xOpen = shim_open;
    shim.xDelete = shim_delete;
    shim.pNext = NULL;
    (void)sqlite3_vfs_register(&shim, 1);
}

void faulty_vfs_arm(enum vfs_fault fault, long n, long n_more)
{
    kind = fault;
    left = n;
    more = n_more;
    n_failed = 0;
}

long faulty_vfs_n_failed(void)
{
    return n_failed;
}
