/* A sorted stream deals a stream's examples in batches of similar length (length_cache.h). Waiting
 * examples are copied out of the stream's chunks, so that an example of a rare length keeps itself
 * in memory, not a whole chunk. */
#ifndef WORLDS_TEACHERS_SORTED_STREAM_H
#define WORLDS_TEACHERS_SORTED_STREAM_H

#include "worlds/teachers/example.h"
#include "worlds/teachers/stream.h"

enum {
    SORTED_STREAM_MOST = 10000, /* the most waiting examples, or two batches if that is more */
    SORTED_STREAM_FEWEST = 1000 /* the fewest waiting examples while data are left, or two batches
                                   if that is more; they give a choice of lengths */
};

struct sorted_stream;

/* A copy of an example, with memory of its own. */
struct kept {
    struct arena memory;
    struct example example;
};

void kept_free(void *kept); /* a struct kept, or NULL */

/* Borrows the stream `from`; nothing else may fetch from it until sorted_stream_close. Copies what
 * it needs of config. INVALID if an episode has several turns. */
enum status sorted_stream_open(struct sorted_stream **out, struct episode_stream *from,
                               const struct teacher_config *config, struct error *err) MUST_CHECK;
void sorted_stream_close(struct sorted_stream *s);

/* Deals the next batch: at most batch_size examples into out, which has room for as many. The
 * caller owns them. When the epoch is over it deals none, or, if begins_anew, begins the next one.
 * Any thread; it waits for the stream's loaders. Errors are those of episodes_fetch. */
enum status sorted_stream_deal(struct sorted_stream *s, bool begins_anew, struct kept **out,
                               size_t *ret_n, struct error *err) MUST_CHECK;
/* Returns whether the epoch is over: all of its examples were dealt. Any thread. */
bool sorted_stream_is_over(struct sorted_stream *s);
/* Begins anew with the first epoch. The caller then calls episodes_reset. */
void sorted_stream_reset(struct sorted_stream *s);

#endif
