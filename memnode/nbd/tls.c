#include <errno.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include "admission/keyring.h"
#include "nbd/tls.h"

/* TLS 1.3 alone; keys without Diffie-Hellman would let a key that leaks open all that was recorded
 * before.  Over curves alone: a stranger makes us multiply, and other groups cost fifty times as
 * much.  The ciphers of 128 bits first: they cost less. */
#define PRIORITY                                                                                   \
        "NONE:+VERS-TLS1.3:+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305:+AEAD:+ECDHE-PSK:"         \
        "+GROUP-X25519:+GROUP-SECP256R1:+SIGN-ALL:%SERVER_PRECEDENCE"

/* Made by nbd_tls_open(), and constant from then on. */
static gnutls_psk_server_credentials_t credentials;
static gnutls_priority_t priority;

/* Gives TLS the key of a name.  A name that is not known gets a random one: so the client learns
 * nothing but that it may not come in. */
static int find_key(gnutls_session_t s, const gnutls_datum_t *name, gnutls_datum_t *to)
{
        struct key k = { .bytes = 32 };

        (void)s;
        if (!keyring_find((const char *)name->data, name->size, &k) &&
            getrandom(k.secret, k.bytes, 0) != (ssize_t)k.bytes)
                return -1;
        to->data = gnutls_malloc(k.bytes);
        to->size = k.bytes;
        if (to->data)
                memcpy(to->data, k.secret, k.bytes);
        explicit_bzero(&k, sizeof(k));
        return to->data ? 0 : -1;
}

int nbd_tls_open(char *why, size_t n)
{
        int err;

        if (credentials)
                return 0;
        err = gnutls_priority_init2(&priority, PRIORITY, NULL, 0);
        if (!err)
                err = gnutls_psk_allocate_server_credentials(&credentials);
        if (err) {
                snprintf(why, n, "TLS cannot be set up: %s", gnutls_strerror(err));
                return -EIO;
        }
        gnutls_psk_set_server_credentials_function2(credentials, find_key);
        return 0;
}

/* ---- What TLS does with the socket: it never waits, but to receive where it may ---- */

static ssize_t pull(gnutls_transport_ptr_t p, void *to, size_t len)
{
        const struct nbd_wire *w = p;
        ssize_t n = recv(w->fd, to, len, w->waits ? 0 : MSG_DONTWAIT);

        if (n < 0)
                gnutls_transport_set_errno(w->tls, errno);
        return n;
}

static ssize_t push(gnutls_transport_ptr_t p, const void *data, size_t len)
{
        const struct nbd_wire *w = p;
        ssize_t n = send(w->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0)
                gnutls_transport_set_errno(w->tls, errno);
        return n;
}

static int may_pull(gnutls_transport_ptr_t p, unsigned ms)
{
        struct pollfd f = { ((const struct nbd_wire *)p)->fd, POLLIN, 0 };

        return poll(&f, 1, (int)ms);
}

int nbd_tls_begin(struct nbd_wire *w)
{
        gnutls_session_t s;

        if (gnutls_init(&s, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL |
                            GNUTLS_NO_TICKETS) != 0)
                return -ENOMEM;
        if (gnutls_priority_set(s, priority) != 0 ||
            gnutls_credentials_set(s, GNUTLS_CRD_PSK, credentials) != 0) {
                gnutls_deinit(s);
                return -ENOMEM;
        }
        gnutls_transport_set_ptr(s, w);
        gnutls_transport_set_pull_function(s, pull);
        gnutls_transport_set_pull_timeout_function(s, may_pull);
        gnutls_transport_set_push_function(s, push);
        w->tls = s;
        w->waits = false;
        return 0;
}

int nbd_tls_step(struct nbd_wire *w, short *events, const char **why)
{
        int err;

        do
                err = gnutls_handshake(w->tls);
        while (err < 0 && !gnutls_error_is_fatal(err) && err != GNUTLS_E_AGAIN);
        *events = gnutls_record_get_direction(w->tls) ? POLLOUT : POLLIN;
        *why = err ? gnutls_strerror(err) : "";
        switch (err) {
        case 0: return 0;
        case GNUTLS_E_AGAIN: return -EAGAIN;
        /* the client's proof is not by our key */
        case GNUTLS_E_RECEIVED_ILLEGAL_PARAMETER:
        case GNUTLS_E_DECRYPTION_FAILED:
        case GNUTLS_E_NO_CIPHER_SUITES:         /* it offers no key, or only an older TLS */
        case GNUTLS_E_INSUFFICIENT_CREDENTIALS:
        case GNUTLS_E_MISSING_EXTENSION:
        case GNUTLS_E_NO_COMMON_KEY_SHARE: return -EACCES;
        default: return -EPROTO;
        }
}

void nbd_tls_name(const struct nbd_wire *w, char name[KEY_NAME_MAX + 1])
{
        const char *said = gnutls_psk_server_get_username(w->tls);

        snprintf(name, KEY_NAME_MAX + 1, "%s", said ? said : "");
}

void nbd_tls_refuse(struct nbd_wire *w)
{
        gnutls_alert_send(w->tls, GNUTLS_AL_FATAL, GNUTLS_A_UNKNOWN_PSK_IDENTITY);
        gnutls_deinit(w->tls);
        w->tls = NULL;
}

void nbd_tls_end(struct nbd_wire *w)
{
        if (!w->tls)
                return;
        gnutls_bye(w->tls, GNUTLS_SHUT_WR);
        gnutls_deinit(w->tls);
        w->tls = NULL;
}
