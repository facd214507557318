/* The login shell of all users. It passes its descriptors to the server, and ends with the status or signal that the server sends.
 *
 * One message holds fields that end with NUL: "tty" or "", the number of words, the words, the environment. Descriptors 0, 1 and 2
 * are sent with it. Afterwards the shell sends "w" for a changed window size and "k SIGNAL" for a signal. The server answers once:
 * "x STATUS" or "s SIGNAL". No data passes through this program. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "calls.h"

enum { FAILED = 254, HUNG_UP = 129, MOST = 192 * 1024 };

extern char **environ;
static char text[MOST];
static size_t used;

static void add(const char *field)
{
    size_t length = strlen(field) + 1;
    if (length > sizeof text - used) exit(FAILED);
    memcpy(text + used, field, length);
    used += length;
}

static int called(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SESSIONS};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) exit(FAILED);
    return fd;
}

static void hand_over(int fd)
{
    static const int handed[3] = {0, 1, 2};
    union {
        char bytes[CMSG_SPACE(sizeof handed)];
        struct cmsghdr aligned;
    } control = {0};
    struct iovec piece = {text, used};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){CMSG_LEN(sizeof handed), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(header), handed, sizeof handed);
    if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0) exit(FAILED);
}

/* End by the signal in the answer, or return its status. */
static int ended(const char *answer)
{
    int number = atoi(answer + 1);
    if (*answer != 's') return number;
    struct rlimit none = {0};
    setrlimit(RLIMIT_CORE, &none);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    signal(number, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    raise(number);
    return 128 + number;
}

int main(int argc, char **argv)
{
    prctl(PR_SET_DUMPABLE, 0);  /* all logins run as one user, and must not trace each other */
    static const int told[] = {SIGWINCH, SIGINT, SIGQUIT, SIGTSTP, SIGTERM, SIGHUP};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) sigaddset(&signals, told[i]);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    int terminal = isatty(0), heard = signalfd(-1, &signals, SFD_CLOEXEC), server = called();
    char number[16];
    snprintf(number, sizeof number, "%d", argc);
    add(terminal ? "tty" : "");
    add(number);
    for (int i = 0; i < argc; i++) add(argv[i]);
    for (char **variable = environ; *variable; variable++) add(*variable);
    hand_over(server);
    if (!terminal)  /* only the session must hold the pipes, so that they can end */
        for (int fd = 0; fd < 3; fd++) close(fd);
    struct pollfd ready[2] = {{server, POLLIN, 0}, {heard, POLLIN, 0}};
    for (;;) {
        if (poll(ready, 2, -1) < 0) continue;
        if (ready[0].revents) {
            char answer[32] = {0};
            ssize_t n;  /* if the server closed with unread data, an error precedes its answer */
            do n = recv(server, answer, sizeof answer - 1, 0);
            while (n < 0 && errno == ECONNRESET);
            return n > 0 ? ended(answer) : FAILED + 1;
        }
        struct signalfd_siginfo signal;
        if (read(heard, &signal, sizeof signal) != sizeof signal) continue;
        char message[16] = "w";
        if (signal.ssi_signo != SIGWINCH) snprintf(message, sizeof message, "k %u", signal.ssi_signo);
        if (send(server, message, strlen(message), MSG_NOSIGNAL) < 0 || signal.ssi_signo == SIGHUP) return HUNG_UP;
    }
}
