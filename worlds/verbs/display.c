/* parley display: shows data in their batches, with a picture of lengths and padding. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "cli/output/out.h"
#include "cli/output/picture.h"
#include "worlds/participant/participant.h"
#include "worlds/verbs/data.h"
#include "worlds/verbs/verbs.h"

struct display {
    struct data_options data;
    const char *svg;
    uint32_t width;
    bool is_ragged, no_text, is_json;
};

static const struct option_row display_rows[] = {
    {"svg", "FILE", "write the picture of all batches as SVG", OPTION_TEXT,
     offsetof(struct display, svg), 0},
    {"width", "N", "width of the longest bar, in columns (48)", OPTION_U32,
     offsetof(struct display, width), 0},
    {"ragged", NULL, "batches for an agent that packs rows: the budget is the sum of lengths",
     OPTION_FLAG, offsetof(struct display, is_ragged), 0},
    {"no-text", NULL, "print only the bars", OPTION_FLAG, offsetof(struct display, no_text), 0},
    {"json", NULL, "print one JSON object per batch", OPTION_FLAG,
     offsetof(struct display, is_json), 0},
    {0},
};

/* An agent that observes, and answers with an empty act. */
static enum status silent_act(struct participant_clone *c, struct act *out, struct error *err)
{
    return act_set(out, ACT_EPISODE_DONE, value_bool(false), err);
}

static void silent_batch_act(struct participant *p, struct participant_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rows[i].failed = silent_act(rows[i].clone, rows[i].out, &rows[i].err) != STATUS_OK;
}

static void silent_close(struct participant *p)
{
    free(p);
}

static const struct participant_type silent_agents[] = {
    {.name = "looker",
     .clone_size = sizeof(struct participant_clone),
     .close = silent_close,
     .act = silent_act,
     .batch_act = silent_batch_act},
    {.name = "looker",
     .clone_size = sizeof(struct participant_clone),
     .close = silent_close,
     .act = silent_act,
     .batch_act = silent_batch_act,
     .is_ragged = true},
};

/* --- a batch --------------------------------------------------------------------------------- */

struct showing {
    const struct display *options;
    struct picture picture;
    uint64_t n_batches, n_rows, n_padding_rows, n_words, n_cells;
};

static struct text display_label_of(const struct act *a)
{
    const struct value *labels = act_labels(a);

    return labels != NULL && labels->list.n > 0 ? labels->list.items[0] : (struct text){0};
}

static size_t display_cut(size_t n, size_t most)
{
    return most != 0 && n > most ? most : n;
}

/* A text on one line, of at most so many characters. */
static void print_short(struct text t, size_t most)
{
    size_t at = 0;

    for (size_t n = 0; at < t.len && n < most; n++) {
        uint32_t character;
        size_t len = utf8_next(t.text + at, t.len - at, &character);

        if (character < ' ')
            (void)out_text(" ", 1);
        else
            (void)out_foreign(t.text + at, len); /* out_end reports a failure */
        at += len;
    }
    if (at < t.len)
        printf("…");
}

static void print_text(const struct act *a)
{
    enum { TEXT_COLUMNS = 60, LABEL_COLUMNS = 30 };
    const struct text label = display_label_of(a);

    printf("  ");
    print_short(act_text(a), TEXT_COLUMNS);
    if (label.text != NULL) {
        printf(" → ");
        print_short(label, LABEL_COLUMNS);
    }
}

/* A row that is shown. */
struct shown {
    const struct act *act;
    struct bar bar;
    size_t slot;
};

static void print_rows(const struct showing *s, const struct shown *rows, size_t n,
                       struct bar longest)
{
    for (size_t i = 0; i < n; i++) {
        printf("%6zu ", rows[i].slot);
        picture_print_bar(&rows[i].bar, &longest, s->options->width);
        printf(" %3zu+%zu", rows[i].bar.text, rows[i].bar.label);
        if (!s->options->no_text)
            print_text(rows[i].act);
        printf("\n");
    }
}

static void display_print_json(const struct showing *s, const struct shown *rows, size_t n,
                               struct bar longest)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++) {
        struct text text = act_text(rows[i].act);

        (void)json_array_append_new(all, json_pack("{s:I,s:I,s:I,s:s%}", "slot",
                                                   (json_int_t)rows[i].slot, "text_words",
                                                   (json_int_t)rows[i].bar.text, "label_words",
                                                   (json_int_t)rows[i].bar.label, "text",
                                                   text.text != NULL ? text.text : "", text.len));
    }
    (void)out_json(json_pack("{s:I,s:I,s:o}", "batch", (json_int_t)s->n_batches, "cells",
                             (json_int_t)(n * (longest.text + longest.label)), "rows",
                             all)); /* out_end reports a failure */
}

static void display_show(struct showing *s, const struct shown *rows, size_t n, size_t n_padding)
{
    struct bar longest = {0};
    size_t n_words = 0, n_cells;

    for (size_t i = 0; i < n; i++) {
        longest.text = rows[i].bar.text > longest.text ? rows[i].bar.text : longest.text;
        longest.label = rows[i].bar.label > longest.label ? rows[i].bar.label : longest.label;
        n_words += rows[i].bar.text + rows[i].bar.label;
    }
    n_cells = n * (longest.text + longest.label);
    s->n_batches++;
    s->n_rows += n;
    s->n_padding_rows += n_padding;
    s->n_words += n_words;
    s->n_cells += n_cells;
    if (s->options->is_json) {
        display_print_json(s, rows, n, longest);
    } else {
        printf(
            "batch %llu: %zu rows of at most %zu+%zu words, %zu of %zu cells are words (%.0f %%)\n",
            (unsigned long long)s->n_batches, n, longest.text, longest.label, n_words, n_cells,
            n_cells == 0 ? 100.0 : 100.0 * (double)n_words / (double)n_cells);
        print_rows(s, rows, n, longest);
    }
    picture_begin_batch(&s->picture, longest);
    for (size_t i = 0; i < n; i++)
        picture_add_bar(&s->picture, rows[i].bar);
}

static void display_watch(void *arg, const struct world *w, uint32_t thread)
{
    struct showing *s = arg;
    size_t n = world_n_rows(w), n_shown = 0;
    struct shown *rows = xalloc((n + 1) * sizeof(*rows));

    for (size_t i = 0; i < n; i++) {
        struct world_row row;
        const struct act *a;

        world_row(w, i, &row);
        a = &row.acts[0];
        if (act_is_padding(a))
            continue;
        rows[n_shown++] = (struct shown){
            .act = a,
            .slot = row.slot,
            .bar = {display_cut(act_count_words(act_text(a)), s->picture.text_truncate),
                    display_cut(act_count_words(display_label_of(a)), s->picture.label_truncate)}};
    }
    if (n_shown > 0)
        display_show(s, rows, n_shown, n - n_shown);
    free(rows);
}

static enum status display(struct data_world *w, struct display *d, struct error *err)
{
    struct showing s = {.options = d};
    enum status rc;

    w->agent = xalloc(sizeof(*w->agent));
    participant_init(w->agent, &silent_agents[d->is_ragged]);
    w->config.agents = &w->agent;
    w->config.n_agents = 1;
    w->config.n_threads = 1;
    w->config.watch = display_watch;
    w->config.watch_arg = &s;
    picture_init(&s.picture, w->config.text_truncate,
                 w->config.label_truncate != 0 ? w->config.label_truncate
                                               : w->config.text_truncate);
    rc = data_world_open(w, err);
    while (rc == STATUS_OK && !world_epoch_done(w->world))
        rc = world_parley(w->world, err);
    if (rc == STATUS_OK && !d->is_json)
        printf("%llu examples in %llu batches: %llu words in %llu cells, %llu of padding\n",
               (unsigned long long)s.n_rows, (unsigned long long)s.n_batches,
               (unsigned long long)s.n_words, (unsigned long long)s.n_cells,
               (unsigned long long)(s.n_cells - s.n_words));
    if (rc == STATUS_OK && d->svg != NULL)
        rc = picture_write(&s.picture, d->svg, err);
    picture_deinit(&s.picture);
    return rc;
}

enum exit_code display_run(const struct verb *verb, int argc, char **argv)
{
    struct display d = {.width = 48};
    const struct option_group groups[] = {{data_option_rows, &d.data, NULL},
                                          {display_rows, &d, NULL}};
    struct data_world w = {0};
    struct error err;
    enum exit_code code;
    enum status rc;
    int first;

    data_options_init(&d.data, "train:ordered");
    d.data.n_examples = 10;
    if (!options_read(verb, groups, sizeof(groups) / sizeof(groups[0]), argc, argv, 0, 0, &first,
                      &code))
        return code;
    if (!data_has_task(&d.data))
        return options_misuse(verb, "--task is missing");
    if (d.width == 0 || d.width > PICTURE_MAX_WIDTH)
        return options_misuse(verb, "--width is %u, it must be from 1 to %d", d.width,
                              PICTURE_MAX_WIDTH);
    rc = data_tasks_open(&w, &d.data, &err);
    if (rc == STATUS_OK) {
        data_world_warn(&w);
        rc = display(&w, &d, &err);
    }
    data_world_close(&w);
    return data_end(rc, &err);
}
