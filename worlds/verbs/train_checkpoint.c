/* Writes the position of a training and the training's options as JSON, and reads both back from a
 * file of weights. An option that has another value then is refused by name. */
#include "worlds/verbs/train_checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/gguf/gguf.h"

enum { DECIMALS = 17 }; /* a double's bits come back */

/* Names, how results are told, and how fast it goes. */
static const char *const free_options[] = {
    "model-file",  "init-model",   "evaltask",       "metrics", "aggregate-micro",
    "num-workers", "num-examples", "max-line-bytes", "threads", "load-from-checkpoint",
    "out",         "episodes",     "until",          "json",
};

static bool is_free_option(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(free_options) / sizeof(free_options[0]); i++)
        if (strlen(free_options[i]) == len && memcmp(free_options[i], name, len) == 0)
            return true;
    return false;
}

static json_t *option_row_value(const struct option_row *row, const void *of)
{
    const void *at = (const char *)of + row->offset;
    const char *text;

    switch (row->kind) {
    case OPTION_FLAG:
    case OPTION_BOOL:
        return json_boolean(*(const bool *)at);
    case OPTION_U32:
        return json_integer(*(const uint32_t *)at);
    case OPTION_U64: /* above 2^63 it is negative, and the same each time */
        return json_integer((json_int_t) * (const uint64_t *)at);
    case OPTION_I64:
        return json_integer(*(const int64_t *)at);
    case OPTION_FLOAT:
    case OPTION_FLOAT_FROM_0:
        return json_real((double)*(const float *)at);
    case OPTION_DOUBLE:
    case OPTION_DOUBLE_FROM_0:
        return json_real(*(const double *)at);
    case OPTION_TEXT:
        text = *(const char *const *)at;
        return text != NULL ? json_string_nocheck(text) : json_null();
    case OPTION_TEXTS:
        break; /* no option of this type affects the result */
    }
    return json_null();
}

json_t *train_checkpoint_options(const struct option_group *groups, size_t n_groups)
{
    json_t *out = json_object();

    for (size_t g = 0; g < n_groups; g++)
        for (const struct option_row *row = groups[g].rows; row->name != NULL; row++) {
            const size_t len = strcspn(row->name, "|");

            if (!is_free_option(row->name, len))
                (void)json_object_setn_new_nocheck(out, row->name, len,
                                                   option_row_value(row, groups[g].into));
        }
    return out;
}

char *train_checkpoint_join(json_t *state, const json_t *options)
{
    char *text;

    (void)json_object_set(state, "options", (json_t *)(uintptr_t)options);
    text = json_dumps(state, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(DECIMALS));
    json_decref(state);
    return text != NULL ? text : xstrdup("");
}

enum status train_checkpoint_advise(struct error *err)
{
    if (err->status == STATUS_DATA_LOSS) {
        const struct error why = *err;

        (void)error_set(err, why.status,
                        "%.190s: use --load-from-checkpoint false to begin a new training",
                        why.text);
    }
    return err->status;
}

enum status train_checkpoint_damaged(const char *path, struct error *err)
{
    (void)error_set(err, STATUS_DATA_LOSS, "%.120s: training.state is not valid", path);
    return train_checkpoint_advise(err);
}

/* Each option, as it was and as it is, by its text: numbers come back with the same digits. */
static enum status train_checkpoint_compare(const json_t *was, const json_t *is, const char *path,
                                            struct error *err)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)is, name, value)
    {
        const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(DECIMALS);
        char *now = json_dumps(value, flags), *then = json_dumps(json_object_get(was, name), flags);
        const bool is_same = now != NULL && then != NULL && strcmp(now, then) == 0;

        if (!is_same)
            (void)error_set(err, STATUS_PRECONDITION,
                            "%.200s is of a training with --%s %.60s, not %.60s: use "
                            "--load-from-checkpoint false to begin a new training",
                            path, name, then != NULL ? then : "that is unknown",
                            now != NULL ? now : "that");
        free(now);
        free(then);
        if (!is_same)
            return err->status;
    }
    return STATUS_OK;
}

enum status train_checkpoint_load(json_t **out, const char *path, const json_t *options,
                                  struct error *err)
{
    const char *text = NULL;
    size_t len = 0;
    json_t *all = NULL;
    struct gguf *g;
    enum status rc = gguf_open(&g, path, err);

    if (rc != STATUS_OK)
        return train_checkpoint_advise(err);
    rc = gguf_get_text(g, "training.state", &text, &len, err);
    if (rc == STATUS_NOT_FOUND)
        err->status = STATUS_DATA_LOSS;
    if (rc == STATUS_OK) {
        all = json_loadb(text, len, 0, NULL);
        rc = json_is_object(json_object_get(all, "options"))
                 ? train_checkpoint_compare(json_object_get(all, "options"), options, path, err)
                 : train_checkpoint_damaged(path, err);
    } else {
        rc = train_checkpoint_advise(err);
    }
    gguf_close(g);
    if (rc == STATUS_OK)
        *out = all;
    else
        json_decref(all);
    return rc;
}

/* --- of a loop -------------------------------------------------------------------------------- */

char *train_checkpoint_text(const struct train_progress *at, size_t n_epoch, const json_t *options)
{
    return train_checkpoint_join(
        json_pack("{s:I,s:I,s:f,s:I,s:I,s:o,s:I,s:f,s:I}", "epoch", (json_int_t)n_epoch, "examples",
                  (json_int_t)at->n_examples, "seconds", at->seconds, "validations",
                  (json_int_t)at->n_validations, "worse", (json_int_t)at->n_worse, "best",
                  isnan(at->best) ? json_null() : json_real(at->best), "best_examples",
                  (json_int_t)at->best_examples, "validated_seconds", at->validated_s,
                  "validated_examples", (json_int_t)at->n_validated),
        options);
}

static enum status train_checkpoint_parse(struct train_progress *out, const json_t *all,
                                          const char *path, struct error *err)
{
    json_int_t examples = 0, validations = 0, worse = 0, best_examples = 0, validated = 0;
    const json_t *best = json_object_get(all, "best");

    if (json_unpack((json_t *)(uintptr_t)all, "{s:I,s:F,s:I,s:I,s:I,s:F,s:I}", "examples",
                    &examples, "seconds", &out->seconds, "validations", &validations, "worse",
                    &worse, "best_examples", &best_examples, "validated_seconds", &out->validated_s,
                    "validated_examples", &validated) != 0 ||
        examples < 0 || validations < 0 || validations > UINT32_MAX || worse < 0 ||
        worse > UINT32_MAX || best_examples < 0 || validated < 0 || validated > examples ||
        !(out->seconds >= 0) || !(out->seconds < 1e12) || !(out->validated_s >= 0))
        return train_checkpoint_damaged(path, err);
    out->n_examples = (uint64_t)examples;
    out->n_validations = (uint32_t)validations;
    out->n_worse = (uint32_t)worse;
    out->best = json_is_number(best) ? json_number_value(best) : (double)NAN;
    out->best_examples = (uint64_t)best_examples;
    out->n_validated = (uint64_t)validated;
    return STATUS_OK;
}

enum status train_checkpoint_read(struct train_progress *out, const char *path, size_t n_epoch,
                                  const json_t *options, struct error *err)
{
    struct train_progress at = {0};
    json_t *all = NULL;
    enum status rc = train_checkpoint_load(&all, path, options, err);

    if (rc != STATUS_OK)
        return rc;
    rc = train_checkpoint_parse(&at, all, path, err);
    if (rc == STATUS_OK && json_integer_value(json_object_get(all, "epoch")) != (json_int_t)n_epoch)
        rc = error_set(err, STATUS_PRECONDITION,
                       "%.200s is of other data: an epoch has %zu examples now and had %lld: use "
                       "--load-from-checkpoint false to begin a new training",
                       path, n_epoch, (long long)json_integer_value(json_object_get(all, "epoch")));
    json_decref(all);
    if (rc == STATUS_OK)
        *out = at;
    return rc;
}
