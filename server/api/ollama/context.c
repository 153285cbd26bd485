#include "server/api/ollama/context.h"

#include <string.h>

#include "agents/agent.h"
#include "agents/text.h"
#include "server/model/model.h"

enum { CONTEXT_MAX_BYTES = 64 << 20 };

/* Renders the messages behind an exchange whose reply is this text. */
static enum status context_render(struct buf *ids, const struct ollama_request *r,
                                  const struct model *m, const char *reply, struct arena *arena,
                                  struct error *err)
{
    const struct prompt *p = &r->base.prompts[0];
    struct message *all = arena_alloc(arena, p->n_messages + 2, sizeof(all[0]));

    if (all == NULL)
        return error_no_memory(err, (p->n_messages + 2) * sizeof(all[0]), "the request");
    all[0] = (struct message){.role = ROLE_USER, .text = "x", .len = 1};
    all[1] = (struct message){.role = ROLE_ASSISTANT, .text = reply, .len = strlen(reply)};
    memcpy(all + 2, p->messages, p->n_messages * sizeof(all[0]));
    return m->agent->type->text->render(m->agent, all, p->n_messages + 2, p->tool_use.tools,
                                        r->base.variables.json, true, ids, err);
}

/* How many ids at the ends are the same. */
static size_t context_same_end(const struct buf *a, const struct buf *b)
{
    const size_t size = sizeof(int32_t), most = (a->len < b->len ? a->len : b->len) / size;
    size_t n = 0;

    while (n < most &&
           memcmp(a->data + a->len - (n + 1) * size, b->data + b->len - (n + 1) * size, size) == 0)
        n++;
    return n;
}

/* What follows any reply is what two that differ have behind them in common. It begins with the
 * token that ends a reply, which a context, [n_context > 0], may have already. */
static enum status context_join(struct ollama_request *r, const struct buf *one,
                                const struct buf *other, struct arena *arena, struct error *err)
{
    const size_t n = context_same_end(one, other), size = sizeof(int32_t);
    const int32_t *end = (const int32_t *)(const void *)(one->data + one->len - n * size);
    const bool has_end = n > 0 && r->context[r->n_context - 1] == end[0];
    const size_t n_all = r->n_context + n - has_end;
    int32_t *ids;

    if (n == 0 || n * size == one->len)
        return error_field(err, "context", "cannot be continued with this model's chat template");
    ids = arena_alloc(arena, n_all, size);
    if (ids == NULL)
        return error_no_memory(err, n_all * size, "the request");
    memcpy(ids, r->context, r->n_context * size);
    memcpy(ids + r->n_context, end + has_end, (n - has_end) * size);
    r->base.prompts[0] = (struct prompt){.ids = ids,
                                         .n_ids = n_all,
                                         .is_plain = true,
                                         .raw = {.adds_no_bos = true, .is_chat = true}};
    return STATUS_OK;
}

enum status ollama_context_continue(struct ollama_request *r, const struct model *m,
                                    struct arena *arena, struct error *err)
{
    struct buf one, other;
    enum status rc;

    if (m->agent->type->text == NULL)
        return error_field(err, "context", "is token ids, and '%s' has no vocabulary", m->name);
    buf_init(&one, CONTEXT_MAX_BYTES);
    buf_init(&other, CONTEXT_MAX_BYTES);
    rc = context_render(&one, r, m, "x", arena, err);
    if (rc == STATUS_OK)
        rc = context_render(&other, r, m, "y", arena, err);
    if (rc == STATUS_OK)
        rc = context_join(r, &one, &other, arena, err);
    buf_deinit(&one);
    buf_deinit(&other);
    return rc;
}
