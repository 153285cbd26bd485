/* ParlAI's text format: a line an act; an episode ends with the act that says episode_done, and at
 * the end of the file. */
#include "worlds/teachers/format.h"

static enum status parlai_read_line(struct source *s, const char *text, size_t len,
                                    struct error *err)
{
    bool begins = s->begins;
    struct act a;

    if (len == 0)
        return STATUS_OK;
    if (text_line_parse(&a, text, len, s->arena, &s->oddities, err) != STATUS_OK ||
        source_check(&a, s->arena, true, err) != STATUS_OK)
        return err->status;
    s->begins = act_is(&a, ACT_EPISODE_DONE);
    return source_give(s, &a, begins, err);
}

const struct data_format parlai_format = {
    .name = "parlai", .line = parlai_read_line, .keeps_returns = true};
