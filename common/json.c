#include "common/json.h"

void json_string(FILE *f, const char *s)
{
        putc('"', f);
        for (; *s; s++) {
                if (*s == '"' || *s == '\\')
                        fprintf(f, "\\%c", *s);
                else if ((unsigned char)*s < ' ')
                        fprintf(f, "\\u%04x", (unsigned char)*s);
                else
                        putc(*s, f);
        }
        putc('"', f);
}
