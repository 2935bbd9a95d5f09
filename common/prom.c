#include "common/prom.h"

void prom_escaped(FILE *f, const char *text)
{
        for (; *text; text++) {
                if (*text == '"' || *text == '\\' || *text == '\n')
                        putc('\\', f);
                putc(*text == '\n' ? 'n' : *text, f);
        }
}
