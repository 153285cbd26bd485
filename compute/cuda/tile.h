/* The share of attention that one block of threads computes. */
#ifndef COMPUTE_CUDA_TILE_H
#define COMPUTE_CUDA_TILE_H

/* Queries of a block: all of an item's that share a key head. Where one token has more, several
 * blocks share them. */
enum { CUDA_TILE_QUERIES = 8 };

#endif
