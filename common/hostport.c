#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "common/hostport.h"

static bool copy(char *to, size_t room, const char *from, size_t n)
{
        if (n >= room)
                return false;
        memcpy(to, from, n);
        to[n] = '\0';
        return true;
}

static uint16_t number(const char *digits)
{
        char *end;

        if (!isdigit((unsigned char)*digits))
                return 0;
        unsigned long n = strtoul(digits, &end, 10);
        return *end || n > 65535 ? 0 : (uint16_t)n;
}

enum hostport_error hostport_parse(const char *text, struct hostport *hp)
{
        const char *end = text + strcspn(text, "/"), *host = text, *host_end, *rest;

        *hp = (struct hostport){ .port = 0 };
        if (*end && end[1])
                return HOSTPORT_PATH;
        if (*text == '[') {             /* an IPv6 address, whose colons are its own */
                host++;
                host_end = memchr(host, ']', (size_t)(end - host));
                if (!host_end || (host_end + 1 != end && host_end[1] != ':'))
                        return HOSTPORT_BRACKET;
                rest = host_end + 1;
        } else {
                host_end = memchr(text, ':', (size_t)(end - text));
                if (!host_end)
                        host_end = end;
                rest = host_end;
                if (rest != end && memchr(rest + 1, ':', (size_t)(end - rest - 1)))
                        return HOSTPORT_COLONS;
        }
        if (!copy(hp->host, sizeof(hp->host), host, (size_t)(host_end - host)))
                return HOSTPORT_LONG;
        if (rest == end)
                return HOSTPORT_OK;
        hp->colon = true;
        if (!copy(hp->service, sizeof(hp->service), rest + 1, (size_t)(end - rest - 1)))
                return HOSTPORT_LONG;
        hp->port = number(hp->service);
        return HOSTPORT_OK;
}
