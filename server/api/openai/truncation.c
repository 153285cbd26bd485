#include "server/api/openai/truncation.h"

#include <string.h>

#include "server/model/model.h"

enum { REPLY_SHARE = 8, PROMPT_MAX_BYTES = 64 << 20 };

/* A history, and what of it stays in any case: the system's messages at its head. */
struct long_history {
    const struct request *r;
    const struct model *model;
    struct message *all; /* [n] with the instructions */
    size_t n, n_head;
    size_t n_most;        /* tokens */
    struct message *kept; /* [n] room for a part of it */
};

/* Whether the messages from the i-th on fit, behind the head. */
static bool history_fits(const struct long_history *h, size_t i)
{
    const struct agent *agent = h->model->agent;
    const size_t n = h->n_head + h->n - i;
    struct error ignored;
    struct buf ids;
    bool fits;

    memcpy(h->kept, h->all, h->n_head * sizeof(*h->all));
    memcpy(h->kept + h->n_head, h->all + i, (h->n - i) * sizeof(*h->all));
    buf_init(&ids, PROMPT_MAX_BYTES);
    fits = agent->type->text->render(agent, h->kept, n, h->r->prompts->tool_use.tools,
                                     h->r->variables.json, true, &ids, &ignored) == STATUS_OK &&
           ids.len / sizeof(int32_t) <= h->n_most;
    buf_deinit(&ids);
    return fits;
}

/* The first message that can stay, a user's; the more messages go, the fewer tokens are left. n:
 * not even the last user's message fits. starts [n]: scratch. */
static size_t history_cut(const struct long_history *h, size_t *starts)
{
    size_t n_starts = 0, low = 0, high;

    if (history_fits(h, h->n_head))
        return h->n_head;
    for (size_t i = h->n_head + 1; i < h->n; i++)
        if (h->all[i].role == ROLE_USER)
            starts[n_starts++] = i;
    for (high = n_starts; low < high;) {
        const size_t middle = low + (high - low) / 2;

        if (history_fits(h, starts[middle]))
            high = middle;
        else
            low = middle + 1;
    }
    return low == n_starts ? h->n : starts[low];
}

static enum status history_open(struct long_history *h, const char *instructions,
                                struct arena *arena, struct error *err)
{
    const struct prompt *p = h->r->prompts;
    const size_t len = instructions == NULL ? 0 : strlen(instructions);

    h->all = arena_alloc(arena, p->n_messages + 1, sizeof(*h->all));
    h->kept = arena_alloc(arena, p->n_messages + 1, sizeof(*h->kept));
    if (h->all == NULL || h->kept == NULL)
        return error_no_memory(err, p->n_messages * sizeof(*h->all), "the request");
    if (len > 0)
        h->all[h->n++] = (struct message){.role = ROLE_SYSTEM, .text = instructions, .len = len};
    memcpy(h->all + h->n, p->messages, p->n_messages * sizeof(*h->all));
    h->n += p->n_messages;
    while (h->n_head < h->n && h->all[h->n_head].role == ROLE_SYSTEM)
        h->n_head++;
    return STATUS_OK;
}

enum status truncation_apply(struct request *r, const char *instructions, const struct model *m,
                             struct arena *arena, struct error *err)
{
    const size_t context = m->info.text.context,
                 n_own = instructions != NULL && instructions[0] != '\0';
    struct prompt *p = r->prompts;
    struct long_history h = {.r = r, .model = m};
    size_t reserve = context / REPLY_SHARE, first, *starts;

    if (m->agent->type->text == NULL || context == 0)
        return STATUS_OK;
    if ((r->overrides.given & SAMPLING_MAX_TOKENS) != 0 && r->overrides.values.max_tokens > 0 &&
        r->overrides.values.max_tokens < context / 2)
        reserve = r->overrides.values.max_tokens;
    h.n_most = context - reserve;
    if (history_open(&h, instructions, arena, err) != STATUS_OK)
        return err->status;
    starts = arena_alloc(arena, h.n, sizeof(*starts));
    if (starts == NULL)
        return error_no_memory(err, h.n * sizeof(*starts), "the request");
    first = history_cut(&h, starts);
    if (first == h.n_head || first == h.n)
        return STATUS_OK;
    memcpy(h.kept, h.all, h.n_head * sizeof(*h.all));
    memcpy(h.kept + h.n_head, h.all + first, (h.n - first) * sizeof(*h.all));
    p->messages = h.kept + n_own; /* the instructions are the conversation's */
    p->n_messages = h.n_head + h.n - first - n_own;
    return STATUS_OK;
}
