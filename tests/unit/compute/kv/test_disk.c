/* KV pages on disk: what was written comes back to the byte or is not there, whatever happened to
 * the files, the process and the disk meanwhile. */
#include "compute/kv/disk.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "tests/support/stride.h"

enum { PAGE = 20000, MOST = 1000 };

/* splitmix64: the i-th number of a seed. */
static uint64_t drawn_at(uint64_t seed, uint64_t i)
{
    uint64_t x = (seed << 32) + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static char folder[64];
static struct error err;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void make_folder(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/parley-test-disk-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct kv_disk_config disk_config(size_t n_pages)
{
    return (struct kv_disk_config){.folder = folder,
                                   .size_bytes = kv_slab_bytes(PAGE, n_pages),
                                   .page_bytes = PAGE,
                                   .binding = {{1}},
                                   .n_buffers = 4,
                                   .n_reads = 8};
}

static struct kv_disk *open_disk(const struct kv_disk_config *config)
{
    struct kv_disk *d;

    ck_assert_msg(kv_disk_open(&d, config, &err) == STATUS_OK, "%s", err.text);
    return d;
}

static struct kv_slab_page page_at(uint32_t i, uint64_t owner)
{
    struct kv_slab_page p = {.owner = owner};

    for (uint32_t k = 0; k < KV_PAGE_TOKENS; k++)
        p.ids[k] = (int32_t)(i * 31 + k);
    p.trace = kv_trace(0, p.ids);
    memcpy(p.key.bytes, &i, sizeof(i));
    memcpy(p.key.bytes + 8, &owner, sizeof(owner));
    return p;
}

static void fill(uint8_t *out, uint32_t i)
{
    for (size_t k = 0; k < PAGE; k++)
        out[k] = (uint8_t)(drawn_at(i, k / 8) >> k % 8 * 8);
}

/* False: it was not taken. */
static bool put(struct kv_disk *d, uint32_t i, uint64_t owner)
{
    struct kv_slab_page p = page_at(i, owner);
    uint8_t *buffer = kv_disk_buffer(d);

    if (buffer == NULL)
        return false;
    fill(buffer, i);
    kv_disk_write(d, &p, buffer);
    kv_disk_settle(d);
    return true;
}

static enum kv_disk_state look(struct kv_disk *d, uint32_t i, uint64_t owner)
{
    struct kv_slab_page p = page_at(i, owner);

    return kv_disk_look(d, &p.key, p.ids);
}

/* Whether the page is there; its bytes must be right then. */
static bool get(struct kv_disk *d, uint32_t i, uint64_t owner)
{
    struct kv_slab_page p = page_at(i, owner);
    uint8_t right[PAGE];

    if (look(d, i, owner) != KV_DISK_STORED || !kv_disk_read(d, &p.key, p.ids))
        return false;
    ck_assert_int_eq(look(d, i, owner), KV_DISK_READING);
    kv_disk_settle(d);
    if (look(d, i, owner) != KV_DISK_READ)
        return false;
    fill(right, i);
    ck_assert_mem_eq(kv_disk_take(d, &p.key, p.ids), right, PAGE);
    kv_disk_release(d);
    return true;
}

static size_t count(struct kv_disk *d, uint32_t n, uint64_t owner)
{
    size_t n_there = 0;

    for (uint32_t i = 0; i < n; i++)
        n_there += get(d, i, owner);
    return n_there;
}

/* A page comes back to the byte, also in another process; it is found by key and ids alone. */
START_TEST(pages_come_back)
{
    const struct kv_disk_config config = disk_config(20);
    struct kv_disk *d = open_disk(&config), *second;
    struct kv_slab_page p = page_at(3, 0);
    struct kv_disk_usage usage;
    char name[128];
    struct stat st;

    for (uint32_t i = 0; i < 12; i++)
        ck_assert(put(d, i, 0));
    ck_assert_uint_eq(count(d, 20, 0), 12);
    ck_assert_int_eq(kv_disk_open(&second, &config, &err), STATUS_UNAVAILABLE);
    kv_disk_close(d);
    d = open_disk(&config);
    ck_assert_uint_eq(count(d, 20, 0), 12);
    ck_assert_int_eq(look(d, 3, 1), KV_DISK_ABSENT); /* another principal */
    p.ids[15]++;
    ck_assert_int_eq(kv_disk_look(d, &p.key, p.ids), KV_DISK_ABSENT); /* a digest that collides */
    p.ids[15]--;
    p.key.bytes[31]++;
    ck_assert_int_eq(kv_disk_look(d, &p.key, p.ids), KV_DISK_ABSENT);
    kv_disk_usage(d, &usage);
    ck_assert_uint_eq(usage.n_found, 12);
    ck_assert_uint_eq(usage.n_slots, 20);
    ck_assert_uint_eq(usage.n_full, 12);
    ck_assert_uint_eq(usage.n_read, 12);
    kv_disk_close(d);
    kv_disk_close(NULL);
    (void)snprintf(name, sizeof(name), "%s/slab-00000.kv", folder);
    ck_assert_int_eq(stat(name, &st), 0);
    ck_assert_int_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(stat(folder, &st), 0);
    ck_assert_int_eq(st.st_mode & 07777, 0700);
}
END_TEST

/* The page that was used longest ago makes room, in this process and after a restart; a page that
 * is being read stays. */
START_TEST(the_oldest_makes_room)
{
    const struct kv_disk_config config = disk_config(4);
    struct kv_disk *d = open_disk(&config);
    struct kv_slab_page p = page_at(1, 0);
    struct kv_disk_usage usage;

    for (uint32_t i = 0; i < 4; i++)
        ck_assert(put(d, i, 0));
    ck_assert(get(d, 0, 0)); /* now 1 is the oldest */
    ck_assert(kv_disk_read(d, &p.key, p.ids));
    kv_disk_settle(d);
    ck_assert(put(d, 4, 0));
    ck_assert_int_eq(look(d, 1, 0), KV_DISK_READ);
    ck_assert_int_eq(look(d, 2, 0), KV_DISK_ABSENT);
    kv_disk_forget_reads(d);
    ck_assert_int_eq(look(d, 1, 0), KV_DISK_STORED);
    kv_disk_usage(d, &usage);
    ck_assert_uint_eq(usage.n_evicted, 1);
    ck_assert_int_eq(kv_traces_why(kv_disk_traces(d), page_at(2, 0).trace, 0), KV_MISS_EVICTED);
    ck_assert_int_eq(kv_traces_why(kv_disk_traces(d), page_at(2, 0).trace, 7), KV_MISS_OWNER);
    ck_assert_int_eq(kv_traces_why(kv_disk_traces(d), page_at(9, 0).trace, 0), KV_MISS_NEVER);
    kv_disk_close(d);
    d = open_disk(&config);
    ck_assert(put(d, 5, 0)); /* of 0, 1, 3, 4 the first that was written goes */
    ck_assert_int_eq(look(d, 0, 0), KV_DISK_ABSENT);
    ck_assert_uint_eq(count(d, 6, 0), 4);
    kv_disk_close(d);
}
END_TEST

/* Of two principals neither takes more than half from the other. */
START_TEST(principals_have_halves)
{
    const struct kv_disk_config config = disk_config(8);
    struct kv_disk *d = open_disk(&config);

    for (uint32_t i = 0; i < 3; i++)
        ck_assert(put(d, i, 1));
    for (uint32_t i = 0; i < 50; i++)
        ck_assert(put(d, i, 2));
    ck_assert_uint_eq(count(d, 50, 1), 3);
    ck_assert_uint_eq(count(d, 50, 2), 4);
    for (uint32_t i = 0; i < 50; i++)
        if (look(d, i, 1) == KV_DISK_ABSENT)
            ck_assert(put(d, i, 1));
    ck_assert_uint_eq(count(d, 50, 1), 4);
    ck_assert_uint_eq(count(d, 50, 2), 4);
    kv_disk_close(d);
}
END_TEST

/* A principal that has no page left takes no half from the others. */
START_TEST(principals_without_pages_do_not_count)
{
    const struct kv_disk_config config = disk_config(8);
    struct kv_disk *d = open_disk(&config);
    char name[128];
    uint8_t zeros[8] = {0};
    int fd;

    ck_assert(put(d, 0, 2));
    (void)snprintf(name, sizeof(name), "%s/slab-00000.kv", folder);
    fd = open(name, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, zeros, sizeof(zeros), 2 * 4096), sizeof(zeros)); /* its bytes */
    (void)close(fd);
    ck_assert(!get(d, 0, 2));
    for (uint32_t i = 0; i < 20; i++)
        ck_assert(put(d, i, 1));
    ck_assert_uint_eq(count(d, 20, 1), 8);
    kv_disk_close(d);
}
END_TEST

/* Files that cannot be opened now are not there, and stay. */
START_TEST(no_descriptors_remove_no_files)
{
    const struct kv_disk_config config = disk_config(8);
    struct kv_disk *d = open_disk(&config);
    struct kv_disk_usage usage;
    struct rlimit limit, low;
    int fds[3];

    for (uint32_t i = 0; i < 8; i++)
        ck_assert(put(d, i, 0));
    kv_disk_close(d);
    for (int i = 0; i < 3; i++) { /* the folder, its lock and its listing */
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        ck_assert_int_ge(fds[i], 0);
    }
    for (int i = 0; i < 3; i++)
        (void)close(fds[i]);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = (rlim_t)fds[2] + 1; /* the lowest numbers come first */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    d = open_disk(&config);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    kv_disk_usage(d, &usage); /* which tells of it */
    ck_assert_uint_gt(usage.n_unread, 0);
    ck_assert_ptr_nonnull(strstr(usage.unread.text, "slab-0000"));
    ck_assert_ptr_nonnull(strstr(usage.unread.text, strerror(EMFILE)));
    ck_assert_uint_eq(count(d, 8, 0), 0);
    ck_assert(put(d, 9, 0)); /* there is no room: nothing is written */
    ck_assert_int_eq(look(d, 9, 0), KV_DISK_ABSENT);
    kv_disk_close(d);
    d = open_disk(&config);
    kv_disk_usage(d, &usage);
    ck_assert_uint_eq(usage.n_unread, 0);
    ck_assert_uint_eq(count(d, 8, 0), 8);
    kv_disk_close(d);
}
END_TEST

/* Much room has large files, since each keeps a descriptor; little room has small ones. */
START_TEST(files_grow_with_the_room)
{
    static const size_t rows[][2] = {{1, 16}, {16, 16}, {64, 64}}; /* GiB in all, MiB of a file */
    char name[128];
    struct stat st;

    (void)snprintf(name, sizeof(name), "%s/slab-00000.kv", folder);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct kv_disk_config config = disk_config(8);
        struct kv_disk *d;

        config.size_bytes = rows[i][0] << 30;
        d = open_disk(&config);
        ck_assert(put(d, 0, 0));
        ck_assert_int_eq(stat(name, &st), 0);
        ck_assert_uint_le((uint64_t)st.st_size, rows[i][1] << 20);
        ck_assert_uint_gt((uint64_t)st.st_size, (rows[i][1] << 20) - 2 * PAGE);
        kv_disk_close(d);
        ck_assert_int_eq(unlink(name), 0);
    }
}
END_TEST

/* A folder in which others may write is refused, with what to do. */
START_TEST(shared_folders_are_refused)
{
    const struct kv_disk_config config = disk_config(8);
    struct kv_disk *d;

    ck_assert_int_eq(chmod(folder, 0770), 0);
    ck_assert_int_eq(kv_disk_open(&d, &config, &err), STATUS_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(err.text, "'chmod go-w' it"));
    ck_assert_int_eq(chmod(folder, 0755), 0);
    kv_disk_close(open_disk(&config));
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(chown(folder, 1, (gid_t)-1), 0);
    ck_assert_int_eq(kv_disk_open(&d, &config, &err), STATUS_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(err.text, "belongs to another user"));
    ck_assert_int_eq(chown(folder, 0, (gid_t)-1), 0);
}
END_TEST

/* Pages of another revision, and files that are none, are not there, and make room. */
START_TEST(other_revisions_go)
{
    struct kv_disk_config config = disk_config(8);
    struct kv_disk *d = open_disk(&config);
    struct kv_disk_usage usage;
    char name[128];
    int fd;

    for (uint32_t i = 0; i < 8; i++)
        ck_assert(put(d, i, 0));
    kv_disk_close(d);
    (void)snprintf(name, sizeof(name), "%s/slab-00007.kv", folder);
    fd = open(name, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_eq(write(fd, "nonsense", 8), 8);
    (void)close(fd);
    config.binding.bytes[0] = 2;
    d = open_disk(&config);
    kv_disk_usage(d, &usage);
    ck_assert_uint_eq(usage.n_found, 0);
    ck_assert_uint_eq(usage.n_dropped, 8);
    ck_assert_int_eq(access(name, F_OK), -1);
    ck_assert_int_eq(kv_traces_why(kv_disk_traces(d), page_at(3, 0).trace, 0), KV_MISS_REVISION);
    ck_assert(put(d, 3, 0));
    ck_assert(get(d, 3, 0));
    ck_assert_int_eq(kv_traces_why(kv_disk_traces(d), page_at(3, 0).trace, 0), KV_MISS_EVICTED);
    kv_disk_close(d);
    config.size_bytes = kv_slab_bytes(PAGE, 3); /* less room: what does not fit goes */
    d = open_disk(&config);
    for (uint32_t i = 0; i < 9; i++)
        if (look(d, i, 0) == KV_DISK_ABSENT)
            ck_assert(put(d, i, 0));
    ck_assert_uint_eq(count(d, 9, 0), 3);
    kv_disk_close(d);
    config.size_bytes = PAGE;
    ck_assert_int_eq(kv_disk_open(&d, &config, &err), STATUS_INVALID);
    config = disk_config(3);
    config.folder = "/proc/nothing/here";
    ck_assert_int_eq(kv_disk_open(&d, &config, &err), STATUS_PRECONDITION);
}
END_TEST

static long number_of(const char *variable, long usual)
{
    const char *text = getenv(variable);

    return text != NULL ? strtol(text, NULL, 10) : usual / test_stride() + 1;
}

/* Bytes of a slab that change while nobody looks: each page is then the same to the byte, or is not
 * there. */
START_TEST(changed_bytes_are_misses)
{
    const long n_flips = number_of("PARLEY_KV_FLIPS", 300);
    const struct kv_disk_config config = disk_config(16);
    struct kv_disk *d = open_disk(&config);
    char name[128];
    uint8_t byte;
    size_t n_there, n_lost = 0;
    bool is_head_hit = false;
    int fd;

    for (uint32_t i = 0; i < 16; i++)
        ck_assert(put(d, i, 0));
    (void)snprintf(name, sizeof(name), "%s/slab-00000.kv", folder);
    fd = open(name, O_RDWR);
    ck_assert_int_ge(fd, 0);
    for (long i = 0; i < n_flips; i++) {
        const uint64_t drawn = drawn_at(9000, (uint64_t)i);
        const off_t at = (off_t)(drawn % kv_slab_bytes(PAGE, 16));
        const bool is_reopened = i % 3 == 0; /* else it changes under an open index */

        if (is_reopened)
            kv_disk_close(d);
        ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
        byte = (uint8_t)(byte ^ (1u << (drawn >> 40) % 8));
        ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
        if (is_reopened)
            d = open_disk(&config);
        n_there = count(d, 16, 0);
        is_head_hit = is_head_hit || at < 4096;
        /* up to three flips are seen at once: headers are read when the index is opened */
        ck_assert(n_there + 3 >= 16 || (is_reopened && is_head_hit));
        n_lost += 16 - n_there;
        for (uint32_t k = 0; k < 16; k++)
            if (look(d, k, 0) == KV_DISK_ABSENT)
                ck_assert(put(d, k, 0));
        is_head_hit = is_head_hit && !is_reopened;
        if (access(name, F_OK) != 0) { /* its head was hit, and it was removed */
            kv_disk_close(d);
            (void)close(fd);
            remove_folder();
            d = open_disk(&config);
            for (uint32_t k = 0; k < 16; k++)
                ck_assert(put(d, k, 0));
            fd = open(name, O_RDWR);
        }
    }
    ck_assert_uint_gt(n_lost, (size_t)n_flips / 2); /* the flips hit */
    (void)close(fd);
    kv_disk_close(d);
}
END_TEST

/* A page that was broken is gone for good, also where its slot stays empty: whose pages come next
 * has half of all slots, and replaces its own. */
START_TEST(broken_pages_are_found_once)
{
    const struct kv_disk_config config = disk_config(8);
    struct kv_disk *d = open_disk(&config);
    struct kv_disk_usage usage;
    char name[128];
    int fd;

    ck_assert(put(d, 0, 2) && put(d, 1, 2));
    for (uint32_t i = 0; i < 4; i++)
        ck_assert(put(d, i, 1));
    (void)snprintf(name, sizeof(name), "%s/slab-00000.kv", folder);
    fd = open(name, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "Parley", 6, 2 * 4096), 6); /* page 0 of principal 2 */
    (void)close(fd);
    ck_assert(!get(d, 0, 2));
    ck_assert(put(d, 4, 1));
    kv_disk_usage(d, &usage);
    ck_assert_uint_eq(usage.n_broken, 1);
    ck_assert_uint_eq(usage.n_evicted, 1);
    kv_disk_close(d);
    d = open_disk(&config);
    ck_assert_int_eq(look(d, 0, 2), KV_DISK_ABSENT);
    kv_disk_usage(d, &usage);
    ck_assert_uint_eq(usage.n_found, 5);
    ck_assert_uint_eq(count(d, 5, 1), 4);
    ck_assert_uint_eq(count(d, 2, 2), 1);
    kv_disk_close(d);
}
END_TEST

/* A page that was broken and written again, elsewhere, is found, not the broken one, whose header a
 * power cut may have brought back. */
START_TEST(what_was_written_last_is_found)
{
    const struct kv_disk_config config = disk_config(16);
    const size_t slot_bytes = kv_slab_bytes(PAGE, 17) - kv_slab_bytes(PAGE, 16);
    struct kv_disk *d = open_disk(&config);
    struct kv_disk_usage usage;
    char name[128], heads[192];
    int fd;

    ck_assert(put(d, 0, 0) && put(d, 1, 0));
    (void)snprintf(name, sizeof(name), "%s/slab-00000.kv", folder);
    fd = open(name, O_RDWR);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, heads, sizeof(heads), 4096), sizeof(heads));
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(
            pwrite(fd, "Parley", 6, (off_t)(kv_slab_bytes(PAGE, 16) - (16 - i) * slot_bytes)), 6);
    ck_assert(!get(d, 0, 0) && !get(d, 1, 0));
    ck_assert(put(d, 0, 0)); /* in the place of page 1 */
    kv_disk_close(d);
    ck_assert_int_eq(pwrite(fd, heads, sizeof(heads), 4096), sizeof(heads));
    (void)close(fd);
    d = open_disk(&config);
    ck_assert(get(d, 0, 0) && !get(d, 1, 0));
    kv_disk_usage(d, &usage);
    ck_assert_uint_eq(usage.n_found, 1);
    ck_assert_uint_eq(usage.n_full, 1);
    ck_assert_uint_eq(usage.n_broken, 0);
    for (uint32_t i = 1; i < 16; i++)
        ck_assert(put(d, i, 0));
    ck_assert_uint_eq(count(d, 16, 0), 16);
    kv_disk_close(d);
}
END_TEST

/* The folder's files are cut short or gone under an open index. */
START_TEST(lost_files_are_misses)
{
    const struct kv_disk_config config = disk_config(16);
    struct kv_disk *d = open_disk(&config);
    char name[128];

    for (uint32_t i = 0; i < 16; i++)
        ck_assert(put(d, i, 0));
    (void)snprintf(name, sizeof(name), "%s/slab-00000.kv", folder);
    ck_assert_int_eq(truncate(name, (off_t)kv_slab_bytes(PAGE, 16) / 2), 0);
    ck_assert_uint_lt(count(d, 16, 0), 10);
    ck_assert_int_eq(truncate(name, 100), 0);
    ck_assert_uint_eq(count(d, 16, 0), 0);
    kv_disk_close(d);
    d = open_disk(&config);
    ck_assert(put(d, 1, 0));
    ck_assert_uint_eq(count(d, 16, 0), 1);
    kv_disk_close(d);
}
END_TEST

/* Processes that are killed at any moment while they write. */
START_TEST(kills_leave_whole_pages)
{
    const long n_kills = number_of("PARLEY_KV_KILLS", 20);
    struct kv_disk_config config = disk_config(24);
    size_t n_there = 0;

    for (long i = 0; i < n_kills; i++) {
        int ready[2];
        char byte;
        pid_t child;
        struct kv_disk *d;

        ck_assert_int_eq(pipe(ready), 0);
        child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            (void)close(ready[0]);
            d = open_disk(&config);
            for (uint32_t k = 0;; k++) {
                const uint32_t page = (uint32_t)(drawn_at(7000 + (uint64_t)i, k) % MOST);

                if (look(d, page, 0) == KV_DISK_ABSENT)
                    (void)put(d, page, 0);
                (void)!write(ready[1], "", 1);
            }
        }
        (void)close(ready[1]);
        /* it has written some pages: the kill comes at any moment of a later one */
        for (uint64_t k = 0, n = 1 + drawn_at(5000, (uint64_t)i) % 40; k < n; k++)
            ck_assert_int_eq(read(ready[0], &byte, 1), 1);
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        (void)close(ready[0]);
        d = open_disk(&config);
        n_there = count(d, MOST, 0);
        ck_assert_uint_le(n_there, 24);
        kv_disk_close(d);
    }
    ck_assert_uint_ge(n_there, 1);
}
END_TEST

/* Every allocation and write fails in turn: what is there afterwards is right, and opening says why
 * it failed. */
START_TEST(faults_are_misses)
{
    struct kv_disk_config config = disk_config(6);
    long left = -1;

    for (long n = 0; left < 0; n += test_stride()) {
        struct kv_disk *d = NULL;
        enum status rc;

        remove_folder();
        fault_after = n;
        rc = kv_disk_open(&d, &config, &err);
        if (rc == STATUS_OK)
            for (uint32_t i = 0; i < 8; i++)
                (void)put(d, i, 0);
        for (uint32_t i = 0; rc == STATUS_OK && i < 8; i++)
            (void)get(d, i, 0);
        kv_disk_close(rc == STATUS_OK ? d : NULL);
        left = fault_after;
        fault_after = -1;
        ck_assert(rc == STATUS_OK || rc == STATUS_EXHAUSTED);
        if (rc != STATUS_OK)
            continue;
        d = open_disk(&config);
        ck_assert_uint_le(count(d, 8, 0), 6);
        kv_disk_close(d);
        ck_assert_int_lt(n, 10000);
    }
}
END_TEST

/* A write that failed is followed by a rest, in which nothing is written. */
START_TEST(a_full_disk_rests)
{
    const struct kv_disk_config config = disk_config(6);
    struct kv_disk *d = open_disk(&config);
    struct kv_disk_usage usage;

    fault_after = 3; /* the page's memory of the slab, its plan, then its file */
    ck_assert(put(d, 0, 0));
    fault_after = -1;
    kv_disk_usage(d, &usage);
    ck_assert_uint_eq(usage.n_failed, 1);
    ck_assert_uint_eq(usage.n_full, 0);
    ck_assert_int_eq(look(d, 0, 0), KV_DISK_ABSENT);
    ck_assert_ptr_null(kv_disk_buffer(d));
    kv_disk_close(d);
}
END_TEST

/* Where the disk has no room for an empty slot, the page that was used longest ago makes room, of
 * whose principal has half of those that are there, its own. */
START_TEST(a_full_disk_replaces)
{
    const struct kv_disk_config config = disk_config(100);
    struct kv_disk *d = open_disk(&config);
    struct kv_disk_usage usage;

    for (uint32_t i = 0; i < 4; i++)
        ck_assert(put(d, i, i / 3)); /* three of principal 0, one of 1 */
    fault_after = 0;
    ck_assert(put(d, 4, 1));
    fault_after = -1;
    ck_assert_int_eq(look(d, 4, 1), KV_DISK_ABSENT);
    ck_assert(put(d, 5, 1));
    ck_assert_int_eq(look(d, 0, 0), KV_DISK_ABSENT);
    ck_assert(put(d, 6, 1));
    ck_assert_int_eq(look(d, 3, 1), KV_DISK_ABSENT);
    ck_assert(get(d, 1, 0) && get(d, 2, 0) && get(d, 5, 1) && get(d, 6, 1));
    kv_disk_usage(d, &usage);
    ck_assert_uint_eq(usage.n_failed, 1);
    ck_assert_uint_eq(usage.n_evicted, 2);
    ck_assert_uint_eq(usage.n_full, 4);
    kv_disk_close(d);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("kv/disk");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int n_failed;

    tcase_add_checked_fixture(all, make_folder, remove_folder);
    tcase_set_timeout(all, 600);
    tcase_add_test(all, pages_come_back);
    tcase_add_test(all, the_oldest_makes_room);
    tcase_add_test(all, principals_have_halves);
    tcase_add_test(all, principals_without_pages_do_not_count);
    tcase_add_test(all, no_descriptors_remove_no_files);
    tcase_add_test(all, files_grow_with_the_room);
    tcase_add_test(all, shared_folders_are_refused);
    tcase_add_test(all, other_revisions_go);
    tcase_add_test(all, changed_bytes_are_misses);
    tcase_add_test(all, broken_pages_are_found_once);
    tcase_add_test(all, what_was_written_last_is_found);
    tcase_add_test(all, lost_files_are_misses);
    tcase_add_test(all, kills_leave_whole_pages);
    tcase_add_test(all, faults_are_misses);
    tcase_add_test(all, a_full_disk_rests);
    tcase_add_test(all, a_full_disk_replaces);
    suite_add_tcase(s, all);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
