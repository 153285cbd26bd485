#include "client/cli/proof/rerun_report.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "cli/output/out.h"
#include "client/cli/output/message_json.h"
#include "client/cli/proof/report.h"

typedef Parley__V1__VerifiedTurn turn_t;

/* Returns whether the turn has something else than was recorded. */
static bool rerun_count(struct rerun_report *r, const turn_t *t)
{
    const bool is_same = t->verdict == PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_SAME;
    const bool differs = t->verdict == PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_DIFFERS;

    r->n_same += is_same;
    r->n_differ += differs;
    r->n_unchecked += t->verdict == PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_UNCHECKED;
    r->n_behind += differs && t->is_behind_new;
    r->n_other_logprobs += is_same && t->other_logprobs;
    r->n_tokens += t->computed_tokens;
    if (differs && t->computed_tokens > t->compared_tokens)
        r->n_new_tokens += t->computed_tokens - t->compared_tokens;
    if (t->difference != NULL && !t->is_behind_new &&
        t->difference->divergence_case == PARLEY__V1__TOKEN_DIFFERENCE__DIVERGENCE_KL) {
        r->n_kl++;
        r->sum_kl += t->difference->kl;
    }
    return differs || (is_same && t->other_logprobs);
}

static void print_quoted(const char *text)
{
    (void)out_text("'", 1); /* out_end reports a failure */
    (void)out_foreign(text, strlen(text));
    (void)out_text("'", 1);
}

static void rerun_print_turn(const turn_t *t)
{
    const Parley__V1__TokenDifference *d = t->difference;

    printf("  turn %" PRIu32 " %s%s: ", t->turn, proof_verdict_word(t->verdict),
           t->is_behind_new ? " (behind a new reply)" : "");
    (void)out_foreign(t->why, strlen(t->why));
    printf("\n");
    if (d == NULL)
        return;
    printf("    ");
    print_quoted(d->recorded_text);
    printf(" was said, ");
    print_quoted(d->computed_text);
    printf(" is said now");
    if (d->divergence_case == PARLEY__V1__TOKEN_DIFFERENCE__DIVERGENCE_KL)
        printf("; KL %.4f nats", d->kl);
    printf("\n");
}

static void rerun_turn(const struct rerun_report *r, const struct proof_job *job, const turn_t *t)
{
    const char *verdict = proof_verdict_word(t->verdict);
    json_t *line;

    if (strcmp(verdict, "skipped") == 0)
        return;
    if (!r->is_json) {
        if (strcmp(verdict, "same") != 0)
            rerun_print_turn(t);
        else if (t->other_logprobs)
            printf("  turn %" PRIu32 " same, with other log-probabilities\n", t->turn);
        return;
    }
    line = json_pack("{ss,ss,si,si,ss,si,si,si,ss,sb,sb}", "type", "turn", "conversation",
                     job->conversation, "record", (int)t->record, "turn", (int)t->turn, "verdict",
                     verdict, "tokens", (int)t->tokens, "compared_tokens", (int)t->compared_tokens,
                     "computed_tokens", (int)t->computed_tokens, "why", t->why, "other_logprobs",
                     t->other_logprobs != 0, "is_behind_new", t->is_behind_new != 0);
    if (t->difference != NULL)
        (void)json_object_set_new(line, "difference", message_json(&t->difference->base));
    if (t->recorded != NULL)
        (void)json_object_set_new(line, "recorded", json_string(t->recorded->reply));
    if (t->computed != NULL)
        (void)json_object_set_new(line, "computed", json_string(t->computed->reply));
    (void)out_json(line); /* out_end reports a failure */
}

void rerun_report_job(struct rerun_report *r, const struct proof_job *job)
{
    bool is_other = false;

    r->n_conversations++;
    r->n_turns += job->n_turns;
    r->n_shared += job->n_shared;
    if (job->answer == NULL) {
        r->n_unchecked += proof_report_failure(job, r->is_json);
        return;
    }
    if (r->is_json)
        (void)out_json(json_pack("{ss,ss,si,si,ss,ss}", "type", "conversation", "conversation",
                                 job->conversation, "turns", (int)job->n_turns, "shared",
                                 (int)job->n_shared, "model", job->answer->model, "version",
                                 job->answer->version));
    else
        printf("conversation %s: turns %zu\n", job->conversation, job->n_turns);
    for (size_t i = 0; i < job->answer->n_turns; i++) {
        is_other = rerun_count(r, job->answer->turns[i]) || is_other;
        rerun_turn(r, job, job->answer->turns[i]);
    }
    r->n_conversations_other += is_other;
    if (r->page != NULL)
        rerun_page_job(r->page, job);
}

void rerun_report_end(struct rerun_report *r)
{
    const size_t n = r->n_same + r->n_differ;
    const double share = n == 0 ? 0 : (double)r->n_differ / (double)n;
    const double kl = r->n_kl == 0 ? 0 : r->sum_kl / (double)r->n_kl;
    const double seconds = clock_s() - r->begun_s;

    if (r->page != NULL)
        rerun_page_end(r->page, r);
    if (r->is_json) {
        (void)out_json(json_pack(
            "{ss,sI,sI,sI,sI,sI,sI,sI,sI,sI,sf,sI,sf,sI,sI,sf}", "type", "summary", "conversations",
            (json_int_t)r->n_conversations, "other_conversations",
            (json_int_t)r->n_conversations_other, "turns", (json_int_t)r->n_turns, "same",
            (json_int_t)r->n_same, "other_logprobs", (json_int_t)r->n_other_logprobs, "differ",
            (json_int_t)r->n_differ, "behind_new", (json_int_t)r->n_behind, "unchecked",
            (json_int_t)r->n_unchecked, "shared", (json_int_t)r->n_shared, "share", share,
            "kl_turns", (json_int_t)r->n_kl, "mean_kl", kl, "tokens", (json_int_t)r->n_tokens,
            "new_tokens", (json_int_t)r->n_new_tokens, "seconds", seconds));
        return;
    }
    printf("conversations %zu, turns %zu: %zu same, %zu differ (%.1f %%), %zu unchecked",
           r->n_conversations, r->n_turns, r->n_same, r->n_differ, 100 * share, r->n_unchecked);
    if (r->n_shared > 0)
        printf(", %zu shared with another conversation", r->n_shared);
    printf("\n");
    if (r->n_behind > 0)
        printf("of those that differ, behind a new reply: %zu\n", r->n_behind);
    if (r->n_other_logprobs > 0)
        printf("of the same, with other log-probabilities: %zu\n", r->n_other_logprobs);
    if (r->n_kl > 0)
        printf("mean KL at the first difference: %.4f nats, of %zu turns\n", kl, r->n_kl);
    printf("tokens computed %" PRIu64 ", of these behind a difference %" PRIu64 "; %.1f s\n",
           r->n_tokens, r->n_new_tokens, seconds);
}
