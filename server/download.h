/* A snapshot on its way to a client: a version, chunks that all who get them share, the hash. */
#ifndef SERVER_DOWNLOAD_H
#define SERVER_DOWNLOAD_H

#include "agents/params/snapshot.h"
#include "server/call.h"

struct download {
    struct snapshot *snapshot; /* NULL when there is none under way */
    size_t at;                 /* 0: the version; 1 … n_chunks; then the hash */
    bool has_values;
    uint64_t wait_us, counted_in;
};

/* Holds s until the last message is written, or download_drop. */
void download_begin(struct download *d, struct snapshot *s, bool has_values, uint64_t wait_us,
                    uint64_t counted_in);
/* Writes the next message into the room there is; true with the last, after which none is under
 * way. */
bool download_write(struct download *d, struct call *call);
void download_drop(struct download *d);

#endif
