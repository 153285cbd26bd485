/* Applies the records of a conversation one after the other, as they were written. Turns that were
 * not completed are put back as requests, to be run when someone asks. */
#include "server/conversation/recall.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/agent.h"
#include "base/alloc.h"
#include "base/utf8.h"
#include "server/conversation/body.h"
#include "server/conversation/keeping.h"
#include "server/conversation/observed.h"
#include "server/model/model.h"
#include "server/model/models.h"

#define RECALL_MAX_BYTES ((size_t)1 << 31)

struct recall {
    struct conversations *all;
    struct conversation *c;
    struct model *given; /* takes the place of the conversation's model; NULL: none does */
    const struct journal_event *accepted; /* and not ended; NULL: none */
    uint64_t last_unix_ms;                /* of what its idle time counts from */
    struct body_terms terms;              /* the last ones */
    struct buf binding;                   /* what computes now */
    bool has_system;                      /* system takes the place of the recorded one */
    struct text system;
    struct arena arena; /* of all that is read */
};

/* What is stored is read without the model, too. */
static enum status recall_model(struct recall *r, struct model **out, struct error *err)
{
    struct error ignored; /* conversation_check_model says why it cannot be used */

    if (r->given != NULL) {
        *out = r->given;
        return STATUS_OK;
    }
    if (models_get(out, r->all->keeping.models, r->terms.model, &ignored) == STATUS_OK &&
        model_check_ready(*out, &ignored) == STATUS_OK)
        return STATUS_OK;
    return absent_models_get(out, &r->all->absent, r->terms.model, r->terms.version, err);
}

/* Takes the terms of an event. */
static enum status recall_terms(struct recall *r, const struct journal_event *e, struct error *err)
{
    struct conversation_options *options;
    struct metadata *metadata = NULL;
    enum status rc = body_read_terms(&r->terms, e->body, e->size_bytes, &r->arena, err);

    if (rc != STATUS_OK)
        return rc;
    if (r->given != NULL)
        r->terms.ttl_ms = 0; /* who computes it again closes it */
    if (r->has_system) {
        r->terms.system = r->system.text;
        r->terms.system_len = r->system.len;
    }
    rc = conversation_options_open(&options, r->terms.system, r->terms.system_len,
                                   r->terms.overrides, &r->terms.limits, r->terms.ttl_ms, err);
    if (rc != STATUS_OK)
        return rc;
    rc = metadata_open(&metadata, r->terms.metadata, r->terms.n_metadata, err);
    if (rc != STATUS_OK) {
        conversation_options_unref(options);
        return rc;
    }
    conversation_options_unref(r->c->host.options);
    free(r->c->metadata);
    r->c->host.options = options;
    r->c->metadata = metadata;
    r->c->host.seed = r->terms.seed;
    return STATUS_OK;
}

static enum status recall_begin(struct recall *r, const struct journal_event *e, struct error *err)
{
    enum status rc = recall_terms(r, e, err);

    if (rc == STATUS_OK)
        rc = recall_model(r, &r->c->host.model, err);
    if (rc == STATUS_OK)
        rc = keeping_binding(&r->binding, r->all, r->c->host.model, err);
    if (rc == STATUS_OK)
        rc = conversation_open_clone(r->c, err);
    return rc;
}

enum status recall_cut(struct recall *r, uint32_t to_turn, struct error *err)
{
    struct turn_host *h = &r->c->host;
    struct completed_turn *newest = completed_turn_find(h->newest, to_turn);
    enum status rc;

    if (to_turn > h->n_turns)
        return error_set(err, STATUS_DATA_LOSS, "the journal has fewer turns than were there");
    rc = h->model->agent->type->rewind(h->clone, observed_n_acted(newest), err);
    if (rc != STATUS_OK)
        return rc;
    if (newest != NULL)
        (void)completed_turn_ref(newest);
    completed_turn_unref(h->newest);
    h->newest = newest;
    h->n_turns = to_turn;
    return STATUS_OK;
}

/* Whether a turn was computed by the model of now, whose version stands first. */
static bool recall_is_model(const struct recall *r, const struct body_accept *accept)
{
    const char *version = r->c->host.model->info.version;
    size_t len = strlen(version);

    return strncmp(accept->binding, version, len) == 0 && accept->binding[len] == ' ';
}

/* Whether the id is this agent's for the bytes of a reply's text, which may begin with bytes that a
 * token before was too short for; also where its bytes are no text by themselves, or the reply
 * shows none of them. */
static bool recall_is_token(const struct agent *a, int32_t id, const char *text, size_t len)
{
    struct error ignored;
    struct buf of;
    bool is = len == 0;

    buf_init(&of, RECALL_MAX_BYTES);
    if (!is && a->type->text->detokenize(a, &id, 1, &of, &ignored) == STATUS_OK)
        is = !utf8_is_valid(of.data, of.len) ||
             (of.len >= len && memcmp(of.data + of.len - len, text, len) == 0) ||
             (of.len < len && memcmp(of.data, text + len - of.len, of.len) == 0);
    buf_deinit(&of);
    return is;
}

/* Whether the ids of a reply that another model computed mean the same to this agent, as where the
 * other one is the same model in another quantisation. */
static bool recall_fits(const struct body_finish *finish, const struct model *m)
{
    const struct reply *r = &finish->reply;
    size_t from = 0;

    if (r->n_tokens == 0)
        return false;
    for (size_t i = 0; i < r->n_tokens; i++) {
        const struct reply_token *t = &r->tokens[i];

        if (t->id < 0 || (size_t)t->id >= m->info.text.n_vocab ||
            !recall_is_token(m->agent, t->id, r->text.data + from, t->text_end - from))
            return false;
        from = t->text_end;
    }
    return true;
}

enum status recall_retrace(struct body_finish *finish, const struct agent *a, struct arena *arena,
                           struct error *err)
{
    const struct buf *text = &finish->reply.text;
    struct buf ids;
    char *trace = NULL;
    enum status rc = STATUS_OK;

    buf_init(&ids, RECALL_MAX_BYTES);
    if (text->len > 0)
        rc = a->type->text->tokenize(a, text->data, text->len, false, &ids, err);
    if (rc == STATUS_OK && ids.len > 0) {
        trace = arena_strndup(arena, ids.data, ids.len);
        if (trace == NULL)
            rc = error_no_memory(err, ids.len, "a stored conversation");
    }
    finish->trace = trace;
    finish->trace_size = rc == STATUS_OK ? ids.len : 0;
    buf_deinit(&ids);
    return rc;
}

enum status recall_turn(struct turn_host *h, const struct stored_request *request,
                        const struct body_finish *finish, struct error *err)
{
    struct agent_turn *t = try_alloc(1, sizeof(*t));
    struct arena arena;
    enum status rc;

    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a turn");
    arena_init(&arena, h->config->max_arena_bytes);
    agent_turn_init(t, &arena, h->config->max_reply_bytes);
    t->seen = (struct observation){
        .is_raw_prompt = request->is_plain,
        .raw_ids = request->plain_ids,
        .n_raw_ids = request->n_plain_ids,
        .raw = request->raw,
        .turn = observed_n_acted(h->newest) + 1,
        .sampling = h->model->info.defaults,
        .tool_use = request->tool_use,
        .variables = request->variables,
    };
    rc = observed_gather(&t->seen, h->newest, request, &arena, err);
    if (rc == STATUS_OK)
        rc = agent_turn_observe(t, h->clone, err);
    if (rc == STATUS_OK) {
        rc = agent_turn_recall(t, finish->trace, finish->trace_size, err);
        if (rc == STATUS_OK) {
            t->reply.finish = finish->reply.finish;
            agent_turn_keep(t);
        } else {
            agent_turn_drop(t);
        }
    }
    agent_turn_deinit(t);
    arena_deinit(&arena);
    free(t);
    return rc;
}

/* The turn is the newest; takes completed. given: generation 0: the turn was taken where e is of.
 */
static void recall_count(struct recall *r, const struct journal_event *e,
                         const struct turn_origin *given, struct completed_turn *completed)
{
    struct turn_origin *origin = &completed->origin;

    *origin = *given;
    if (given->generation == 0) {
        origin->generation = e->generation;
        memcpy(origin->conversation.bytes, e->conversation, sizeof(e->conversation));
    }
    r->c->host.newest = completed;
    r->c->host.n_turns = completed->number;
    r->last_unix_ms = e->unix_ms;
}

static enum status recall_finish(struct recall *r, const struct journal_event *e, struct error *err)
{
    struct turn_host *h = &r->c->host;
    struct completed_turn *completed;
    struct stored_request *request;
    struct body_accept accept;
    struct body_finish finish;
    enum status rc;

    if (r->accepted == NULL || r->accepted->turn != e->turn || e->turn != h->n_turns + 1)
        return error_set(err, STATUS_DATA_LOSS, "the journal has a reply to turn %u alone",
                         e->turn);
    rc = body_read_accept(&accept, r->accepted->body, r->accepted->size_bytes, &r->arena, err);
    if (rc == STATUS_OK)
        rc = body_read_finish(&finish, e->body, e->size_bytes, &r->arena, err);
    if (rc == STATUS_OK && !recall_is_model(r, &accept) &&
        r->c->host.model->agent->type->text != NULL &&
        (r->given == NULL || !recall_fits(&finish, r->c->host.model)))
        rc = recall_retrace(&finish, r->c->host.model->agent, &r->arena, err);
    if (rc == STATUS_OK)
        rc = stored_request_open(&request, &accept.request, err);
    if (rc != STATUS_OK)
        return rc;
    rc = recall_turn(h, request, &finish, err);
    if (rc == STATUS_OK)
        rc = completed_turn_open(&completed, h->newest, request, &finish.reply, err);
    if (rc != STATUS_OK) {
        stored_request_close(request);
        return rc;
    }
    completed->timings = finish.timings;
    r->c->is_inexact = r->c->is_inexact || strcmp(accept.binding, r->binding.data) != 0;
    recall_count(r, e, &accept.origin, completed);
    r->accepted = NULL;
    return STATUS_OK;
}

static enum status recall_observed(struct recall *r, const struct journal_event *e,
                                   struct error *err)
{
    struct completed_turn *completed;
    struct stored_request *request;
    struct body_accept accept;
    enum status rc = body_read_accept(&accept, e->body, e->size_bytes, &r->arena, err);

    if (rc == STATUS_OK && e->turn != r->c->host.n_turns + 1)
        rc = error_set(err, STATUS_DATA_LOSS, "the journal lacks the turn before %u", e->turn);
    accept.request.is_observed = true;
    if (rc == STATUS_OK)
        rc = stored_request_open(&request, &accept.request, err);
    if (rc != STATUS_OK)
        return rc;
    rc = observed_keep(&completed, r->c->host.newest, request, err);
    if (rc != STATUS_OK)
        stored_request_close(request);
    else
        recall_count(r, e, &accept.origin, completed);
    return rc;
}

enum status recall_event(struct recall *r, const struct journal_event *e, struct error *err)
{
    enum status rc;

    if (r->c->host.clone == NULL && e->kind != JOURNAL_OPEN)
        return error_set(err, STATUS_DATA_LOSS, "the journal has lost how it was opened");
    switch (e->kind) {
    case JOURNAL_OPEN:
        r->accepted = NULL;
        r->last_unix_ms = e->unix_ms;
        r->c->opened_unix_ms = e->unix_ms; /* the last one is its own, those before its parents' */
        if (r->c->host.clone == NULL)
            return recall_begin(r, e, err);
        r->c->host.generation = 1;
        r->c->rewound_to = 0;
        rc = recall_cut(r, e->turn, err);
        return rc == STATUS_OK ? recall_terms(r, e, err) : rc;
    case JOURNAL_UPDATE:
        return recall_terms(r, e, err);
    case JOURNAL_ACCEPT:
        r->accepted = e;
        return STATUS_OK;
    case JOURNAL_FINISH:
        return recall_finish(r, e, err);
    case JOURNAL_OBSERVE:
        return recall_observed(r, e, err);
    case JOURNAL_REWIND:
        r->accepted = NULL;
        r->c->host.generation = e->generation;
        r->c->rewound_to = e->turn;
        return recall_cut(r, e->turn, err);
    case JOURNAL_WITHDRAW:
    case JOURNAL_CLOSE:
    case JOURNAL_BLOCK:
    case JOURNAL_CHECKPOINT:
    case JOURNAL_NO_PARAMS:
    case JOURNAL_KEEP:
    case JOURNAL_FORGET:
    case JOURNAL_KEYED:
        return error_set(err, STATUS_DATA_LOSS, "the journal has an event of no kind");
    case JOURNAL_ROOM:
    case JOURNAL_ROOM_STATE:
    case JOURNAL_ROOM_ENTRY:
    case JOURNAL_ROOM_REDACT:
    case JOURNAL_ROOM_PIN:
    case JOURNAL_ROOM_CLOSE:
    case JOURNAL_ADAPT:
        break;
    }
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "the conversation has a record of kind %d, which this parleyd does not know: "
                     "use the version that wrote it, or a newer one",
                     (int)e->kind);
}

/* Whether other compilers of constraints are to bind the reply than those that began with it. */
static bool recall_is_other_compiler(const struct body_accept *accept)
{
    return accept->compiler_revision != 0 && accept->compiler_revision != AGENT_COMPILER_REVISION &&
           (accept->sampling->constraint != NULL || accept->request.tool_use.tools.len > 0);
}

/* What was accepted and did not end, for conversation_turn. */
static enum status recall_unended(struct recall *r, struct error *err)
{
    struct body_accept accept;
    struct unended_turn *u = &r->c->unended;
    enum status rc;

    if (r->accepted == NULL)
        return STATUS_OK;
    rc = body_read_accept(&accept, r->accepted->body, r->accepted->size_bytes, &r->arena, err);
    if (rc == STATUS_OK && (accept.sampling == NULL || r->accepted->turn != r->c->host.n_turns + 1))
        rc = error_set(err, STATUS_DATA_LOSS, "the journal lacks the turn before %u",
                       r->accepted->turn);
    if (rc == STATUS_OK) {
        const struct sampling_overrides all = {.given = ~0u, .values = *accept.sampling};

        u->is_changed = r->all->keeping.is_inexact || r->c->host.model->info.is_inexact ||
                        strcmp(r->binding.data, accept.binding) != 0 ||
                        recall_is_other_compiler(&accept);
        r->c->is_inexact = r->c->is_inexact || u->is_changed;
        rc = sampling_overrides_copy(&u->resolved, &all, err);
    }
    if (rc == STATUS_OK)
        rc = stored_request_open(&u->request, &accept.request, err);
    return rc;
}

static enum status recall_opened(struct recall *r, const struct journal_found *found,
                                 struct error *err)
{
    struct opened_request *opened;
    enum status rc;

    if (found->request_id == NULL || !r->terms.has_digest)
        return STATUS_OK;
    rc = opened_request_make(&opened, r->c->principal, found->request_id, &r->terms.digest, err);
    if (rc != STATUS_OK)
        return rc;
    opened->conversation = r->c;
    opened->n_turns = r->terms.opened_turns;
    r->c->opened = opened;
    return STATUS_OK;
}

static enum status recall_all(struct recall *r, const struct journal_found *found,
                              struct error *err)
{
    enum status rc = STATUS_OK;

    for (struct link *at = list_first(&found->events); at != NULL && rc == STATUS_OK;
         at = list_next(&found->events, at))
        rc = recall_event(r, container_of(at, struct journal_event, link), err);
    if (rc == STATUS_OK && r->c->host.clone == NULL)
        rc = error_set(err, STATUS_DATA_LOSS, "the journal has nothing of the conversation");
    if (rc == STATUS_OK)
        rc = recall_unended(r, err);
    if (rc == STATUS_OK)
        rc = recall_opened(r, found, err);
    return rc;
}

enum status recall_open(struct recall **out, struct conversations *all, uint32_t principal,
                        struct model *given, struct error *err)
{
    struct recall *r = try_alloc(1, sizeof(*r));
    struct conversation *c = r == NULL ? NULL : try_alloc(1, sizeof(*c));

    if (c == NULL) {
        free(r);
        return error_no_memory(err, sizeof(*c) + sizeof(*r), "a conversation");
    }
    r->all = all;
    r->c = c;
    r->given = given;
    arena_init(&r->arena, RECALL_MAX_BYTES);
    buf_init(&r->binding, RECALL_MAX_BYTES);
    c->all = all;
    c->principal = principal;
    c->host.config = &all->turns;
    c->host.generation = 1;
    list_init(&c->host.turns);
    *out = r;
    return STATUS_OK;
}

void recall_set_system(struct recall *r, struct text system)
{
    r->has_system = true;
    r->system = system;
}

void recall_close(struct recall *r)
{
    if (r == NULL)
        return;
    buf_deinit(&r->binding);
    arena_deinit(&r->arena);
    free(r);
}

struct conversation *recall_conversation(const struct recall *r)
{
    return r->c;
}

const struct journal_event *recall_accepted(const struct recall *r)
{
    return r->accepted;
}

const char *recall_binding(const struct recall *r)
{
    return r->binding.data;
}

enum status conversation_recall(struct conversation **out, struct conversations *all,
                                uint32_t principal, const struct journal_found *found,
                                struct error *err)
{
    struct recall *r = NULL;
    struct conversation *c;
    uint64_t now_ms = conversations_unix_ms(all);
    enum status rc = recall_open(&r, all, principal, NULL, err);

    if (rc != STATUS_OK)
        return rc;
    c = r->c;
    c->host.is_kept = true;
    memcpy(c->id.bytes, found->id, sizeof(c->id.bytes));
    c->has_parent = found->has_parent;
    c->owner_epoch = found->owner_epoch;
    memcpy(c->parent.bytes, found->parent, sizeof(c->parent.bytes));
    rc = recall_all(r, found, err);
    c->is_idle_known = r->last_unix_ms >= all->config.unix_ms && c->unended.request == NULL;
    if (rc == STATUS_OK)
        rc = conversations_add_again(all, c,
                                     now_ms > r->last_unix_ms ? now_ms - r->last_unix_ms : 0, err);
    if (rc == STATUS_OK)
        *out = c;
    else
        conversation_release(c);
    recall_close(r);
    return rc;
}
