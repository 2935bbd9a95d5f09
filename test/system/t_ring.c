/*
 * Memory that a socket shares: a ring of received packets, as tcpdump has it, on the loopback
 * device. Needs a network of its own (unshare -Urn), which it brings up.
 */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "t_sys.h"

#define BLOCK  (4 * PG)
#define BLOCKS 4
#define FRAME  2048
#define FRAMES (BLOCKS * BLOCK / FRAME)

static sigjmp_buf back;
static void on_fault(int sig) { siglongjmp(back, sig); }

static int packets;
static unsigned loopback;

/* A socket listens, so that no ICMP answer says that the port is closed. */
static const struct sockaddr_in here = { .sin_family = AF_INET,
                                         .sin_port = 0x6712,           /* as it is sent */
                                         .sin_addr = { 0x0100007f } }; /* 127.0.0.1 */

static void bring_up(void)
{
        struct ifreq r = { .ifr_name = "lo" };
        int s = socket(AF_INET, SOCK_DGRAM, 0);

        CHECK(ioctl(s, SIOCGIFFLAGS, &r) == 0);
        r.ifr_flags |= IFF_UP;
        CHECK(ioctl(s, SIOCSIFFLAGS, &r) == 0);
        loopback = if_nametoindex("lo");
        CHECK(bind(s, (const void *)&here, sizeof(here)) == 0);
}

static void send_text(const char *text)
{
        int s = socket(AF_INET, SOCK_DGRAM, 0);

        CHECK(sendto(s, text, strlen(text), 0, (const void *)&here, sizeof(here)) ==
              (ssize_t)strlen(text));
        close(s);
}

/* Waits until frame n is the program's; shows what was sent, and gives the frame back. */
static void receive(char *ring, unsigned n, const char *text)
{
        volatile struct tpacket2_hdr *h = (void *)(ring + n * FRAME);
        struct pollfd p = { .fd = packets, .events = POLLIN };

        for (int i = 0; i < 100 && !(h->tp_status & TP_STATUS_USER); i++)
                poll(&p, 1, 100);
        CHECK(h->tp_status & TP_STATUS_USER);
        printf("frame %u: %u bytes\n", n, h->tp_len);
        CHECK(h->tp_len < FRAME &&
              memmem((char *)h + h->tp_net, FRAME - h->tp_net, text, strlen(text)));
        h->tp_status = TP_STATUS_KERNEL;
}

static bool is_in_maps(void *at)
{
        char line[4096], start[32];
        bool found = false;
        FILE *f = fopen("/proc/self/maps", "r");

        snprintf(start, sizeof(start), "%lx-", (unsigned long)(uintptr_t)at);
        while (fgets(line, sizeof(line), f))
                if (!strncmp(line, start, strlen(start)))
                        found = strstr(line, " rw-s ") && strstr(line, " socket:[");
        fclose(f);
        return found;
}

static void ring_of_packets(void)
{
        const struct tpacket_req want = { BLOCK, BLOCKS, FRAME, FRAMES };
        struct sockaddr_ll at = { .sll_family = AF_PACKET,
                                  .sll_protocol = htons(ETH_P_IP),
                                  .sll_ifindex = (int)loopback };
        const int version = TPACKET_V2;
        /* Of two copies of each packet on lo, only the incoming one. */
        const int yes = 1;

        packets = socket(AF_PACKET, SOCK_RAW, 0);
        CHECK(packets >= 0);
        T(setsockopt(packets, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)));
        FAILS(EINVAL, mmap(NULL, PG, PROT_READ, MAP_SHARED, packets, 0));
        T(setsockopt(packets, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof(yes)));
        T(setsockopt(packets, SOL_PACKET, PACKET_RX_RING, &want, sizeof(want)));
        FAILS(EINVAL, mmap(NULL, PG, PROT_READ, MAP_SHARED, packets, 0));
        char *ring = mmap(NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, packets, 0);
        CHECK(ring != MAP_FAILED);
        CHECK(is_in_maps(ring));
        unsigned used = 0;
        for (unsigned i = 0; i < FRAMES; i++)
                used += ((volatile struct tpacket2_hdr *)(void *)(ring + i * FRAME))->tp_status;
        printf("%u frames, %u in use\n", (unsigned)FRAMES, used);
        T(bind(packets, (void *)&at, sizeof(at)));
        /* Around the ring and on. */
        for (unsigned i = 0; i < FRAMES + 3; i++) {
                char text[32];
                snprintf(text, sizeof(text), "packet number %u", i);
                send_text(text);
                receive(ring, i % FRAMES, text);
        }
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
                send_text("to a child");
                receive(ring, 3, "to a child");
                fflush(stdout);
                _exit(failures != 0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        send_text("to its parent");
        receive(ring, 4, "to its parent");
        T(munmap(ring, BLOCKS * BLOCK));
        close(packets);
}

/* Of a socket that has no memory to share. */
static void other_sockets(void)
{
        int s[2], tcp = socket(AF_INET, SOCK_STREAM, 0);

        T(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
        FAILS(ENODEV, mmap(NULL, PG, PROT_READ, MAP_SHARED, s[0], 0));
        FAILS(ENODEV, mmap(NULL, PG, PROT_READ, MAP_PRIVATE, s[0], 0));
        FAILS(EPERM, mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED, tcp, 0));
        /* Pages come later, by a call for which there is nothing to receive here. */
        char *p = mmap(NULL, 4 * PG, PROT_READ, MAP_SHARED, tcp, 0);
        CHECK(p != MAP_FAILED);
        signal(SIGBUS, on_fault);
        if (sigsetjmp(back, 1) == 0) {
                printf("%d\n", *(volatile char *)p);
                CHECK(!"there is a page");
        }
        T(munmap(p, 4 * PG));
}

int main(void)
{
        bring_up();
        ring_of_packets();
        other_sockets();
        printf("failures %d\n", failures);
        return failures != 0;
}
