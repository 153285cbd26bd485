/* Deals a stream in batches of similar length. Waiting examples are copied out of the stream's
 * chunks, so that a rare length holds one example in memory, not a whole chunk. */
#ifndef WORLDS_TEACHERS_SORTED_STREAM_H
#define WORLDS_TEACHERS_SORTED_STREAM_H

#include "worlds/teachers/example.h"
#include "worlds/teachers/stream.h"

enum {
    SORTED_STREAM_MOST = 10000, /* most waiting examples, or two batches if that is more */
    SORTED_STREAM_FEWEST = 1000 /* fewest, while data are left: for a choice of lengths */
};

struct sorted_stream;

/* A copy of an example, with memory of its own. */
struct kept {
    struct arena memory;
    struct example example;
};

void kept_free(void *kept); /* NULL is fine */

/* Borrows the stream; nothing else may fetch from it. INVALID: its episodes have several turns. Any
 * thread may deal. */
enum status sorted_stream_open(struct sorted_stream **out, struct episode_stream *from,
                               const struct teacher_config *config, struct error *err) MUST_CHECK;
void sorted_stream_close(struct sorted_stream *s);

/* At most batch_size examples, which the caller frees; none when the epoch is over, unless
 * begins_anew. */
enum status sorted_stream_deal(struct sorted_stream *s, bool begins_anew, struct kept **out,
                               size_t *ret_n, struct error *err) MUST_CHECK;
bool sorted_stream_is_over(struct sorted_stream *s); /* the epoch; any thread */
void sorted_stream_reset(struct sorted_stream *s);   /* the caller resets the stream too */

#endif
