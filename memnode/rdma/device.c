/*
 * RDMA devices, as connections bring them.  librdmacm opens each once; a device that was removed
 * and plugged in again is a new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "common/message.h"
#include "rdma/device.h"

static struct device *devices[DEVICES_MAX];

struct device *device_at(unsigned i) { return i < DEVICES_MAX ? devices[i] : NULL; }

static void device_close(struct device *d)
{
        if (d->idle)
                ibv_destroy_cq(d->idle);
        if (d->pd)
                ibv_dealloc_pd(d->pd);
        if (d->channel)
                ibv_destroy_comp_channel(d->channel);
        free(d);
}

struct device *device_get(struct ibv_context *verbs)
{
        const char *name = ibv_get_device_name(verbs->device);
        unsigned i = 0;

        while (i < DEVICES_MAX && devices[i] && devices[i]->verbs != verbs)
                i++;
        if (i == DEVICES_MAX) {
                warnx_("device %s: more than %d devices were seen: restart memnode", name,
                       DEVICES_MAX);
                return NULL;
        }
        if (devices[i])
                return devices[i];

        struct device *d = calloc(1, sizeof(*d));
        if (!d)
                return NULL;
        d->verbs = verbs;
        if (ibv_query_device(verbs, &d->attr) != 0 ||
            !(d->channel = ibv_create_comp_channel(verbs)) || !(d->pd = ibv_alloc_pd(verbs)) ||
            !(d->idle = ibv_create_cq(verbs, 1, NULL, NULL, 0)) ||
            fcntl(d->channel->fd, F_SETFL, O_NONBLOCK) != 0) {
                warnx_("device %s cannot be used: %s", name, strerror(errno));
                device_close(d);
                return NULL;
        }
        info_("device %s: %d reads in flight a connection", name, d->attr.max_qp_rd_atom);
        devices[i] = d;
        return d;
}

void device_close_all(void)
{
        for (unsigned i = 0; i < DEVICES_MAX && devices[i]; i++) {
                device_close(devices[i]);
                devices[i] = NULL;
        }
}
