/*
 * ioctl: families of commands, their sizes, directions and errors, and commands without a size in
 * their number. Argument: a directory to work in.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/nsfs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <termios.h>
#include "t_sys.h"

/*
 * Reads until @len bytes have come: a terminal passes on bytes that were written to it in its own
 * time, and in pieces. Returns how many came, which are fewer only when nothing more came for ten
 * seconds.
 */
static size_t read_pieces(int fd, char *to, size_t len)
{
        struct pollfd f = { fd, POLLIN, 0 };
        size_t got = 0;
        ssize_t n;

        while (got < len && poll(&f, 1, 10000) > 0 && (n = read(fd, to + got, len - got)) > 0)
                got += (size_t)n;
        return got;
}

static void test_terminal(void)
{
        struct termios *t = across(64);
        struct winsize *w;
        char name[64] = "", buf[64];
        int m = posix_openpt(O_RDWR | O_NOCTTY), s, *n;

        if (m < 0 || grantpt(m) || unlockpt(m)) {
                printf("no terminals\n");
                return;
        }
        CHECK(!ptsname_r(m, name, sizeof(name)));
        s = open(name, O_RDWR | O_NOCTTY);
        CHECK(s >= 0 && isatty(s) && !strcmp(ttyname(s) ? ttyname(s) : "", name));
        T(tcgetattr(s, t));
        printf("modes %x %x %x %x\n", t->c_iflag, t->c_oflag, t->c_cflag, t->c_lflag);
        t->c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        t->c_cc[VMIN] = 1;
        forget();
        T(tcsetattr(s, TCSANOW, t));
        memset(t, 0, sizeof(*t));
        T(tcgetattr(m, t));
        printf("modes %x %x %x %x\n", t->c_iflag, t->c_oflag, t->c_cflag, t->c_lflag);
        w = across(sizeof(*w));
        *w = (struct winsize){ 50, 132, 7, 9 };
        T(ioctl(m, TIOCSWINSZ, w));
        w = memset(edge(sizeof(*w)), 0, sizeof(*w));
        T(ioctl(s, TIOCGWINSZ, w));
        printf("%u %u %u %u\n", w->ws_row, w->ws_col, w->ws_xpixel, w->ws_ypixel);
        T(write(m, "typed", 5));
        /* The kernel passes it on in its own time. */
        T(poll(&(struct pollfd){ s, POLLIN, 0 }, 1, 10000));
        n = edge(4);
        T(ioctl(s, FIONREAD, n));
        printf("%d\n", *n);
        T(read(s, buf, sizeof(buf)));
        T(write(s, "a\nb", 3));
        T(read_pieces(m, buf, 4));      /* the line feed as two */
        T(ioctl(s, TIOCOUTQ, n));
        T(tcflush(s, TCIOFLUSH));
        T(tcdrain(s));
        T(tcflow(s, TCOON));
        T(tcsendbreak(s, 0));
        T(ioctl(m, TIOCPKT, &(int){ 1 }));
        T(ioctl(m, TIOCSIG, SIGINT));   /* by value, although its number has a size */
        T(ioctl(s, TIOCEXCL));
        T(ioctl(s, TIOCNXCL));
        T(ioctl(m, TIOCGPTPEER, O_RDWR | O_NOCTTY) >= 0);
        FAILS(ENOTTY, ioctl(s, TIOCGPGRP, n));
        FAILS(ENOTTY, ioctl(s, TIOCSPGRP, n));
        FAILS(EINVAL, ioctl(m, TCXONC, 77));
        FAILS(ENOTTY, ioctl(s, 0x5499));
        struct termios raw;
        cfmakeraw(&raw);
        cfsetspeed(&raw, B115200);
        T(cfgetospeed(&raw) == B115200);
        close(m);
        FAILS(EIO, ioctl(s, TIOCGWINSZ, w));
        T(read(s, buf, 1));
        close_range(3, ~0U, 0);
}

static void test_network(void)
{
        int u = socket(AF_INET, SOCK_DGRAM, 0), s[2];
        struct ifreq *ifr = across(sizeof(*ifr));
        struct ifconf *c = across(sizeof(*c));
        int index;

        memset(ifr, 0, sizeof(*ifr));
        strcpy(ifr->ifr_name, "lo");
        T(ioctl(u, SIOCGIFINDEX, ifr));
        index = ifr->ifr_ifindex;
        memset(ifr, 0, sizeof(*ifr));
        ifr->ifr_ifindex = index;
        T(ioctl(u, SIOCGIFNAME, ifr));
        printf("%s\n", ifr->ifr_name);
        T(ioctl(u, SIOCGIFMTU, ifr));
        T(ioctl(u, SIOCGIFHWADDR, ifr));
        printf("family %d\n", ifr->ifr_hwaddr.sa_family);
        strcpy(ifr->ifr_name, "none");
        FAILS(ENODEV, ioctl(u, SIOCGIFMTU, ifr));
        /* Room for less than one interface; the list on a page of its own. */
        c = across(sizeof(*c));
        *c = (struct ifconf){ .ifc_len = 39, .ifc_buf = read_only };
        T(ioctl(u, SIOCGIFCONF, c));
        printf("%d bytes\n", c->ifc_len);
        *c = (struct ifconf){ .ifc_len = 0, .ifc_buf = read_only };
        T(ioctl(u, SIOCGIFCONF, c));
        *c = (struct ifconf){ .ifc_len = -40, .ifc_buf = nothing };
        T(ioctl(u, SIOCGIFCONF, c) < 0);
        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        T(write(s[0], "12345", 5));
        T(ioctl(s[1], SIOCINQ, edge(4)));
        printf("%d\n", *(int *)(void *)(pages + 2 * PG - 4));
        T(ioctl(s[0], SIOCOUTQ, edge(4)) == 0);
        T(ioctl(u, SIOCATMARK, edge(4)) < 0);
        T(ioctl(socket(AF_INET, SOCK_STREAM, 0), 0x894b /* SIOCOUTQNSD */, edge(4)));
        T(ioctl(open("/proc/self/ns/uts", O_RDONLY), 0xb703 /* NS_GET_NSTYPE */));
        FAILS(EINVAL,
              ioctl(open("/proc/self/ns/uts", O_RDONLY), 0xb704 /* NS_GET_OWNER_UID */, edge(4)));
        close_range(3, ~0U, 0);
}

static void test_files(void)
{
        int a = open("a", O_RDWR | O_CREAT, 0600), b = open("b", O_RDWR | O_CREAT, 0600),
            *flags = across(8);
        struct file_dedupe_range *d = across(sizeof(*d) + 3 * sizeof(d->info[0]));

        ftruncate(a, 100000);
        ftruncate(b, 100000);
        T(ioctl(a, FS_IOC_GETFLAGS, flags));
        T(ioctl(a, FS_IOC_SETFLAGS, flags));
        FAILS(EBADF, ioctl(a, FICLONE, 999));
        FAILS(EBADF, ioctl(999, FICLONE, a));
        T(ioctl(b, FICLONE, a));
        T(ioctl(b, FICLONERANGE, &(struct file_clone_range){ a, 0, 4096, 0 }));
        FAILS(EBADF, ioctl(b, FICLONERANGE, &(struct file_clone_range){ 999, 0, 4096, 0 }));
        d->src_length = 4096;
        d->dest_count = 3;
        for (int i = 0; i < 3; i++)
                d->info[i] = (struct file_dedupe_range_info){ .dest_fd = i ? 999 : b };
        T(ioctl(a, FIDEDUPERANGE, d));
        printf("status %d %d %d\n", d->info[0].status, d->info[1].status, d->info[2].status);
        d->dest_count = 65535;
        T(ioctl(a, FIDEDUPERANGE, d) < 0);
        T(ioctl(a, FIGETBSZ, edge(4)));
        FAILS(ENOTTY, ioctl(a, TCGETS, pages));
        FAILS(ENOTTY, ioctl(a, 0xdeadbeef, pages));
        unlink("a");
        unlink("b");
        close_range(3, ~0U, 0);
}

/* No size, no struct: vmrun knows the argument of such a command by its number alone. */
static void test_without_size(void)
{
        int u = socket(AF_INET, SOCK_DGRAM, 0), ns = open("/proc/self/ns/uts", O_RDONLY);
        int path = open(".", O_PATH);
        struct rlimit had, few;

        /* The descriptor's own errors come first. */
        for (int i = 0; i < 2; i++) {
                char *arg = i ? pages : NULL;

                FAILS(EBADF, ioctl(999, 0x5499, arg));
                FAILS(EBADF, ioctl(path, 0x5499, arg));
                FAILS(EBADF, ioctl(path, 0xc0045499, arg));
                FAILS(ENOTTY, ioctl(u, 0x5499, arg));
                FAILS(ENOTTY, ioctl(ns, 0xae00, arg));
        }
        /* Commands without an argument have anything there: the library passes on a register. */
        T(ioctl(ns, NS_GET_USERNS, pages) >= 0);
        T(ioctl(ns, FIOCLEX, pages));
        T(ioctl(u, SIOCGSKNS) >= 0);
        T(ioctl(u, SIOCGSKNS, pages) >= 0);
        /* New descriptors count. */
        getrlimit(RLIMIT_NOFILE, &had);
        few = had;
        few.rlim_cur = (rlim_t)dup(0);
        close((int)few.rlim_cur);
        setrlimit(RLIMIT_NOFILE, &few);
        FAILS(EMFILE, ioctl(ns, NS_GET_USERNS));
        T(ioctl(u, SIOCGSKNS));         /* EPERM for an ordinary user */
        setrlimit(RLIMIT_NOFILE, &had);
        close_range(3, ~0U, 0);
}

int main(int argc, char **argv)
{
        setvbuf(stdout, NULL, _IOLBF, 0);
        if (scratch_begin(argc, argv, "t_sys_ioctl"))
                return 2;
        test_terminal();
        test_network();
        test_files();
        test_without_size();
        return scratch_end();
}
