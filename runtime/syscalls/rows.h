/*
 * Macros for rows of system calls (marshal/row.h has their meaning).
 */
#ifndef VMRUN_ROWS_H
#define VMRUN_ROWS_H

#include "marshal/row.h"

#define V               { K_VAL, 0, -1, 0, 0 }
#define FD              { K_FD, 0, -1, 0, 0 }
#define PATH            { K_PATH, 0, -1, 0, 0 }
#define PATHN           { K_PATH, AF_NULL, -1, 0, 0 }
/* Argument k has AT_SYMLINK_NOFOLLOW. */
#define PATHF(k)        { K_PATH, AF_NULL, -1, k + 1, 0 }
#define LINK            { K_PATHL, 0, -1, 0, 0 }
#define STR             { K_PATHL, 0, -1, 0, 0 }
#define STRN            { K_PATHL, AF_NULL, -1, 0, 0 }
#define IN(n)           { K_IN, 0, -1, 0, n }
#define INN(n)          { K_IN, AF_NULL, -1, 0, n }
#define INA(k)          { K_IN, AF_NULL, k, 0, 1 }              /* argument k bytes */
#define INI(k)          { K_IN, AF_NULL | AF_INT, k, 0, 1 }     /* as INA(k), k an int */
/* Argument k elements of n bytes, and x bytes more. */
#define INX(k, n, x)    { K_IN, 0, k, x, n }
#define OUT(n)          { K_OUT, 0, -1, 0, n }
#define OUTN(n)         { K_OUT, AF_NULL, -1, 0, n }
/* Room for argument k bytes; the result is the number of bytes that came. */
#define OUTR(k)         { K_OUT, AF_NULL | AF_RET, k, 0, 1 }
#define OUTRI(k)        { K_OUT, AF_NULL | AF_RET | AF_INT, k, 0, 1 }
#define OUTRU(k)        { K_OUT, AF_NULL | AF_RET | AF_UINT, k, 0, 1 }
#define OUTRX(k, n, x)  { K_OUT, AF_RET | AF_INT, k, x, n }
#define PRE(n)          { K_PRE, 0, -1, 0, n }
#define PREN(n)         { K_PRE, AF_NULL, -1, 0, n }
#define PREA(k)         { K_PRE, AF_UINT, k, 0, 1 }
#define PREAN(k)        { K_PRE, AF_NULL, k, 0, 1 }
/* Argument k bytes; the result may be more than came, and is then not their number. */
#define PRER(k)         { K_PRE, AF_NULL | AF_RET, k, 0, 1 }
#define CHGN(n)         { K_PRE, AF_NULL | AF_CHG, -1, 0, n }
#define IO(n)           { K_INOUT, 0, -1, 0, n }
#define ION(n)          { K_INOUT, AF_NULL, -1, 0, n }
#define VOUT(k)         { K_VOUT, AF_NULL, k, 0, 1 }
#define BLOCKED         { K_BLOCKED, AF_NULL, -1, 0, 8 }

#endif
