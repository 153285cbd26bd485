/* One file of the hub, fetched over several connections into a blob of the cache. What was received
 * is kept in blobs/ETAG.parley, so that a download that ends in between, however it ends, goes on
 * from there. All functions are called on the loop. */
#ifndef BASE_FETCH_DOWNLOAD_H
#define BASE_FETCH_DOWNLOAD_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"

struct download;
struct transfers;

enum { DOWNLOAD_MAX_CONNECTIONS = 16 };

struct download_config {
    uv_loop_t *loop;
    struct transfers *transfers;
    const char *url, *token; /* kept by the caller; token may be NULL */
    const char *folder;      /* of the repository in the cache; kept by the caller */
    const char *etag;        /* a hash (file_hash.h); kept by the caller */
    uint64_t size_bytes;
    size_t n_connections; /* 1 to DOWNLOAD_MAX_CONNECTIONS */
    /* More bytes are there: n_bytes of the file in all. It may not cancel the download. */
    void (*progress)(void *arg, uint64_t n_bytes);
    /* The bytes are there, and their hash is computed. */
    void (*checking)(void *arg);
    /* Called once, never inside a function of this header: the blob is there, or why not. The
     * download is freed afterwards. DATA_LOSS: the hash differs, and nothing is kept. */
    void (*done)(void *arg, const struct error *err);
    void *arg;
};

enum status download_start(struct download **out, const struct download_config *config,
                           struct error *err) MUST_CHECK;
/* done is called soon, with CANCELLED unless the download is over by then. */
void download_cancel(struct download *d);

#endif
