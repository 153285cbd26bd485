/* The metrics of models, one sample for each loaded model and each metric. Names of Triton's family
 * nv_inference_ are used where the meaning is the same. Loop. */
#ifndef SERVER_MODEL_MODEL_METRICS_H
#define SERVER_MODEL_MODEL_METRICS_H

struct buf;
struct models;

/* Appends the lines of all metrics of the loaded models. */
void model_metrics(const struct models *models, struct buf *out);

#endif
