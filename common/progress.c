/*
 * Progress on a terminal.  See progress.h.
 */
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>
#include "common/progress.h"

#define ERASE_LINE "\r\033[K"           /* ECMA-48 */

static bool shown;

void progress_show(const char *text)
{
        if (!isatty(STDERR_FILENO))
                return;
        fprintf(stderr, ERASE_LINE "%s", text);
        shown = true;
}

void progress_end(void)
{
        if (shown)
                fputs(ERASE_LINE, stderr);
        shown = false;
}
