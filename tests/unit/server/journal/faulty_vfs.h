/* SQLite's way to files, of which any call can be made to fail: the default VFS with a count. */
#ifndef TESTS_UNIT_SERVER_JOURNAL_FAULTY_VFS_H
#define TESTS_UNIT_SERVER_JOURNAL_FAULTY_VFS_H

#include <stdbool.h>

enum vfs_fault { VFS_IO_ERROR, VFS_DISK_FULL, VFS_SHORT_WRITE };

/* Makes it the default. */
void faulty_vfs_install(void);
/* The next n opens, writes, truncations and syncs succeed, the one after them fails, and so do the
 * n_more behind it. A disk that is full still syncs. Negative: none fails. */
void faulty_vfs_arm(enum vfs_fault fault, long n, long n_more);
/* How many have failed since it was armed. */
long faulty_vfs_n_failed(void);

/* A disk whose power goes: from now on it is known what was synchronised. After n more writes,
 * truncations and syncs every one fails. lies: syncs of the log do nothing. */
void power_watch(long n, bool lies);
/* True once the power has gone. */
bool power_is_gone(void);
/* What such a disk has afterwards, in the files themselves: what was synchronised and, of the
 * writes since then, some, by chance, in part or wholly; none of them if seed is 0. All is closed.
 */
void power_return(unsigned seed);

#endif
