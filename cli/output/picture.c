#include "cli/output/picture.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_DRAWING_BYTES = 256 << 20,
    WORD = 4, /* pixels wide */
    BAR = 6,  /* pixels high */
    GAP = 10, /* between batches */
};

static const char text_colour[] = "#3b6ea5", label_colour[] = "#5a9a5a",
                  padding_colour[] = "#dddddd";

void picture_init(struct picture *p, size_t text_truncate, size_t label_truncate)
{
    *p = (struct picture){.text_truncate = text_truncate,
                          .label_truncate = label_truncate,
                          .height = GAP,
                          .width = (size_t)2 * GAP};
    buf_init(&p->drawing, MAX_DRAWING_BYTES);
}

void picture_deinit(struct picture *p)
{
    buf_deinit(&p->drawing);
}

void picture_begin_batch(struct picture *p, struct bar longest)
{
    size_t width = (longest.text + longest.label) * WORD + (size_t)2 * GAP;

    p->height += p->n_batches > 0 ? GAP : 0;
    p->n_batches++;
    p->longest = longest;
    p->width = width > p->width ? width : p->width;
}

static void picture_draw(struct picture *p, size_t from, size_t n, const char *colour)
{
    if (p->rc == STATUS_OK && n > 0)
        p->rc = buf_printf(&p->drawing,
                           "<rect x=\"%zu\" y=\"%zu\" width=\"%zu\" height=\"%d\" fill=\"%s\"/>\n",
                           GAP + from * WORD, p->height, n * WORD, BAR - 1, colour);
}

void picture_add_bar(struct picture *p, struct bar bar)
{
    size_t padded = p->longest.text + p->longest.label;

    picture_draw(p, 0, bar.text, text_colour);
    picture_draw(p, bar.text, p->longest.text - bar.text, padding_colour);
    picture_draw(p, p->longest.text, bar.label, label_colour);
    picture_draw(p, p->longest.text + bar.label, padded - p->longest.text - bar.label,
                 padding_colour);
    p->height += BAR;
    p->n_bars++;
}

enum status picture_write(const struct picture *p, const char *path, struct error *err)
{
    FILE *out;
    bool is_written;

    if (p->rc != STATUS_OK)
        return error_set(err, p->rc, "%s: the picture is too large", path);
    out = fopen(path, "we");
    if (out == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    is_written = fprintf(out,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\">\n"
                         "<title>%zu examples in %zu batches: text, label, padding</title>\n",
                         p->width, p->height + GAP, p->n_bars, p->n_batches) > 0;
    is_written = is_written &&
                 (p->drawing.len == 0 ||
                  fwrite(p->drawing.data, 1, p->drawing.len, out) == p->drawing.len) &&
                 fputs("</svg>\n", out) != EOF;
    if (fclose(out) != 0 || !is_written)
        return error_set(err, STATUS_DATA_LOSS, "%s: %s", path, strerror(errno));
    return STATUS_OK;
}

static void repeat(const char *mark, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("%s", mark);
}

void picture_print_bar(const struct bar *bar, const struct bar *longest, size_t width)
{
    const size_t all = longest->text + longest->label, most = all > width ? width : all;
    /* columns up to the end of each part; a word has at least its share */
    const size_t ends[] = {bar->text, longest->text, longest->text + bar->label, all};
    static const char *const marks[] = {"█", "·", "▒", "·"};
    size_t at = 0;

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t end = all == 0 ? 0 : (ends[i] * most + all - 1) / all;

        if (end > at) {
            repeat(marks[i], end - at);
            at = end;
        }
    }
}
