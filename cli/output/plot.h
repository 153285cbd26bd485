/* A line chart as an SVG file: a few series over the same numbers on the x axis. */
#ifndef CLI_OUTPUT_PLOT_H
#define CLI_OUTPUT_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

struct plot_series {
    const char *name;
    const double *y; /* [n_points] of the plot; none negative. NaN leaves a gap */
};

struct plot {
    const char *title, *x_label, *y_label;
    const double *x; /* [n_points], rising; above 0 if is_log2 */
    size_t n_points;
    const struct plot_series *series; /* [n_series] */
    size_t n_series;                  /* at most PLOT_MAX_SERIES */
    bool is_log2;                     /* twice as much on x is equally far everywhere */
};

enum { PLOT_MAX_SERIES = 8 };

/* Writes an <svg> element; the stream keeps the error of a failed write. */
void plot_draw(const struct plot *p, FILE *out);
/* Writes the plot to a file. The error names the file. */
enum status plot_write(const struct plot *p, const char *path, struct error *err) MUST_CHECK;

#endif
