/* Reads the configurations of sets of parameters, compares tensors with a set's, and splits the
 * messages of an upload. Chunks of numbers are views of the received bytes. */
#include "server/api/parley/params_wire.h"
#include "server/api/parley/wire_sharing.h"
#include "server/api/parley/wire_tensor.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "server/api/services.h"

#include "proto/codec.h"

#define MATCH_MAX_BYTES ((size_t)64 << 20)

/* --- messages --- */

static enum status params_wire_decode(const ProtobufCMessage **out, const struct call_bytes *bytes,
                                      const ProtobufCMessageDescriptor *type, struct arena *arena,
                                      struct error *err)
{
    ProtobufCMessage *m = NULL;
    const enum status rc = call_bytes_decode(&m, bytes, type, PARAMS_WIRE_MAX_FIELDS, arena, err);

    *out = m;
    return rc;
}

enum status params_part_read(struct params_part *out, const struct call_bytes *bytes,
                             const ProtobufCMessageDescriptor *type, struct arena *arena,
                             struct error *err)
{
    const ProtobufCBinaryData *sha = NULL;
    struct chunk chunk;
    unsigned which;
    enum status rc;

    switch (chunk_read(&chunk, bytes->pieces, bytes->n_pieces, bytes->size_bytes)) {
    case CHUNK_READ:
        *out = (struct params_part){.kind = PARAMS_PART_CHUNK, .chunk = chunk};
        return STATUS_OK;
    case CHUNK_BAD:
        return error_field(err, "chunk", "is none: it has offset, data and crc32c, each once");
    case CHUNK_NONE:
        break;
    }
    *out = (struct params_part){.kind = PARAMS_PART_HEADER};
    rc = params_wire_decode(&out->message, bytes, type, arena, err);
    if (rc != STATUS_OK)
        return rc;
    if (type == &parley__v1__params_upload__descriptor) {
        const Parley__V1__ParamsUpload *m = (const Parley__V1__ParamsUpload *)out->message;

        which = m->what_case;
        sha = &m->sha256;
    } else {
        const Parley__V1__ParamsCreateRequest *m =
            (const Parley__V1__ParamsCreateRequest *)out->message;

        which = m->what_case;
        sha = &m->sha256;
    }
    if (which == 1)
        return STATUS_OK;
    if (which == 2)
        return error_field(err, "chunk", "cannot be combined with other fields");
    if (which == 4) {
        out->kind = PARAMS_PART_MEMORY;
        return STATUS_OK;
    }
    if (which != 3)
        return error_set(err, STATUS_INVALID, "a message is empty");
    if (sha->len != SHA256_BYTES && sha->len != 0)
        return error_field(err, "sha256", "has %zu bytes, it must have %d", sha->len, SHA256_BYTES);
    out->kind = PARAMS_PART_SHA256;
    out->sha256 = sha->len == 0 ? NULL : sha->data;
    return STATUS_OK;
}

/* --- what is created --- */

enum status params_wire_tensors(const struct tensor_view **out,
                                Parley__V1__TensorSpec *const *specs, size_t n, struct arena *arena,
                                struct error *err)
{
    struct tensor_view *tensors = arena_alloc(arena, n, sizeof(*tensors));

    if (tensors == NULL)
        return error_no_memory(err, n * sizeof(*tensors), "the specs of tensors");
    for (size_t i = 0; i < n; i++) {
        const Parley__V1__TensorSpec *from = specs[i];
        struct tensor_view *t = &tensors[i];
        size_t n_numbers = 1;

        *t = (struct tensor_view){.name = from->name, .n_dims = from->n_shape};
        if (wire_tensor_type(&t->type, from->dtype, err) != STATUS_OK)
            return err->status;
        if (from->n_shape > TENSOR_MAX_DIMS)
            return error_field(err, "specs", "has %zu dimensions for '%.40s', at most %d are read",
                               from->n_shape, from->name, TENSOR_MAX_DIMS);
        for (size_t k = 0; k < from->n_shape; k++) {
            t->dims[k] = from->shape[k];
            if (from->shape[k] < 0 ||
                __builtin_mul_overflow(n_numbers, (size_t)from->shape[k], &n_numbers))
                n_numbers = SIZE_MAX; /* params_spec_check will say so */
        }
        if (__builtin_mul_overflow(n_numbers, tensor_type_size(t->type), &t->size_bytes))
            t->size_bytes = SIZE_MAX;
    }
    *out = tensors;
    return STATUS_OK;
}

enum status params_wire_match(const struct params_set *set, Parley__V1__TensorSpec *const *specs,
                              size_t n, struct error *err)
{
    const struct params_spec *spec = &set->spec;
    const struct tensor_view *tensors;
    struct tensor_view *named;
    struct arena arena;
    enum status rc;

    if (n == 0)
        return STATUS_OK;
    arena_init(&arena, MATCH_MAX_BYTES);
    rc = params_wire_tensors(&tensors, specs, n, &arena, err);
    named = rc == STATUS_OK ? arena_alloc(&arena, n, sizeof(*named)) : NULL;
    if (rc == STATUS_OK && named == NULL)
        rc = error_no_memory(err, n * sizeof(*named), "the specs of tensors");
    for (size_t i = 0; rc == STATUS_OK && i < n; i++) {
        named[i] = tensors[i];
        if (named[i].name[0] == '\0' && i < spec->n_tensors)
            named[i].name = spec->tensors[i].name;
    }
    if (rc == STATUS_OK)
        rc = params_spec_match(spec, named, n, err);
    arena_deinit(&arena);
    return rc;
}

/* is_given: the case of the field's oneof, 0 if it is not set. */
static float or_else(int is_given, double value, float otherwise)
{
    return is_given != 0 ? (float)value : otherwise;
}

static enum status take_optimiser(struct optim *out, const Parley__V1__ParamsOptimiser *from,
                                  struct error *err)
{
    static const enum optim_kind kinds[] = {
        [PARLEY__V1__PARAMS_OPTIMISER_KIND__PARAMS_OPTIMISER_KIND_UNSPECIFIED] = OPTIM_SGD,
        [PARLEY__V1__PARAMS_OPTIMISER_KIND__PARAMS_OPTIMISER_KIND_SGD] = OPTIM_SGD,
        [PARLEY__V1__PARAMS_OPTIMISER_KIND__PARAMS_OPTIMISER_KIND_ADAM] = OPTIM_ADAM,
        [PARLEY__V1__PARAMS_OPTIMISER_KIND__PARAMS_OPTIMISER_KIND_ADAMW] = OPTIM_ADAMW,
    };

    if ((unsigned)from->kind >= sizeof(kinds) / sizeof(kinds[0]))
        return error_field(err, "optimiser.kind", "is %d, which is not an optimiser",
                           (int)from->kind);
    *out = (struct optim){
        .kind = kinds[from->kind],
        .momentum = (float)from->momentum,
        .dampening = (float)from->dampening,
        .nesterov = from->nesterov,
        .weight_decay = (float)from->weight_decay,
        .beta1 = or_else((int)from->beta1_given_case, from->beta1, 0.9f),
        .beta2 = or_else((int)from->beta2_given_case, from->beta2, 0.999f),
        .epsilon = or_else((int)from->epsilon_given_case, from->epsilon, 1e-8f),
    };
    return STATUS_OK;
}

static enum status take_schedule(struct schedule *out, const Parley__V1__ParamsSchedule *from,
                                 struct error *err)
{
    static const enum schedule_kind kinds[] = {
        [PARLEY__V1__PARAMS_SCHEDULE_KIND__PARAMS_SCHEDULE_KIND_UNSPECIFIED] = SCHEDULE_CONSTANT,
        [PARLEY__V1__PARAMS_SCHEDULE_KIND__PARAMS_SCHEDULE_KIND_CONSTANT] = SCHEDULE_CONSTANT,
        [PARLEY__V1__PARAMS_SCHEDULE_KIND__PARAMS_SCHEDULE_KIND_STEP] = SCHEDULE_STEP,
        [PARLEY__V1__PARAMS_SCHEDULE_KIND__PARAMS_SCHEDULE_KIND_COSINE] = SCHEDULE_COSINE,
    };

    if ((unsigned)from->kind >= sizeof(kinds) / sizeof(kinds[0]))
        return error_field(err, "schedule.kind", "is %d, which is not a schedule", (int)from->kind);
    out->kind = kinds[from->kind];
    out->warm_up = from->warm_up;
    out->step_size = from->step_size;
    out->factor = from->factor;
    out->total = from->total;
    out->minimum = from->minimum;
    return STATUS_OK;
}

enum status params_wire_config(struct params_spec *out, const Parley__V1__ParamsConfig *from,
                               struct arena *arena, struct error *err)
{
    enum status rc;

    if (from->optimiser == NULL)
        return error_field(err, "optimiser", "is missing");
    if ((unsigned)from->reduce > PARLEY__V1__PARAMS_REDUCE__PARAMS_REDUCE_SUM)
        return error_field(err, "reduce", "is %d, which is not a way to reduce", (int)from->reduce);
    if (from->quorum != NULL &&
        (unsigned)from->quorum->on_miss > PARLEY__V1__PARAMS_ON_MISS__PARAMS_ON_MISS_APPLY_PARTIAL)
        return error_field(err, "quorum.on_miss", "is %d, which is not a value of on_miss",
                           (int)from->quorum->on_miss);
    *out = (struct params_spec){
        .name = from->name,
        .n_tensors = from->n_specs,
        .schedule = {.rate = from->optimiser->learning_rate},
        .is_sum = from->reduce == PARLEY__V1__PARAMS_REDUCE__PARAMS_REDUCE_SUM,
        .round_size = from->round_size,
        .dedupe = from->dedupe,
        .max_staleness = from->max_staleness,
        .allow_non_finite = from->allow_non_finite,
        .fan_in = from->fan_in,
        .max_queue = from->max_queue,
    };
    if (from->quorum != NULL)
        out->quorum = (struct params_quorum){
            .min = from->quorum->min,
            .timeout_ms = from->quorum->timeout_ms,
            .may_be_partial =
                from->quorum->on_miss == PARLEY__V1__PARAMS_ON_MISS__PARAMS_ON_MISS_APPLY_PARTIAL,
        };
    rc = take_optimiser(&out->optim, from->optimiser, err);
    if (rc == STATUS_OK && from->schedule != NULL)
        rc = take_schedule(&out->schedule, from->schedule, err);
    if (rc == STATUS_OK)
        rc = params_wire_tensors(&out->tensors, from->specs, from->n_specs, arena, err);
    return rc;
}

/* --- what is kept --- */

enum status params_wire_describe(struct params_set *set, const Parley__V1__ParamsConfig *from,
                                 struct error *err)
{
    size_t size_bytes = codec_size(&from->base);
    uint8_t *bytes = try_alloc(1, size_bytes + 1);
    enum status rc;

    if (bytes == NULL)
        return error_no_memory(err, size_bytes, "what describes a set of parameters");
    size_bytes = codec_encode(&from->base, bytes);
    rc = params_describe(set, bytes, size_bytes, err);
    free(bytes);
    return rc;
}

enum status services_read_params(struct params_spec *out, struct access_sharing *sharing,
                                 const void *config, size_t size_bytes, struct arena *arena,
                                 struct error *err)
{
    ProtobufCMessage *m = NULL;
    enum status rc = codec_decode(&m, &parley__v1__params_config__descriptor, config, size_bytes,
                                  PARAMS_WIRE_MAX_FIELDS, arena, err);

    if (rc != STATUS_OK)
        return rc;
    wire_sharing(sharing, ((const Parley__V1__ParamsConfig *)m)->access);
    return params_wire_config(out, (const Parley__V1__ParamsConfig *)m, arena, err);
}
