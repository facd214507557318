/* Process 1 of the namespaces that sshd runs in. Starts `sshd -i -e` for each connection that it is sent.
 *
 * keeper NUMBER SSHD: the descriptor NUMBER is a SOCK_SEQPACKET socket to the server. First the keeper makes the two sockets to which
 * sshd's modules and the login shell connect, and sends them. Then each message starts an sshd: it holds the connection's name and two
 * descriptors, the connection and the log. When the server closes the socket, the keeper ends, and the kernel ends all processes inside. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"

enum { DESCRIPTORS = 2, BACKLOG = 512 };

static int server;

static void reap(int signal)
{
    int before = errno;
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
    errno = before;
}

static int listening(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || chmod(path, 0666) || listen(fd, BACKLOG)) _exit(2);
    return fd;
}

/* Send or receive a short text and two descriptors; return the length of the text. */
static ssize_t exchange(char *text, size_t length, int fds[DESCRIPTORS], int sends)
{
    union {
        char bytes[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
        struct cmsghdr aligned;
    } control = {0};
    struct iovec piece = {text, length};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (sends) {
        *header = (struct cmsghdr){CMSG_LEN(DESCRIPTORS * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(header), fds, DESCRIPTORS * sizeof(int));
        return sendmsg(server, &message, MSG_NOSIGNAL);
    }
    ssize_t n = recvmsg(server, &message, MSG_CMSG_CLOEXEC);
    header = CMSG_FIRSTHDR(&message);
    fds[0] = fds[1] = -1;
    if (n > 0 && header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(DESCRIPTORS * sizeof(int)))
        memcpy(fds, CMSG_DATA(header), DESCRIPTORS * sizeof(int));
    return n;
}

static void become_sshd(const char *program, const char *name, const int fds[DESCRIPTORS])
{
    char *const argv[] = {(char *)program, "-i", "-e", NULL};
    signal(SIGCHLD, SIG_DFL);
    setsid();
    if (dup2(fds[0], 0) < 0 || dup2(fds[0], 1) < 0 || dup2(fds[1], 2) < 0 || setenv(CONNECTION, name, 1)) _exit(127);
    close(server);
    execv(program, argv);
    _exit(127);
}

int main(int argc, char **argv)
{
    char name[64] = "ready";
    if (argc != 3 || umount2(".", MNT_DETACH) || chdir("/")) return 1;
    server = atoi(argv[1]);
    int fds[DESCRIPTORS] = {listening(GATE), listening(SESSIONS)};
    if (exchange(name, strlen(name), fds, 1) < 0) return 1;
    close(fds[0]);
    close(fds[1]);
    struct sigaction action = {.sa_handler = reap, .sa_flags = SA_RESTART};
    sigaction(SIGCHLD, &action, NULL);
    for (;;) {
        ssize_t n = exchange(name, sizeof name - 1, fds, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        name[n] = 0;
        if (fds[0] >= 0 && !fork()) become_sshd(argv[2], name, fds);
        close(fds[0]);
        close(fds[1]);
    }
}
