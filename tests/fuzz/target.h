/* What a fuzz target is: one function over any bytes, which returns 0 and leaves nothing behind.
 * The name is libFuzzer's. */
#ifndef TESTS_FUZZ_TARGET_H
#define TESTS_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

#endif
