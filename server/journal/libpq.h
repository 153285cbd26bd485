/* libpq, PostgreSQL's client library, is loaded when a journal in PostgreSQL is opened: other
 * daemons need neither the library nor the ten libraries that it brings. */
#ifndef SERVER_JOURNAL_LIBPQ_H
#define SERVER_JOURNAL_LIBPQ_H

#include <libpq-fe.h>

#include "base/status.h"

/* clang-format off */
#define LIBPQ_FUNCTIONS(X)  \
    X(PQclear)              \
    X(PQconninfoFree)       \
    X(PQconninfoParse)      \
    X(PQconnectPoll)        \
    X(PQconnectStartParams) \
    X(PQconsumeInput)       \
    X(PQenterPipelineMode)  \
    X(PQerrorMessage)       \
    X(PQfinish)             \
    X(PQflush)              \
    X(PQfreemem)            \
    X(PQgetisnull)          \
    X(PQgetlength)          \
    X(PQgetResult)          \
    X(PQgetvalue)           \
    X(PQisBusy)             \
    X(PQntuples)            \
    X(PQpipelineSync)       \
    X(PQresultErrorField)   \
    X(PQresultStatus)       \
    X(PQsendFlushRequest)   \
    X(PQsendQueryParams)    \
    X(PQserverVersion)      \
    X(PQsetNoticeReceiver)  \
    X(PQsetnonblocking)     \
    X(PQsocket)             \
    X(PQstatus)
/* clang-format on */

/* libpq's functions, under their own names. */
struct libpq {
#define LIBPQ_MEMBER(name) __typeof__(&(name)) name;
    LIBPQ_FUNCTIONS(LIBPQ_MEMBER)
#undef LIBPQ_MEMBER
};

/* Loads the library, which stays loaded. PRECONDITION if it is not installed, or is older than
 * PostgreSQL 14's. One thread at a time may call. */
enum status libpq_load(const struct libpq **out, struct error *err) MUST_CHECK;

#endif
