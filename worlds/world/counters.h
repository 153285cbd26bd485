/* What a world has counted: world.h the parleys and examples since it was opened or reset,
 * participants.h the batches of the agents since it was opened. */
#ifndef WORLDS_WORLD_COUNTERS_H
#define WORLDS_WORLD_COUNTERS_H

#include <stdint.h>

struct world_counters {
    uint64_t n_parleys;
    uint64_t n_examples; /* rows of all parleys, without padding */
    /* The batches that agents answered; of one row where an agent of a plain world acts directly.
     * They are counted in dynamic worlds, and in others if the config's counts_words is set. Words
     * are counted as the agent does: a language model's words are tokens. */
    uint64_t n_batches, n_rows;
    uint64_t n_cells;  /* words computed: n_words if rows are packed, else n_padded */
    uint64_t n_words;  /* words of the rows alone, without padding */
    uint64_t n_padded; /* words with padding: for each batch its rows times the longest of them */
};

#endif
