#include <string.h>
#include "common/wrap.h"

void wrap_print(FILE *f, const char *text, unsigned columns)
{
        const size_t most = columns - 4;
        size_t column = 0;

        while (*text) {
                size_t n = strcspn(text, " \n"), cut = n > most ? n - (most - 3) : 0;
                if (column && column + 1 + (cut ? most : n) > columns)
                        column = (size_t)fprintf(f, "\n    ") - 1;
                else if (column)
                        column += (size_t)fprintf(f, " ");
                column += (size_t)fprintf(f, "%s%.*s", cut ? "..." : "", (int)(n - cut),
                                          text + cut);
                text += n;
                if (*text == '\n') {
                        putc('\n', f);
                        column = 0;
                }
                text += *text != 0;
        }
}
