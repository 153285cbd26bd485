#include "server/call/error_details.h"

#include <check.h>
#include <string.h>

#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "tests/unit/base/suite.h"

static uint8_t bytes[ERROR_DETAILS_MAX_BYTES];

/* The bytes are those that Python's protobuf makes of the published messages: RetryInfo's 1.25 s, a
 * field, versions. */
START_TEST(bytes_are_as_published)
{
    static const char published[] =
        "\010\011\022\003old\032\177\012(type.googleapis.com/google.rpc.ErrorInfo\022S\012\020GR"
        "ADIENT_TOO_OLD\022\006parley\032\021\012\014have_version\022\0013\032$\012\014want_vers"
        "ion\022\02418446744073709551615\0327\012)type.googleapis.com/google.rpc.BadRequest\022"
        "\012\012\010\012\001f\022\003old\0325\012(type.googleapis.com/google.rpc.RetryInfo\022"
        "\011\012\007\010\001\020\200\345\232w";
    struct error err;

    (void)error_because(&err, STATUS_PRECONDITION, REASON_GRADIENT_TOO_OLD, "f", "old");
    err.have_version = 3;
    err.want_version = 18446744073709551615u;
    err.retry_after_ms = 1250;
    ck_assert_uint_eq(error_details_encode(bytes, &err), sizeof(published) - 1);
    ck_assert_mem_eq(bytes, published, sizeof(published) - 1);
}
END_TEST

/* Without a field, a hint and versions there is the reason alone. */
START_TEST(reason_alone)
{
    Google__Rpc__Status *status;
    Google__Rpc__ErrorInfo *info;
    struct error err;
    size_t size;

    (void)error_set(&err, STATUS_NOT_FOUND, "nothing is there");
    size = error_details_encode(bytes, &err);
    status = google__rpc__status__unpack(NULL, size, bytes);
    ck_assert_ptr_nonnull(status);
    ck_assert_int_eq(status->code, STATUS_NOT_FOUND);
    ck_assert_str_eq(status->message, "nothing is there");
    ck_assert_uint_eq(status->n_details, 1);
    info = google__rpc__error_info__unpack(NULL, status->details[0]->value.len,
                                           status->details[0]->value.data);
    ck_assert_str_eq(info->reason, "NOT_FOUND");
    ck_assert_str_eq(info->domain, ERROR_DETAILS_DOMAIN);
    ck_assert_uint_eq(info->n_metadata, 0);
    google__rpc__error_info__free_unpacked(info, NULL);
    google__rpc__status__free_unpacked(status, NULL);
}
END_TEST

/* The longest texts fit, so no error loses its details. */
START_TEST(longest_fits)
{
    Google__Rpc__Status *status;
    char longest[2 * ERROR_TEXT_MAX];
    struct error err;
    size_t size;

    memset(longest, 'n', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    (void)error_field(&err, longest, "%s", longest);
    err.reason = REASON_CONVERSATION_NOT_FOUND;
    err.retry_after_ms = UINT32_MAX;
    err.have_version = err.want_version = UINT64_MAX;
    size = error_details_encode(bytes, &err);
    ck_assert_uint_gt(size, 0);
    status = google__rpc__status__unpack(NULL, size, bytes);
    ck_assert_ptr_nonnull(status);
    ck_assert_uint_eq(status->n_details, 3);
    google__rpc__status__free_unpacked(status, NULL);
}
END_TEST

/* Our own message has the same. */
START_TEST(own_detail)
{
    Parley__V1__ErrorDetail detail;
    struct error err;

    (void)error_because(&err, STATUS_EXHAUSTED, REASON_QUEUE_FULL, "f", "full");
    err.have_version = 1;
    err.want_version = 2;
    error_details_fill(&detail, &err);
    ck_assert_uint_eq(detail.code, STATUS_EXHAUSTED);
    ck_assert_str_eq(detail.message, "full");
    ck_assert_str_eq(detail.field, "f");
    ck_assert_str_eq(detail.reason, "QUEUE_FULL");
    ck_assert_uint_eq(detail.retry_after_ms, 1000);
    ck_assert_uint_eq(detail.have_version, 1);
    ck_assert_uint_eq(detail.want_version, 2);
}
END_TEST

SUITE_MAIN("server/call/error_details", bytes_are_as_published, reason_alone, longest_fits,
           own_detail)
