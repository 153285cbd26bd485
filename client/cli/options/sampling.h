/* The options of chat and ask that say how to sample. */
#ifndef CLIENT_CLI_OPTIONS_SAMPLING_H
#define CLIENT_CLI_OPTIONS_SAMPLING_H

#include "cli/options/options.h"
#include "client/lib/parley.h"

struct sampling_options {
    struct parley_sampling sampling;
    struct option_texts stops;
};

extern const struct option_row sampling_rows[];

/* INVALID, with the option's name and bounds, where a value is out of its bounds: no server would
 * take it. */
enum status sampling_options_check(const struct sampling_options *o, struct error *err) MUST_CHECK;

/* Borrows o, which holds the stop texts. */
const struct parley_sampling *sampling_options_get(struct sampling_options *o);

#endif
