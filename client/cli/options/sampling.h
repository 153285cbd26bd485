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

/* Borrows o, which holds the stop texts. */
const struct parley_sampling *sampling_options_get(struct sampling_options *o);

#endif
