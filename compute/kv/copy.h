/* A copy of a KV page, which a step carries out before it runs its rows. */
#ifndef COMPUTE_KV_COPY_H
#define COMPUTE_KV_COPY_H

#include <stdint.h>

enum kv_way {
    KV_COPY,    /* from page to page */
    KV_OFFLOAD, /* from a page to a slot */
    KV_RELOAD,  /* from a slot to a page */
    KV_WRITE,   /* from the host's memory, image, to a page */
};

struct kv_copy {
    int32_t from, to;
    enum kv_way way;
    const void *image; /* of KV_WRITE: what kv_read gave; borrowed until the step has ended */
};

#endif
