/*
 * Calls that move data, wait for it, or ask a descriptor something.  (t_sys_pointers.c)
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/fiemap.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <termios.h>
#include "t_sys_pointers.h"

static const struct iovec iov2[2] = { { NULL, 10 }, { NULL, 20 } }, iov1[1] = { { NULL, 30 } };
static const struct pollfd fds[2] = { { FD_PIPE_W, POLLOUT, 0 }, { FD_EVENT, POLLIN, 0 } };
static const uint64_t set = 1ull << FD_PIPE_W, no_time[2] = { 0, 0 }, mask = 0, offset = 100;
static const struct epoll_event event = { .events = EPOLLIN };
static const struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "bound" },
                                peer = { .sun_family = AF_UNIX, .sun_path = "listening" };
static const struct sockaddr_in in = { .sin_family = AF_INET };
static const int32_t len110 = 110, len16 = 16, len2 = 2, len4 = 4, one = 1;
static const struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10
};
static const struct { int type, pid; } owner = { 1, 0 };
static const uint64_t hint = 0;
static const struct { uint64_t mask, size; } sig = { 0, 8 };
/* msghdr: name 0, namelen 8, iov 16, iovlen 24, control 32, controllen 40, flags 48 */
static const struct msghdr to_send = { .msg_iovlen = 1 };
static const struct msghdr to_receive = {
        .msg_namelen = 110, .msg_iovlen = 1, .msg_controllen = 64
};
static const struct mmsghdr to_send2 = { .msg_hdr = { .msg_iovlen = 1 } };
static const struct mmsghdr to_receive2 = { .msg_hdr = { .msg_namelen = 110, .msg_iovlen = 1 } };
static const struct {
        size_t len;
        int level, type, fd, pad;
} rights = { CMSG_LEN(4), SOL_SOCKET, SCM_RIGHTS, FD_FILE, 0 };
static const struct msghdr send_rights = { .msg_iovlen = 1, .msg_controllen = sizeof(rights) };
static const struct termios2_ {
        uint32_t f[4];
        uint8_t line, cc[19];
        uint32_t speed[2];
} termios2 = { .f = { 0, 5, 0xbf, 0 }, .speed = { 38400, 38400 } };
static const struct winsize size = { 24, 80, 0, 0 };
static const struct ifreq lo = { .ifr_name = "lo" };
static const struct ifconf ifconf = { .ifc_len = 80 };
static const struct fiemap map = { .fm_length = 100000, .fm_extent_count = 0 };
static const uint64_t clone_range[4] = { FD_OTHER, 0, 0, 0 };
static const struct {
        uint64_t off, len;
        uint16_t n, r1;
        uint32_t r2;
} dedupe = { 0, 4096, 0, 0, 0 };

#define F SETS_FILE
#define PIPE SETS_PIPE
#define SOCK SETS_SOCKET
#define CONN (SETS_CONNECTION | MAKES_FD)
#define NOSIZE ANY_RESULT
const struct call io_calls[] = {
        { "read a file", SYS_read, F, { FD_FILE, 0, 3000 }, { OUT(1, 3000) } },
        { "read a pipe", SYS_read, PIPE, { FD_PIPE_R, 0, 64 }, { OUT(1, 64) } },
        { "read a socket", SYS_read, SOCK, { FD_STREAM_A, 0, 64 }, { OUT(1, 64) } },
        { "read a datagram", SYS_read, SOCK, { FD_DGRAM_A, 0, 64 }, { OUT(1, 64) } },
        { "read an eventfd", SYS_read, SETS_EVENT, { FD_EVENT, 0, 8 }, { OUT(1, 8) } },
        { "read a timerfd", SYS_read, 0, { FD_TIMER, 0, 8 }, { OUT(1, 8) } },
        { "read /dev/zero", SYS_read, 0, { FD_ZERO, 0, 5000 }, { OUT(1, 5000) } },
        { "read a directory", SYS_read, 0, { FD_DIR, 0, 10 }, { OUT(1, 10) } },
        { "read nothing", SYS_read, 0, { FD_FILE, 0, 0 }, { OUT(1, 10) } },
        { "read of no descriptor", SYS_read, 0, { 99, 0, 10 }, { OUT(1, 10) } },
        { "read far too much", SYS_read, F, { FD_FILE, 0, -1 }, { OUT(1, 10) } },
        { "write a file", SYS_write, F, { FD_FILE, 0, 3000 }, { OUT(1, 3000) } },
        { "write a pipe", SYS_write, PIPE, { FD_PIPE2_W, 0, 64 }, { OUT(1, 64) } },
        { "write a socket", SYS_write, SOCK, { FD_STREAM_A, 0, 64 }, { OUT(1, 64) } },
        { "write a datagram", SYS_write, SOCK, { FD_DGRAM_A, 0, 64 }, { OUT(1, 64) } },
        { "write /dev/zero", SYS_write, 0, { FD_ZERO, 0, 5000 }, { OUT(1, 5000) } },
        { "write of no descriptor", SYS_write, 0, { 99, 0, 10 }, { OUT(1, 10) } },
        { "pread64", SYS_pread64, F, { FD_FILE, 0, 100, 50 }, { OUT(1, 100) } },
        { "pwrite64", SYS_pwrite64, F, { FD_FILE, 0, 100, 50 }, { OUT(1, 100) } },
        { "readv", SYS_readv, F, { FD_FILE, 0, 2 },
          { IN(1, iov2), AT(0, 0, 10, NULL), AT(0, 16, 20, NULL) } },
        { "readv of a pipe", SYS_readv, PIPE, { FD_PIPE_R, 0, 2 },
          { IN(1, iov2), AT(0, 0, 10, NULL), AT(0, 16, 20, NULL) } },
        { "readv of a socket", SYS_readv, SOCK, { FD_STREAM_A, 0, 2 },
          { IN(1, iov2), AT(0, 0, 10, NULL), AT(0, 16, 20, NULL) } },
        { "readv of no descriptor", SYS_readv, 0, { 99, 0, 1 },
          { IN(1, iov1), AT(0, 0, 30, NULL) } },
        { "writev", SYS_writev, F, { FD_FILE, 0, 2 },
          { IN(1, iov2), AT(0, 0, 10, NULL), AT(0, 16, 20, NULL) } },
        { "writev of a pipe", SYS_writev, PIPE, { FD_PIPE2_W, 0, 2 },
          { IN(1, iov2), AT(0, 0, 10, NULL), AT(0, 16, 20, NULL) } },
        { "writev of a socket", SYS_writev, SOCK, { FD_STREAM_A, 0, 2 },
          { IN(1, iov2), AT(0, 0, 10, NULL), AT(0, 16, 20, NULL) } },
        { "preadv", SYS_preadv, F, { FD_FILE, 0, 2, 50 },
          { IN(1, iov2), AT(0, 0, 10, NULL), AT(0, 16, 20, NULL) } },
        { "pwritev", SYS_pwritev, F, { FD_FILE, 0, 2, 50 },
          { IN(1, iov2), AT(0, 0, 10, NULL), AT(0, 16, 20, NULL) } },
        { "preadv2", SYS_preadv2, F, { FD_FILE, 0, 2, -1, -1 },
          { IN(1, iov2), AT(0, 0, 10, NULL), AT(0, 16, 20, NULL) } },
        { "pwritev2", SYS_pwritev2, F, { FD_FILE, 0, 2, 50 },
          { IN(1, iov2), AT(0, 0, 10, NULL), AT(0, 16, 20, NULL) } },
        { "vmsplice", SYS_vmsplice, PIPE, { FD_PIPE2_W, 0, 1 },
          { IN(1, iov1), AT(0, 0, 30, NULL) } },
        { "getrandom", SYS_getrandom, 0, { 0, 40, 1 }, { OUT(0, 40) } },
        { "sendfile", SYS_sendfile, F | PIPE, { FD_PIPE2_W, FD_FILE, 0, 100 }, { IN(2, offset) } },
        { "copy_file_range", SYS_copy_file_range, F, { FD_FILE, 0, FD_OTHER, 0, 100 },
          { IN(1, offset), IN(3, offset) } },
        { "splice from a file", SYS_splice, F | PIPE, { FD_FILE, 0, FD_PIPE2_W, 0, 100 },
          { IN(1, offset) } },
        { "splice to a file", SYS_splice, F | PIPE, { FD_PIPE_R, 0, FD_FILE, 0, 30 },
          { IN(3, offset) } },
        { "pipe", SYS_pipe, MAKES_FD, { 0 }, { OUT(0, 8) } },
        { "pipe2", SYS_pipe2, MAKES_FD, { 0, 0 }, { OUT(0, 8) } },
        /* waiting */
        { "poll", SYS_poll, SETS_EVENT, { 0, 2, 0 }, { IN(0, fds) } },
        { "poll of too many", SYS_poll, 0, { 0, 1 << 30, 0 }, { IN(0, fds) } },
        { "ppoll", SYS_ppoll, SETS_EVENT, { 0, 2, 0, 0, 8 },
          { IN(0, fds), IN(2, no_time), IN(3, mask) } },
        { "select", SYS_select, PIPE, { FD_PIPE_W + 1 },
          { OUT(1, 8), IN(2, set), OUT(3, 8), IN(4, no_time) } },
        { "pselect6", SYS_pselect6, PIPE, { FD_PIPE_W + 1 },
          { IN(2, set), IN(4, no_time), IN(5, sig), AT(2, 0, 8, NULL) } },
        { "epoll_ctl", SYS_epoll_ctl, 0, { FD_EPOLL, EPOLL_CTL_MOD, FD_EVENT }, { IN(3, event) } },
        { "epoll_wait", SYS_epoll_wait, SETS_EVENT, { FD_EPOLL, 0, 3, 0 }, { OUT(1, 12) } },
        { "epoll_wait, nothing", SYS_epoll_wait, 0, { FD_EVENT, 0, 3, 0 }, { OUT(1, 12) } },
        { "epoll_pwait", SYS_epoll_pwait, SETS_EVENT, { FD_EPOLL, 0, 3, 0, 0, 8 },
          { OUT(1, 12), IN(4, mask) } },
        { "epoll_pwait2", SYS_epoll_pwait2, SETS_EVENT, { FD_EPOLL, 0, 3, 0, 0, 8 },
          { OUT(1, 12), IN(3, no_time), IN(4, mask) } },
        /* sockets */
        { "socketpair", SYS_socketpair, MAKES_FD, { AF_UNIX, SOCK_STREAM, 0 }, { OUT(3, 8) } },
        { "bind", SYS_bind, 0, { FD_DGRAM_A, 0, 110 }, { ARG(1, 110, &un) } },
        { "connect", SYS_connect, 0, { FD_LISTEN, 0, 110 }, { ARG(1, 110, &peer) } },
        { "connect in the internet", SYS_connect, 0, { FD_LISTEN, 0, 16 }, { IN(1, in) } },
        { "accept", SYS_accept, CONN, { FD_LISTEN }, { OUT(1, 110), IN(2, len110) } },
        { "accept, short", SYS_accept, CONN, { FD_LISTEN }, { OUT(1, 2), IN(2, len2) } },
        { "accept4", SYS_accept4, CONN, { FD_LISTEN, 0, 0, 0 }, { OUT(1, 110), IN(2, len110) } },
        { "accept4 of none", SYS_accept4, 0, { FD_INET, 0, 0, 0 }, { OUT(1, 110), IN(2, len110) } },
        { "getsockname", SYS_getsockname, 0, { FD_INET }, { OUT(1, 16), IN(2, len16) } },
        { "getpeername", SYS_getpeername, 0, { FD_STREAM_A }, { OUT(1, 16), IN(2, len16) } },
        { "getpeername, not connected", SYS_getpeername, 0, { FD_INET },
          { OUT(1, 16), IN(2, len16) } },
        { "sendto", SYS_sendto, SOCK, { FD_STREAM_A, 0, 50, 0, 0, 0 }, { OUT(1, 50) } },
        { "sendto, named", SYS_sendto, SOCK, { FD_INET, 0, 50, 0, 0, 16 },
          { OUT(1, 50), IN(4, in) } },
        { "sendto of no socket", SYS_sendto, 0, { FD_FILE, 0, 50, 0, 0, 16 },
          { OUT(1, 50), IN(4, in) } },
        { "recvfrom", SYS_recvfrom, SOCK, { FD_STREAM_A, 0, 64, 0, 0, 0 }, { OUT(1, 64) } },
        { "recvfrom, named", SYS_recvfrom, SOCK, { FD_DGRAM_A, 0, 64, 0 },
          { OUT(1, 64), OUT(4, 110), IN(5, len110) } },
        { "recvfrom, nothing there", SYS_recvfrom, 0, { FD_INET, 0, 64, 0 },
          { OUT(1, 64), OUT(4, 110), IN(5, len110) } },
        { "recvfrom of no socket", SYS_recvfrom, 0, { FD_FILE, 0, 64, 0 },
          { OUT(1, 64), OUT(4, 110), IN(5, len110) } },
        { "sendmsg", SYS_sendmsg, SOCK, { FD_STREAM_A },
          { IN(1, to_send), AT(0, 16, 16, iov1), AT(1, 0, 30, NULL) } },
        { "sendmsg of a datagram", SYS_sendmsg, SOCK, { FD_DGRAM_A },
          { IN(1, to_send), AT(0, 16, 16, iov1), AT(1, 0, 30, NULL) } },
        { "sendmsg with a descriptor", SYS_sendmsg, SOCK | MAKES_FD, { FD_STREAM_A },
          { IN(1, send_rights), AT(0, 16, 16, iov1), AT(1, 0, 30, NULL),
            AT(0, 32, sizeof(rights), &rights) } },
        { "sendmsg of no socket", SYS_sendmsg, 0, { FD_FILE },
          { IN(1, to_send), AT(0, 16, 16, iov1), AT(1, 0, 30, NULL) } },
        { "recvmsg", SYS_recvmsg, SOCK, { FD_STREAM_A },
          { IN(1, to_receive), AT(0, 16, 16, iov1), AT(1, 0, 30, NULL), AT(0, 32, 64, NULL) } },
        { "recvmsg, named", SYS_recvmsg, SOCK, { FD_DGRAM_A },
          { IN(1, to_receive), AT(0, 16, 16, iov1), AT(1, 0, 30, NULL), AT(0, 0, 110, NULL) } },
        { "recvmsg, nothing there", SYS_recvmsg, 0, { FD_INET },
          { IN(1, to_receive), AT(0, 16, 16, iov1), AT(1, 0, 30, NULL) } },
        { "recvmsg of no socket", SYS_recvmsg, 0, { FD_FILE },
          { IN(1, to_receive), AT(0, 16, 16, iov1), AT(1, 0, 30, NULL) } },
        { "sendmmsg", SYS_sendmmsg, SOCK, { FD_DGRAM_A, 0, 1 },
          { IN(1, to_send2), AT(0, 16, 16, iov1), AT(1, 0, 30, NULL) } },
        { "recvmmsg", SYS_recvmmsg, SOCK, { FD_DGRAM_A, 0, 1, 0 },
          { IN(1, to_receive2), AT(0, 16, 16, iov1), AT(1, 0, 30, NULL), IN(4, no_time) } },
        { "setsockopt", SYS_setsockopt, 0, { FD_INET, SOL_SOCKET, SO_REUSEADDR, 0, 4 },
          { IN(3, one) } },
        { "setsockopt, unknown", SYS_setsockopt, 0, { FD_INET, SOL_SOCKET, 9999, 0, 4 },
          { IN(3, one) } },
        { "getsockopt", SYS_getsockopt, 0, { FD_INET, SOL_SOCKET, SO_TYPE },
          { OUT(3, 4), IN(4, len4) } },
        { "getsockopt, short", SYS_getsockopt, 0, { FD_INET, SOL_SOCKET, SO_TYPE },
          { OUT(3, 2), IN(4, len2) } },
        { "getsockopt of a peer", SYS_getsockopt, 0, { FD_STREAM_A, SOL_SOCKET, SO_PEERCRED },
          { OUT(3, 16), IN(4, len16) } },
        { "getsockopt of no socket", SYS_getsockopt, 0, { FD_FILE, SOL_SOCKET, SO_TYPE },
          { OUT(3, 4), IN(4, len4) } },
        /* fcntl and ioctl */
        { "F_SETLK", SYS_fcntl, 0, { FD_FILE, F_SETLK }, { IN(2, lock) } },
        { "F_GETLK", SYS_fcntl, 0, { FD_FILE, F_GETLK }, { IN(2, lock) } },
        { "F_OFD_GETLK", SYS_fcntl, 0, { FD_FILE, F_OFD_GETLK }, { IN(2, lock) } },
        { "F_SETLK of no descriptor", SYS_fcntl, 0, { 99, F_SETLK }, { IN(2, lock) } },
        { "F_SETOWN_EX", SYS_fcntl, 0, { FD_PIPE_R, F_SETOWN_EX }, { IN(2, owner) } },
        { "F_GETOWN_EX", SYS_fcntl, 0, { FD_PIPE_R, F_GETOWN_EX }, { OUT(2, 8) } },
        { "F_GET_RW_HINT", SYS_fcntl, 0, { FD_FILE, 1035 }, { OUT(2, 8) } },
        { "F_SET_RW_HINT", SYS_fcntl, 0, { FD_FILE, 1036 }, { IN(2, hint) } },
        { "FIONREAD of a pipe", SYS_ioctl, PIPE, { FD_PIPE_R, FIONREAD }, { OUT(2, 4) } },
        { "FIONREAD of a socket", SYS_ioctl, SOCK, { FD_STREAM_A, FIONREAD }, { OUT(2, 4) } },
        { "FIONREAD of a file", SYS_ioctl, F, { FD_FILE, FIONREAD }, { OUT(2, 4) } },
        { "FIONREAD of no descriptor", SYS_ioctl, 0, { 99, FIONREAD }, { OUT(2, 4) } },
        { "FIONBIO", SYS_ioctl, 0, { FD_PIPE_R, FIONBIO }, { IN(2, one) } },
        { "FIOASYNC", SYS_ioctl, 0, { FD_FILE, FIOASYNC }, { IN(2, one) } },
        { "FIGETBSZ", SYS_ioctl, 0, { FD_FILE, FIGETBSZ }, { OUT(2, 4) } },
        { "FS_IOC_GETFLAGS", SYS_ioctl, 0, { FD_FILE, FS_IOC_GETFLAGS }, { OUT(2, 4) } },
        { "FS_IOC_FSGETXATTR", SYS_ioctl, 0, { FD_FILE, FS_IOC_FSGETXATTR }, { OUT(2, 28) } },
        { "FS_IOC_FIEMAP", SYS_ioctl, 0, { FD_FILE, FS_IOC_FIEMAP }, { IN(2, map) } },
        { "FICLONERANGE", SYS_ioctl, F, { FD_FILE, FICLONERANGE }, { IN(2, clone_range) } },
        { "FIDEDUPERANGE", SYS_ioctl, F, { FD_FILE, FIDEDUPERANGE }, { IN(2, dedupe) } },
        { "TCGETS of a pipe", SYS_ioctl, 0, { FD_PIPE_R, TCGETS }, { OUT(2, 36) } },
        { "TCGETS", SYS_ioctl, 0, { FD_PTY, TCGETS }, { OUT(2, 36) } },
        { "TCSETS", SYS_ioctl, 0, { FD_PTY, TCSETS }, { ARG(2, 36, &termios2) } },
        { "TIOCGLCKTRMIOS", SYS_ioctl, 0, { FD_PTY, TIOCGLCKTRMIOS }, { OUT(2, 36) } },
        { "TCGETS2", SYS_ioctl, 0, { FD_PTY, 0x802c542a }, { OUT(2, 44) } },
        { "TCSETS2", SYS_ioctl, 0, { FD_PTY, 0x402c542b }, { ARG(2, 44, &termios2) } },
        { "TCGETA", SYS_ioctl, 0, { FD_PTY, TCGETA }, { OUT(2, 18) } },
        { "TIOCGWINSZ", SYS_ioctl, 0, { FD_PTY, TIOCGWINSZ }, { OUT(2, 8) } },
        { "TIOCSWINSZ", SYS_ioctl, 0, { FD_PTY, TIOCSWINSZ }, { IN(2, size) } },
        { "TIOCGPTN", SYS_ioctl, 0, { FD_PTY, TIOCGPTN }, { OUT(2, 4) } },
        { "TIOCSPTLCK", SYS_ioctl, 0, { FD_PTY, TIOCSPTLCK }, { IN(2, one) } },
        { "TIOCOUTQ", SYS_ioctl, 0, { FD_PTY, TIOCOUTQ }, { OUT(2, 4) } },
        { "TIOCGPGRP", SYS_ioctl, 0, { FD_PTY, TIOCGPGRP }, { OUT(2, 4) } },
        { "TIOCSPGRP", SYS_ioctl, 0, { FD_PTY, TIOCSPGRP }, { IN(2, one) } },
        { "TIOCGSID", SYS_ioctl, 0, { FD_PTY, TIOCGSID }, { OUT(2, 4) } },
        { "TIOCGETD", SYS_ioctl, 0, { FD_PTY, TIOCGETD }, { OUT(2, 4) } },
        { "TIOCPKT", SYS_ioctl, 0, { FD_PTY, TIOCPKT }, { IN(2, hint) } },
        { "SIOCGIFFLAGS", SYS_ioctl, 0, { FD_INET, SIOCGIFFLAGS }, { IN(2, lo) } },
        { "SIOCGIFCONF", SYS_ioctl, 0, { FD_INET, SIOCGIFCONF },
          { IN(2, ifconf), AT(0, 8, 80, NULL) } },
        { "SIOCGIFCONF of no socket", SYS_ioctl, 0, { FD_FILE, SIOCGIFCONF },
          { IN(2, ifconf), AT(0, 8, 80, NULL) } },
        { "SIOCATMARK", SYS_ioctl, 0, { FD_STREAM_A, SIOCATMARK }, { OUT(2, 4) } },
        /* event descriptors */
        { "timerfd_settime", SYS_timerfd_settime, 0, { FD_TIMER, 0 }, { OUT(2, 32), OUT(3, 32) } },
        { "timerfd_gettime", SYS_timerfd_gettime, 0, { FD_TIMER }, { OUT(1, 32) } },
        { "signalfd", SYS_signalfd, MAKES_FD, { -1, 0, 8 }, { IN(1, mask) } },
        { "signalfd4", SYS_signalfd4, MAKES_FD, { -1, 0, 8, 0 }, { IN(1, mask) } },
        { "signalfd4 of no descriptor", SYS_signalfd4, MAKES_FD, { 99, 0, 8, 0 }, { IN(1, mask) } },
};
const size_t n_io_calls = sizeof(io_calls) / sizeof(io_calls[0]);
