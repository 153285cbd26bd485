/* The options of a simple agent (worlds/baselines/simple.h). */
#ifndef WORLDS_BASELINES_CONFIG_H
#define WORLDS_BASELINES_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dictionary;

struct simple_config {
    uint64_t seed; /* random numbers follow from seed, clone and count: the same run each time */

    /* repeat_label answers with one label, or with all in one text; with probability
     * cant_answer_percent, and where there is no label, with cant_answer_message. */
    bool return_all;
    double cant_answer_percent;      /* 0 … 1 */
    const char *cant_answer_message; /* NULL: "I don't know." */

    const char *fixed_response; /* NULL: "fixed response" */

    /* unigram and ir_baseline. */
    struct dictionary *dictionary; /* borrowed */
    size_t n_words;                /* unigram; 0: 10 */
    size_t history_size;           /* ir_baseline: utterances of the query; 0: 1 */
    double length_penalty;         /* ir_baseline; below 0: 0.5 */
    bool learns; /* ir_baseline: adds training texts to the dictionary; one thread only */
};

#endif
