/* What a verification has found, printed for a person or for programs. */
#ifndef CLIENT_CLI_PROOF_REPORT_H
#define CLIENT_CLI_PROOF_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/cli/proof/job.h"

struct proof_report {
    bool is_json;
    size_t n_conversations, n_turns, n_same, n_differ, n_unchecked, n_shared, n_left_out;
    size_t
        n_broken; /* conversations whose chain or whose readable lines are not what was written */
    uint64_t n_tokens; /* that were computed again and are the same */
};

/* "same", "differs", "unchecked", or "skipped". */
const char *proof_verdict_word(Parley__V1__VerifiedTurn__Verdict verdict);
/* Prints why a conversation has no answer. Returns how many turns are unchecked by that. */
size_t proof_report_failure(const struct proof_job *job, bool is_json);

/* Prints a conversation whose answer has come, and counts it. */
void proof_report_job(struct proof_report *r, const struct proof_job *job);
void proof_report_end(const struct proof_report *r);

#endif
