/* A file begins with its shape, then come the headers of all slots, then their pages: a start reads
 * the headers of many slots at once. A slot is written in three parts: its header is cleared, its
 * page is written, its header is written; a process that is killed in between leaves no header. */
#include "compute/kv/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

enum { BLOCK = 4096, HEADER_BYTES = 192, VERSION = 1 };

static const char slab_magic[8] = {'P', 'L', 'Y', 'K', 'V', 'S', 'L', 'B'};

/* All numbers are little-endian, as all supported machines are. */
struct slab_head {
    char magic[8];
    uint32_t crc; /* of what follows */
    uint32_t version;
    uint64_t page_bytes, n_slots;
    struct kv_key binding;
};

struct slot_head {
    uint32_t crc; /* of what follows; a cleared slot has none that fits */
    uint32_t is_full;
    struct kv_slab_page page;
};

_Static_assert(sizeof(struct slot_head) <= HEADER_BYTES, "a slot's header has room");
_Static_assert(sizeof(struct slab_head) <= BLOCK, "a slab's head has room");

struct kv_slab {
    int dir, fd; /* fd -1: the file is not made yet */
    uint32_t number;
    struct kv_slab_shape shape;
    size_t slot_bytes, pages_at;
};

static size_t slab_round_up(size_t n)
{
    return (n + BLOCK - 1) / BLOCK * BLOCK;
}

size_t kv_slab_bytes(size_t page_bytes, size_t n_slots)
{
    return BLOCK + slab_round_up(n_slots * HEADER_BYTES) + n_slots * slab_round_up(page_bytes);
}

void kv_slab_name(char out[KV_SLAB_NAME_BYTES], uint32_t number)
{
    (void)snprintf(out, KV_SLAB_NAME_BYTES, "slab-%05u.kv", (unsigned)number); /* it fits */
}

static bool slab_pwrite(int fd, const void *data, size_t n, size_t at)
{
    const char *from = data;
    ssize_t written;

    while (n > 0) {
        if (fault_now())
            return false;
        written = pwrite(fd, from, n, (off_t)at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        from += written;
        at += (size_t)written;
        n -= (size_t)written;
    }
    return true;
}

/* DATA_LOSS: the file ends before. UNAVAILABLE: errno says why. */
static enum status slab_pread(int fd, void *out, size_t n, size_t at)
{
    char *to = out;
    ssize_t got;

    while (n > 0) {
        got = pread(fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? STATUS_UNAVAILABLE : STATUS_DATA_LOSS;
        to += got;
        at += (size_t)got;
        n -= (size_t)got;
    }
    return STATUS_OK;
}

static uint32_t slab_head_crc(const struct slab_head *h)
{
    const size_t from = offsetof(struct slab_head, version);

    return crc32c(0, (const char *)h + from, sizeof(*h) - from);
}

static uint32_t slot_head_crc(const struct slot_head *h)
{
    const size_t from = offsetof(struct slot_head, is_full);

    return crc32c(0, (const char *)h + from, sizeof(*h) - from);
}

static uint32_t page_crc(const struct kv_key *key, const void *data, size_t size_bytes)
{
    return crc32c(crc32c(0, key->bytes, sizeof(key->bytes)), data, size_bytes);
}

struct kv_slab *kv_slab_plan(int dir, uint32_t number, const struct kv_slab_shape *shape)
{
    struct kv_slab *s = try_alloc(1, sizeof(*s));

    if (s == NULL)
        return NULL;
    s->dir = dir;
    s->fd = -1;
    s->number = number;
    s->shape = *shape;
    s->slot_bytes = slab_round_up(shape->page_bytes);
    s->pages_at = BLOCK + slab_round_up(shape->n_slots * HEADER_BYTES);
    return s;
}

void kv_slab_close(struct kv_slab *s)
{
    if (s == NULL)
        return;
    if (s->fd >= 0)
        (void)close(s->fd); /* what is lost is a miss */
    free(s);
}

size_t kv_slab_n_slots(const struct kv_slab *s)
{
    return s->shape.n_slots;
}

/* Reads the headers of all slots. */
static enum status slab_scan(const struct kv_slab *s, kv_slab_found_fn found, void *arg,
                             struct error *err)
{
    const size_t n_bytes = s->shape.n_slots * HEADER_BYTES;
    unsigned char *heads = try_alloc(s->shape.n_slots, HEADER_BYTES);
    enum status rc;

    if (heads == NULL)
        return error_no_memory(err, n_bytes, "the headers of KV pages on disk");
    /* a file that ends within its headers has none behind its end */
    rc = slab_pread(s->fd, heads, n_bytes, BLOCK);
    if (rc != STATUS_OK)
        rc = error_set(err, rc, "%s",
                       rc == STATUS_DATA_LOSS ? "the file is cut short" : strerror(errno));
    for (uint32_t i = 0; rc == STATUS_OK && i < s->shape.n_slots; i++) {
        struct slot_head h;

        memcpy(&h, heads + (size_t)i * HEADER_BYTES, sizeof(h));
        if (h.is_full == 1 && h.crc == slot_head_crc(&h) && h.page.serial != 0)
            found(arg, i, &h.page);
    }
    free(heads);
    return rc;
}

enum status kv_slab_open(struct kv_slab **out, int dir, uint32_t number, size_t page_bytes,
                         const struct kv_key *binding, kv_slab_found_fn found, void *arg,
                         struct error *err)
{
    char name[KV_SLAB_NAME_BYTES];
    struct kv_slab *s = NULL;
    struct slab_head head;
    bool is_ours;
    enum status rc = STATUS_OK;
    int fd;

    kv_slab_name(name, number);
    fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE, "%s: %s",
                         name, strerror(errno));
    rc = slab_pread(fd, &head, sizeof(head), 0);
    if (rc == STATUS_UNAVAILABLE)
        (void)error_set(err, rc, "%s: %s", name, strerror(errno));
    else if (rc != STATUS_OK || memcmp(head.magic, slab_magic, sizeof(head.magic)) != 0 ||
             head.version != VERSION || head.crc != slab_head_crc(&head) || head.n_slots == 0 ||
             head.n_slots > KV_SLAB_MOST_SLOTS)
        rc = error_set(err, STATUS_DATA_LOSS, "%s is no slab of KV pages", name);
    if (rc == STATUS_OK) {
        const struct kv_slab_shape shape = {head.page_bytes, head.n_slots, head.binding};

        s = kv_slab_plan(dir, number, &shape);
        if (s == NULL)
            rc = error_no_memory(err, sizeof(*s), "a slab of KV pages");
    }
    if (s == NULL) {
        (void)close(fd); /* nothing was written */
        return rc;
    }
    s->fd = fd;
    is_ours =
        head.page_bytes == page_bytes && memcmp(&head.binding, binding, sizeof(*binding)) == 0;
    rc = slab_scan(s, found, arg, err);
    if (rc == STATUS_OK && !is_ours)
        rc = error_set(err, STATUS_DATA_LOSS, "%s has pages of another model or revision", name);
    if (rc == STATUS_OK) {
        *out = s;
        s = NULL; /* the caller's now */
    }
    kv_slab_close(s);
    return rc;
}

/* The file is sparse: blocks are taken as slots are written. */
static bool slab_make(struct kv_slab *s)
{
    struct slab_head head = {.version = VERSION,
                             .page_bytes = s->shape.page_bytes,
                             .n_slots = s->shape.n_slots,
                             .binding = s->shape.binding};
    const size_t n_bytes = kv_slab_bytes(s->shape.page_bytes, s->shape.n_slots);
    char name[KV_SLAB_NAME_BYTES];

    memcpy(head.magic, slab_magic, sizeof(head.magic));
    head.crc = slab_head_crc(&head);
    kv_slab_name(name, s->number);
    (void)unlinkat(s->dir, name, 0); /* as a rule there is none */
    s->fd = openat(s->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->fd < 0)
        return false;
    if (!fault_now() && ftruncate(s->fd, (off_t)n_bytes) == 0 &&
        slab_pwrite(s->fd, &head, sizeof(head), 0))
        return true;
    (void)close(s->fd); /* nothing to lose */
    s->fd = -1;
    (void)unlinkat(s->dir, name, 0); /* without its head it is no slab */
    return false;
}

static size_t slot_head_at(uint32_t slot)
{
    return BLOCK + (size_t)slot * HEADER_BYTES;
}

static bool slab_clear(const struct kv_slab *s, uint32_t slot)
{
    static const unsigned char none[HEADER_BYTES];

    return slab_pwrite(s->fd, none, sizeof(none), slot_head_at(slot));
}

void kv_slab_clear(const struct kv_slab *s, uint32_t slot)
{
    if (s->fd >= 0)
        (void)slab_clear(s, slot); /* else the page is found, and broken, again */
}

bool kv_slab_write(struct kv_slab *s, uint32_t slot, struct kv_slab_page *page, const void *data)
{
    struct slot_head head;

    if (s->fd < 0 && !slab_make(s))
        return false;
    page->crc = page_crc(&page->key, data, s->shape.page_bytes);
    memset(&head, 0, sizeof(head)); /* padding, too */
    head.is_full = 1;
    head.page = *page;
    head.crc = slot_head_crc(&head);
    if (slab_clear(s, slot) &&
        slab_pwrite(s->fd, data, s->shape.page_bytes, s->pages_at + slot * s->slot_bytes) &&
        slab_pwrite(s->fd, &head, sizeof(head), slot_head_at(slot)))
        return true;
    (void)slab_clear(s, slot); /* else its checksum does not fit */
    return false;
}

bool kv_slab_read(const struct kv_slab *s, uint32_t slot, const struct kv_slab_page *page,
                  void *out)
{
    return s->fd >= 0 &&
           slab_pread(s->fd, out, s->shape.page_bytes, s->pages_at + slot * s->slot_bytes) ==
               STATUS_OK &&
           page->crc == page_crc(&page->key, out, s->shape.page_bytes);
}
