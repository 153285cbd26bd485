/* Reads the input tensors, the wanted outputs and the parameters of a request, each by name. A
 * shape, a type or a size that the signature does not allow is refused with the tensor's name. */
#include "server/api/kserve/request.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "server/conversation/event_id.h"
#include "server/json/fields.h"
#include "server/json/foreign_fields.h"
#include "server/json/sampling.h"

typedef Inference__ModelInferRequest request;
typedef Inference__ModelInferRequest__InferInputTensor input;
typedef Inference__InferTensorContents contents;
typedef Inference__InferParameter parameter;

enum { SHAPE_TEXT = 80, NAMES_TEXT = 120 };

/* --- texts for errors --- */

static void kserve_request_shape_text(char out[SHAPE_TEXT], const int64_t *dims, size_t n)
{
    size_t len = 0;

    for (size_t i = 0; i < n && len + 24 < SHAPE_TEXT; i++)
        len += (size_t)snprintf(out + len, SHAPE_TEXT - len, "%s%lld", i == 0 ? "[" : ", ",
                                (long long)dims[i]);
    (void)snprintf(out + len, SHAPE_TEXT - len, n == 0 ? "[]" : "]");
}

static void names_text(char out[NAMES_TEXT], const struct kserve_tensor *tensors, size_t n)
{
    size_t len = 0;

    out[0] = '\0';
    for (size_t i = 0; i < n && len + 40 < NAMES_TEXT; i++)
        len += (size_t)snprintf(out + len, NAMES_TEXT - len, "%s%s", i == 0 ? "" : ", ",
                                tensors[i].name);
}

static enum status kserve_request_wrong(struct error *err, const char *name, const char *what,
                                        const char *is, const char *should)
{
    (void)error_set(err, STATUS_INVALID, "input '%.40s' has %s %s, the model takes %s", name, what,
                    is, should);
    return error_name_field(err, name);
}

/* --- tensors --- */

static size_t n_typed(const contents *c)
{
    return c->n_bool_contents + c->n_int_contents + c->n_int64_contents + c->n_uint_contents +
           c->n_uint64_contents + c->n_fp32_contents + c->n_fp64_contents + c->n_bytes_contents;
}

/* [n], or [n, 1]. */
static enum status kserve_check_rows(const input *in, struct error *err)
{
    char is[SHAPE_TEXT];

    if (in->n_shape < 1 || in->n_shape > 2 || in->shape[0] < 1 ||
        (in->n_shape == 2 && in->shape[1] != 1)) {
        kserve_request_shape_text(is, in->shape, in->n_shape);
        return kserve_request_wrong(err, in->name, "shape", is, "[-1]");
    }
    if (in->shape[0] > EMBEDDINGS_MAX_INPUTS)
        return error_field(err, in->name, "has %lld texts, at most %d are allowed",
                           (long long)in->shape[0], EMBEDDINGS_MAX_INPUTS);
    return STATUS_OK;
}

/* The shape must be [dim], optionally with leading ones. */
static enum status check_shape(const input *in, const struct kserve_tensor *takes,
                               struct error *err)
{
    char is[SHAPE_TEXT], should[SHAPE_TEXT];
    bool is_right;

    if (takes->dim < 0)
        return kserve_check_rows(in, err);
    is_right = in->n_shape > 0 && in->shape[in->n_shape - 1] == takes->dim;

    for (size_t i = 0; i + 1 < in->n_shape; i++)
        is_right &= in->shape[i] == 1;
    if (is_right)
        return STATUS_OK;
    kserve_request_shape_text(is, in->shape, in->n_shape);
    kserve_request_shape_text(should, &takes->dim, 1);
    return kserve_request_wrong(err, in->name, "shape", is, should);
}

static enum status wrong_size(struct error *err, const char *name, size_t n_bytes)
{
    (void)error_set(err, STATUS_INVALID, "input '%.40s': %zu bytes of data do not fit its shape",
                    name, n_bytes);
    return error_name_field(err, name);
}

/* The raw data of an input; NULL: it is typed. */
static const ProtobufCBinaryData *raw_of(const request *r, size_t i)
{
    return r->n_raw_input_contents > 0 ? &r->raw_input_contents[i] : NULL;
}

/* The raw element of BYTES at *at, which moves behind it: its length, then its data. */
static enum status raw_element(const uint8_t **ret_data, size_t *ret_len, size_t *at,
                               const ProtobufCBinaryData *raw, const char *name, struct error *err)
{
    const uint8_t *head;
    size_t len;

    if (raw->len - *at < 4)
        return wrong_size(err, name, raw->len);
    head = raw->data + *at;
    len = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    if (len > raw->len - *at - 4)
        return wrong_size(err, name, raw->len);
    *ret_data = head + 4;
    *ret_len = len;
    *at += 4 + len;
    return STATUS_OK;
}

static enum status kserve_take_text(struct text *out, const input *in, const uint8_t *data,
                                    size_t len, struct arena *arena, struct error *err)
{
    if (memchr(len == 0 ? "" : (const char *)data, '\0', len) != NULL ||
        !utf8_is_valid((const char *)data, len))
        return error_field(err, in->name, "is not text: it is not UTF-8, or contains a NUL");
    out->text = arena_strndup(arena, len == 0 ? "" : (const char *)data, len);
    out->len = len;
    return out->text != NULL ? STATUS_OK : error_no_memory(err, len, "a text");
}

/* Takes all n elements of BYTES. */
static enum status take_texts(struct text *out, size_t n, const request *r, size_t i,
                              struct arena *arena, struct error *err)
{
    const input *in = r->inputs[i];
    const ProtobufCBinaryData *raw = raw_of(r, i);
    size_t at = 0;

    if (raw == NULL && (in->contents == NULL || in->contents->n_bytes_contents != n))
        return wrong_size(err, in->name, 0);
    for (size_t k = 0; k < n; k++) {
        const uint8_t *data = NULL;
        size_t len = 0;

        if (raw == NULL) {
            data = in->contents->bytes_contents[k].data;
            len = in->contents->bytes_contents[k].len;
        } else if (raw_element(&data, &len, &at, raw, in->name, err) != STATUS_OK) {
            return err->status;
        }
        if (kserve_take_text(&out[k], in, data, len, arena, err) != STATUS_OK)
            return err->status;
    }
    return raw == NULL || at == raw->len ? STATUS_OK : wrong_size(err, in->name, raw->len);
}

/* The texts to be embedded. */
static enum status take_rows(struct kserve_request *out, const request *r, size_t i,
                             struct arena *arena, struct error *err)
{
    const input *in = r->inputs[i];
    const size_t n = (size_t)in->shape[0]; /* it was checked */
    struct text *texts = arena_alloc(arena, n, sizeof(*texts));
    struct prompt_input *rows = arena_alloc(arena, n, sizeof(*rows));

    if (texts == NULL || rows == NULL)
        return error_no_memory(err, n * sizeof(*rows), "texts");
    if (take_texts(texts, n, r, i, arena, err) != STATUS_OK)
        return err->status;
    for (size_t k = 0; k < n; k++) {
        if (texts[k].len == 0)
            return error_field(err, in->name, "has an empty text");
        rows[k] = (struct prompt_input){.text = texts[k].text, .len = texts[k].len};
    }
    out->texts = rows;
    out->n_texts = n;
    return STATUS_OK;
}

static enum status take_bool(bool *out, const request *r, size_t i, struct error *err)
{
    const input *in = r->inputs[i];
    const ProtobufCBinaryData *raw = raw_of(r, i);

    if (raw != NULL && raw->len == 1)
        *out = raw->data[0] != 0;
    else if (raw == NULL && in->contents != NULL && in->contents->n_bool_contents == 1)
        *out = in->contents->bool_contents[0] != 0;
    else
        return wrong_size(err, in->name, raw == NULL ? 0 : raw->len);
    return STATUS_OK;
}

/* The message's memory is aligned for any type, each field by itself. */
static enum status take_floats(const float **out, const request *r, size_t i, size_t n,
                               struct error *err)
{
    const input *in = r->inputs[i];
    const ProtobufCBinaryData *raw = raw_of(r, i);

    if (raw != NULL && raw->len == n * sizeof(float))
        *out = (const float *)(const void *)raw->data;
    else if (raw == NULL && in->contents != NULL && in->contents->n_fp32_contents == n)
        *out = in->contents->fp32_contents;
    else
        return wrong_size(err, in->name, raw != NULL ? raw->len : 0);
    return STATUS_OK;
}

/* Checks that all data is raw, or all typed, and that no input lacks it. */
static enum status check_contents(const request *r, struct error *err)
{
    bool is_raw = r->n_raw_input_contents > 0;

    if (is_raw && r->n_raw_input_contents != r->n_inputs)
        return error_field(err, "raw_input_contents", "has %zu entries for %zu inputs",
                           r->n_raw_input_contents, r->n_inputs);
    for (size_t i = 0; i < r->n_inputs; i++) {
        const input *in = r->inputs[i];

        for (size_t k = 0; k < in->n_parameters; k++)
            if (strncmp(in->parameters[k]->key, "shared_memory_", 14) == 0)
                return error_because(err, STATUS_UNIMPLEMENTED, REASON_NONE, "inputs",
                                     "input '%.40s' lies in shared memory, which is not served",
                                     in->name);
        if (is_raw && in->contents != NULL && n_typed(in->contents) > 0)
            return error_field(err, "raw_input_contents",
                               "cannot be combined with contents, which input '%.40s' has",
                               in->name);
    }
    return STATUS_OK;
}

static enum status take_sampling(struct sampling_overrides *overrides, const struct text *text,
                                 struct arena *arena, struct error *err)
{
    json_error_t why;
    json_t *json;
    enum status rc;
    bool is_short;

    if (text->len == 0)
        return STATUS_OK;
    json = fields_load(text->text, text->len, &why, &is_short);
    if (is_short)
        return error_no_memory(err, text->len, "sampling_parameters");
    if (json == NULL)
        return error_field(err, "sampling_parameters", "is no JSON: %.120s", why.text);
    if (json_is_object(json)) {
        rc = sampling_json_set_all(overrides, json, arena, err);
        if (rc == STATUS_OK)
            rc = foreign_fields_take(overrides, json, arena, err);
        if (rc != STATUS_OK)
            (void)error_prefix(err, "sampling_parameters");
    } else {
        rc = error_field(err, "sampling_parameters", "must be a JSON object");
    }
    json_decref(json);
    return rc;
}

static enum status kserve_request_take_input(struct kserve_request *out,
                                             struct sampling_overrides *overrides, const request *r,
                                             size_t i, const struct kserve_signature *sig,
                                             size_t which, struct arena *arena, struct error *err)
{
    const struct kserve_tensor *takes = &sig->inputs[which];
    const input *in = r->inputs[i];
    struct text text = {0};
    enum status rc;

    if (strcmp(in->datatype, takes->datatype) != 0) {
        char is[24];

        (void)snprintf(is, sizeof(is), "%s", in->datatype);
        return kserve_request_wrong(err, in->name, "datatype", is[0] == '\0' ? "''" : is,
                                    takes->datatype);
    }
    rc = check_shape(in, takes, err);
    if (rc != STATUS_OK)
        return rc;
    if (sig->is_policy)
        return take_floats(&out->observation, r, i, (size_t)takes->dim, err);
    if (sig->is_embedding)
        return take_rows(out, r, i, arena, err);
    switch (which) {
    case KSERVE_TEXT_INPUT:
        return take_texts(&out->text, 1, r, i, arena, err);
    case KSERVE_STREAM:
        return take_bool(&out->wants_stream, r, i, err);
    default:
        rc = take_texts(&text, 1, r, i, arena, err);
        return rc == STATUS_OK ? take_sampling(overrides, &text, arena, err) : rc;
    }
}

static enum status take_inputs(struct kserve_request *out, struct sampling_overrides *overrides,
                               const request *r, const struct kserve_signature *sig,
                               const char *model_name, struct arena *arena, struct error *err)
{
    bool has[KSERVE_MAX_INPUTS] = {false};
    char names[NAMES_TEXT];

    for (size_t i = 0; i < r->n_inputs; i++) {
        const char *name = r->inputs[i]->name;
        size_t which = 0;

        while (which < sig->n_inputs && strcmp(sig->inputs[which].name, name) != 0)
            which++;
        if (which == sig->n_inputs) {
            names_text(names, sig->inputs, sig->n_inputs);
            return error_field(err, "inputs", "has '%.40s', model '%.40s' takes: %s", name,
                               model_name, names);
        }
        if (has[which])
            return error_field(err, "inputs", "has '%.40s' twice", name);
        has[which] = true;
        if (kserve_request_take_input(out, overrides, r, i, sig, which, arena, err) != STATUS_OK)
            return err->status;
    }
    for (size_t i = 0; i < sig->n_inputs; i++)
        if (!has[i] && !sig->inputs[i].is_optional)
            return error_field(err, "inputs", "has no '%s', which model '%.40s' needs",
                               sig->inputs[i].name, model_name);
    return STATUS_OK;
}

static enum status take_outputs(struct kserve_request *out, const request *r,
                                const struct kserve_signature *sig, const char *model_name,
                                struct error *err)
{
    char names[NAMES_TEXT];

    for (size_t i = 0; i < sig->n_outputs; i++)
        out->wants[i] = r->n_outputs == 0;
    for (size_t i = 0; i < r->n_outputs; i++) {
        const Inference__ModelInferRequest__InferRequestedOutputTensor *asked = r->outputs[i];
        size_t which = 0;

        while (which < sig->n_outputs && strcmp(sig->outputs[which].name, asked->name) != 0)
            which++;
        if (which == sig->n_outputs) {
            names_text(names, sig->outputs, sig->n_outputs);
            return error_field(err, "outputs", "has '%.40s', model '%.40s' gives: %s", asked->name,
                               model_name, names);
        }
        out->wants[which] = true;
        for (size_t k = 0; k < asked->n_parameters; k++) {
            const char *key = asked->parameters[k]->key;

            if (strncmp(key, "shared_memory_", 14) == 0 || strcmp(key, "classification") == 0)
                return error_because(err, STATUS_UNIMPLEMENTED, REASON_NONE, "outputs",
                                     "output '%.40s' is wanted with %.40s, which is not served",
                                     asked->name, key);
        }
    }
    return STATUS_OK;
}

/* --- parameters --- */

static enum status take_flag(bool *out, const char *key, const parameter *p, struct error *err)
{
    if (p->parameter_choice_case != INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM)
        return error_field(err, key, "must be a bool_param");
    *out = p->bool_param != 0;
    return STATUS_OK;
}

/* Clients send whole numbers as signed or unsigned. */
static enum status take_count(uint64_t *out, const char *key, const parameter *p, struct error *err)
{
    switch (p->parameter_choice_case) {
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM:
        if (p->int64_param < 0)
            return error_field(err, key, "is %lld, below 0", (long long)p->int64_param);
        *out = (uint64_t)p->int64_param;
        return STATUS_OK;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM:
        *out = p->uint64_param;
        return STATUS_OK;
    default:
        return error_field(err, key, "must be an int64_param or a uint64_param");
    }
}

static enum status take_priority(int *out, const parameter *p, struct error *err)
{
    uint64_t level = 0;
    enum status rc = take_count(&level, "priority", p, err);

    if (rc == STATUS_OK && level > 0)
        *out = level > 200 ? -100 : 101 - (int)level;
    return rc;
}

/* 0 and "" mean no sequence. */
static enum status take_sequence(const char **out, const parameter *p, struct arena *arena,
                                 struct error *err)
{
    char number[24];
    char *key;
    size_t len;

    switch (p->parameter_choice_case) {
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM:
        (void)snprintf(number, sizeof(number), "%lld", (long long)p->int64_param);
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM:
        (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)p->uint64_param);
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM:
        len = strlen(p->string_param);
        if (len == 0)
            return STATUS_OK;
        if (len > SEQUENCE_ID_MAX_BYTES)
            return error_field(err, "sequence_id", "has %zu bytes, at most %d are allowed", len,
                               SEQUENCE_ID_MAX_BYTES);
        key = arena_alloc(arena, len + 3, 1);
        if (key == NULL)
            return error_no_memory(err, len + 3, "a sequence");
        (void)snprintf(key, len + 3, "\"%s\"", p->string_param);
        *out = key;
        return STATUS_OK;
    default:
        return error_field(err, "sequence_id", "must be an int64_param or a string_param");
    }
    if (strcmp(number, "0") == 0)
        return STATUS_OK;
    *out = arena_strndup(arena, number, strlen(number));
    return *out != NULL ? STATUS_OK : error_no_memory(err, sizeof(number), "a sequence");
}

/* A sampling parameter, ours or another server's, converted to JSON. */
static enum status take_setting(struct sampling_overrides *overrides, const char *key,
                                const parameter *p, struct arena *arena, struct error *err)
{
    json_t *value = NULL, *object;
    enum status rc;

    switch (p->parameter_choice_case) {
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM:
        value = json_boolean(p->bool_param);
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM:
        value = json_integer(p->int64_param);
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM:
        value = json_integer((json_int_t)p->uint64_param);
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM:
        value = json_real(p->double_param); /* NULL for NaN or infinity */
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM:
        value = json_string(p->string_param);
        break;
    default:
        return error_field(err, key, "has no value");
    }
    if (value == NULL)
        return error_field(err, key, "has a value that is none");
    object = json_object();
    if (json_object_set_new(object, key, value) != 0) /* which takes the value in any case */
        rc = error_no_memory(err, 0, "sampling parameters");
    else if (sampling_json_knows(key))
        rc = sampling_json_set(overrides, key, value, arena, err);
    else
        rc = foreign_fields_take(overrides, object, arena, err);
    json_decref(object);
    return rc;
}

static enum status take_turn(uint32_t *out, const char *key, const parameter *p, struct error *err)
{
    uint64_t number = 0;

    if (take_count(&number, key, p, err) != STATUS_OK)
        return err->status;
    if (number == 0 || number > UINT32_MAX)
        return error_field(err, key, "is %llu, turns are numbered from 1",
                           (unsigned long long)number);
    *out = (uint32_t)number;
    return STATUS_OK;
}

/* A response's cursor: GENERATION.TURN.INDEX. */
static enum status take_cursor(struct kserve_request *out, const char *key, const parameter *p,
                               struct error *err)
{
    const char *text = p->string_param;
    struct event_id id;

    if (p->parameter_choice_case != INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
        return error_field(err, key, "must be a string_param");
    if (event_id_parse(&id, text, strlen(text), err) != STATUS_OK || id.n_indexes != 1)
        return error_field(err, key, "'%.60s' is not a cursor of a response", text);
    out->turn = id.turn;
    out->resume = (struct turn_resume){true, id.generation, id.indexes[0]};
    return STATUS_OK;
}

static enum status take_dimensions(size_t *out, const char *key, const parameter *p,
                                   struct error *err)
{
    uint64_t n = 0;

    if (take_count(&n, key, p, err) != STATUS_OK)
        return err->status;
    if (n == 0 || n > UINT32_MAX)
        return error_field(err, key, "is %llu", (unsigned long long)n);
    *out = (size_t)n;
    return STATUS_OK;
}

/* Unknown names are ignored. */
static enum status take_parameter(struct kserve_request *out, struct sampling_overrides *overrides,
                                  const char *key, const parameter *p, struct arena *arena,
                                  struct error *err)
{
    if (p == NULL)
        return error_field(err, key, "has no value");
    if (strcmp(key, "sequence_id") == 0)
        return take_sequence(&out->sequence, p, arena, err);
    if (strcmp(key, "sequence_start") == 0)
        return take_flag(&out->starts, key, p, err);
    if (strcmp(key, "sequence_end") == 0)
        return take_flag(&out->ends, key, p, err);
    if (strcmp(key, "triton_enable_empty_final_response") == 0)
        return take_flag(&out->wants_empty_final, key, p, err);
    if (strcmp(key, "priority") == 0)
        return take_priority(&out->priority, p, err);
    if (strcmp(key, "timeout") == 0)
        return take_count(&out->timeout_us, key, p, err);
    if (strcmp(key, "turn") == 0)
        return take_turn(&out->turn, key, p, err);
    if (strcmp(key, "dimensions") == 0)
        return take_dimensions(&out->dimensions, key, p, err);
    if (strcmp(key, "resume_from") == 0)
        return take_cursor(out, key, p, err);
    if (sampling_json_knows(key) || foreign_fields_know(key))
        return take_setting(overrides, key, p, arena, err);
    return STATUS_OK;
}

enum status kserve_request_read(struct kserve_request *out, const request *r,
                                const struct kserve_signature *sig, const char *model_name,
                                struct arena *arena, struct error *err)
{
    struct sampling_overrides *overrides = arena_alloc(arena, 1, sizeof(*overrides));
    enum status rc;

    if (overrides == NULL)
        return error_no_memory(err, sizeof(*overrides), "sampling parameters");
    *out = (struct kserve_request){0};
    rc = check_contents(r, err);
    if (rc == STATUS_OK)
        rc = take_inputs(out, overrides, r, sig, model_name, arena, err);
    if (rc == STATUS_OK)
        rc = take_outputs(out, r, sig, model_name, err);
    for (size_t i = 0; i < r->n_parameters && rc == STATUS_OK; i++)
        rc = take_parameter(out, overrides, r->parameters[i]->key, r->parameters[i]->value, arena,
                            err);
    if (rc == STATUS_OK && sig->is_embedding && out->sequence != NULL)
        rc = error_field(err, "sequence_id", "is for turns: an embedding is in no sequence");
    if (rc == STATUS_OK && !sig->is_policy && !sig->is_embedding && out->text.len == 0 &&
        !out->resume.is_wanted)
        rc = error_field(err, "text_input", "is empty: a turn says something");
    if (rc == STATUS_OK && out->sequence == NULL && (out->starts || out->ends))
        rc = error_field(err, "sequence_id", "is required with sequence_start or sequence_end");
    if (rc == STATUS_OK && out->sequence == NULL && out->turn != 0)
        rc = error_field(err, "sequence_id", "is required with turn or resume_from");
    if (overrides->given != 0)
        out->overrides = overrides;
    return rc;
}
