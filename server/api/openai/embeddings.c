/* POST /v1/embeddings. */
#include <string.h>

#include "server/access/access.h"
#include "server/api/embedding_request.h"
#include "server/api/openai/error.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/conversation/embeddings.h"
#include "server/http/exchange.h"
#include "server/json/fields.h"
#include "server/model/model.h"
#include "server/server.h"

enum { EMBEDDINGS_BODY_MAX_BYTES = 64 << 20 };

static enum status take_format(bool *ret_is_base64, const json_t *body, struct error *err)
{
    const char *format = "float";

    if (field_text(&format, body, "encoding_format", err) != STATUS_OK)
        return err->status;
    *ret_is_base64 = strcmp(format, "base64") == 0;
    if (!*ret_is_base64 && strcmp(format, "float") != 0)
        return error_field(err, "encoding_format", "is '%.40s', it must be float or base64",
                           format);
    return STATUS_OK;
}

static void embeddings_write(const struct embedding_answer *a, struct json_writer *w)
{
    const size_t width = embeddings_width(a->embeddings);

    json_begin_object(w, NULL);
    json_write_text(w, "object", "list");
    json_write_text(w, "model", a->model->name);
    json_begin_array(w, "data");
    for (size_t i = 0; i < a->n_inputs; i++) {
        const float *values = embeddings_values(a->embeddings, i);

        json_begin_object(w, NULL);
        json_write_text(w, "object", "embedding");
        json_write_unsigned(w, "index", i);
        if (a->is_base64) /* the host is little-endian */
            json_write_base64(w, "embedding", values, width * sizeof(values[0]));
        else
            embedding_answer_write_values(a, i, "embedding", w);
        json_end_object(w);
    }
    json_end_array(w);
    embedding_answer_write_usage(a, w);
    json_end_object(w);
}

static enum status embeddings_begin_request(struct exchange *x, const json_t *body,
                                            struct error *err)
{
    struct embeddings_request r = {0};
    struct embedding_input *inputs;
    const char *model = "";
    bool is_base64 = false;
    int64_t dimensions = 0;

    if (field_text(&model, body, "model", err) != STATUS_OK ||
        take_format(&is_base64, body, err) != STATUS_OK ||
        field_whole(&dimensions, NULL, body, "dimensions", 1, UINT32_MAX, err) != STATUS_OK ||
        embedding_request_inputs(&inputs, &r.n_inputs, body, "input", exchange_arena(x), err) !=
            STATUS_OK ||
        resolution_find_model(&r.model, x, model, err) != STATUS_OK)
        return err->status;
    r.inputs = inputs;
    r.dimensions = (size_t)dimensions;
    return embedding_answer_start(x, &r, embeddings_write, is_base64, NULL, err);
}

static void embeddings_serve(struct exchange *x)
{
    resolution_serve(x, embeddings_begin_request);
}

static const struct route rows[] = {
    {"/v1/embeddings", .methods = METHOD_POST, .serve = embeddings_serve, .api = &openai_api},
};
const struct route_table openai_embeddings_routes = {rows, sizeof(rows) / sizeof(rows[0])};
