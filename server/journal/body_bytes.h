/* The bytes of a record's body: numbers in little endian, lengths before texts. Any thread. */
#ifndef SERVER_JOURNAL_BODY_BYTES_H
#define SERVER_JOURNAL_BODY_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"

/* Writes are noted, and checked once at the end. */
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
/* Whether all of it was written. */
enum status body_written(const struct body_writer *w, struct error *err) MUST_CHECK;

/* After a failure everything that is read is zero. */
struct body_reader {
    const unsigned char *at, *end;
    struct arena *arena;
    uint32_t version;
    bool is_bad, is_short; /* short of memory */
};

uint32_t body_take_u32(struct body_reader *r);
uint64_t body_take_u64(struct body_reader *r);
uint32_t body_take_up_to(struct body_reader *r, uint32_t max); /* a number of at most max */
float body_take_float(struct body_reader *r);
double body_take_double(struct body_reader *r);
const void *body_take_bytes(struct body_reader *r, size_t *ret_len); /* in the body */
const char *body_take_text(struct body_reader *r); /* in the arena; "" after a failure */
/* An array of n, each of which takes at least min_bytes of the body. */
void *body_take_array(struct body_reader *r, size_t n, size_t size_bytes, size_t min_bytes);

/* Begins with the version, which is at most newest. */
struct body_reader body_begin(const void *body, size_t size_bytes, uint32_t newest,
                              struct arena *arena);
/* EXHAUSTED; DATA_LOSS unless all was read, and was as it must be. */
enum status body_end(const struct body_reader *r, struct error *err) MUST_CHECK;

#endif
