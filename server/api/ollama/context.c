#include "server/api/ollama/context.h"

#include <string.h>

#include "agents/agent.h"
#include "agents/text.h"
#include "server/api/reply_end.h"
#include "server/model/model.h"

enum { CONTEXT_MAX_BYTES = 64 << 20 };

/* behind: what follows a reply, up to the start of the next. It begins with the token that ends a
 * reply, which a context, [n_context > 0], may have already. */
static enum status context_join(struct ollama_request *r, const struct buf *behind,
                                struct arena *arena, struct error *err)
{
    const int32_t *end = (const int32_t *)(const void *)behind->data;
    const size_t n = behind->len / sizeof(end[0]);
    const bool has_end = n > 0 && r->context[r->n_context - 1] == end[0];
    const size_t n_all = r->n_context + n - has_end;
    int32_t *ids;

    if (n == 0)
        return error_field(err, "context", "cannot be continued with this model's chat template");
    ids = arena_alloc(arena, n_all, sizeof(ids[0]));
    if (ids == NULL)
        return error_no_memory(err, n_all * sizeof(ids[0]), "the request");
    memcpy(ids, r->context, r->n_context * sizeof(ids[0]));
    memcpy(ids + r->n_context, end + has_end, (n - has_end) * sizeof(ids[0]));
    r->base.prompts[0] = (struct prompt){.ids = ids,
                                         .n_ids = n_all,
                                         .is_plain = true,
                                         .raw = {.adds_no_bos = true, .is_chat = true}};
    return STATUS_OK;
}

enum status ollama_context_continue(struct ollama_request *r, const struct model *m,
                                    struct arena *arena, struct error *err)
{
    const struct prompt *p = &r->base.prompts[0];
    struct buf behind;
    enum status rc;

    if (m->agent->type->text == NULL)
        return error_field(err, "context", "is token ids, and '%s' has no vocabulary", m->name);
    buf_init(&behind, CONTEXT_MAX_BYTES);
    rc = reply_end_render(&behind, &r->base, m, p->messages, p->n_messages, true, arena, err);
    if (rc == STATUS_OK)
        rc = context_join(r, &behind, arena, err);
    buf_deinit(&behind);
    return rc;
}
