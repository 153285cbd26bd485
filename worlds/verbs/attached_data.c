/* Conversations are kept short, since the server has their transcripts. A pass over data and the
 * judging of replies are conversations of the same kind, told apart by their system prompt. */
#include "worlds/verbs/attached_data.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "worlds/verbs/attached_session.h"

enum { ATTACHED_PASS_BYTES = 4 << 20 }; /* of one conversation */

struct attached_pass {
    struct attached_session session;
    char *name, *fold, *argument;
};

static void attached_close(void *opened)
{
    struct attached_pass *p = opened;

    attached_session_leave(&p->session);
    parley_channel_close(p->session.channel);
    free(p->name);
    free(p->fold);
    free(p->argument);
    free(p);
}

static enum status attached_open(void **out, void *arg, const char *name, const char *fold,
                                 const char *argument, struct error *err)
{
    struct attached_pass *p = xalloc(sizeof(*p));

    p->name = xstrdup(name);
    p->fold = xstrdup(fold);
    p->argument = xstrdup(argument);
    if (attached_connect(&p->session.channel, arg, err) != STATUS_OK) {
        attached_close(p);
        return err->status;
    }
    *out = p;
    return STATUS_OK;
}

/* Begins a conversation whose system prompt has the fold, the argument and one more field, which is
 * taken. */
static enum status attached_begin(struct attached_pass *p, const char *field, json_t *value,
                                  struct error *err)
{
    json_t *pass =
        json_pack("{s:s,s:s,s:o}", "fold", p->fold, "argument", p->argument, field, value);
    char *system = pass == NULL ? NULL : json_dumps(pass, JSON_COMPACT);
    enum status rc;

    if (system == NULL) /* or the argument is not UTF-8 */
        rc = error_set(err, STATUS_INVALID, "the argument is not UTF-8 text");
    else
        rc = attached_session_begin(&p->session, p->name, system, err);
    free(system);
    json_decref(pass);
    return rc;
}

static enum status attached_next(void *opened, uint64_t n_episodes, bool is_between,
                                 const char **out, size_t *ret_len, struct error *err)
{
    const struct parley_result *result = NULL;
    struct attached_pass *p = opened;

    if (is_between && p->session.n_bytes > ATTACHED_PASS_BYTES)
        attached_session_leave(&p->session);
    if (p->session.conversation[0] == '\0' &&
        attached_begin(p, "from", json_integer((json_int_t)n_episodes), err) != STATUS_OK)
        return err->status;
    if (attached_session_ask(&p->session, "next", &result, err) != STATUS_OK)
        return err->status;
    *out = result->text;
    *ret_len = result->len;
    return STATUS_OK;
}

/* The first turn asks a teacher whether it computes metrics. One that does not know the question
 * answers something else. */
static enum status attached_judge_begin(struct attached_pass *p, bool *ret_judges,
                                        struct error *err)
{
    const struct parley_result *result = NULL;
    json_t *answer;

    if (attached_begin(p, "evaluate", json_true(), err) != STATUS_OK ||
        attached_session_ask(&p->session, "begin", &result, err) != STATUS_OK)
        return err->status;
    answer = json_loadb(result->text, result->len, 0, NULL);
    *ret_judges = json_is_true(json_object_get(answer, "parley.evaluate"));
    json_decref(answer);
    return STATUS_OK;
}

static enum status attached_judge_open(void **out, void *arg, const char *name, const char *fold,
                                       const char *argument, struct error *err)
{
    bool judges = false;
    void *opened = NULL;

    *out = NULL;
    if (attached_open(&opened, arg, name, fold, argument, err) != STATUS_OK)
        return err->status;
    if (attached_judge_begin(opened, &judges, err) != STATUS_OK) {
        attached_close(opened);
        return err->status;
    }
    if (judges)
        *out = opened;
    else
        attached_close(opened);
    return STATUS_OK;
}

static enum status attached_judge(void *opened, const char *lines, const char **out,
                                  size_t *ret_len, struct error *err)
{
    const struct parley_result *result = NULL;
    struct attached_pass *p = opened;
    bool judges = true;

    if (p->session.n_bytes > ATTACHED_PASS_BYTES)
        attached_session_leave(&p->session);
    if (p->session.conversation[0] == '\0' && attached_judge_begin(p, &judges, err) != STATUS_OK)
        return err->status;
    if (attached_session_ask(&p->session, lines, &result, err) != STATUS_OK)
        return err->status;
    *out = result->text;
    *ret_len = result->len;
    return STATUS_OK;
}

struct attached_data attached_data_of(const struct connection_options *connection)
{
    return (struct attached_data){.open = attached_open,
                                  .next = attached_next,
                                  .judge_open = attached_judge_open,
                                  .judge = attached_judge,
                                  .close = attached_close,
                                  .arg = (void *)(uintptr_t)connection}; /* only read */
}
