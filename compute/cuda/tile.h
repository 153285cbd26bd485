/* How much attention one block of threads takes. */
#ifndef COMPUTE_CUDA_TILE_H
#define COMPUTE_CUDA_TILE_H

/* Queries of a block: all of an item's that share a key head. Where a token alone has more, blocks
 * divide them. */
enum { CUDA_TILE_QUERIES = 8 };

#endif
