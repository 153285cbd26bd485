/* Agents without a model: what others are measured against, and what a world is tried with.
 * ParlAI's agents of the same names, with its texts. Each original is immutable (the dictionary of
 * one that learns apart), so threads share it. */
#ifndef WORLDS_AGENTS_SIMPLE_H
#define WORLDS_AGENTS_SIMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dictionary;
struct participant;

struct simple_config {
    uint64_t seed; /* of draws: by seed, clone and count, so a run can be had again */

    /* repeat_label: one of the labels, or all of them in one text; and now and then, as without
     * labels, that it does not know. */
    bool return_all;
    double cant_answer_percent;      /* 0 … 1 */
    const char *cant_answer_message; /* NULL: "I don't know." */

    const char *fixed_response; /* NULL: "fixed response" */

    /* unigram and ir_baseline. */
    struct dictionary *dictionary; /* borrowed */
    size_t n_words;                /* unigram; 0: 10 */
    size_t history_size;           /* ir_baseline: utterances of the query; 0: 1 */
    double length_penalty;         /* ir_baseline; below 0: 0.5 */
    bool learns; /* ir_baseline: what it hears in training goes into the dictionary;
                    one thread alone */
};

/* Defaults: all 0, length_penalty below 0. */
void simple_config_init(struct simple_config *c);

/* By ParlAI's name: repeat_label, repeat_query, random_candidate, fixed_response, unigram,
 * ir_baseline. NOT_FOUND names those there are; INVALID: one that needs a dictionary has none, or a
 * number is out of its range. */
enum status simple_open(struct participant **out, const char *name,
                        const struct simple_config *config, struct error *err) MUST_CHECK;

/* "fixed_response", …; NULL after the last. */
const char *simple_name_at(size_t i);
/* Whether the agent of that name needs a dictionary. */
bool simple_needs_dictionary(const char *name);

#endif
