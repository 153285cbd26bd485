/* Asks a server's reflection for the file of a service, and for the files that are imported.
 * Messages, enums and methods are then found by their names. */
#include "client/cli/bench/proto_schema.h"

#include <string.h>

#include "grpc/reflection/v1/reflection.pb-c.h"
#include "proto/codec.h"

typedef Google__Protobuf__FileDescriptorProto file_descriptor;
typedef Google__Protobuf__DescriptorProto message_descriptor;
typedef Google__Protobuf__EnumDescriptorProto enum_descriptor;
typedef Google__Protobuf__MethodDescriptorProto method_descriptor;

void proto_schema_init(struct proto_schema *s)
{
    s->n_files = 0;
    arena_init(&s->arena, PROTO_SCHEMA_MAX_BYTES);
}

void proto_schema_deinit(struct proto_schema *s)
{
    arena_deinit(&s->arena);
}

/* --- names --- */

/* What follows the name and a dot, or the end; NULL: the text does not begin with it. An empty name
 * is before any text. */
static const char *behind_name(const char *text, const char *name)
{
    size_t len = strlen(name);

    if (len == 0)
        return text;
    if (strncmp(text, name, len) != 0 || (text[len] != '.' && text[len] != '\0'))
        return NULL;
    return text[len] == '.' ? text + len + 1 : text + len;
}

static const message_descriptor *message_among(message_descriptor *const *list, size_t n,
                                               const char *name)
{
    while (n-- > 0) {
        const message_descriptor *m = *list++;
        const char *rest = behind_name(name, m->name);

        if (rest != NULL && *rest == '\0')
            return m;
        if (rest != NULL) { /* the name continues: it is a type nested in this one */
            name = rest;
            list = m->nested_type;
            n = m->n_nested_type;
        }
    }
    return NULL;
}

static const enum_descriptor *enum_among(enum_descriptor *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i]->name, name) == 0)
            return list[i];
    return NULL;
}

const message_descriptor *proto_schema_message(const struct proto_schema *s, const char *name)
{
    name += *name == '.';
    for (size_t i = 0; i < s->n_files; i++) {
        const file_descriptor *f = s->files[i];
        const char *rest = behind_name(name, f->package);
        const message_descriptor *m =
            rest == NULL ? NULL : message_among(f->message_type, f->n_message_type, rest);

        if (m != NULL)
            return m;
    }
    return NULL;
}

const enum_descriptor *proto_schema_enum(const struct proto_schema *s, const char *name)
{
    const char *last;
    char outer[256];

    name += *name == '.';
    last = strrchr(name, '.');
    for (size_t i = 0; i < s->n_files; i++) {
        const file_descriptor *f = s->files[i];
        const char *rest = behind_name(name, f->package);
        const enum_descriptor *e =
            rest == NULL ? NULL : enum_among(f->enum_type, f->n_enum_type, rest);

        if (e != NULL)
            return e;
    }
    if (last != NULL && (size_t)(last - name) < sizeof(outer)) {
        const message_descriptor *m;

        memcpy(outer, name, (size_t)(last - name));
        outer[last - name] = '\0';
        m = proto_schema_message(s, outer);
        return m == NULL ? NULL : enum_among(m->enum_type, m->n_enum_type, last + 1);
    }
    return NULL;
}

const method_descriptor *proto_schema_method(const struct proto_schema *s, const char *service,
                                             const char *method)
{
    for (size_t i = 0; i < s->n_files; i++) {
        const file_descriptor *f = s->files[i];
        const char *rest = behind_name(service, f->package);

        for (size_t k = 0; rest != NULL && k < f->n_service; k++)
            for (size_t m = 0;
                 strcmp(f->service[k]->name, rest) == 0 && m < f->service[k]->n_method; m++)
                if (strcmp(f->service[k]->method[m]->name, method) == 0)
                    return f->service[k]->method[m];
    }
    return NULL;
}

/* --- reflection --- */

static bool proto_schema_has(const struct proto_schema *s, const char *file)
{
    for (size_t i = 0; i < s->n_files; i++)
        if (strcmp(s->files[i]->name, file) == 0)
            return true;
    return false;
}

enum status proto_schema_add(struct proto_schema *s, const void *data, size_t len,
                             struct error *err)
{
    ProtobufCMessage *m = NULL;
    enum status rc = codec_decode(&m, &google__protobuf__file_descriptor_proto__descriptor, data,
                                  len, CODEC_ANY_FIELDS, &s->arena, err);

    if (rc != STATUS_OK)
        return error_prefix(err, "a file of its reflection");
    if (proto_schema_has(s, ((const file_descriptor *)m)->name))
        return STATUS_OK;
    if (s->n_files == PROTO_SCHEMA_MAX_FILES)
        return error_set(err, STATUS_RANGE, "its reflection has more than %d files",
                         (int)PROTO_SCHEMA_MAX_FILES);
    s->files[s->n_files++] = (const file_descriptor *)m;
    return STATUS_OK;
}

/* A question of reflection and where its answer goes. */
struct reflection_question {
    struct proto_schema *schema;
    struct error err; /* why the answer cannot be used */
    bool is_answered;
};

static enum parley_status take_answer(void *arg, const void *data, size_t len,
                                      struct parley_error *ignored)
{
    struct reflection_question *q = arg;
    const Grpc__Reflection__V1__ServerReflectionResponse *answer;
    ProtobufCMessage *m = NULL;
    struct arena arena;
    enum status rc;

    arena_init(&arena, PROTO_SCHEMA_MAX_BYTES);
    rc = codec_decode(&m, &grpc__reflection__v1__server_reflection_response__descriptor, data, len,
                      CODEC_ANY_FIELDS, &arena, &q->err);
    answer = (const Grpc__Reflection__V1__ServerReflectionResponse *)m;
    if (rc != STATUS_OK) {
        (void)error_prefix(&q->err, "its reflection");
    } else if (
        answer->message_response_case ==
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE) {
        const Grpc__Reflection__V1__FileDescriptorResponse *files =
            answer->file_descriptor_response;

        q->is_answered = true;
        for (size_t i = 0; rc == STATUS_OK && i < files->n_file_descriptor_proto; i++)
            rc = proto_schema_add(q->schema, files->file_descriptor_proto[i].data,
                                  files->file_descriptor_proto[i].len, &q->err);
    } else if (answer->message_response_case ==
               GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE) {
        (void)error_set(&q->err, STATUS_NOT_FOUND, "%.200s", answer->error_response->error_message);
    }
    arena_deinit(&arena);
    return PARLEY_OK; /* the stream ends by itself after the only request */
}

/* One question: the file that has the symbol, or, without one, the file of this name. */
static enum status proto_schema_ask(struct proto_schema *s, struct parley_channel *channel,
                                    const char *symbol, const char *file, struct error *err)
{
    /* Both versions have the same messages. */
    static const char *const methods[] = {
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
    Grpc__Reflection__V1__ServerReflectionRequest request =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    struct reflection_question q = {.schema = s};
    struct parley_error why = {.status = PARLEY_UNIMPLEMENTED};
    uint8_t bytes[1024];

    if (symbol != NULL) {
        request.message_request_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL;
        request.file_containing_symbol = (char *)(uintptr_t)symbol; /* only read */
    } else {
        request.message_request_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME;
        request.file_by_filename = (char *)(uintptr_t)file;
    }
    if (codec_size(&request.base) > sizeof(bytes))
        return error_set(err, STATUS_RANGE, "a name is longer than %zu bytes", sizeof(bytes));
    (void)codec_encode(&request.base, bytes);
    for (size_t i = 0; i < 2 && why.status == PARLEY_UNIMPLEMENTED; i++)
        (void)parley_server_stream(channel, methods[i], bytes, codec_size(&request.base),
                                   take_answer, &q, &why);
    if (why.status != PARLEY_OK)
        return error_set(err, (enum status)why.status, "its reflection: %s", why.text);
    if (q.err.status == STATUS_OK && !q.is_answered)
        (void)error_set(&q.err, STATUS_NOT_FOUND, "its reflection did not answer");
    *err = q.err;
    return err->status;
}

enum status proto_schema_read(struct proto_schema *s, struct parley_channel *channel,
                              const char *service, struct error *err)
{
    enum status rc = proto_schema_ask(s, channel, service, NULL, err);

    for (size_t i = 0; rc == STATUS_OK && i < s->n_files; i++) /* the list grows during the loop */
        for (size_t k = 0; rc == STATUS_OK && k < s->files[i]->n_dependency; k++)
            if (!proto_schema_has(s, s->files[i]->dependency[k]))
                rc = proto_schema_ask(s, channel, NULL, s->files[i]->dependency[k], err);
    return rc;
}
