/* Lengths and padding of batches as bars: in text, and as a drawing (SVG). */
#ifndef CLI_OUTPUT_PICTURE_H
#define CLI_OUTPUT_PICTURE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

enum { PICTURE_MAX_WIDTH = 400 };

/* A row's words. */
struct bar {
    size_t text, label;
};

struct picture {
    size_t text_truncate, label_truncate; /* 0: none */
    struct bar longest;                   /* of the batch */
    size_t n_batches, n_bars, height, width;
    struct buf drawing;
    enum status rc; /* of the first failure to draw */
};

void picture_init(struct picture *p, size_t text_truncate, size_t label_truncate);
void picture_deinit(struct picture *p);
void picture_begin_batch(struct picture *p, struct bar longest);
void picture_add_bar(struct picture *p, struct bar bar);
enum status picture_write(const struct picture *p, const char *path, struct error *err) MUST_CHECK;

/* Prints a bar of `width` columns on stdout: words of the text, words of the label, padding. */
void picture_print_bar(const struct bar *bar, const struct bar *longest, size_t width);

#endif
