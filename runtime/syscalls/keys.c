/*
 * keyctl: its commands have rows of their own, and handlers where rows do not suffice.
 */
#include <linux/keyctl.h>
#include "marshal/iov.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "syscalls/handlers.h"
#include "syscalls/rows.h"

/* The payload in pieces. */
long sys_key_iov(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct sys_iov v;
        void *kernel = NULL;
        int err = a[2] ? sys_iov_read(t, &v, a[2], a[3], &kernel) : 0;

        if (a[2] && !err && v.total <= SYS_ARG_MAX)
                err = sys_iov_fill(t, &v);
        else if (a[2] && !err)  /* too long: the kernel looks at the length first */
                for (int i = 0; i < v.n; i++)
                        v.host[i] = (struct iovec){ sys_bad(), v.prog[i].iov_len };
        return sys_raw(row->nr, a[0], a[1], P(a[2] && !err ? v.host : kernel), a[3], a[4], 0);
}

/* The last argument points to a struct with pointers. */
long sys_key_dh(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct keyctl_kdf_params *kdf = sys_in_null(t, a[4], sizeof(*kdf));
        const uint64_t with[6] = { a[0], a[1], a[2], a[3], P(kdf) };

        if (kdf && (void *)kdf != sys_bad()) {
                kdf->hashname = sys_string(t, P(kdf->hashname));
                kdf->otherinfo = sys_in_null(t, P(kdf->otherinfo), kdf->otherinfolen);
        }
        return sys_generic(t, row, with);
}

/* Encryption, decryption and signatures: a struct has the lengths of input and output, or of two
 * inputs. */
long sys_key_pkey(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        struct keyctl_pkey_params *p = sys_in(t, a[1], sizeof(*p), sizeof(*p));
        bool known = (void *)p != sys_bad(), verify = (int)a[0] == KEYCTL_PKEY_VERIFY;
        char *info = a[2] ? sys_string(t, a[2]) : NULL;
        void *in = known ? sys_in(t, a[3], p->in_len, SYS_ARG_MAX) : sys_bad();
        void *second = !known || p->out_len > SYS_ARG_MAX ? sys_bad()
                       : verify ? sys_in(t, a[4], p->in2_len, SYS_ARG_MAX)
                                : sys_out(t, a[4], p->out_len);
        long ret = sys_raw(row->nr, a[0], P(p), P(info), P(in), P(second), 0);

        if (ret <= 0 || verify || !known)       /* p is no struct if it is not known */
                return ret;
        return sys_deliver(t, a[4], second, (size_t)ret < p->out_len ? (size_t)ret : p->out_len,
                           ret);
}

/* keyctl, by command (argument 0). */
#define KEY(c, ...)                                                                              \
        [KEYCTL_##c] = { "KEYCTL_" #c, NULL, 0, 0, { V, __VA_ARGS__ }, NULL, __NR_keyctl }
#define HKEY(c, h, ...)                                                                          \
        [KEYCTL_##c] = { "KEYCTL_" #c, h, 0, 0, { V, __VA_ARGS__ }, NULL, __NR_keyctl }
static const struct sys_row keyctl_rows[] = {
        KEY(GET_KEYRING_ID, V, V), KEY(JOIN_SESSION_KEYRING, STRN), KEY(UPDATE, V, INA(3), V),
        KEY(REVOKE, V), KEY(CHOWN, V, V, V), KEY(SETPERM, V, V), KEY(DESCRIBE, V, PRER(3), V),
        KEY(CLEAR, V), KEY(LINK, V, V), KEY(UNLINK, V, V), KEY(SEARCH, V, STR, STR, V),
        KEY(READ, V, PRER(3), V), KEY(INSTANTIATE, V, INA(3), V, V), KEY(NEGATE, V, V, V),
        KEY(SET_REQKEY_KEYRING, V), KEY(SET_TIMEOUT, V, V), KEY(ASSUME_AUTHORITY, V),
        KEY(GET_SECURITY, V, PRER(3), V), KEY(SESSION_TO_PARENT, V), KEY(REJECT, V, V, V, V),
        HKEY(INSTANTIATE_IOV, sys_key_iov, V), KEY(INVALIDATE, V), KEY(GET_PERSISTENT, V, V),
        HKEY(DH_COMPUTE, sys_key_dh, IN(12), PRER(3), V, V), KEY(PKEY_QUERY, V, V, STRN, OUT(56)),
        HKEY(PKEY_ENCRYPT, sys_key_pkey, V), HKEY(PKEY_DECRYPT, sys_key_pkey, V),
        HKEY(PKEY_SIGN, sys_key_pkey, V), HKEY(PKEY_VERIFY, sys_key_pkey, V),
        KEY(RESTRICT_KEYRING, V, STRN, STRN), KEY(MOVE, V, V, V, V), KEY(CAPABILITIES, PREAN(2), V),
        KEY(WATCH_KEY, V, FD, V),
};

long sys_keyctl(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        uint32_t command = (uint32_t)a[0];

        /* An unknown command may have pointers: the kernel is given a number that it does not know
         * either. */
        if (command >= sizeof(keyctl_rows) / sizeof(keyctl_rows[0]))
                return sys_raw(row->nr, UINT32_MAX, 0, 0, 0, 0, 0);
        const struct sys_row *key = &keyctl_rows[command];
        return key->fn ? key->fn(t, key, a) : sys_generic(t, key, a);
}
