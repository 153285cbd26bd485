/* The bytes of a record's body: numbers are in little endian, and a text's length stands before the
 * text. All functions may be called on any thread. */
#ifndef SERVER_JOURNAL_BODY_BYTES_H
#define SERVER_JOURNAL_BODY_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"

/* Appends to a body. A failure is noted, and body_written returns it at the end. */
struct body_writer {
    struct buf *out;
    bool has_failed;
};

void body_put_u32(struct body_writer *w, uint32_t number);
void body_put_u64(struct body_writer *w, uint64_t number);
void body_put_float(struct body_writer *w, float value);
void body_put_double(struct body_writer *w, double value);
void body_put_bytes(struct body_writer *w, const void *bytes, size_t len);
void body_put_text(struct body_writer *w, const char *text);
/* Returns EXHAUSTED unless everything was written. */
enum status body_written(const struct body_writer *w, struct error *err) MUST_CHECK;

/* Reads a body. After a failure every read gives zero, and body_end returns the failure. */
struct body_reader {
    const unsigned char *at, *end;
    struct arena *arena;
    uint32_t version;
    bool is_bad;   /* the bytes are not as they must be */
    bool is_short; /* memory was short */
};

uint32_t body_take_u32(struct body_reader *r);
uint64_t body_take_u64(struct body_reader *r);
/* Reads a number, which must be at most max. */
uint32_t body_take_up_to(struct body_reader *r, uint32_t max);
float body_take_float(struct body_reader *r);
double body_take_double(struct body_reader *r);
/* Returns bytes inside the body. */
const void *body_take_bytes(struct body_reader *r, size_t *ret_len);
/* Returns a copy in the arena, NUL-ended; "" after a failure. */
const char *body_take_text(struct body_reader *r);
/* Returns an array in the arena for n elements of size_bytes. The body must have at least min_bytes
 * for each element. */
void *body_take_array(struct body_reader *r, size_t n, size_t size_bytes, size_t min_bytes);

/* Begins to read a body. The version comes first, and must be at most newest. */
struct body_reader body_begin(const void *body, size_t size_bytes, uint32_t newest,
                              struct arena *arena);
/* Returns EXHAUSTED if memory was short, and DATA_LOSS if a byte is left or was not as it must be.
 */
enum status body_end(const struct body_reader *r, struct error *err) MUST_CHECK;

#endif
