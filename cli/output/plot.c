#include "cli/output/plot.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/output/svg.h"

/* The frame in SVG units, and the room around it for titles, numbers and names. */
enum { WIDTH = 760, HEIGHT = 440, LEFT = 70, RIGHT = 190, TOP = 50, BOTTOM = 60 };

/* Up to so many points each have a number on the axis, and a dot. */
enum { MAX_NUMBERED = 12, MAX_DOTTED = 40 };

/* Numbers on the axis of x are at least so far apart. */
enum { NUMBER_WIDTH = 30 };

/* Every other line is dashed, so that lines differ also without colours. */
static const char *const colours[PLOT_MAX_SERIES] = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999",
};

struct plot_frame {
    double x_low, x_high, y_high, y_tick; /* x: their logarithms if is_log2 */
    bool is_log2;
};

/* The largest of 1, 2 and 5 times a power of ten that cuts high in at least four. */
static double tick_of(double high)
{
    double power = pow(10, floor(log10(high / 4)));

    if (high / 4 >= 5 * power)
        return 5 * power;
    return high / 4 >= 2 * power ? 2 * power : power;
}

static double scaled(double x, bool is_log2)
{
    return is_log2 ? log2(x) : x;
}

static struct plot_frame frame_of(const struct plot *p)
{
    struct plot_frame f = {.x_low = scaled(p->x[0], p->is_log2),
                           .x_high = scaled(p->x[p->n_points - 1], p->is_log2),
                           .is_log2 = p->is_log2};

    for (size_t s = 0; s < p->n_series; s++)
        for (size_t i = 0; i < p->n_points; i++)
            if (p->series[s].y[i] > f.y_high) /* not for NaN */
                f.y_high = p->series[s].y[i];
    if (f.y_high <= 0)
        f.y_high = 1;
    f.y_tick = tick_of(f.y_high);
    f.y_high = ceil(f.y_high / f.y_tick) * f.y_tick;
    return f;
}

static double place_x(const struct plot_frame *f, double x)
{
    double span = f->x_high > f->x_low ? f->x_high - f->x_low : 1;

    return LEFT + (scaled(x, f->is_log2) - f->x_low) / span * (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct plot_frame *f, double y)
{
    return HEIGHT - BOTTOM - y / f->y_high * (HEIGHT - TOP - BOTTOM);
}

static void write_label(FILE *out, double x, double y, const char *how, const char *text)
{
    (void)fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, how);
    svg_text(out, text);
    (void)fputs("</text>\n", out);
}

static void write_x_number(FILE *out, const struct plot_frame *f, double x)
{
    char number[32];

    (void)snprintf(number, sizeof(number), "%g", x);
    write_label(out, place_x(f, x), HEIGHT - BOTTOM + 20, "text-anchor=\"middle\"", number);
}

static void write_x_numbers(FILE *out, const struct plot *p, const struct plot_frame *f)
{
    double tick = tick_of(f->x_high - f->x_low), last = -NUMBER_WIDTH;

    if (p->n_points <= MAX_NUMBERED)
        for (size_t i = 0; i < p->n_points; i++) {
            if (place_x(f, p->x[i]) - last < NUMBER_WIDTH)
                continue;
            last = place_x(f, p->x[i]);
            write_x_number(out, f, p->x[i]);
        }
    else if (f->is_log2)
        for (double x = ceil(f->x_low); x <= f->x_high; x++) {
            if (place_x(f, exp2(x)) - last < NUMBER_WIDTH)
                continue;
            last = place_x(f, exp2(x));
            write_x_number(out, f, exp2(x));
        }
    else
        for (double x = ceil(f->x_low / tick) * tick; x <= f->x_high; x += tick)
            write_x_number(out, f, x);
}

static void write_axes(FILE *out, const struct plot *p, const struct plot_frame *f)
{
    double middle = (LEFT + WIDTH - RIGHT) / 2.0;
    char number[32], how[64];

    for (double y = 0; y <= f->y_high * 1.0001; y += f->y_tick) {
        (void)fprintf(out, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n",
                      LEFT, WIDTH - RIGHT, place_y(f, y), place_y(f, y));
        (void)snprintf(number, sizeof(number), "%g", y);
        write_label(out, LEFT - 8, place_y(f, y) + 4, "text-anchor=\"end\"", number);
    }
    write_x_numbers(out, p, f);
    write_label(out, middle, TOP - 20, "text-anchor=\"middle\" font-size=\"15\"", p->title);
    write_label(out, middle, HEIGHT - 16, "text-anchor=\"middle\"", p->x_label);
    (void)snprintf(how, sizeof(how), "text-anchor=\"middle\" transform=\"rotate(-90 18 %d)\"",
                   (TOP + HEIGHT - BOTTOM) / 2);
    write_label(out, 18, (TOP + HEIGHT - BOTTOM) / 2.0, how, p->y_label);
}

static void write_series(FILE *out, const struct plot *p, const struct plot_frame *f, size_t s)
{
    const double *y = p->series[s].y;
    bool is_open = false; /* a line is being drawn */

    (void)fprintf(out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s d=\"", colours[s],
                  s % 2 == 1 ? " stroke-dasharray=\"7 4\"" : "");
    for (size_t i = 0; i < p->n_points; i++) {
        if (!isnan(y[i]))
            (void)fprintf(out, "%c%.1f %.1f ", is_open ? 'L' : 'M', place_x(f, p->x[i]),
                          place_y(f, y[i]));
        is_open = !isnan(y[i]);
    }
    (void)fputs("\"/>\n", out);
    for (size_t i = 0; i < p->n_points && p->n_points <= MAX_DOTTED; i++)
        if (!isnan(y[i]))
            (void)fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                          place_x(f, p->x[i]), place_y(f, y[i]), colours[s]);
}

static void write_legend(FILE *out, const struct plot *p, size_t s)
{
    int y = TOP + 10 + 22 * (int)s, x = WIDTH - RIGHT + 14;

    (void)fprintf(out,
                  "<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" "
                  "stroke-width=\"2\"%s/>\n",
                  x, x + 26, y, y, colours[s], s % 2 == 1 ? " stroke-dasharray=\"7 4\"" : "");
    write_label(out, x + 34, y + 4, "", p->series[s].name);
}

void plot_draw(const struct plot *p, FILE *out)
{
    struct plot_frame f = frame_of(p);

    assert(p->n_series <= PLOT_MAX_SERIES && p->n_points > 0);
    (void)fprintf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                  WIDTH, HEIGHT);
    write_axes(out, p, &f);
    for (size_t s = 0; s < p->n_series; s++) {
        write_series(out, p, &f, s);
        write_legend(out, p, s);
    }
    (void)fputs("</svg>\n", out);
}

enum status plot_write(const struct plot *p, const char *path, struct error *err)
{
    FILE *out = fopen(path, "we");
    bool is_bad;

    if (out == NULL)
        return error_set(err, STATUS_UNKNOWN, "cannot write '%s': %s", path, strerror(errno));
    plot_draw(p, out);
    is_bad = ferror(out) != 0;
    if (fclose(out) != 0 || is_bad)
        return error_set(err, STATUS_UNKNOWN, "cannot write '%s': %s", path, strerror(errno));
    return STATUS_OK;
}
