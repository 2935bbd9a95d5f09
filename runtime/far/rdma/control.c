/*
 * The control connection: messages of nodeproto.h, and keeping it up.
 *
 * All is done in steps that do not wait (rdma_control_step).  A thread that needs an answer takes
 * the lock, and waits for descriptors between the steps.  Invariant: after a step the completion
 * queue is armed, so a thread without the lock can wait for the two descriptors, too.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "common/proof.h"
#include "far/rdma/address.h"
#include "far/rdma/control.h"
#include "far/rdma/device.h"
#include "far/rdma/find.h"
#include "far/rdma/link.h"

#define RETRY_MS      200               /* between the starts of two attempts */
/* for one attempt: the CM itself retries only after 4 s, our next attempt is sooner */
#define ATTEMPT_MS    1500
/* refusals in a row after which memnode counts as ended, and its memory with it */
#define DEAF_TRIES    4
/* how often a waiting lease() checks whether the I/O thread found the connection broken */
#define SLICE_MS      50
#define GOODBYE_MS    200
/* the longest time between two checks whether memnode still knows an idle connection */
#define PROBE_MS      5000

enum { WR_SEND = CONTROL_RECEIVES, WR_PROBE };  /* wr_id; those below are receive buffers */

/* The node will not come back.  gone: its data is gone, too. */
static void lose(struct rdma_control *c, bool gone, const char *why)
{
        if (atomic_load_explicit(&c->lost, memory_order_relaxed))
                return;
        snprintf(c->why, sizeof(c->why), "%s", why);
        c->gone = gone;
        atomic_store_explicit(&c->lost, true, memory_order_release);    /* release: publishes why */
}

static int post_receive(struct rdma_control *c, unsigned i)
{
        struct ibv_sge sge = { .addr = (uintptr_t)&c->buffers[i],
                               .length = sizeof(c->buffers[i]),
                               .lkey = c->mr->lkey };
        struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
        return -ibv_post_recv(c->link.id->qp, &wr, &bad);
}

static void free_buffers(struct rdma_control *c)
{
        if (c->mr)
                ibv_dereg_mr(c->mr);
        free(c->buffers);
        c->mr = NULL;
        c->buffers = NULL;
}

/* Receives are posted before the connection exists, so that memnode's first message finds one. */
static int ready(struct rdma_link *l)
{
        struct rdma_control *c = &l->node->control;

        if (!c->buffers) {
                size_t size = (CONTROL_RECEIVES + 1) * sizeof(*c->buffers);
                c->buffers = aligned_alloc(4096, (size + 4095) & ~(size_t)4095);
                if (!c->buffers)
                        return -ENOMEM;
                memset(c->buffers, 0, size);
                c->mr = ibv_reg_mr(l->node->dev.pd, c->buffers, size, IBV_ACCESS_LOCAL_WRITE);
                if (!c->mr)
                        return -errno;
        }
        c->sending = c->probing = false;
        int err = ibv_req_notify_cq(l->cq, 0);
        for (unsigned i = 0; !err && i < CONTROL_RECEIVES; i++)
                err = post_receive(c, i);
        return err > 0 ? -err : err;
}

static int send_message(struct rdma_control *c, const union rdma_message *m)
{
        union rdma_message *buffer = &c->buffers[CONTROL_RECEIVES];
        struct ibv_sge sge = { .addr = (uintptr_t)buffer,
                               .length = m->h.length,
                               .lkey = c->mr->lkey };
        struct ibv_send_wr wr = { .wr_id = WR_SEND,
                                  .sg_list = &sge,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_SEND,
                                  .send_flags = IBV_SEND_SIGNALED },
                           *bad;

        memcpy(buffer, m, m->h.length);
        buffer->h.request = c->asked;
        int err = ibv_post_send(c->link.id->qp, &wr, &bad);
        c->sending = !err;
        return -err;
}

/*
 * A program that touches no far memory for a while has nothing under way that could fail.  If the
 * network was down meanwhile, memnode's own probes have failed, so it counts us as gone and our
 * grace time runs; its message about that may have been lost as well.  So from time to time we send
 * a WRITE of no bytes, which needs neither memory nor memnode's CPU: it fails if memnode has ended
 * the connection, and we rejoin.  The I/O thread asks for such a WRITE when transfers do not end
 * (recover.c): an answer says that the node is there.
 */
static int64_t probe_interval(const struct rdma_node *rn)
{
        int64_t ms = rn->grace_ms / 4;
        return ms > PROBE_MS ? PROBE_MS : ms < RETRY_MS ? RETRY_MS : ms;
}

static void probe(struct rdma_node *rn, int64_t now)
{
        struct rdma_control *c = &rn->control;
        struct ibv_send_wr wr = { .wr_id = WR_PROBE,
                                  .opcode = IBV_WR_RDMA_WRITE,
                                  .send_flags = IBV_SEND_SIGNALED },
                           *bad;

        if (c->probing)
                return;
        bool asked = atomic_exchange_explicit(&c->ask, false, memory_order_relaxed);
        if (!asked && now - c->probed < probe_interval(rn))
                return;
        int err = ibv_post_send(c->link.id->qp, &wr, &bad);
        if (err)
                rdma_link_errno(&c->link, err, "send");
        c->probing = true;
        c->probed = now;
}

/* The length of each message that memnode may send. */
static uint32_t length_of(uint16_t type)
{
        switch (type) {
        case NODE_WELCOME: return sizeof(struct node_welcome);
        case NODE_REFUSED: return sizeof(struct node_refused);
        case NODE_GRANT:   return sizeof(struct node_grant);
        case NODE_DONE:
        case NODE_DRAIN:
        case NODE_GOODBYE: return sizeof(struct node_plain);
        default:           return 0;
        }
}

static void received(struct rdma_control *c, const union rdma_message *m, uint32_t bytes)
{
        if (bytes < sizeof(m->h) || m->h.magic != NODE_MAGIC) {
                rdma_link_fail(
                        &c->link, FAIL_FINAL,
                        "what it says is not memnode's protocol: correct the address or the port");
        } else if (m->h.version != NODE_VERSION) {
                rdma_link_fail(&c->link, FAIL_FINAL,
                               "its memnode speaks version %u of the protocol, this vmrun version "
                               "%u: install the same version on both",
                               m->h.version, NODE_VERSION);
        } else if (m->h.length != bytes || length_of(m->h.type) != bytes) {
                rdma_link_fail(&c->link, FAIL_FINAL,
                               "its memnode sent a message of type %u and %u bytes, which says %u: "
                               "install the same version on both",
                               m->h.type, bytes, m->h.length);
        } else if (m->h.type == NODE_GOODBYE) {
                lose(c, true, "its memnode was stopped (it said goodbye)");
        } else if (m->h.type == NODE_DRAIN) {
                far_asked(c->link.node->n);
        } else if (m->h.request == c->asked) {  /* no caller waits for other answers */
                memcpy(&c->answer, m, bytes);
                c->answered = true;
        }
}

static void completions(struct rdma_control *c)
{
        struct ibv_wc wc;

        while (c->link.cq && ibv_poll_cq(c->link.cq, 1, &wc) > 0) {
                if (wc.wr_id == WR_SEND)
                        c->sending = false;
                if (wc.wr_id == WR_PROBE) {
                        c->probing = false;
                        if (wc.status == IBV_WC_SUCCESS)
                                atomic_fetch_add_explicit(&c->answers, 1, memory_order_relaxed);
                }
                if (wc.status != IBV_WC_SUCCESS) {
                        rdma_link_fail(
                                &c->link, FAIL_SILENT,
                                wc.status == IBV_WC_WR_FLUSH_ERR
                                        ? "the control connection broke"
                                        : "memnode does not answer on the control connection (%s)",
                                ibv_wc_status_str(wc.status));
                } else if (wc.wr_id < CONTROL_RECEIVES) {
                        received(c, &c->buffers[wc.wr_id], wc.byte_len);
                        int err = post_receive(c, (unsigned)wc.wr_id);
                        if (err)
                                rdma_link_errno(&c->link, -err, "post a receive");
                }
        }
}

/* Reads the channel's events, arms again, then polls once more: a completion from before the arming
 * makes no event. */
static void messages(struct rdma_node *rn)
{
        struct rdma_control *c = &rn->control;
        struct ibv_cq *cq;
        void *context;

        if (!c->link.cq)
                return;
        while (ibv_get_cq_event(rn->dev.control_comp, &cq, &context) == 0)
                ibv_ack_cq_events(cq, 1);
        ibv_req_notify_cq(c->link.cq, 0);
        completions(c);
}

static void begin(struct rdma_node *rn, int64_t now)
{
        struct rdma_control *c = &rn->control;

        c->started = now;
        c->deadline = now + ATTEMPT_MS;
        c->state = CONTROL_CONNECTING;
        c->generation++;
        c->link.ask = (struct node_private){ .magic = NODE_MAGIC,
                                             .version = NODE_VERSION,
                                             .length = sizeof(struct node_private),
                                             .kind = c->id ? NODE_CONTROL : NODE_NEW,
                                             .generation = c->generation,
                                             .member = rn->n->member,
                                             .id = c->id };
        if (!c->id && *rn->set.key.name)
                c->link.ask.id = proof_mark(rn->set.key.name);
        rdma_link_start(&c->link);
}

/* The link failed, or must not be used any more. */
static void end(struct rdma_node *rn, int64_t now)
{
        struct rdma_control *c = &rn->control;
        struct rdma_link *l = &c->link;
        bool rejoin = c->id != 0;

        /* A last message may have come with the end, as REFUSED or GOODBYE; l->state does not
         * change. */
        completions(c);
        atomic_store_explicit(&c->up, 0, memory_order_relaxed); /* it publishes nothing */
        if (!atomic_load_explicit(&c->lost, memory_order_relaxed)) {
                if (l->why[0])
                        snprintf(c->why, sizeof(c->why), "%s", l->why);
                c->deaf = l->failure == FAIL_DEAF ? c->deaf + 1 : 0;
                if (rejoin && l->failure == FAIL_UNKNOWN)
                        lose(c, true, l->why);
                else if (rejoin && l->failure == FAIL_FINAL)
                        lose(c, false, l->why);
                else if (rejoin && c->deaf >= DEAF_TRIES && !rn->keeps)
                        lose(c, true, "its memnode has ended: nothing listens there any more");
        }
        rdma_link_close(l);
        c->sending = false;
        c->finding = NULL;
        c->state = CONTROL_DOWN;
        c->next = c->started + far_pause(rn->n, RETRY_MS);
        if (c->next < now)
                c->next = now;
}

/* The connection counts as up once it is known where all slabs are. */
static void find_all(struct rdma_node *rn, int64_t now)
{
        struct rdma_control *c = &rn->control;

        /* The buffer of the last question may still be in use. */
        if (c->sending || !rdma_find_next(rn))
                return;
        if (!c->finding) {
                atomic_store_explicit(&c->up, c->generation, memory_order_release);
                return;
        }
        union rdma_message m = rdma_find_question(c->finding);
        c->asked++;
        c->deadline = now + FIND_MS;
        int err = send_message(c, &m);
        if (err)
                rdma_link_errno(&c->link, -err, "send");
}

void rdma_control_step(struct rdma_node *rn, int64_t now)
{
        struct rdma_control *c = &rn->control;
        struct rdma_link *l = &c->link;

        /* Messages first: an end reported as an event comes after them. */
        messages(rn);
        rdma_link_events(c->channel);
        if (c->state == CONTROL_CONNECTING && l->state == LINK_UP) {
                c->state = CONTROL_UP;
                c->deaf = 0;
                c->probed = now;
        }
        if (c->state == CONTROL_UP && l->state == LINK_UP && !rdma_control_is_up(c))
                find_all(rn, now);
        if (c->state == CONTROL_UP && l->state == LINK_UP && c->id)
                probe(rn, now);
        if (c->state != CONTROL_DOWN && !rdma_control_is_up(c) && now >= c->deadline)
                rdma_link_silent(l, (unsigned)(now - c->started));
        if (c->state != CONTROL_DOWN && l->state == LINK_FAILED)
                end(rn, now);
        else if (c->state == CONTROL_UP &&
                 atomic_load_explicit(&c->broken, memory_order_relaxed) >= c->generation)
                end(rn, now);
        if (c->state == CONTROL_DOWN && c->id && now >= c->next &&
            !atomic_load_explicit(&c->lost, memory_order_relaxed))
                begin(rn, now);
}

bool rdma_control_is_up(const struct rdma_control *c)
{
        return c->state == CONTROL_UP &&
               atomic_load_explicit(&c->up, memory_order_relaxed) == c->generation;
}

int rdma_control_patience(const struct rdma_node *rn, int64_t now)
{
        const struct rdma_control *c = &rn->control;
        int64_t at = c->state == CONTROL_DOWN         ? c->next
                     : !rdma_control_is_up(c)         ? c->deadline
                     : !c->id || c->probing           ? -1
                     : atomic_load_explicit(&c->ask, memory_order_relaxed)
                             ? now
                             : c->probed + probe_interval(rn);

        if (at < 0 || atomic_load_explicit(&c->lost, memory_order_relaxed))
                return -1;
        return at > now ? (int)(at - now) : 0;
}

/* Waits until something happens, or for ms. */
static void wait_a_little(struct rdma_node *rn, int ms)
{
        struct pollfd fds[2] = { { .fd = rn->control.channel->fd, .events = POLLIN } };
        unsigned n = 1;

        if (rn->dev.control_comp)
                fds[n++] = (struct pollfd){ .fd = rn->dev.control_comp->fd, .events = POLLIN };
        poll(fds, n, ms);
}

int rdma_control_ask(struct rdma_node *rn, const union rdma_message *m, int64_t deadline,
                     union rdma_message *answer)
{
        struct rdma_control *c = &rn->control;
        unsigned sent = 0;              /* the generation that the request was sent on */

        c->asked++;
        c->answered = false;
        for (;;) {
                int64_t now = now_ms();
                rdma_control_step(rn, now);
                if (sent && c->answered) {
                        *answer = c->answer;
                        return 0;
                }
                if (atomic_load_explicit(&c->lost, memory_order_relaxed))
                        return -ENOLINK;
                if (c->state != CONTROL_UP && !c->id)
                        return -ENOTCONN;       /* HELLO is sent only once */
                if (rdma_is_down(rn->n) || (rn->n->hands_back && !rdma_control_is_up(c)))
                        return -ENOLINK;
                if (now >= deadline)
                        return -ETIMEDOUT;
                if (rdma_control_is_up(c) && sent != c->generation && !c->sending) {
                        /* A request whose answer was lost with the connection is sent again.
                         * memnode may have granted a slab that we never learn of: it only counts
                         * against our share until we leave. */
                        int err = send_message(c, m);
                        if (err)
                                rdma_link_errno(&c->link, -err, "send");
                        sent = c->generation;
                        continue;
                }
                int left = deadline - now < SLICE_MS ? (int)(deadline - now) : SLICE_MS,
                    patience = rdma_control_patience(rn, now);
                wait_a_little(rn, patience >= 0 && patience < left ? patience : left);
        }
}

/* If another request is sent meanwhile, c->asked has grown: then MOVED is sent again, which does no
 * harm. */
bool rdma_control_answer(struct rdma_node *rn, bool moved)
{
        struct rdma_control *c = &rn->control;
        union rdma_message m = { .moved = { .h = { NODE_MAGIC, NODE_VERSION, NODE_MOVED,
                                                   sizeof(struct node_moved), 0 },
                                            .moved = moved } };

        if (!rdma_control_is_up(c) || c->sending)
                return false;
        if (c->moved != c->asked || c->moved_on != c->generation) {
                c->moved = ++c->asked;
                c->moved_on = c->generation;
                c->answered = false;
                int err = send_message(c, &m);
                if (err)
                        rdma_link_errno(&c->link, -err, "send");
                return false;
        }
        if (!c->answered)
                return false;
        c->moved = 0;
        if (!moved)
                return true;
        lose(c, false, "it is drained, as it asked for");
        rdma_disconnect(c->link.id);
        rdma_link_close(&c->link);
        atomic_store_explicit(&c->up, 0, memory_order_relaxed);
        c->state = CONTROL_DOWN;
        return true;
}

/* Tries one address of the node: 0, or -errno with why. */
static int try_address(struct rdma_node *rn, int64_t deadline, char why[FAR_WHY])
{
        struct rdma_control *c = &rn->control;
        int err = rdma_device_address(&rn->set, rn->to.sa.sa_family, &rn->from, why);

        if (err)
                return err;
        begin(rn, now_ms());
        c->deadline = deadline;
        for (;;) {
                int64_t now = now_ms();
                rdma_control_step(rn, now);
                if (c->state != CONTROL_CONNECTING)
                        break;
                wait_a_little(rn, deadline > now ? (int)(deadline - now) : 0);
        }
        if (c->state == CONTROL_UP)
                return 0;
        snprintf(why, FAR_WHY, "%s", c->why);
        return -ECONNREFUSED;
}

static int hello(struct rdma_node *rn, int64_t deadline, char why[FAR_WHY])
{
        struct rdma_control *c = &rn->control;
        union rdma_message m = { .hello = { .h = { NODE_MAGIC, NODE_VERSION, NODE_HELLO,
                                                   sizeof(struct node_hello), 0 },
                                            .want = rn->set.size } };
        union rdma_message a;
        char host[NODE_NAME_MAX / 2] = "?";

        if (getrandom(m.hello.nonce, NODE_NONCE, 0) != NODE_NONCE) {
                snprintf(why, FAR_WHY, "no random numbers are left: see getrandom(2)");
                return -EIO;
        }
        gethostname(host, sizeof(host) - 1);
        snprintf(m.hello.name, sizeof(m.hello.name), "%s:%s", host, rn->set.program);
        int err = rdma_control_ask(rn, &m, deadline, &a);
        if (err == -ETIMEDOUT)
                snprintf(why, FAR_WHY,
                         "its memnode accepted the connection but does not answer: see what it is "
                         "doing there");
        else if (err)
                snprintf(why, FAR_WHY, "%s", c->why);
        if (err)
                return err;
        if (a.h.type == NODE_REFUSED) {
                a.refused.text[NODE_TEXT_MAX - 1] = '\0';
                snprintf(why, FAR_WHY, "its memnode refused: %s", a.refused.text);
                return -EACCES;
        }
        if (a.h.type != NODE_WELCOME || !a.welcome.id) {
                snprintf(why, FAR_WHY,
                         "its memnode answered HELLO with a message of type %u: install the same "
                         "version on both",
                         a.h.type);
                return -EPROTO;
        }
        c->id = a.welcome.id;
        proof_secret(c->secret, rn->set.key.secret, rn->set.key.bytes, c->id, m.hello.nonce,
                     a.welcome.nonce);
        rn->limit = a.welcome.limit < a.welcome.free ? a.welcome.limit : a.welcome.free;
        rn->depth = a.welcome.depth;
        rn->grace_ms = a.welcome.grace_ms;
        rn->keeps = a.welcome.keeps == NODE_KEEPS;
        memcpy(rn->name, a.welcome.name, sizeof(rn->name));
        rn->name[sizeof(rn->name) - 1] = '\0';
        return 0;
}

int rdma_control_prepare(struct rdma_node *rn, char why[FAR_WHY])
{
        struct rdma_control *c = &rn->control;

        c->channel = rdma_channel_open(why);
        if (!c->channel)
                return -errno;
        c->link = (struct rdma_link){ .node = rn,
                                      .channel = c->channel,
                                      .comp = &rn->dev.control_comp,
                                      .send = 2,
                                      .recv = CONTROL_RECEIVES,
                                      .sge = 1,
                                      .ready = ready };
        return 0;
}

int rdma_control_open(struct rdma_node *rn, const char *rest, int64_t deadline, char why[FAR_WHY])
{
        struct rdma_control *c = &rn->control;
        union rdma_sockaddr list[RDMA_ADDRESSES];
        uint16_t port;

        int err = rdma_parse_url(rest, rn->host, &port, why);
        if (err)
                return err;
        err = rdma_control_prepare(rn, why);
        if (err)
                return err;
        int64_t left = deadline - now_ms();
        int count = rdma_resolve(rn->host, port, left > 0 ? (unsigned)left : 0, list, why);
        if (count < 0)
                return count;
        pthread_mutex_lock(&c->lock);
        for (int i = 0; i < count; i++) {
                int64_t now = now_ms();
                rn->to = list[i];
                err = try_address(rn, now + (deadline - now) / (count - i), why);
                if (!err)
                        break;
                /* The next address may use another device. */
                free_buffers(c);
                rdma_device_close(&rn->dev);
        }
        if (!err)
                err = hello(rn, deadline, why);
        pthread_mutex_unlock(&c->lock);
        return err;
}

void rdma_control_close(struct rdma_node *rn)
{
        struct rdma_control *c = &rn->control;
        union rdma_message m = { .plain = { .h = { NODE_MAGIC, NODE_VERSION, NODE_GOODBYE,
                                                   sizeof(struct node_plain), 0 } } };

        pthread_mutex_lock(&c->lock);
        if (c->state == CONTROL_UP && c->id && !c->sending && send_message(c, &m) == 0) {
                /* memnode ends the connection when it has read GOODBYE; if we ended it first,
                 * memnode might take that for a failure. */
                int64_t end_ms = now_ms() + GOODBYE_MS;
                while (c->link.state == LINK_UP && now_ms() < end_ms) {
                        wait_a_little(rn, GOODBYE_MS);
                        messages(rn);
                        rdma_link_events(c->channel);
                }
                rdma_disconnect(c->link.id);
        }
        rdma_link_close(&c->link);
        c->state = CONTROL_DOWN;
        free_buffers(c);
        rdma_channel_close(c->channel);
        c->channel = NULL;
        pthread_mutex_unlock(&c->lock);
}
