/* The options of a simple agent (worlds/baselines/simple.h). */
#ifndef WORLDS_BASELINES_CONFIG_H
#define WORLDS_BASELINES_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dictionary;

struct simple_config {
    uint64_t seed; /* random numbers follow from seed, clone, thread and count, so that runs are
                      alike */

    /* repeat_label answers with one label, or with all labels in one text (return_all). It answers
     * with cant_answer_message with probability cant_answer_percent, and where there is no label.
     */
    bool return_all;
    double cant_answer_percent;      /* 0 … 1, despite its name, as in ParlAI */
    const char *cant_answer_message; /* NULL: "I don't know." */

    const char *fixed_response; /* answer of fixed_response; NULL: "fixed response" */

    struct dictionary *dictionary; /* of unigram and ir_baseline; borrowed, for the agent's life */
    size_t n_words;                /* unigram: words of its answer; 0: 10 */
    size_t history_size;   /* ir_baseline: the newest utterances that make the query; 0: 1 */
    double length_penalty; /* ir_baseline: exponent of the lengths' norm; below 0: 0.5 */
    bool learns; /* ir_baseline adds training texts to the dictionary; for worlds of one thread */
};

#endif
