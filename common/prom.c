#include "common/prom.h"

void prom_escaped(FILE *f, const char *text)
{
        for (; *text; text++) {
                if (*text == '"' || *text == '\\')
                        putc('\\', f);
                putc(*text, f);
        }
}
