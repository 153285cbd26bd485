/* Preloaded: every file is on a file system of type PARLEY_FILE_SYSTEM; where PARLEY_READ_ONLY is
 * set nothing may be written, and where PARLEY_NO_LOCKS is set nothing locked. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

typedef int (*statfs_fn)(const char *path, struct statfs *out);
typedef int (*faccessat_fn)(int dir, const char *path, int mode, int flags);
typedef int (*flock_fn)(int fd, int operation);

__attribute__((visibility("default"))) int statfs(const char *path, struct statfs *out)
{
    void *found = dlsym(RTLD_NEXT, "statfs");
    const char *type = getenv("PARLEY_FILE_SYSTEM");
    statfs_fn real;
    int rc;

    memcpy(&real, &found, sizeof(real));
    rc = real(path, out);
    if (rc == 0 && type != NULL)
        out->f_type = strtol(type, NULL, 0);
    return rc;
}

__attribute__((visibility("default"))) int faccessat(int dir, const char *path, int mode, int flags)
{
    void *found = dlsym(RTLD_NEXT, "faccessat");
    faccessat_fn real;

    if (getenv("PARLEY_READ_ONLY") != NULL && (mode & W_OK) != 0) {
        errno = EROFS;
        return -1;
    }
    memcpy(&real, &found, sizeof(real));
    return real(dir, path, mode, flags);
}

__attribute__((visibility("default"))) int flock(int fd, int operation)
{
    void *found = dlsym(RTLD_NEXT, "flock");
    flock_fn real;

    if (getenv("PARLEY_NO_LOCKS") != NULL) {
        errno = ENOLCK;
        return -1;
    }
    memcpy(&real, &found, sizeof(real));
    return real(fd, operation);
}
