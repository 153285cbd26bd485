/* A snapshot on its way to a client: a message with the version, messages of chunks, which all
 * downloads of the snapshot share, and a message with the hash. Loop. */
#ifndef SERVER_API_PARLEY_PARAMS_DOWNLOAD_H
#define SERVER_API_PARLEY_PARAMS_DOWNLOAD_H

#include "agents/params/snapshot.h"
#include "server/call/call.h"

struct params_download {
    struct snapshot *snapshot; /* NULL: no download is under way */
    size_t at;                 /* 0: the version; 1 … n_chunks; then the hash */
    bool has_values;
    bool is_in_memory; /* the values were written to the stream's memory; download_begin sets false
                        */
    uint64_t wait_us, counted_in;
    uint64_t last_step; /* download_begin sets 0 */
};

/* Begins a download, which holds s until the last message is written or the download is dropped. */
void download_begin(struct params_download *d, struct snapshot *s, bool has_values,
                    uint64_t wait_us, uint64_t counted_in);
/* Writes the next message to the write-ready call. Returns true with the last message, after which
 * no download is under way. */
bool download_write(struct params_download *d, struct call *call);
/* Ends a download that may be under way. */
void download_drop(struct params_download *d);

#endif
