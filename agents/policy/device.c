/* A policy's device: what it has lost, and how the policy comes back to it. */
#include "agents/policy/parts.h"
#include "compute/backends.h"

static void note_loss(struct policy *p, enum status synced)
{
    p->is_down = synced == STATUS_INTERNAL;
    p->n_losses += p->is_down;
}

enum status policy_ready(struct policy *p, struct error *err)
{
    enum status rc = STATUS_OK;

    if (p->is_down) {
        network_close(&p->target); /* learning opens it again */
        rc = network_restart(&p->net, &p->backend_config, err);
        p->is_down = rc != STATUS_OK;
        p->is_stale = false;
        if (rc == STATUS_INTERNAL)
            p->base.lost = *err;
        return rc == STATUS_OK ? rc
                               : error_prefix(err, "the device failed and is not ready again yet");
    }
    if (p->is_stale) {
        rc = network_load(&p->net, p->net.kept, err);
        p->is_stale = rc != STATUS_OK;
        note_loss(p, rc);
        policy_recover(p);
    }
    return rc;
}

enum status policy_sync(struct policy *p, struct error *err)
{
    enum status rc = p->backend->type->sync(p->backend, err);

    note_loss(p, rc);
    return rc;
}

void policy_recover(struct policy *p)
{
    struct error ignored;

    if (p->is_down && policy_ready(p, &ignored) != STATUS_OK)
        return; /* the next policy_ready tries again and reports the error */
}
