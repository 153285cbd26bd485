/* How a service is written: a file has a function for each method, and one list of them. A row of
 * the list has the form, what is asked of the caller (of ACCESS_), the path, the messages of the
 * request and the response as protobuf-c names them, and the function:
 *
 *     #define STORE_METHODS(METHOD) \
 *         METHOD(ANSWER, KEY, "/parley.v1.Store/List", parley__v1__store_list_request, \
 *                parley__v1__store_list_response, store_list)
 *     CALL_TABLE(store_service_methods, STORE_METHODS)
 *
 * The form is the function's type:
 *
 *     ANSWER         enum status f(struct call *, const Request *, Response *, struct error *)
 *     UNARY          void f(struct call *, const Request *)
 *     SERVER_STREAM  void f(struct call *, const Request *)
 *     CLIENT_STREAM  void f(struct call *)
 *     BIDI           void f(struct call *)
 *
 * A function of the form ANSWER answers at once: it fills in a response that is initialised, whose
 * parts live in the call's arena or longer, or it returns the failure. A function of any other form
 * ends its call before it returns, or sets a handler. The compiler checks the messages' types. */
#ifndef SERVER_CALL_METHODS_H
#define SERVER_CALL_METHODS_H

#include "server/call/call.h"

enum call_kind { CALL_UNARY, CALL_SERVER_STREAM, CALL_CLIENT_STREAM, CALL_BIDI };

/* A method, for the transports. */
struct call_method {
    const char *path; /* "/parley.v1.Conversations/Open" */
    enum call_kind kind;
    const ProtobufCMessageDescriptor *request, *response;
    void (*start)(struct call *call); /* calls the function */
    enum access_level access;         /* of the caller; zero: a key, where keys are configured */
};

/* Returns whether the client sends a stream of messages. The first of these need not have come when
 * the call begins. */
static inline bool call_method_is_client_stream(const struct call_method *method)
{
    return method->kind == CALL_BIDI || method->kind == CALL_CLIENT_STREAM;
}

/* The methods of a file. */
struct call_table {
    const struct call_method *rows; /* [n] */
    size_t n;
};

/* The type of a message by its prefix: Parley__V1__Model by parley__v1__model. */
#define CALL_MESSAGE(message) __typeof__(*message##__unpack(NULL, 0, NULL))
#define CALL_REQUEST(call, request) ((const CALL_MESSAGE(request) *)call_request(call))

/* Defines a table. A folder whose rows begin alike has a form of this of its own: FUNCTION and ROW
 * complete the rows for CALL_FUNCTION and CALL_ROW. */
#define CALL_TABLE_BY(table, METHODS, FUNCTION, ROW)                 \
    METHODS(FUNCTION)                                                \
    static const struct call_method table##_rows[] = {METHODS(ROW)}; \
    const struct call_table table = {table##_rows, sizeof(table##_rows) / sizeof(table##_rows[0])};
#define CALL_TABLE(table, METHODS) CALL_TABLE_BY(table, METHODS, CALL_FUNCTION, CALL_ROW)

#define CALL_ROW(form, access, path, request, response, f)                         \
    {path,      CALL_KIND_##form, &request##__descriptor, &response##__descriptor, \
     f##_start, ACCESS_##access},

#define CALL_KIND_ANSWER CALL_UNARY
#define CALL_KIND_UNARY CALL_UNARY
#define CALL_KIND_SERVER_STREAM CALL_SERVER_STREAM
#define CALL_KIND_CLIENT_STREAM CALL_CLIENT_STREAM
#define CALL_KIND_BIDI CALL_BIDI

/* Defines f_start, a call_method's start, which calls f. */
#define CALL_FUNCTION(form, access, path, request, response, f) \
    CALL_START_##form(f##_start, request, response, f)

/* Defines the start of a function of the form ANSWER. answer is call_answer, or a function that
 * answers in its place. */
#define CALL_START_BY(start, request, response, f, answer)         \
    static void start(struct call *call)                           \
    {                                                              \
        CALL_MESSAGE(response) message;                            \
        struct error err;                                          \
        enum status rc;                                            \
                                                                   \
        response##__init(&message);                                \
        rc = f(call, CALL_REQUEST(call, request), &message, &err); \
        answer(call, rc, &err, &message.base);                     \
    }
#define CALL_START_ANSWER(start, request, response, f) \
    CALL_START_BY(start, request, response, f, call_answer)
#define CALL_START_UNARY(start, request, response, f) \
    static void start(struct call *call)              \
    {                                                 \
        f(call, CALL_REQUEST(call, request));         \
    }
#define CALL_START_SERVER_STREAM CALL_START_UNARY
#define CALL_START_CLIENT_STREAM(start, request, response, f) \
    static void start(struct call *call)                      \
    {                                                         \
        f(call);                                              \
    }
#define CALL_START_BIDI CALL_START_CLIENT_STREAM

#endif
