/*
 * Listens on a unix socket, or on a TCP port of the loopback interface, and is no NBD server: rude
 * HOW SOCKET|PORT.
 *
 *   text     answers as another protocol would
 *   zeros    sends zeros without end
 *   noise    greets as an NBD server, then sends random bytes without end
 *   half     greets, and closes in the middle of the handshake
 *   silent   accepts, and says nothing
 *   deaf     does not even accept
 *   full     a deaf one whose queue is full: to a TCP client it is a host that does not answer
 *
 * It serves one client at a time, until it is killed.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <endian.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void flood(int fd, int noise)
{
        unsigned char block[4096] = { 0 };

        do
                for (size_t i = 0; noise && i < sizeof(block); i++)
                        block[i] = (unsigned char)random();
        while (write(fd, block, sizeof(block)) > 0);
}

static void serve(int fd, const char *how)
{
        static const char text[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
        struct { uint64_t magic, option; uint16_t flags; } __attribute__((packed)) hello = {
                htobe64(0x4e42444d41474943u), htobe64(0x49484156454f5054u), htobe16(3),
        };
        char byte;

        if (strcmp(how, "text") == 0 && write(fd, text, strlen(text)) > 0)
                return;
        if (strcmp(how, "zeros") == 0)
                flood(fd, 0);
        if (strcmp(how, "noise") == 0 && write(fd, &hello, sizeof(hello)) > 0)
                flood(fd, 1);
        if (strcmp(how, "half") == 0 && write(fd, &hello, sizeof(hello) - 1) > 0)
                return;
        while (read(fd, &byte, 1) > 0)
                ;
}

static int listen_at(const char *where, int full)
{
        struct sockaddr_un un = { .sun_family = AF_UNIX };
        struct sockaddr_in in = { .sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)atoi(where)) };
        int tcp = isdigit((unsigned char)*where),
            s = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
        struct sockaddr *a = tcp ? (struct sockaddr *)&in : (struct sockaddr *)&un;
        socklen_t len = tcp ? sizeof(in) : sizeof(un);

        if (!tcp && strlen(where) >= sizeof(un.sun_path))
                return -1;
        if (!tcp)
                strcpy(un.sun_path, where);
        if (s < 0 || bind(s, a, len) != 0 || listen(s, full ? 0 : 4) != 0)
                return -1;
        for (int i = 0; full && i < 4; i++) {
                int c = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
                connect(c, a, len);     /* it shall not be possible at once */
        }
        return s;
}

int main(int argc, char **argv)
{
        if (argc != 3) {
                fprintf(stderr, "usage: rude HOW SOCKET|PORT\n");
                return 2;
        }
        int full = strcmp(argv[1], "full") == 0, s = listen_at(argv[2], full);
        if (s < 0) {
                perror("rude");
                return 1;
        }
        signal(SIGPIPE, SIG_IGN);
        puts("ready");
        fflush(stdout);
        if (full || strcmp(argv[1], "deaf") == 0)
                pause();
        for (int fd; (fd = accept(s, NULL, NULL)) >= 0; close(fd))
                serve(fd, argv[1]);
        return 1;
}
