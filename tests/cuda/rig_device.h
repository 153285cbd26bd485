/* What the tests of CUDA's kernels need of a device: the emulation (rig_fibres.c), or a real one
 * (rig_gpu.c), whose memory the host shares, so that a test reads and writes it between launches
 * on either. */
#ifndef TESTS_CUDA_RIG_DEVICE_H
#define TESTS_CUDA_RIG_DEVICE_H

#include <stddef.h>

/* Aborts the test when there is no memory. */
void *rig_alloc(size_t size_bytes);
void rig_free(void *at); /* NULL is allowed */

/* The test wrote to memory of the device. */
void rig_written(const void *at, size_t size_bytes);

/* From now on each kernel runs in n orders of its threads, which must write the same bits. A real
 * device has its own order. */
void rig_set_orders(unsigned n, unsigned seed);

/* Waits for the kernels; the first that failed, NULL: none. */
const char *rig_error(void);

#endif
