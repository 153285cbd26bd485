#include "server/telemetry/metric.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"

struct counted {
    uint64_t n;
    size_t held;
    uint32_t small;
    bool is_on;
    struct {
        uint64_t n;
    } inner[2];
};

static const struct metric_row rows[] = {
    METRIC("counter", "a_total", "Of a.", counted, n),
    METRIC("gauge", "b_held", "Of b.", counted, held),
    METRIC("gauge", "c_small", "Of c.", counted, small),
    METRIC("gauge", "d_on", "Of d.", counted, is_on),
    METRIC("counter", "e_total", "Of e.", counted, inner[1].n),
};

/* A row has the lines of the format, and the value of its member, whatever its width. */
START_TEST(test_rows)
{
    const struct counted c = {
        .n = 1234567890123, .held = 7, .small = 4000000000, .is_on = true, .inner = {{1}, {2}}};
    struct buf page;

    buf_init(&page, 4096);
    METRIC_ROWS(&page, rows, &c);
    ck_assert_int_eq(buf_append(&page, "", 1), STATUS_OK);
    ck_assert_str_eq(page.data,
                     "# HELP a_total Of a.\n# TYPE a_total counter\na_total 1234567890123\n"
                     "# HELP b_held Of b.\n# TYPE b_held gauge\nb_held 7\n"
                     "# HELP c_small Of c.\n# TYPE c_small gauge\nc_small 4000000000\n"
                     "# HELP d_on Of d.\n# TYPE d_on gauge\nd_on 1\n"
                     "# HELP e_total Of e.\n# TYPE e_total counter\ne_total 2\n");
    buf_deinit(&page);
}
END_TEST

/* Buckets are cumulative; values above the last bound are in +Inf alone. */
START_TEST(test_histogram)
{
    static const struct histogram_scale scale = {.n_bounds = 2, .bounds = {10, 100}, .unit = 10};
    struct histogram h = {0};
    struct buf page;

    histogram_add(&h, &scale, 5, 2);
    histogram_add(&h, &scale, 50, 1);
    histogram_add(&h, &scale, 500, 1);
    buf_init(&page, 4096);
    metric_histogram(&page, "t", "m=\"x\"", &h, &scale);
    metric_labelled(&page, "u", 0.5, "m=\"%s\"", "y");
    ck_assert_int_eq(buf_append(&page, "", 1), STATUS_OK);
    ck_assert_str_eq(page.data, "t_bucket{m=\"x\",le=\"1\"} 2\nt_bucket{m=\"x\",le=\"10\"} 3\n"
                                "t_bucket{m=\"x\",le=\"+Inf\"} 4\nt_sum{m=\"x\"} 56\n"
                                "t_count{m=\"x\"} 4\nu{m=\"y\"} 0.5\n");
    buf_deinit(&page);
}
END_TEST

SUITE_MAIN("server/telemetry/metric", test_rows, test_histogram)
