/* The file is cut into pieces. A part, which is a connection, fetches a run of pieces that nobody
 * has; a thread of libuv's pool writes what has come, then marks its pieces as there: behind the
 * file's bytes lies a byte for each piece, 1 for one that is written. A kill loses what was not
 * marked. A failed run gives its pieces back, and is tried again after a delay. When all pieces are
 * there, their hash is compared, the marks are cut off, and the file becomes the blob. */
#include "base/fetch/download.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fetch/file_hash.h"
#include "base/fetch/hub_cache_write.h"
#include "base/fetch/retry.h"
#include "base/fetch/transfers.h"

enum { PIECE_BYTES = 256 << 10, RUN_PIECES = 256, RUN_LEAST_PIECES = 8, BUFFER_BYTES = 1 << 20 };

enum piece { PIECE_MISSING, PIECE_THERE, PIECE_AWAITED };

/* A connection. */
struct download_part {
    struct download *d;
    struct web_transfer *transfer; /* NULL: it has ended, or the part is idle */
    bool is_busy;                  /* until its run is over, and written */
    bool is_paused, is_writing;
    uint64_t at, to;   /* the next byte to come, and the end of the run */
    char *buffers[2];  /* [BUFFER_BYTES]: one fills while the other is written */
    size_t fill_bytes; /* of buffers[filling] */
    int filling;
    struct error why; /* of the run's end */
    uint64_t after_s; /* what the server asked for */

    /* In the pool's thread while it is_writing. */
    uv_work_t work;
    const char *bytes;
    size_t n_bytes;
    uint64_t offset;
    size_t first_piece, n_pieces; /* those that are there with these bytes */
    int error;                    /* errno; 0: written */
};

struct download {
    struct download_config config;
    char *path, *blob; /* of what was received, and of the blob */
    int fd;
    size_t n_pieces, n_there;
    unsigned char *pieces; /* [n_pieces], of enum piece */
    uint64_t n_bytes;      /* of pieces that are there, and of runs as far as they have come */
    struct download_part parts[DOWNLOAD_MAX_CONNECTIONS];
    struct fetch_retry retry;
    uv_timer_t timer; /* until the next try; and to begin */
    bool is_waiting;  /* for the timer */
    bool is_checking, is_ending;
    struct error why; /* the first failure */
    uv_work_t check;  /* in the pool's thread while is_checking, with checked */
    struct error checked;
};

static void download_advance(struct download *d);
static void on_download_timer(uv_timer_t *timer);

/* --- pieces --- */

static uint64_t piece_end(const struct download *d, size_t piece)
{
    uint64_t end = (uint64_t)(piece + 1) * PIECE_BYTES;

    return end < d->config.size_bytes ? end : d->config.size_bytes;
}

static uint64_t piece_bytes(const struct download *d, size_t piece)
{
    return piece_end(d, piece) - (uint64_t)piece * PIECE_BYTES;
}

/* Takes the next run of missing pieces for a part. Returns whether there is one. */
static bool download_take_run(struct download *d, struct download_part *p)
{
    size_t first = 0, end, n_missing = 0, most;

    for (size_t i = 0; i < d->n_pieces; i++)
        n_missing += d->pieces[i] == PIECE_MISSING;
    if (n_missing == 0)
        return false;
    most = n_missing / d->config.n_connections + 1;
    most = most > RUN_LEAST_PIECES ? most : RUN_LEAST_PIECES; /* else the end has many requests */
    most = most < RUN_PIECES ? most : RUN_PIECES;
    while (d->pieces[first] != PIECE_MISSING)
        first++;
    for (end = first; end < d->n_pieces && end - first < most && d->pieces[end] == PIECE_MISSING;)
        d->pieces[end++] = PIECE_AWAITED;
    p->at = (uint64_t)first * PIECE_BYTES;
    p->to = piece_end(d, end - 1);
    p->first_piece = first;
    return true;
}

/* Gives back what the run has not written. */
static void part_give_back(struct download_part *p)
{
    struct download *d = p->d;

    for (size_t i = p->first_piece; i < d->n_pieces && (uint64_t)i * PIECE_BYTES < p->to; i++) {
        assert(d->pieces[i] == PIECE_AWAITED);
        d->pieces[i] = PIECE_MISSING;
    }
    p->to = 0;
    d->n_bytes = 0;
    for (size_t i = 0; i < d->n_pieces; i++)
        d->n_bytes += d->pieces[i] == PIECE_THERE ? piece_bytes(d, i) : 0;
    for (size_t i = 0; i < d->config.n_connections; i++) {
        const struct download_part *other = &d->parts[i];

        if (other->is_busy && other->to != 0)
            d->n_bytes += other->at - (uint64_t)other->first_piece * PIECE_BYTES;
    }
}

/* --- writing --- */

static int write_all(int fd, const void *bytes, size_t len, uint64_t offset)
{
    const char *at = bytes;

    while (len > 0) {
        ssize_t n = pwrite(fd, at, len, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENOSPC;
        at += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* In the pool. The marks come after the bytes. */
static void part_write(uv_work_t *work)
{
    struct download_part *p = work->data;
    const struct download *d = p->d;
    unsigned char marks[BUFFER_BYTES / PIECE_BYTES + 2];

    assert(p->n_pieces <= sizeof(marks));
    memset(marks, PIECE_THERE, sizeof(marks));
    p->error = write_all(d->fd, p->bytes, p->n_bytes, p->offset);
    if (p->error == 0)
        p->error = write_all(d->fd, marks, p->n_pieces, d->config.size_bytes + p->first_piece);
}

static void part_settle(struct download_part *p);

static void on_part_written(uv_work_t *work, int status)
{
    struct download_part *p = work->data;
    struct download *d = p->d;

    p->is_writing = false;
    if (p->error != 0 && d->why.status == STATUS_OK)
        (void)error_set(&d->why, p->error == ENOSPC ? STATUS_EXHAUSTED : STATUS_DENIED,
                        "cannot write %.120s: %s", d->path, strerror(p->error));
    for (size_t i = 0; i < p->n_pieces && p->error == 0; i++) {
        d->pieces[p->first_piece++] = PIECE_THERE;
        d->n_there++;
        d->retry.n_failures = 0;
    }
    p->n_pieces = 0;
    if (p->is_paused && p->transfer != NULL) {
        p->is_paused = false;
        transfer_go_on(p->transfer); /* may end it */
    }
    if (p->is_busy && !p->is_writing)
        part_settle(p);
    download_advance(d);
}

/* Hands the filled buffer to the pool. */
static void part_flush(struct download_part *p)
{
    uint64_t end = p->at;
    struct download *d = p->d;

    p->bytes = p->buffers[p->filling];
    p->n_bytes = p->fill_bytes;
    p->offset = end - p->fill_bytes;
    while (p->first_piece + p->n_pieces < d->n_pieces &&
           piece_end(d, p->first_piece + p->n_pieces) <= end)
        p->n_pieces++;
    p->filling = 1 - p->filling;
    p->fill_bytes = 0;
    p->is_writing = true;
    p->work.data = p;
    (void)uv_queue_work(d->config.loop, &p->work, part_write, on_part_written); /* cannot fail */
}

/* --- a run --- */

static enum transfer_verdict on_part_data(void *arg, const void *data, size_t len)
{
    struct download_part *p = arg;
    struct download *d = p->d;

    if (d->why.status == STATUS_OK && (len > p->to - p->at || len > BUFFER_BYTES))
        (void)error_set(&d->why, STATUS_DATA_LOSS, "the server sent more bytes than were asked");
    if (d->why.status != STATUS_OK)
        return TRANSFER_STOP;
    if (p->fill_bytes + len > BUFFER_BYTES && p->is_writing) {
        p->is_paused = true;
        return TRANSFER_PAUSE;
    }
    if (p->fill_bytes + len > BUFFER_BYTES)
        part_flush(p);
    memcpy(p->buffers[p->filling] + p->fill_bytes, data, len);
    p->fill_bytes += len;
    p->at += len;
    d->n_bytes += len;
    if (p->fill_bytes >= PIECE_BYTES && !p->is_writing)
        part_flush(p);
    d->config.progress(d->config.arg, d->n_bytes);
    return TRANSFER_TAKEN;
}

/* A transfer that has ended is over once its bytes are written. */
static void part_settle(struct download_part *p)
{
    struct download *d = p->d;
    uint64_t delay_ms;

    if (p->transfer != NULL || p->is_writing)
        return;
    if (p->fill_bytes > 0 && d->why.status == STATUS_OK) {
        part_flush(p);
        return;
    }
    p->fill_bytes = 0;
    p->is_busy = false;
    if (p->why.status == STATUS_OK && p->at != p->to && d->why.status == STATUS_OK)
        (void)error_set(&p->why, STATUS_UNAVAILABLE, "the server sent fewer bytes than were asked");
    part_give_back(p);
    if (p->why.status == STATUS_OK || d->why.status != STATUS_OK)
        return;
    if (d->is_waiting && p->why.status == STATUS_UNAVAILABLE)
        return; /* for another part's failure */
    if (!fetch_retry_again(&d->retry, &p->why, p->after_s, &delay_ms)) {
        d->why = p->why;
        return;
    }
    d->is_waiting = true;
    (void)uv_timer_start(&d->timer, on_download_timer, delay_ms, 0); /* it is open */
}

static void on_part_end(void *arg, const struct web_transfer *t, const struct error *err)
{
    struct download_part *p = arg;

    p->transfer = NULL;
    p->is_paused = false;
    p->why = *err;
    p->after_s = transfer_answer(t)->retry_after_s;
    part_settle(p);
    download_advance(p->d);
}

static void part_start(struct download_part *p)
{
    struct download *d = p->d;
    bool is_whole = p->at == 0 && p->to == d->config.size_bytes;
    const struct transfer_request request = {
        .url = d->config.url,
        .token = d->config.token,
        .from = p->at,
        .to = is_whole ? 0 : p->to,
        .on_data = on_part_data,
        .on_end = on_part_end,
        .arg = p,
    };

    for (int i = 0; i < 2; i++)
        if (p->buffers[i] == NULL)
            p->buffers[i] = xalloc(BUFFER_BYTES);
    p->is_busy = true;
    p->n_pieces = 0;
    p->why = (struct error){0};
    if (transfer_start(&p->transfer, d->config.transfers, &request, &d->why) == STATUS_OK)
        return;
    p->is_busy = false;
    part_give_back(p);
}

/* --- the end --- */

/* In the pool. */
static void download_check(uv_work_t *work)
{
    struct download *d = work->data;
    struct error *err = &d->checked;

    if (file_hash_check(d->fd, d->config.size_bytes, d->config.etag, err) != STATUS_OK) {
        if (err->status == STATUS_DATA_LOSS)
            (void)unlink(d->path); /* else the next try fails, too */
        return;
    }
    if (ftruncate(d->fd, (off_t)d->config.size_bytes) != 0 || fsync(d->fd) != 0 ||
        rename(d->path, d->blob) != 0)
        (void)error_set(err, STATUS_DENIED, "cannot write %.120s: %s", d->blob, strerror(errno));
}

static void on_download_checked(uv_work_t *work, int status)
{
    struct download *d = work->data;

    d->is_checking = false;
    d->is_ending = true;
    d->why = d->checked;
    download_advance(d);
}

static void on_download_closed(uv_handle_t *handle)
{
    struct download *d = handle->data;
    struct download_config config = d->config;
    struct error why = d->why;

    for (size_t i = 0; i < DOWNLOAD_MAX_CONNECTIONS; i++) {
        free(d->parts[i].buffers[0]);
        free(d->parts[i].buffers[1]);
    }
    (void)close(d->fd); /* it was synchronized */
    free(d->pieces);
    free(d->path);
    free(d->blob);
    free(d);
    config.done(config.arg, &why);
}

static bool download_has_busy_parts(struct download *d)
{
    bool is_busy = false;

    for (size_t i = 0; i < d->config.n_connections; i++) {
        struct download_part *p = &d->parts[i];

        if (d->why.status != STATUS_OK && p->transfer != NULL) {
            transfer_cancel(p->transfer);
            p->transfer = NULL;
            part_settle(p);
        }
        is_busy = is_busy || p->is_busy;
    }
    return is_busy;
}

static void download_start_parts(struct download *d)
{
    for (size_t i = 0; i < d->config.n_connections && d->why.status == STATUS_OK; i++)
        if (!d->parts[i].is_busy && download_take_run(d, &d->parts[i]))
            part_start(&d->parts[i]);
}

/* The one place that takes the next step. */
static void download_advance(struct download *d)
{
    if (d->is_checking || uv_is_closing((uv_handle_t *)&d->timer))
        return;
    if (!d->is_ending && d->why.status == STATUS_OK && d->n_there < d->n_pieces && !d->is_waiting)
        download_start_parts(d);
    if (download_has_busy_parts(d))
        return;
    if (d->is_ending || d->why.status != STATUS_OK) {
        uv_close((uv_handle_t *)&d->timer, on_download_closed);
    } else if (d->n_there == d->n_pieces) {
        d->is_checking = true;
        d->config.checking(d->config.arg);
        d->check.data = d;
        (void)uv_queue_work(d->config.loop, &d->check, download_check, on_download_checked);
    }
}

static void on_download_timer(uv_timer_t *timer)
{
    struct download *d = timer->data;

    d->is_waiting = false;
    download_advance(d);
}

void download_cancel(struct download *d)
{
    if (d->why.status == STATUS_OK && !d->is_checking)
        (void)error_set(&d->why, STATUS_CANCELLED, "interrupted; the next pull goes on from there");
    download_advance(d);
}

/* --- the beginning --- */

/* Takes what is there of a download that has ended before. */
static enum status download_open_file(struct download *d, struct error *err)
{
    uint64_t size = d->config.size_bytes + d->n_pieces;
    struct statvfs fs;
    struct stat st;

    d->fd = open(d->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (d->fd < 0 || fstat(d->fd, &st) != 0)
        return error_set(err, STATUS_DENIED, "cannot write %.120s: %s", d->path, strerror(errno));
    if ((uint64_t)st.st_size == d->config.size_bytes)
        memset(d->pieces, PIECE_THERE, d->n_pieces); /* it was killed before it became the blob */
    else if ((uint64_t)st.st_size == size &&
             pread(d->fd, d->pieces, d->n_pieces, (off_t)d->config.size_bytes) !=
                 (ssize_t)d->n_pieces)
        return error_set(err, STATUS_DENIED, "cannot read %.120s: %s", d->path, strerror(errno));
    else if ((uint64_t)st.st_size != size &&
             (ftruncate(d->fd, 0) != 0 || ftruncate(d->fd, (off_t)size) != 0))
        return error_set(err, STATUS_EXHAUSTED, "cannot write %.120s: %s", d->path,
                         strerror(errno));
    for (size_t i = 0; i < d->n_pieces; i++) {
        d->pieces[i] = d->pieces[i] == PIECE_THERE ? PIECE_THERE : PIECE_MISSING;
        d->n_there += d->pieces[i] == PIECE_THERE;
        d->n_bytes += d->pieces[i] == PIECE_THERE ? piece_bytes(d, i) : 0;
    }
    if (fstatvfs(d->fd, &fs) == 0 && fs.f_bavail * fs.f_frsize < d->config.size_bytes - d->n_bytes)
        return error_set(err, STATUS_EXHAUSTED,
                         "%llu MB are missing of the file, and the disk of %.100s has %llu MB free",
                         (unsigned long long)(d->config.size_bytes - d->n_bytes) / 1000000,
                         d->config.folder,
                         (unsigned long long)(fs.f_bavail * fs.f_frsize) / 1000000);
    return STATUS_OK;
}

enum status download_start(struct download **out, const struct download_config *config,
                           struct error *err)
{
    struct download *d = xalloc(sizeof(*d));
    enum status rc = STATUS_OK;

    d->config = *config;
    d->fd = -1;
    d->n_pieces = (size_t)((config->size_bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    d->pieces = try_alloc(d->n_pieces + 1, 1);
    d->blob = hub_cache_blob(config->folder, config->etag, "");
    d->path = hub_cache_blob(config->folder, config->etag, ".parley");
    for (size_t i = 0; i < DOWNLOAD_MAX_CONNECTIONS; i++)
        d->parts[i].d = d;
    if (d->pieces == NULL)
        rc = error_no_memory(err, d->n_pieces, "a download");
    if (rc == STATUS_OK)
        rc = hub_cache_make_folders(d->path, err);
    if (rc == STATUS_OK)
        rc = download_open_file(d, err);
    if (rc != STATUS_OK) {
        if (d->fd >= 0 && d->n_there == 0)
            (void)unlink(d->path);
        if (d->fd >= 0)
            (void)close(d->fd);
        free(d->pieces);
        free(d->path);
        free(d->blob);
        free(d);
        return rc;
    }
    (void)uv_timer_init(config->loop, &d->timer); /* cannot fail */
    d->timer.data = d;
    d->is_waiting = true;
    (void)uv_timer_start(&d->timer, on_download_timer, 0, 0);
    config->progress(config->arg, d->n_bytes);
    *out = d;
    return STATUS_OK;
}
