/* Beside the server's verdicts a conversation is judged by what the server cannot see: whether the
 * lines of an export that people read say what its records say. */
#include "client/cli/proof/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/output/out.h"
#include "client/cli/output/message_json.h"
#include "proto/codec.h"

/* --- the lines of an export --- */

/* Either may be NULL. */
static bool is_same_message(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    uint8_t *bytes;
    size_t n;
    bool is_same;

    if (a == NULL || b == NULL)
        return a == b;
    n = codec_size(a);
    if (n != codec_size(b))
        return false;
    bytes = xalloc(2 * n + 1);
    (void)codec_encode(a, bytes); /* n */
    (void)codec_encode(b, bytes + n);
    is_same = memcmp(bytes, bytes + n, n) == 0;
    free(bytes);
    return is_same;
}

static bool record_says(const Parley__V1__ConversationRecord *file,
                        const Parley__V1__ConversationRecord *body)
{
    return is_same_message((const ProtobufCMessage *)file->accepted,
                           (const ProtobufCMessage *)body->accepted) &&
           is_same_message((const ProtobufCMessage *)file->replied,
                           (const ProtobufCMessage *)body->replied) &&
           is_same_message((const ProtobufCMessage *)file->terms,
                           (const ProtobufCMessage *)body->terms);
}

/* The turns of the conversation by their numbers from 1, [n]: of each number the last one that the
 * records say; NULL where they say none. The caller frees them. */
static const Parley__V1__VerifiedTurn **
answer_turns(const Parley__V1__ConversationsVerifyResponse *answer, uint32_t n)
{
    const Parley__V1__VerifiedTurn **out = xalloc((n + 1) * sizeof(out[0]));

    for (size_t i = 0; i < answer->n_turns; i++) {
        const Parley__V1__VerifiedTurn *turn = answer->turns[i];

        if (turn->turn >= 1 && turn->turn <= n && turn->recorded != NULL)
            out[turn->turn - 1] = turn;
    }
    return out;
}

static bool line_says(const json_t *line, const ProtobufCMessage *message, const char *const *names,
                      size_t n)
{
    json_t *said = message_json(message);
    bool is_same = true;

    for (size_t i = 0; i < n; i++) {
        const json_t *a = json_object_get(line, names[i]), *b = json_object_get(said, names[i]);

        is_same = is_same && (a == b || (a != NULL && b != NULL && message_json_is_same(a, b)));
    }
    json_decref(said);
    return is_same;
}

/* The members of a turn's line. */
static const char *const turn_members[] = {"turn",  "messages", "reply",  "finish_reason",
                                           "usage", "timings",  "message"};
enum { TURN_MEMBERS = sizeof(turn_members) / sizeof(turn_members[0]) };

/* A member of the line that no turn has; NULL: there is none. */
static const char *turn_line_adds(const json_t *line)
{
    void *at = json_object_iter((json_t *)(uintptr_t)line); /* only read */

    for (; at != NULL; at = json_object_iter_next((json_t *)(uintptr_t)line, at)) {
        const char *name = json_object_iter_key(at);
        size_t i = 0;

        while (i < TURN_MEMBERS && strcmp(turn_members[i], name) != 0)
            i++;
        if (i == TURN_MEMBERS && strcmp(name, "type") != 0)
            return name;
    }
    return NULL;
}

static bool lines_say_turns(char why[256], const struct proof_job *job)
{
    const uint32_t n = records_n_turns(&job->records);
    const Parley__V1__VerifiedTurn **turns;
    const char *adds = NULL;
    uint32_t i = 0;

    if (json_array_size(job->turns) != n) {
        (void)snprintf(why, 256, "there are %zu lines of turns, and the records have %" PRIu32,
                       json_array_size(job->turns), n);
        return false;
    }
    turns = answer_turns(job->answer, n);
    while (i < n && (adds = turn_line_adds(json_array_get(job->turns, i))) == NULL &&
           (turns[i] == NULL || line_says(json_array_get(job->turns, i), &turns[i]->recorded->base,
                                          turn_members, TURN_MEMBERS)))
        i++;
    free(turns);
    if (adds != NULL)
        (void)snprintf(why, 256, "the line of turn %" PRIu32 " has '%.80s', which no record says",
                       i + 1, adds);
    else if (i < n)
        (void)snprintf(why, 256, "the line of turn %" PRIu32 " is not what its record says", i + 1);
    return i == n;
}

/* The last conversation that the records open is the one whose records they are: those before it
 * are its parents. */
static bool line_names_conversation(const struct proof_job *job)
{
    for (size_t i = job->records.n; i-- > 0;) {
        const Parley__V1__ConversationRecord *m = job->records.all[i];

        if (m->kind == PARLEY__V1__CONVERSATION_RECORD_KIND__CONVERSATION_RECORD_KIND_OPENED)
            return strcmp(m->conversation, job->conversation) == 0;
    }
    return false;
}

/* The conversation's own line and its newest terms. */
static bool line_says_terms(const struct proof_job *job)
{
    const Parley__V1__RecordedTerms *terms = NULL;
    static const char *const names[] = {"model", "system", "sampling"};

    for (size_t i = 0; i < job->answer->n_records; i++)
        if (job->answer->records[i]->terms != NULL)
            terms = job->answer->records[i]->terms;
    return terms != NULL && line_says(job->line, &terms->base, names, 3);
}

/* Whether the readable lines of an export are those of its records. */
static bool lines_are_true(char why[256], const struct proof_job *job)
{
    if (job->is_stored)
        return true;
    if (job->answer->n_records != job->records.n) {
        (void)snprintf(why, 256, "the server read %zu records of %zu", job->answer->n_records,
                       job->records.n);
        return false;
    }
    for (size_t i = 0; i < job->answer->n_records; i++)
        if (!record_says(job->records.all[i], job->answer->records[i])) {
            (void)snprintf(why, 256, "the readable part of record %zu is not what its body says",
                           i);
            return false;
        }
    if (!line_names_conversation(job) || !line_says_terms(job)) {
        (void)snprintf(why, 256, "the line of the conversation is not what its records say");
        return false;
    }
    return lines_say_turns(why, job);
}

/* --- printing --- */

const char *proof_verdict_word(Parley__V1__VerifiedTurn__Verdict verdict)
{
    switch (verdict) {
    case PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_SAME:
        return "same";
    case PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_DIFFERS:
        return "differs";
    case PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_UNCHECKED:
        return "unchecked";
    case PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_SKIPPED:
    case PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_UNSPECIFIED:
    default: /* of a newer server */
        break;
    }
    return "skipped";
}

static void report_count(struct proof_report *r, const Parley__V1__VerifiedTurn *turn)
{
    r->n_same += turn->verdict == PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_SAME;
    r->n_differ += turn->verdict == PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_DIFFERS;
    r->n_unchecked += turn->verdict == PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_UNCHECKED;
    r->n_tokens += turn->compared_tokens;
}

/* "' Paris'", or "the end". */
static void print_token(int32_t id, const char *text)
{
    if (id < 0) {
        (void)out_text("the end", 7);
        return;
    }
    printf("%" PRId32 " '", id);
    (void)out_foreign(text, strlen(text)); /* out_end reports a failure */
    (void)out_text("'", 1);
}

static void print_difference(const Parley__V1__TokenDifference *d)
{
    printf("    recorded ");
    print_token(d->recorded, d->recorded_text);
    printf(", computed ");
    print_token(d->computed, d->computed_text);
    if (d->computed_logprob != NULL) {
        printf("; log-probabilities:");
        for (size_t i = 0; i < d->computed_logprob->n_top && i < 5; i++)
            printf(" %" PRId32 " %.3f", d->computed_logprob->top[i]->id,
                   (double)d->computed_logprob->top[i]->logprob);
    }
    printf("\n");
}

static void report_turn(struct proof_report *r, const struct proof_job *job,
                        const Parley__V1__VerifiedTurn *turn)
{
    const char *verdict = proof_verdict_word(turn->verdict);

    report_count(r, turn);
    if (strcmp(verdict, "skipped") == 0)
        return;
    if (r->is_json) {
        json_t *line = json_pack("{ss,ss,si,si,ss,si,si,ss}", "type", "turn", "conversation",
                                 job->conversation, "record", (int)turn->record, "turn",
                                 (int)turn->turn, "verdict", verdict, "tokens", (int)turn->tokens,
                                 "compared_tokens", (int)turn->compared_tokens, "why", turn->why);

        if (turn->difference != NULL)
            (void)json_object_set_new(line, "difference", message_json(&turn->difference->base));
        (void)out_json(line); /* out_end reports a failure */
        return;
    }
    if (strcmp(verdict, "same") == 0)
        return;
    printf("  turn %" PRIu32 " %s: ", turn->turn, verdict);
    (void)out_foreign(turn->why, strlen(turn->why));
    printf("\n");
    if (turn->difference != NULL)
        print_difference(turn->difference);
}

size_t proof_report_failure(const struct proof_job *job, bool is_json)
{
    const char *why = job->err.text;

    if (is_json) {
        (void)out_json(json_pack("{ss,ss,ss}", "type", "conversation", "conversation",
                                 job->conversation, "unchecked", why));
    } else {
        printf("conversation %s: unchecked: ", job->conversation);
        (void)out_foreign(why, strlen(why)); /* out_end reports a failure */
        printf("\n");
    }
    return job->n_turns > 0 ? job->n_turns : 1;
}

static void report_head(const struct proof_report *r, const struct proof_job *job,
                        const char *lines)
{
    const Parley__V1__ConversationsVerifyResponse *a = job->answer;

    if (r->is_json) {
        (void)out_json(json_pack("{ss,ss,si,si,ss,ss,ss,ss,ss}", "type", "conversation",
                                 "conversation", job->conversation, "turns", (int)job->n_turns,
                                 "shared", (int)job->n_shared, "chain", a->chain, "chain_problem",
                                 a->chain_problem, "lines_problem", lines, "model", a->model,
                                 "version", a->version));
        return;
    }
    printf("conversation %s: turns %zu", job->conversation, job->n_turns);
    if (job->n_shared > 0)
        printf(", of these %zu as above", job->n_shared);
    printf("\n");
    if (*a->chain_problem != '\0')
        printf("  the chain is broken: record %" PRIu32 " %s\n", a->chain_problem_record,
               a->chain_problem);
    if (*lines != '\0')
        printf("  %s\n", lines);
}

void proof_report_job(struct proof_report *r, const struct proof_job *job)
{
    char lines[256] = "";
    size_t before;

    r->n_conversations++;
    r->n_turns += job->n_turns;
    r->n_shared += job->n_shared;
    if (job->answer == NULL) {
        /* the server cannot read an export that is none of its kind */
        r->n_broken += job->err.status == PARLEY_INVALID_ARGUMENT;
        r->n_unchecked += proof_report_failure(job, r->is_json);
        return;
    }
    if (!lines_are_true(lines, job) || *job->answer->chain_problem != '\0')
        r->n_broken++;
    report_head(r, job, lines);
    before = r->n_same + r->n_differ + r->n_unchecked;
    for (size_t i = 0; i < job->answer->n_turns; i++)
        report_turn(r, job, job->answer->turns[i]);
    before = r->n_same + r->n_differ + r->n_unchecked - before;
    r->n_left_out +=
        before + job->n_shared > job->n_turns ? 0 : job->n_turns - job->n_shared - before;
}

void proof_report_end(const struct proof_report *r)
{
    if (r->is_json) {
        (void)out_json(json_pack("{ss,sI,sI,sI,sI,sI,sI,sI,sI,sI}", "type", "summary",
                                 "conversations", (json_int_t)r->n_conversations, "turns",
                                 (json_int_t)r->n_turns, "same", (json_int_t)r->n_same, "differ",
                                 (json_int_t)r->n_differ, "unchecked", (json_int_t)r->n_unchecked,
                                 "shared", (json_int_t)r->n_shared, "left_out",
                                 (json_int_t)r->n_left_out, "broken", (json_int_t)r->n_broken,
                                 "tokens", (json_int_t)r->n_tokens));
        return;
    }
    printf("conversations %zu, turns %zu: %zu same, %zu differ, %zu unchecked", r->n_conversations,
           r->n_turns, r->n_same, r->n_differ, r->n_unchecked);
    if (r->n_shared > 0)
        printf(", %zu shared with another conversation", r->n_shared);
    if (r->n_left_out > 0)
        printf(", %zu left out", r->n_left_out);
    printf("; tokens computed again %" PRIu64 "\n", r->n_tokens);
    if (r->n_broken > 0)
        printf("conversations that are not as they were written: %zu\n", r->n_broken);
}
