/*
 * Messages of kern: formatted here, shown by the host.
 */
#include <stdarg.h>
#include <stddef.h>
#include "base/exit.h"
#include "base/print.h"
#include "pager/env.h"

struct text { char buf[400]; size_t n; };

static void put(struct text *t, char c)
{
        if (t->n < sizeof(t->buf) - 1)
                t->buf[t->n++] = c;
}

static void put_number(struct text *t, uint64_t v, unsigned base)
{
        char d[24];
        int n = 0;
        do
                d[n++] = "0123456789abcdef"[v % base];
        while ((v /= base) != 0);
        while (n > 0)
                put(t, d[--n]);
}

static void put_signed(struct text *t, int64_t v)
{
        if (v < 0)
                put(t, '-');
        put_number(t, v < 0 ? -(uint64_t)v : (uint64_t)v, 10);
}

void kern_log(int level, const char *fmt, ...)
{
        struct text t = { .n = 0 };
        va_list ap;

        va_start(ap, fmt);
        for (const char *p = fmt; *p; p++) {
                if (*p != '%') {
                        put(&t, *p);
                        continue;
                }
                bool wide = *++p == 'l';
                if (wide)
                        p++;
                switch (*p) {
                case 's':
                        for (const char *s = va_arg(ap, const char *); *s; s++)
                                put(&t, *s);
                        break;
                case 'u':
                        put_number(&t, wide ? va_arg(ap, uint64_t) : va_arg(ap, unsigned), 10);
                        break;
                case 'x':
                        put_number(&t, wide ? va_arg(ap, uint64_t) : va_arg(ap, unsigned), 16);
                        break;
                case 'd': put_signed(&t, wide ? va_arg(ap, int64_t) : va_arg(ap, int)); break;
                default: put(&t, *p);
                }
        }
        va_end(ap);
        t.buf[t.n] = 0;
        vmexit(EXIT_LOG, (uint64_t)t.buf, (uint64_t)level, 0);
}

_Noreturn void kern_bug(const char *what, uint64_t a, uint64_t b)
{
        for (;;)
                vmexit(EXIT_BUG, (uint64_t)what, a, b);
}

_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b)
{
        kern_bug(what, a, b);
}
