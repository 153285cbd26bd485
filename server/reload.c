#include "server/reload.h"

#include "base/buf.h"
#include "base/log.h"
#include "server/config/options.h"

enum { CHANGES_MAX_BYTES = 2048 };

void reload_init(struct reload *r, const struct config *start, const struct reload_row *rows,
                 size_t n_rows, void *self)
{
    *r = (struct reload){
        .rows = rows, .n_rows = n_rows, .self = self, .start = start, .current = *start};
}

void reload_deinit(struct reload *r)
{
    if (r->is_owned)
        config_deinit(&r->current);
    r->is_owned = false;
}

static void reload_drop(struct reload *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (r->rows[i].drop != NULL)
            r->rows[i].drop(r->self);
}

static enum status reload_check(struct reload *r, const struct config *to, struct error *err)
{
    for (size_t i = 0; i < r->n_rows; i++) {
        if (r->rows[i].check == NULL || r->rows[i].check(r->self, to, err) == STATUS_OK)
            continue;
        reload_drop(r, i + 1);
        return err->status;
    }
    return STATUS_OK;
}

void reload_add_name(struct buf *names, const char *name)
{
    (void)!buf_printf(names, "%s%s", names->len > 0 ? "," : "", name);
}

/* Lists the options that differ, those that were applied or those that wait. */
static void list_changes(struct buf *out, const struct config *from, const struct config *to,
                         bool is_applied)
{
    for (size_t i = 0; i < config_n_options; i++) {
        const struct config_option *o = &config_options[i];

        if (o->key != NULL && o->is_reloadable == is_applied && config_differs(from, to, o))
            reload_add_name(out, o->key);
    }
}

/* What needs a start is compared with the start's. */
static void reload_log(const struct reload *r, const struct config *from, const struct config *to)
{
    struct buf applied, waiting, more;

    buf_init(&applied, CHANGES_MAX_BYTES);
    buf_init(&waiting, CHANGES_MAX_BYTES);
    buf_init(&more, CHANGES_MAX_BYTES);
    list_changes(&applied, from, to, true);
    list_changes(&waiting, r->start, to, false);
    for (size_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].say != NULL)
            r->rows[i].say(r->self, &applied, &more);
    log_write(waiting.len > 0 ? LOG_WARN : LOG_INFO, "reloaded", "changed=%s%s%s%s",
              applied.len > 0 ? applied.data : "none", more.len > 0 ? more.data : "",
              waiting.len > 0 ? " wait_for_a_start=" : "", waiting.len > 0 ? waiting.data : "");
    buf_deinit(&applied);
    buf_deinit(&waiting);
    buf_deinit(&more);
}

static void reload_apply(struct reload *r, const struct config *to)
{
    struct config old = r->current;
    bool was_owned = r->is_owned;

    r->current = *to;
    r->is_owned = true;
    for (size_t i = 0; i < r->n_rows; i++)
        r->rows[i].apply(r->self, &r->current);
    reload_log(r, &old, &r->current);
    if (was_owned)
        config_deinit(&old);
}

enum status reload_run(struct reload *r, struct error *err)
{
    struct config to;

    if (config_parse_again(&to, &r->current, err) != STATUS_OK)
        return err->status;
    if (reload_check(r, &to, err) == STATUS_OK) {
        reload_apply(r, &to);
        return STATUS_OK;
    }
    config_deinit(&to);
    return err->status;
}
