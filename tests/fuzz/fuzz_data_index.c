/* Any bytes as the index of a data file: the entries of an accepted index are within the data. The
 * checksums are corrected first, else no input would pass them. */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "tests/fuzz/target.h"
#include "worlds/teachers/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    uint8_t *bytes = malloc(size_bytes == 0 ? 1 : size_bytes); /* aligned */
    struct index_header h;
    struct data_index x;
    struct error err;

    if (bytes == NULL)
        abort();
    if (size_bytes > 0)
        memcpy(bytes, data, size_bytes);
    for (int repaired = 0; repaired < 2; repaired++) {
        if (index_check(&x, bytes, size_bytes, &err) == STATUS_OK) {
            uint64_t end = 0;

            for (uint64_t i = 0; i < x.n_episodes; i++) {
                assert(x.entries[i].offset >= end && x.entries[i].n_examples > 0);
                end = x.entries[i].offset + x.entries[i].size_bytes;
                assert(end <= x.data_bytes);
            }
        }
        if (size_bytes < sizeof(h))
            break;
        memcpy(&h, bytes, sizeof(h));
        h.entries_crc = crc32c(0, bytes + sizeof(h), size_bytes - sizeof(h));
        h.crc = crc32c(0, &h, offsetof(struct index_header, crc));
        memcpy(bytes, &h, sizeof(h));
    }
    free(bytes);
    return 0;
}
