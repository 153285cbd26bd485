/* A stream dealt out in batches of like length. What waits in the cache is copied out of the
 * stream's chunks, so that a rare length pins one example and not the chunk around it. */
#ifndef WORLDS_TEACHERS_SORTED_STREAM_H
#define WORLDS_TEACHERS_SORTED_STREAM_H

#include "worlds/teachers/example.h"
#include "worlds/teachers/stream.h"

enum {
    SORTED_STREAM_MOST = 10000, /* examples that wait, or two batches if that is more */
    SORTED_STREAM_FEWEST = 1000 /* while there are data: so that there is a choice of lengths */
};

struct sorted_stream;

/* An example by itself, in memory of its own. */
struct kept {
    struct arena memory;
    struct example example;
};

void kept_free(void *kept); /* NULL is fine */

/* Borrows the stream, which nobody else fetches from. INVALID: its episodes have several turns.
 * Any thread may deal. */
enum status sorted_stream_open(struct sorted_stream **out, struct stream *from,
                               const struct teacher_config *config, struct error *err) MUST_CHECK;
void sorted_stream_close(struct sorted_stream *s);

/* At most batch_size examples, which the caller frees; none when the epoch is over, unless
 * begins_anew. */
enum status sorted_stream_deal(struct sorted_stream *s, bool begins_anew, struct kept **out,
                               size_t *ret_n, struct error *err) MUST_CHECK;
bool sorted_stream_is_over(struct sorted_stream *s); /* the epoch; any thread */
void sorted_stream_reset(struct sorted_stream *s);   /* and the stream is to be reset */

#endif
