#include "client/cli/options/sampling.h"

#define AT(member) offsetof(struct sampling_options, sampling.member)

const struct option_row sampling_rows[] = {
    {"temperature", "T", "sampling temperature; 0: always the likeliest token (the model's own)",
     OPTION_FLOAT, AT(temperature), PARLEY_TEMPERATURE},
    {"top-p", "P", "sample from the likeliest tokens whose probabilities add up to P, from 0 to 1",
     OPTION_FLOAT, AT(top_p), PARLEY_TOP_P},
    {"top-k", "K", "sample from the K likeliest tokens; 0: from all", OPTION_U32, AT(top_k),
     PARLEY_TOP_K},
    {"min-p", "P", "sample from tokens at least P times as likely as the likeliest", OPTION_FLOAT,
     AT(min_p), PARLEY_MIN_P},
    {"repetition-penalty", "X", "above 1: tokens of the context become less likely", OPTION_FLOAT,
     AT(repetition_penalty), PARLEY_REPETITION_PENALTY},
    {"presence-penalty", "X", "-2 to 2: penalty for tokens that the reply already has",
     OPTION_FLOAT, AT(presence_penalty), PARLEY_PRESENCE_PENALTY},
    {"frequency-penalty", "X", "-2 to 2: the same, for each time that the reply has the token",
     OPTION_FLOAT, AT(frequency_penalty), PARLEY_FREQUENCY_PENALTY},
    {"seed", "N",
     "seed of the sampling: the same seed gives the same reply (0; of rerun: the recorded one)",
     OPTION_U64, AT(seed), PARLEY_SEED},
    {"max-tokens", "N", "the most tokens of a reply; 0: until the context is full", OPTION_U32,
     AT(max_tokens), PARLEY_MAX_TOKENS},
    {"min-tokens", "N", "the fewest tokens of a reply", OPTION_U32, AT(min_tokens),
     PARLEY_MIN_TOKENS},
    {"stop", "TEXT", "a text that ends the reply and is not part of it; may be given several times",
     OPTION_TEXTS, offsetof(struct sampling_options, stops), 0},
    {"ignore-eos", NULL, "do not end the reply at the model's end token", OPTION_FLAG,
     AT(ignore_eos), PARLEY_IGNORE_EOS},
    {0},
};

const struct parley_sampling *sampling_options_get(struct sampling_options *o)
{
    /* The same command line gives the same reply: the server draws a seed where none is given,
     * so this sends 0. */
    o->sampling.set |= PARLEY_SEED;
    o->sampling.stops = o->stops.texts;
    o->sampling.n_stops = o->stops.n;
    return &o->sampling;
}
