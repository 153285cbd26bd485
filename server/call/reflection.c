/* grpc.reflection.v1 and v1alpha: the services, and the descriptors of their files. The two
 * protocols are the same on the wire. An unknown name is answered with an error message. */
#include "server/call/reflection.h"

#include <stdlib.h>
#include <string.h>

#include "grpc/reflection/v1/reflection.pb-c.h"
#include "proto/descriptors.h"
#include "server/call/multiplex.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest question;
typedef Grpc__Reflection__V1__ServerReflectionResponse answer;

enum { MAX_QUESTIONS = 64, MAX_FILES = 32, MAX_SERVICES = 32 };

struct asked {
    struct multiplex_item base;
    const question *question; /* in arena */
    struct arena arena;
};

/* An answer and its parts. */
struct answer_parts {
    answer message;
    Grpc__Reflection__V1__FileDescriptorResponse files;
    ProtobufCBinaryData bytes[MAX_FILES];
    Grpc__Reflection__V1__ListServiceResponse list;
    Grpc__Reflection__V1__ServiceResponse services[MAX_SERVICES], *service_list[MAX_SERVICES];
    Grpc__Reflection__V1__ExtensionNumberResponse numbers;
    Grpc__Reflection__V1__ErrorResponse error;
    struct error err;
};

static void say_error(struct answer_parts *a, enum status status, const char *what,
                      const char *name)
{
    (void)error_set(&a->err, status, "there is no %s '%.100s'", what, name);
    grpc__reflection__v1__error_response__init(&a->error);
    a->error.error_code = (int32_t)a->err.status;
    a->error.error_message = a->err.text;
    a->message.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    a->message.error_response = &a->error;
}

static void add_file(struct answer_parts *a, const struct descriptor_file *file)
{
    if (a->files.n_file_descriptor_proto < MAX_FILES)
        a->bytes[a->files.n_file_descriptor_proto++] =
            (ProtobufCBinaryData){.data = (uint8_t *)file->bytes, .len = file->size_bytes};
}

/* The file, followed by its dependencies. */
static void say_file(struct answer_parts *a, const struct descriptor_file *file)
{
    grpc__reflection__v1__file_descriptor_response__init(&a->files);
    a->files.file_descriptor_proto = a->bytes;
    add_file(a, file);
    for (size_t i = 0; i < file->n_imports; i++)
        add_file(a, &descriptor_files[file->imports[i]]);
    a->message.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    a->message.file_descriptor_response = &a->files;
}

static void say_services(struct answer_parts *a)
{
    grpc__reflection__v1__list_service_response__init(&a->list);
    a->list.service = a->service_list;
    for (size_t i = 0; i < descriptor_n_services && i < MAX_SERVICES; i++) {
        grpc__reflection__v1__service_response__init(&a->services[i]);
        a->services[i].name = (char *)descriptor_services[i];
        a->service_list[i] = &a->services[i];
        a->list.n_service++;
    }
    a->message.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    a->message.list_services_response = &a->list;
}

/* No message of ours is extended by another file. */
static void say_extensions(struct answer_parts *a, const char *type)
{
    const struct descriptor_symbol *symbol = descriptor_find_symbol(type);

    if (symbol == NULL ||
        (symbol->kind != DESCRIPTOR_MESSAGE && symbol->kind != DESCRIPTOR_MAP_ENTRY)) {
        say_error(a, STATUS_NOT_FOUND, "message", type);
        return;
    }
    grpc__reflection__v1__extension_number_response__init(&a->numbers);
    a->numbers.base_type_name = (char *)type;
    a->message.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
    a->message.all_extension_numbers_response = &a->numbers;
}

static void say_answer(struct answer_parts *a, const question *q)
{
    const struct descriptor_file *file;
    const struct descriptor_symbol *symbol;

    switch (q->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        file = descriptor_find_file(q->file_by_filename);
        if (file != NULL)
            say_file(a, file);
        else
            say_error(a, STATUS_NOT_FOUND, "file", q->file_by_filename);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        symbol = descriptor_find_symbol(q->file_containing_symbol);
        if (symbol != NULL)
            say_file(a, &descriptor_files[symbol->file]);
        else
            say_error(a, STATUS_NOT_FOUND, "symbol", q->file_containing_symbol);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
        say_error(a, STATUS_NOT_FOUND, "extension of",
                  q->file_containing_extension->containing_type);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        say_extensions(a, q->all_extension_numbers_of_type);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        say_services(a);
        break;
    default:
        say_error(a, STATUS_INVALID, "question in the request of", q->host);
        break;
    }
}

static void reflection_begin(struct multiplex_item *base, const ProtobufCMessage *message,
                             struct arena *arena)
{
    struct asked *item = container_of(base, struct asked, base);

    item->arena = *arena;
    arena_init(arena, item->arena.limit_bytes); /* taken */
    item->question = (const question *)message;
    multiplex_notify(base);
}

static enum multiplex_written write_answer(struct multiplex_item *base)
{
    struct asked *item = container_of(base, struct asked, base);
    struct answer_parts a;

    grpc__reflection__v1__server_reflection_response__init(&a.message);
    a.message.valid_host = item->question->host;
    a.message.original_request = (question *)item->question;
    say_answer(&a, item->question);
    multiplex_write(base, &a.message.base, false);
    return WROTE_LAST;
}

static void reflection_end(struct multiplex_item *base, enum status why)
{
    arena_deinit(&container_of(base, struct asked, base)->arena);
}

static void reflect(struct call *call)
{
    static const struct multiplex_type type = {
        .item_size = sizeof(struct asked),
        .max_items = MAX_QUESTIONS,
        .item_name = "a question",
        .begin = reflection_begin,
        .write = write_answer,
        .end = reflection_end,
    };

    multiplex_start(call, &type);
}

static void reflect_alpha(struct call *call)
{
    reflect(call);
}

#define REFLECTION_METHODS(METHOD)                                                      \
    METHOD(BIDI, KEY, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",      \
           grpc__reflection__v1__server_reflection_request,                             \
           grpc__reflection__v1__server_reflection_response, reflect)                   \
    METHOD(BIDI, KEY, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", \
           grpc__reflection__v1__server_reflection_request,                             \
           grpc__reflection__v1__server_reflection_response, reflect_alpha)

CALL_TABLE(reflection_methods, REFLECTION_METHODS)
