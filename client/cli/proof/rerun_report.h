/* What a rerun has found, printed for a person or for programs, and as a page. */
#ifndef CLIENT_CLI_PROOF_RERUN_REPORT_H
#define CLIENT_CLI_PROOF_RERUN_REPORT_H

#include <stdio.h>

#include "client/cli/proof/job.h"

struct rerun_report {
    bool is_json;
    FILE *page; /* NULL: none is wanted */
    double begun_s;
    size_t n_conversations, n_turns, n_same, n_differ, n_unchecked, n_shared;
    size_t n_behind;              /* of n_differ: turns that stand behind a new reply */
    size_t n_other_logprobs;      /* of n_same: replies whose log-probabilities are others */
    size_t n_conversations_other; /* with a reply or log-probabilities that are others */
    size_t n_kl;
    double sum_kl;
    uint64_t n_tokens, n_new_tokens; /* that were computed; of these, behind a difference */
};

/* Prints a conversation whose answer has come, and counts it. */
void rerun_report_job(struct rerun_report *r, const struct proof_job *job);
void rerun_report_end(struct rerun_report *r);

/* The page: its begin, a conversation with its pairs side by side, its end with the sums. */
void rerun_page_begin(FILE *out, const char *command);
void rerun_page_job(FILE *out, const struct proof_job *job);
void rerun_page_end(FILE *out, const struct rerun_report *r);

#endif
