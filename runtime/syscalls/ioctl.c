/*
 * ioctl: a table has the commands whose numbers do not describe the argument; other numbers have
 * its size and direction.
 *
 * A pointer, or a struct with a pointer in it, cannot be passed on: the kernel would follow it in
 * vmrun's own memory.  So a number without a size must be in the table, as its argument may be
 * anything, and a size is only trusted for families of devices known to have no pointers.  Other
 * commands get ENOTTY, reported with -v: the program finds a device that does not know the command,
 * and takes its second choice.
 */
#include <linux/fs.h>
#include <linux/fiemap.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include "base/message.h"
#include "base/privfd.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"
#include "syscalls/handlers.h"

/* The kind of argument.  I_VALUE: passed on, or ignored; I_FD: a descriptor; I_NEWFD: as I_VALUE,
 * and the result is a new descriptor; I_IN, I_OUT, I_INOUT: the address of `size` bytes, to the
 * kernel, from it, both. */
enum { I_VALUE, I_FD, I_NEWFD, I_IN, I_OUT, I_INOUT, I_REFUSE };
static const struct ioctl_row {
        uint32_t first, last;
        uint8_t dir;
        uint16_t size;
} rows[] = {
        { 0x0001, 0x0001, I_INOUT, 4 },         /* FIBMAP */
        { 0x0002, 0x0002, I_OUT, 4 },           /* FIGETBSZ */
        { 0x0301, 0x0301, I_OUT, 16 },          /* HDIO_GETGEO */
        { 0x07b9, 0x07b9, I_OUT, 4 },           /* IOCTL_VM_SOCKETS_GET_LOCAL_CID */
        { 0x125d, 0x125d, I_IN, 4 },            /* BLKROSET */
        { 0x125e, 0x125e, I_OUT, 4 },           /* BLKROGET */
        { 0x125f, 0x125f, I_VALUE, 0 },         /* BLKRRPART */
        { 0x1260, 0x1260, I_OUT, 8 },           /* BLKGETSIZE */
        { 0x1261, 0x1262, I_VALUE, 0 },         /* BLKFLSBUF, BLKRASET */
        { 0x1263, 0x1263, I_OUT, 8 },           /* BLKRAGET */
        { 0x1264, 0x1264, I_VALUE, 0 },         /* BLKFRASET */
        { 0x1265, 0x1265, I_OUT, 8 },           /* BLKFRAGET */
        { 0x1267, 0x1267, I_OUT, 2 },           /* BLKSECTGET */
        { 0x1268, 0x1268, I_OUT, 4 },           /* BLKSSZGET */
        { 0x1277, 0x1277, I_IN, 16 },           /* BLKDISCARD */
        { 0x1278, 0x127c, I_OUT, 4 },           /* BLKIOMIN..BLKDISCARDZEROES */
        { 0x127d, 0x127d, I_IN, 16 },           /* BLKSECDISCARD */
        { 0x127e, 0x127e, I_OUT, 2 },           /* BLKROTATIONAL */
        { 0x127f, 0x127f, I_IN, 16 },           /* BLKZEROOUT */
        { 0x1274, 0x1276, I_VALUE, 0 },         /* BLKTRACESTART, STOP, TEARDOWN */
        { 0x4b2f, 0x4b30, I_VALUE, 0 },         /* KIOCSOUND, KDMKTONE */
        { 0x4b31, 0x4b31, I_OUT, 1 },           /* KDGETLED */
        { 0x4b32, 0x4b32, I_VALUE, 0 },         /* KDSETLED */
        { 0x4b33, 0x4b33, I_OUT, 1 },           /* KDGKBTYPE */
        { 0x4b3a, 0x4b3a, I_VALUE, 0 },         /* KDSETMODE */
        { 0x4b3b, 0x4b3b, I_OUT, 4 },           /* KDGETMODE */
        { 0x4b44, 0x4b44, I_OUT, 4 },           /* KDGKBMODE */
        { 0x4b45, 0x4b45, I_VALUE, 0 },         /* KDSKBMODE */
        { 0x4b62, 0x4b62, I_OUT, 4 },           /* KDGKBMETA */
        { 0x4b63, 0x4b63, I_VALUE, 0 },         /* KDSKBMETA */
        { 0x4b64, 0x4b64, I_OUT, 1 },           /* KDGKBLED */
        { 0x4b65, 0x4b65, I_VALUE, 0 },         /* KDSKBLED */
        { 0x4c00, 0x4c00, I_FD, 0 },            /* LOOP_SET_FD */
        { 0x4c01, 0x4c01, I_VALUE, 0 },         /* LOOP_CLR_FD */
        { 0x4c04, 0x4c04, I_IN, 232 },          /* LOOP_SET_STATUS64 */
        { 0x4c05, 0x4c05, I_OUT, 232 },         /* LOOP_GET_STATUS64 */
        { 0x4c06, 0x4c06, I_FD, 0 },            /* LOOP_CHANGE_FD */
        /* LOOP_SET_CAPACITY, SET_DIRECT_IO, SET_BLOCK_SIZE */
        { 0x4c07, 0x4c09, I_VALUE, 0 },
        { 0x4c0a, 0x4c0a, I_IN, 304 },          /* LOOP_CONFIGURE */
        { 0x4c80, 0x4c82, I_VALUE, 0 },         /* LOOP_CTL_ADD, REMOVE, GET_FREE */
        { 0x5204, 0x5204, I_VALUE, 0 },         /* RNDZAPENTCNT */
        { 0x5206, 0x5207, I_VALUE, 0 },         /* RNDCLEARPOOL, RNDRESEEDCRNG */
        { 0x5301, 0x5302, I_VALUE, 0 },         /* CDROMPAUSE, CDROMRESUME */
        { 0x5307, 0x5309, I_VALUE, 0 },         /* CDROMSTOP, CDROMSTART, CDROMEJECT */
        { 0x530f, 0x530f, I_VALUE, 0 },         /* CDROMEJECT_SW */
        { 0x5312, 0x5312, I_VALUE, 0 },         /* CDROMRESET */
        { 0x5319, 0x5319, I_VALUE, 0 },         /* CDROMCLOSETRAY */
        { 0x5320, 0x5323, I_VALUE, 0 },         /* CDROM_SET_OPTIONS..CDROM_SELECT_DISC */
        { 0x5325, 0x5331, I_VALUE, 0 },         /* CDROM_MEDIA_CHANGED..CDROM_GET_CAPABILITY */
        { 0x5401, 0x5401, I_OUT, 36 },          /* TCGETS */
        { 0x5402, 0x5404, I_IN, 36 },           /* TCSETS, TCSETSW, TCSETSF */
        { 0x5405, 0x5405, I_OUT, 18 },          /* TCGETA */
        { 0x5406, 0x5408, I_IN, 18 },           /* TCSETA, TCSETAW, TCSETAF */
        /* TCSBRK, TCXONC, TCFLSH, TIOCEXCL, TIOCNXCL, TIOCSCTTY */
        { 0x5409, 0x540e, I_VALUE, 0 },
        { 0x540f, 0x540f, I_OUT, 4 },           /* TIOCGPGRP */
        { 0x5410, 0x5410, I_IN, 4 },            /* TIOCSPGRP */
        { 0x5411, 0x5411, I_OUT, 4 },           /* TIOCOUTQ */
        { 0x5412, 0x5412, I_IN, 1 },            /* TIOCSTI */
        { 0x5413, 0x5413, I_OUT, 8 },           /* TIOCGWINSZ */
        { 0x5414, 0x5414, I_IN, 8 },            /* TIOCSWINSZ */
        { 0x5415, 0x5415, I_OUT, 4 },           /* TIOCMGET */
        { 0x5416, 0x5418, I_IN, 4 },            /* TIOCMBIS, TIOCMBIC, TIOCMSET */
        { 0x5419, 0x5419, I_OUT, 4 },           /* TIOCGSOFTCAR */
        { 0x541a, 0x541a, I_IN, 4 },            /* TIOCSSOFTCAR */
        { 0x541b, 0x541b, I_OUT, 4 },           /* FIONREAD */
        { 0x541d, 0x541d, I_VALUE, 0 },         /* TIOCCONS */
        { 0x541e, 0x541e, I_OUT, 72 },          /* TIOCGSERIAL */
        { 0x541f, 0x541f, I_IN, 72 },           /* TIOCSSERIAL */
        { 0x5420, 0x5421, I_IN, 4 },            /* TIOCPKT, FIONBIO */
        { 0x5422, 0x5422, I_VALUE, 0 },         /* TIOCNOTTY */
        { 0x5423, 0x5423, I_IN, 4 },            /* TIOCSETD */
        { 0x5424, 0x5424, I_OUT, 4 },           /* TIOCGETD */
        { 0x5425, 0x5428, I_VALUE, 0 },         /* TCSBRKP, -, TIOCSBRK, TIOCCBRK */
        { 0x5429, 0x5429, I_OUT, 4 },           /* TIOCGSID */
        { 0x5437, 0x5437, I_VALUE, 0 },         /* TIOCVHANGUP */
        { 0x5441, 0x5441, I_NEWFD, 0 },         /* TIOCGPTPEER */
        { 0x5450, 0x5451, I_VALUE, 0 },         /* FIONCLEX, FIOCLEX */
        { 0x5452, 0x5452, I_IN, 4 },            /* FIOASYNC */
        { 0x5456, 0x5456, I_OUT, 36 },          /* TIOCGLCKTRMIOS */
        { 0x5457, 0x5457, I_IN, 36 },           /* TIOCSLCKTRMIOS */
        { 0x545c, 0x545c, I_VALUE, 0 },         /* TIOCMIWAIT */
        { 0x545d, 0x545d, I_OUT, 80 },          /* TIOCGICOUNT */
        { 0x5460, 0x5460, I_OUT, 8 },           /* FIOQSIZE */
        { 0x54e3, 0x54e3, I_NEWFD, 0 },         /* TUNGETDEVNETNS */
        { 0x5600, 0x5600, I_OUT, 4 },           /* VT_OPENQRY */
        { 0x5601, 0x5601, I_OUT, 8 },           /* VT_GETMODE */
        { 0x5602, 0x5602, I_IN, 8 },            /* VT_SETMODE */
        { 0x5603, 0x5603, I_OUT, 6 },           /* VT_GETSTATE */
        { 0x5604, 0x5608, I_VALUE, 0 },         /* VT_SENDSIG..VT_DISALLOCATE */
        { 0x560b, 0x560c, I_VALUE, 0 },         /* VT_LOCKSWITCH, VT_UNLOCKSWITCH */
        /* RTC_AIE_ON, AIE_OFF, UIE_ON, UIE_OFF, PIE_ON, PIE_OFF; WIE_ON, WIE_OFF */
        { 0x7001, 0x7006, I_VALUE, 0 },
        { 0x700f, 0x7010, I_VALUE, 0 },
        { 0x8901, 0x8902, I_IN, 4 },            /* FIOSETOWN, SIOCSPGRP */
        { 0x8903, 0x8905, I_OUT, 4 },           /* FIOGETOWN, SIOCGPGRP, SIOCATMARK */
        { 0x8906, 0x8907, I_OUT, 16 },          /* SIOCGSTAMP, SIOCGSTAMPNS */
        { 0x890b, 0x890c, I_REFUSE, 0 },        /* SIOCADDRT, SIOCDELRT: a name behind a pointer */
        { 0x8940, 0x8941, I_REFUSE, 0 },        /* SIOCGIFBR, SIOCSIFBR: pointers */
        { 0x8948, 0x8948, I_INOUT, 40 },        /* SIOCSMIIREG and its like */
        { 0x8953, 0x8955, I_INOUT, 68 },        /* SIOCDARP, SIOCGARP, SIOCSARP */
        { 0x894a, 0x894a, I_REFUSE, 0 },        /* SIOCWANDEV: a pointer */
        { 0x8982, 0x8983, I_REFUSE, 0 },        /* SIOCGIFVLAN, SIOCSIFVLAN */
        { 0x8990, 0x8999, I_REFUSE, 0 },        /* bonding: pointers in some */
        { 0x894b, 0x894b, I_OUT, 4 },           /* SIOCOUTQNSD */
        { 0x894c, 0x894c, I_NEWFD, 0 },         /* SIOCGSKNS */
        { 0x8910, 0x8989, I_INOUT, 40 },        /* the rest takes a struct ifreq */
        { 0x9408, 0x9408, I_VALUE, 0 },         /* BTRFS_IOC_SYNC */
        { 0x941c, 0x941c, I_VALUE, 0 },         /* BTRFS_IOC_SCRUB_CANCEL */
        { 0x942e, 0x942e, I_VALUE, 0 },         /* BTRFS_IOC_QUOTA_RESCAN_WAIT */
        { 0xab00, 0xab00, I_FD, 0 },            /* NBD_SET_SOCK */
        { 0xab01, 0xab0a, I_VALUE, 0 },         /* NBD_SET_BLKSIZE..NBD_SET_FLAGS */
        { 0xb701, 0xb702, I_NEWFD, 0 },         /* NS_GET_USERNS, NS_GET_PARENT */
        { 0xb703, 0xb703, I_VALUE, 0 },         /* NS_GET_NSTYPE */
        { 0xb704, 0xb704, I_OUT, 4 },           /* NS_GET_OWNER_UID */
        { 0xff01, 0xff0a, I_NEWFD, 0 },         /* PIDFD_GET_CGROUP_NAMESPACE and its like */
        { 0x40049409, 0x40049409, I_FD, 0 },    /* FICLONE: encoded as int */
        { 0x40045436, 0x40045436, I_VALUE, 0 }, /* TIOCSIG: encoded as int */
        { 0x4008700c, 0x4008700c, I_VALUE, 0 }, /* RTC_IRQP_SET: encoded as long */
        { 0x4008700e, 0x4008700e, I_VALUE, 0 }, /* RTC_EPOCH_SET: encoded as long */
        /* FS_IOC_GETFLAGS: encoded as long, is int; also the next three */
        { 0x80086601, 0x80086601, I_OUT, 4 },
        { 0x40086602, 0x40086602, I_IN, 4 },            /* FS_IOC_SETFLAGS */
        { 0x80087601, 0x80087601, I_OUT, 4 },           /* FS_IOC_GETVERSION */
        { 0x40087602, 0x40087602, I_IN, 4 },            /* FS_IOC_SETVERSION */
        { 0x400454ca, 0x400454ca, I_INOUT, 40 },        /* TUNSETIFF: encoded as int */
        { 0x400454c8, 0x400454ce, I_VALUE, 0 },         /* TUNSETNOCSUM..TUNSETGROUP: by value */
        { 0x800454cf, 0x800454cf, I_OUT, 4 },           /* TUNGETFEATURES */
        { 0x400454d0, 0x400454d0, I_VALUE, 0 },         /* TUNSETOFFLOAD */
        { 0x400454d4, 0x400454d4, I_IN, 4 },            /* TUNSETSNDBUF */
        { 0x400454d8, 0x400454d8, I_IN, 4 },            /* TUNSETVNETHDRSZ */
        { 0x800454d2, 0x800454d2, I_OUT, 40 },          /* TUNGETIFF */
};

/* Families of encoded numbers (their type byte) without pointers in their structs. */
static bool family_known(unsigned type, unsigned nr)
{
        switch (type) {
        case 'T':       /* terminals; from 200 on tun devices */
                return nr < 0x60;
        case 'f':       /* FS_IOC_GETFLAGS, SETFLAGS; some higher numbers have pointers (verity) */
                return nr >= 1 && nr <= 4;
        case 'v':       /* file version */
                return nr <= 2;
        case 'r':       /* FAT attributes */
                return nr <= 0x13;
        case 'R':       /* RNDGETENTCNT, RNDADDTOENTCNT */
                return nr <= 1;
        case 'p':       /* rtc */
                return nr <= 0x14;
        case 'W':       /* watchdog */
                return nr < 12;
        /* XFS_IOC_DIOINFO, FS_IOC_FSGETXATTR, FSSETXATTR; FIFREEZE, FITHAW, FITRIM */
        case 'X':
                return (nr >= 30 && nr <= 32) || (nr >= 119 && nr <= 121);
        case 0x12:      /* block devices: the old size_t commands and BLKREPORTZONE */
                return nr >= 112 && nr <= 126;
        case 0x94:      /* clone range, label; dedupe is handled apart */
                return nr == 13 || nr == 49 || nr == 50;
        }
        return false;
}

static long with_struct(struct thread *t, const struct sys_row *row, const uint64_t a[6], int dir,
                        size_t size)
{
        /* An output struct is filled from the program first, because drivers need not write all of
         * it.  A struct that is read and written takes effect before the kernel finds that it
         * cannot be written. */
        void *p = dir == I_OUT ? sys_out(t, a[2], size) : sys_in(t, a[2], size, SYS_ARG_MAX);
        long ret = sys_raw(row->nr, a[0], a[1], p == sys_bad() ? sys_bad_at(a[2]) : P(p), 0, 0, 0);

        return ret >= 0 && dir != I_IN ? sys_deliver(t, a[2], p, size, ret) : ret;
}

/* A list of interfaces in a separate buffer behind a pointer. */
static long ifconf(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct { int32_t len, pad; uint64_t buf; } c, h;
        long ret;

        if (gmem_read(t, &c, a[2], sizeof(c)))
                return sys_raw(row->nr, a[0], a[1], sys_bad_at(a[2]), 0, 0, 0);
        h = c;
        if (c.buf)
                h.buf = P(sys_bad());
        if (c.buf && c.len > 0) {
                if (c.len > (int)SYS_ARG_MAX)
                        h.len = SYS_ARG_MAX;
                h.buf = P(sys_scratch((size_t)h.len));
                if (!h.buf)
                        return -ENOMEM;
        }
        ret = sys_raw(row->nr, a[0], a[1], P(&h), 0, 0, 0);
        if (ret < 0)
                return ret;
        if (c.buf && c.len > 0 && h.len > 0 &&
            gmem_write(t, c.buf, (void *)(uintptr_t)h.buf, (size_t)h.len))
                return -EFAULT;
        return sys_deliver(t, a[2], &h.len, 4, ret);
}

/* Structs that end in an array and contain its length. */
static size_t flexible(struct thread *t, uint32_t cmd, uint64_t addr)
{
        uint32_t n;
        uint16_t n16;

        if (cmd == FS_IOC_FIEMAP) {
                if (gmem_read(t, &n, addr + 24, 4))
                        return 32;
                return n < (SYS_ARG_MAX - 32) / 56 ? 32 + (size_t)n * 56 : 0;
        }
        if (gmem_read(t, &n16, addr + 16, 2))   /* FIDEDUPERANGE */
                return 24;
        return 24 + (size_t)n16 * 32;
}

/* Errors of the descriptor itself come first, as if it is closed, or was opened with O_PATH. */
static long unknown(uint64_t fd, uint32_t cmd)
{
        long ret = sys_raw(__NR_fcntl, fd, 11 /* F_GETSIG */, 0, 0, 0, 0);

        if (ret < 0)
                return ret;
        info_once(0x600000000 + (unsigned long)cmd, "ioctl 0x%x is not known: ENOTTY", cmd);
        return -ENOTTY;
}

static long by_row(struct thread *t, const struct sys_row *row, const uint64_t a[6],
                   const struct ioctl_row *cmd)
{
        long ret;

        switch (cmd->dir) {
        case I_REFUSE:
                return unknown(a[0], (uint32_t)a[1]);
        case I_FD:
                if (privfd_is((int)a[2]))
                        return -EBADF;
                /* fall through */
        case I_VALUE:
        case I_NEWFD:
                ret = sys_raw(row->nr, a[0], a[1], a[2], 0, 0, 0);
                return cmd->dir == I_NEWFD ? sys_newfd(ret) : ret;
        }
        return with_struct(t, row, a, cmd->dir, cmd->size);
}

long sys_ioctl(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint32_t cmd = (uint32_t)a[1];
        unsigned dir = _IOC_DIR(cmd);

        if (privfd_is((int)a[0]))
                return -EBADF;
        if (cmd == SIOCGIFCONF)
                return ifconf(t, row, a);
        if (cmd == FS_IOC_FIEMAP || cmd == FIDEDUPERANGE) {
                size_t n = flexible(t, cmd, a[2]);
                /* FIEMAP writes its head whatever the result, so the head must always be
                 * writable. */
                return n ? with_struct(t, row, a, cmd == FS_IOC_FIEMAP ? I_OUT : I_INOUT, n)
                         : -EINVAL;
        }
        if (cmd == SIOCETHTOOL) {       /* has a pointer; answers as a driver without ethtool */
                long ret = sys_raw(__NR_fcntl, a[0], 1 /* F_GETFD */, 0, 0, 0, 0);
                return ret < 0 ? ret : -EOPNOTSUPP;
        }
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                if (cmd >= rows[i].first && cmd <= rows[i].last)
                        return by_row(t, row, a, &rows[i]);
        if (dir == _IOC_NONE || !family_known(_IOC_TYPE(cmd), _IOC_NR(cmd)))
                return unknown(a[0], cmd);
        return with_struct(t, row, a,
                           dir == _IOC_WRITE  ? I_IN
                           : dir == _IOC_READ ? I_OUT
                                              : I_INOUT,
                           _IOC_SIZE(cmd));
}
