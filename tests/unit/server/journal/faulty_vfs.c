#include "tests/unit/server/journal/faulty_vfs.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <string.h>

static sqlite3_vfs *real;
static sqlite3_vfs shim;
static enum vfs_fault kind;
static long left = -1, more, n_failed;

struct shim_file {
    sqlite3_file base;
    sqlite3_file *real; /* behind this struct */
};

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
    if (!fails(true))
        return real_of(f)->pMethods->xWrite(real_of(f), from, n, at);
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

    (void)v;
    f->pMethods = NULL;
    if (fails(false))
        return SQLITE_CANTOPEN;
    s->real = (sqlite3_file *)(s + 1);
    rc = real->xOpen(real, name, s->real, flags, ret_flags);
    if (rc == SQLITE_OK)
        f->pMethods = &methods;
    return rc;
}

void faulty_vfs_install(void)
{
    real = sqlite3_vfs_find(NULL);
    shim = *real;
    shim.zName = "faulty";
    shim.szOsFile = (int)sizeof(struct shim_file) + real->szOsFile;
    shim.xOpen = shim_open;
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
