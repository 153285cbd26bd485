/* How much attention one block of threads takes. */
#ifndef COMPUTE_CUDA_TILE_H
#define COMPUTE_CUDA_TILE_H

/* Queries of one key head, of all tokens of an item. A token's are never divided, so more query
 * heads than these that share a key head are one item's as well. */
enum { CUDA_TILE_QUERIES = 16 };

#endif
