/* Translates the messages of Agents.Attach: the orders of agents/remote become messages, a worker's
 * offer and answers become structs. Texts and states are not copied; the rest of a message lies in
 * the caller's arena. */
#include "server/api/parley/agents_wire.h"

#include <string.h>

#include "server/api/parley/wire_sampling.h"
#include "server/api/parley/wire_tensor.h"

/* --- orders --- */

static void fill_text(Parley__V1__Message *out, enum role role, const char *text)
{
    parley__v1__message__init(out);
    out->role = (char *)role_name(role);
    out->text = (char *)text;
}

/* Appends a turn's messages, and its reply if it is wanted, at *n. */
static void append_turn(Parley__V1__Message *messages, size_t *n, const struct remote_turn *t,
                        bool with_reply)
{
    for (size_t i = 0; i < t->n_messages; i++)
        fill_text(&messages[(*n)++], t->messages[i].role, t->messages[i].text);
    if (with_reply)
        fill_text(&messages[(*n)++], ROLE_ASSISTANT, t->reply.len == 0 ? "" : t->reply.data);
}

/* [n] pointers to n messages behind them. */
static Parley__V1__Message **message_list(size_t n, Parley__V1__Message **ret_messages,
                                          struct arena *arena)
{
    Parley__V1__Message **list = arena_alloc(arena, n + 1, sizeof(list[0]));
    Parley__V1__Message *messages = arena_alloc(arena, n + 1, sizeof(messages[0]));

    if (list == NULL || messages == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++)
        list[i] = &messages[i];
    *ret_messages = messages;
    return list;
}

/* The turns before t, oldest first. */
static enum status row_fill_history(Parley__V1__AgentRow *out, const struct remote_turn *t,
                                    struct arena *arena)
{
    Parley__V1__Message *messages;
    size_t n = 0, n_turn;

    for (const struct remote_turn *at = t->before; at != NULL; at = at->before)
        n += at->n_messages + 1;
    out->history = message_list(n, &messages, arena);
    if (out->history == NULL)
        return STATUS_EXHAUSTED;
    out->n_history = n;
    for (const struct remote_turn *at = t->before; at != NULL; at = at->before) {
        n -= at->n_messages + 1;
        n_turn = n;
        append_turn(messages, &n_turn, at, true);
    }
    return STATUS_OK;
}

/* All of it is set: a worker has no defaults to fill in. */
static enum status row_fill_sampling(Parley__V1__AgentRow *out, const struct sampling *s,
                                     struct arena *arena)
{
    uint32_t given = ~0u;

    if (!s->has_seed)
        given &= ~(uint32_t)SAMPLING_SEED;
    if (s->n_stops == 0) /* there are none to clear */
        given &= ~(uint32_t)SAMPLING_STOPS;
    if (s->n_biases == 0)
        given &= ~(uint32_t)SAMPLING_BIASES;
    return wire_sampling_message(&out->sampling, s, given, arena);
}

/* Its sampling is the seed of its session's draws. */
static enum status row_fill_observation(Parley__V1__AgentRow *out, const struct observation *seen,
                                        struct arena *arena)
{
    Parley__V1__Tensor *tensor = arena_alloc(arena, 1, sizeof(*tensor));

    out->observation = arena_alloc(arena, 1, sizeof(out->observation[0]));
    if (tensor == NULL || out->observation == NULL ||
        wire_sampling_message(&out->sampling, &seen->sampling,
                              seen->sampling.has_seed ? SAMPLING_SEED : 0, arena) != STATUS_OK)
        return STATUS_EXHAUSTED;
    wire_tensor(tensor, &seen->tensors[0]);
    out->observation[0] = tensor;
    out->n_observation = 1;
    out->reward = seen->reward;
    out->is_first = seen->is_first;
    out->row_key = seen->row_key;
    return STATUS_OK;
}

static enum status agents_wire_row(Parley__V1__AgentRow *out, const struct remote_worker *w,
                                   const struct remote_row *row, struct arena *arena)
{
    const struct remote_turn *said = row->said;
    bool is_stateless = remote_worker_is_stateless(w);
    Parley__V1__Message *messages;
    size_t n = 0;

    out->clone = is_stateless ? 0 : remote_row_clone(row);
    out->turn = said->number;
    out->is_continued = row->has_begun;
    if (row->tensors.n_observations > 0)
        return row_fill_observation(out, &row->turn->seen, arena);
    if (row_fill_sampling(out, &row->turn->seen.sampling, arena) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (row->has_begun && !is_stateless)
        return STATUS_OK;
    out->messages = message_list(said->n_messages, &messages, arena);
    if (out->messages == NULL)
        return STATUS_EXHAUSTED;
    append_turn(messages, &n, said, false);
    out->n_messages = n;
    if (!is_stateless)
        return STATUS_OK;
    if (remote_row_system(row) != NULL)
        out->system = (char *)remote_row_system(row)->data;
    if (said->reply.len > 0)
        out->reply = said->reply.data;
    return row_fill_history(out, said, arena);
}

static enum status agents_wire_step(Parley__V1__AgentsAttachResponse *out,
                                    const struct remote_worker *w, const struct remote_step *step,
                                    struct arena *arena)
{
    Parley__V1__AgentStep *m = arena_alloc(arena, 1, sizeof(*m));
    Parley__V1__AgentRow *rows = arena_alloc(arena, step->n_rows, sizeof(rows[0]));

    if (m == NULL || rows == NULL)
        return STATUS_EXHAUSTED;
    parley__v1__agent_step__init(m);
    m->step = step->id;
    m->rows = arena_alloc(arena, step->n_rows, sizeof(m->rows[0]));
    if (m->rows == NULL)
        return STATUS_EXHAUSTED;
    for (struct link *l = list_first(&step->rows); l != NULL; l = list_next(&step->rows, l)) {
        Parley__V1__AgentRow *row = &rows[m->n_rows];

        parley__v1__agent_row__init(row);
        row->row = (uint32_t)m->n_rows;
        m->rows[m->n_rows++] = row;
        if (agents_wire_row(row, w, container_of(l, struct remote_row, link), arena) != STATUS_OK)
            return STATUS_EXHAUSTED;
    }
    out->what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_STEP;
    out->step = m;
    return STATUS_OK;
}

static enum status agents_wire_open(Parley__V1__AgentsAttachResponse *out,
                                    const struct remote_order *o, struct arena *arena)
{
    Parley__V1__AgentCloneOpen *m = arena_alloc(arena, 1, sizeof(*m));

    if (m == NULL)
        return STATUS_EXHAUSTED;
    parley__v1__agent_clone_open__init(m);
    m->clone = o->clone;
    if (o->system != NULL)
        m->system = o->system->data;
    m->has_state = o->state != NULL;
    m->turn = o->at_turn;
    if (o->state != NULL)
        m->state = (ProtobufCBinaryData){o->state->size_bytes, (uint8_t *)o->state->data};
    out->what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_OPEN;
    out->open = m;
    return STATUS_OK;
}

static enum status agents_wire_replay(Parley__V1__AgentsAttachResponse *out,
                                      const struct remote_order *o, struct arena *arena)
{
    Parley__V1__AgentCloneReplay *m = arena_alloc(arena, 1, sizeof(*m));
    Parley__V1__Message *messages;
    size_t n = 0;

    if (m == NULL)
        return STATUS_EXHAUSTED;
    parley__v1__agent_clone_replay__init(m);
    m->clone = o->clone;
    m->turn = o->turn->number;
    m->messages = message_list(o->turn->n_messages, &messages, arena);
    if (m->messages == NULL)
        return STATUS_EXHAUSTED;
    append_turn(messages, &n, o->turn, false);
    m->n_messages = n;
    if (o->turn->reply.len > 0)
        m->reply = o->turn->reply.data;
    out->what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_REPLAY;
    out->replay = m;
    return STATUS_OK;
}

/* Orders of numbers alone. */
static enum status agents_wire_short(Parley__V1__AgentsAttachResponse *out,
                                     const struct remote_order *o, struct arena *arena)
{
    union {
        Parley__V1__AgentCloneFork fork;
        Parley__V1__AgentCloneRewind rewind;
        Parley__V1__AgentCloneClose close;
        Parley__V1__AgentCancel cancel;
        Parley__V1__AgentSave save;
    } *m = arena_alloc(arena, 1, sizeof(*m));

    if (m == NULL)
        return STATUS_EXHAUSTED;
    switch (o->kind) {
    case REMOTE_ORDER_FORK:
        m->fork = (Parley__V1__AgentCloneFork)PARLEY__V1__AGENT_CLONE_FORK__INIT;
        m->fork.clone = o->clone;
        m->fork.parent = o->parent;
        m->fork.at_turn = o->at_turn;
        out->what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_FORK;
        out->fork = &m->fork;
        break;
    case REMOTE_ORDER_REWIND:
        m->rewind = (Parley__V1__AgentCloneRewind)PARLEY__V1__AGENT_CLONE_REWIND__INIT;
        m->rewind.clone = o->clone;
        m->rewind.to_turn = o->at_turn;
        out->what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_REWIND;
        out->rewind = &m->rewind;
        break;
    case REMOTE_ORDER_CANCEL:
        m->cancel = (Parley__V1__AgentCancel)PARLEY__V1__AGENT_CANCEL__INIT;
        m->cancel.step = o->step_id;
        m->cancel.row = o->row;
        out->what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_CANCEL;
        out->cancel = &m->cancel;
        break;
    case REMOTE_ORDER_SAVE:
        m->save = (Parley__V1__AgentSave)PARLEY__V1__AGENT_SAVE__INIT;
        m->save.clone = o->clone;
        out->what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_SAVE;
        out->save = &m->save;
        break;
    default:
        m->close = (Parley__V1__AgentCloneClose)PARLEY__V1__AGENT_CLONE_CLOSE__INIT;
        m->close.clone = o->clone;
        out->what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_CLOSE;
        out->close = &m->close;
        break;
    }
    return STATUS_OK;
}

enum status agents_wire_order(Parley__V1__AgentsAttachResponse *out, const struct remote_worker *w,
                              const struct remote_order *o, struct arena *arena, struct error *err)
{
    enum status rc;

    switch (o->kind) {
    case REMOTE_ORDER_OPEN:
        rc = agents_wire_open(out, o, arena);
        break;
    case REMOTE_ORDER_REPLAY:
        rc = agents_wire_replay(out, o, arena);
        break;
    case REMOTE_ORDER_STEP:
        rc = agents_wire_step(out, w, remote_order_step(o), arena);
        break;
    default:
        rc = agents_wire_short(out, o, arena);
        break;
    }
    return rc == STATUS_OK ? rc : error_no_memory(err, 0, "a message to the worker");
}

/* --- answers --- */

enum status agents_wire_offer(struct remote_offer *out, const Parley__V1__AgentOffer *m,
                              struct error *err)
{
    static const unsigned capabilities[] = {
        [PARLEY__V1__AGENT_CAPABILITY__AGENT_CAPABILITY_FORK] = REMOTE_FORK,
        [PARLEY__V1__AGENT_CAPABILITY__AGENT_CAPABILITY_REWIND] = REMOTE_REWIND,
        [PARLEY__V1__AGENT_CAPABILITY__AGENT_CAPABILITY_SAVE] = REMOTE_SAVE,
        [PARLEY__V1__AGENT_CAPABILITY__AGENT_CAPABILITY_DETERMINISTIC] = REMOTE_DETERMINISTIC,
        [PARLEY__V1__AGENT_CAPABILITY__AGENT_CAPABILITY_STATELESS] = REMOTE_STATELESS,
    };
    const size_t n_known = sizeof(capabilities) / sizeof(capabilities[0]);

    *out = (struct remote_offer){
        .version = m->version,
        .max_rows = m->max_rows,
        .n_slots = m->slots,
        .max_cost = m->max_cost,
        .save_every = m->save_every,
    };
    if (m->tensors != NULL) {
        out->is_acting = true;
        out->tensors = (struct remote_tensors){
            .n_observations = m->tensors->observations,
            .n_actions = m->tensors->actions,
            .n_action_numbers = m->tensors->action_numbers,
            .has_logp = m->tensors->has_logp,
            .has_value = m->tensors->has_value,
        };
    }
    for (size_t i = 0; i < m->n_capabilities; i++) {
        size_t number = (size_t)m->capabilities[i];

        if (number >= n_known || capabilities[number] == 0)
            return error_field(err, "offer.capabilities", "has %d, which is not known",
                               (int)m->capabilities[i]);
        out->capabilities |= capabilities[number];
    }
    if (m->cost_unit > PARLEY__V1__AGENT_COST_UNIT__AGENT_COST_UNIT_BYTE)
        return error_field(err, "offer.cost_unit", "is %d, which is not known", (int)m->cost_unit);
    out->cost = m->cost_unit == PARLEY__V1__AGENT_COST_UNIT__AGENT_COST_UNIT_BYTE
                    ? REMOTE_COST_BYTES
                    : REMOTE_COST_ROWS;
    return STATUS_OK;
}

/* What a worker may say of a turn that failed; all else is INTERNAL. */
static void row_take_error(struct error *out, const Parley__V1__ErrorDetail *m)
{
    enum status status = STATUS_INTERNAL;

    if (m != NULL && (m->code == STATUS_INVALID || m->code == STATUS_EXHAUSTED ||
                      m->code == STATUS_PRECONDITION || m->code == STATUS_RANGE ||
                      m->code == STATUS_UNIMPLEMENTED || m->code == STATUS_DATA_LOSS))
        status = (enum status)m->code;
    (void)error_set(out, status, "%s",
                    m == NULL || m->message[0] == '\0' ? "the agent failed" : m->message);
    if (status == STATUS_EXHAUSTED)
        out->retry_after_ms = m->retry_after_ms != 0 ? m->retry_after_ms : REMOTE_RETRY_MS;
}

static enum status row_take_outcome(struct remote_answer *out, const Parley__V1__AgentRowResult *m,
                                    struct error *err)
{
    switch (m->outcome) {
    case PARLEY__V1__AGENT_ROW_OUTCOME__AGENT_ROW_OUTCOME_DONE:
        out->outcome = ROW_DONE;
        out->finish = m->finish_reason == PARLEY__V1__FINISH_REASON__FINISH_REASON_LENGTH
                          ? FINISH_LENGTH
                          : FINISH_STOP;
        return STATUS_OK;
    case PARLEY__V1__AGENT_ROW_OUTCOME__AGENT_ROW_OUTCOME_MORE:
        out->outcome = ROW_MORE;
        return STATUS_OK;
    case PARLEY__V1__AGENT_ROW_OUTCOME__AGENT_ROW_OUTCOME_FAILED:
        out->outcome = ROW_FAILED;
        row_take_error(&out->err, m->error);
        return STATUS_OK;
    default:
        return error_field(err, "result.rows", "has outcome %d in row %u, which is none",
                           (int)m->outcome, m->row);
    }
}

enum status agents_wire_result(struct remote_answer **out, const Parley__V1__AgentStepResult *m,
                               struct arena *arena, struct error *err)
{
    struct remote_answer *answers = arena_alloc(arena, m->n_rows + 1, sizeof(answers[0]));

    if (answers == NULL)
        return error_no_memory(err, 0, "a message to the worker");
    for (size_t i = 0; i < m->n_rows; i++) {
        answers[i].row = m->rows[i]->row;
        answers[i].text = m->rows[i]->text;
        answers[i].n_prompt = m->rows[i]->prompt_tokens;
        answers[i].params_version = m->rows[i]->params_version;
        answers[i].n_output = m->rows[i]->n_output;
        if (wire_tensors(&answers[i].output, m->rows[i]->output, m->rows[i]->n_output, 3,
                         "result.rows.output", arena, err) != STATUS_OK)
            return err->status;
        if (row_take_outcome(&answers[i], m->rows[i], err) != STATUS_OK)
            return err->status;
    }
    *out = answers;
    return STATUS_OK;
}
