/* oneDNN's integer matmul, for bench_products to compare with: u8 [n][n_cols] by s8
 * [n_cols][n_rows] to s32, with arbitrary values and with weights in the order that oneDNN prefers.
 * No scales: it shows what the instruction can do. onednn.sh builds it as a library of its own. */
#ifndef TESTS_BENCH_ONEDNN_H
#define TESTS_BENCH_ONEDNN_H

#include <stddef.h>

struct onednn_product;

/* NULL: oneDNN has no such matmul. n_threads: OpenMP's. */
typedef struct onednn_product *onednn_open_fn(size_t n_threads, size_t n, size_t n_cols,
                                              size_t n_rows);
/* Not 0: failure. */
typedef int onednn_run_fn(struct onednn_product *p);
typedef void onednn_close_fn(struct onednn_product *p);

onednn_open_fn onednn_open;
onednn_run_fn onednn_run;
onednn_close_fn onednn_close;

#endif
