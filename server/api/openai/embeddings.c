/* POST /v1/embeddings. */
#include <string.h>

#include "base/env.h"
#include "server/access/access.h"
#include "server/api/embedding_request.h"
#include "server/api/known_fields.h"
#include "server/api/openai/error.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/conversation/embeddings.h"
#include "server/http/exchange.h"
#include "server/json/field_table.h"
#include "server/model/model.h"
#include "server/server.h"

enum { EMBEDDINGS_BODY_MAX_BYTES = 64 << 20 };

struct embeddings_body {
    const char *model, *format;
    uint32_t dimensions;
};

#define TO(member) offsetof(struct embeddings_body, member)

/* input has a reader of its own. */
/* clang-format off */
static const struct field_row body_rows[] = {
    {"add_special_tokens", FIELD_ANY, .refused = "must be true: send token ids to have none", .is_off = field_is_true},
    {"dimensions", FIELD_WHOLE, .to = TO(dimensions), .least = 1, .most = UINT32_MAX},
    {"encoding_format", FIELD_TEXT, .to = TO(format)},
    {"input_type", FIELD_ANY, .refused = "is not supported: put the model's prefix into the text", .is_off = field_is_empty},
    {"messages", FIELD_ANY, .refused = "is not supported: send input", .is_off = field_is_empty},
    {"model", FIELD_TEXT, .to = TO(model)},
    {"normalize", FIELD_ANY, .refused = "must be true: vectors have length 1", .is_off = field_is_true},
    {"truncate_prompt_tokens", FIELD_ANY, .refused = "is not supported: a text is read whole", .is_off = field_is_empty},
};
/* clang-format on */
static const struct field_table of_body = FIELD_TABLE(body_rows);

static enum status embeddings_check_format(const char *format, struct error *err)
{
    if (strcmp(format, "base64") == 0 || strcmp(format, "float") == 0)
        return STATUS_OK;
    return error_field(err, "encoding_format", "is '%.40s', it must be float or base64", format);
}

static void embeddings_write(const struct embedding_answer *a, struct json_writer *w)
{
    const size_t width = embeddings_width(a->embeddings);
    const struct server *server = exchange_server(a->exchange);
    unsigned long long id;

    server->env->random(server->env->self, &id, sizeof(id));
    json_begin_object(w, NULL);
    json_write_format(w, "id", "embd-%016llx", id);
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
    struct prompt_input *inputs;
    struct embeddings_body given = {.model = "", .format = "float"};

    if (field_table_read(&of_body, &given, body, err) != STATUS_OK ||
        known_fields_name_others(x, body, &of_body, FIELDS_OF_EMBEDDINGS, err) != STATUS_OK ||
        embeddings_check_format(given.format, err) != STATUS_OK ||
        embedding_request_inputs(&inputs, &r.n_inputs, body, "input", exchange_arena(x), err) !=
            STATUS_OK ||
        resolution_find_model(&r.model, x, given.model, err) != STATUS_OK)
        return err->status;
    r.inputs = inputs;
    r.dimensions = given.dimensions;
    return embedding_answer_start(x, &r, embeddings_write, strcmp(given.format, "base64") == 0,
                                  NULL, err);
}

static void embeddings_serve(struct exchange *x)
{
    resolution_serve(x, embeddings_begin_request);
}

static const struct route rows[] = {
    {"/v1/embeddings", .methods = METHOD_POST, .serve = embeddings_serve, .api = &openai_api},
};
const struct route_table openai_embeddings_routes = {rows, sizeof(rows) / sizeof(rows[0])};
