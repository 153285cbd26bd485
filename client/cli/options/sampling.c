#include "client/cli/options/sampling.h"

#include "proto/sampling_fields.h"

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

/* "top-p" for "top_p". */
static const char *option_name(char out[32], const char *field)
{
    size_t n = 0;

    for (; field[n] != '\0' && n + 1 < 32; n++)
        out[n] = (char)(field[n] == '_' ? '-' : field[n]);
    out[n] = '\0';
    return out;
}

enum status sampling_options_check(const struct sampling_options *o, struct error *err)
{
    const struct parley_sampling *s = &o->sampling;
    char name_of[32];

#define CHECK(name, NAME, kind, number, neutral, least, most, bounds, since)     \
    if ((s->set & PARLEY_##NAME) != 0 &&                                         \
        ((double)s->name < (double)(least) || (double)s->name > (double)(most))) \
        return error_set(err, STATUS_INVALID, "--%s is %g, it must be %s",       \
                         option_name(name_of, #name), (double)s->name, bounds);
    SAMPLING_FIELDS(CHECK)
#undef CHECK
    return STATUS_OK;
}

const struct parley_sampling *sampling_options_get(struct sampling_options *o)
{
    /* The same command line gives the same reply: the server draws a seed where none is given,
     * so this sends 0. */
    o->sampling.set |= PARLEY_SEED;
    o->sampling.stops = o->stops.texts;
    o->sampling.n_stops = o->stops.n;
    return &o->sampling;
}
