/* JSON lines: a line an act with the standard fields. An act without episode_done is an episode of
 * its own. */
#include "worlds/teachers/format.h"

static bool jsonl_is_blank(const char *text, size_t len)
{
    while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t' || text[len - 1] == '\r'))
        len--;
    return len == 0;
}

static enum status jsonl_read_line(struct source *s, const char *text, size_t len,
                                   struct error *err)
{
    bool begins = s->begins;
    struct act a;

    if (jsonl_is_blank(text, len))
        return STATUS_OK;
    if (act_from_json(&a, text, len, s->arena, err) != STATUS_OK ||
        source_check(&a, s->arena, true, err) != STATUS_OK)
        return err->status;
    s->begins = !act_has(&a, ACT_EPISODE_DONE) || act_is(&a, ACT_EPISODE_DONE);
    return source_give(s, &a, begins, err);
}

const struct data_format jsonl_format = {.name = "jsonl", .line = jsonl_read_line};
