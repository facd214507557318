/* Starting the fork server in a system's bash, and the memory that its shells share. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common.h"
#include "configuration.h"
#include "filters.h"
#include "forkserver.h"
#include "namespaces.h"
#include "processes.h"

static pid_t server_process;
int server_socket = -1, shared_fd = -1, notices = -1, mounts_copy = -1;

void move_server(int kind, int fd, const char *what)
{
    struct server_request request = {.op = SERVER_JOIN, .flags = (uint32_t)kind};
    send_with(server_socket, &request, sizeof request, &fd, 1);
    struct server_reply reply = hear_server();
    if (reply.error) { errno = reply.error; die("%s (%s)", what, config.shell_mode); }
}

int64_t clock_of_shell(void)
{
    char text[256];
    long long seconds = 0, rest = 0;
    read_proc(text, sizeof text, "%d/timens_offsets", (int)server_process);
    const char *line = strstr(text, "boottime");
    if (!line || sscanf(line, "boottime %lld %lld", &seconds, &rest) != 2) return 0;
    return seconds * 1000000000ll + rest;
}

pid_t start_server(const int pair[2])
{
    int last_pid = openat(host_proc, "sys/kernel/ns_last_pid", O_RDWR | O_CLOEXEC);
    CHECK(last_pid, "open ns_last_pid");
    pid_t server = fork_inside((pid_t)config.parent);
    if (server == 0) {
        close(pair[0]);  /* otherwise the death of the supervisor before the next line would go unnoticed */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setsid();
        if (!config.declared_clock) join_namespace(ns_time, CLONE_NEWTIME, "time");
        char byte;
        int layers[DESCRIPTORS];
        if (receive_with(pair[1], &byte, 1, layers) != 1) _exit(125);
        join_namespace(layers[0], CLONE_NEWNS, "layer mount");
        int nowhere = open("/dev/null", O_RDWR);
        for (int i = 0; i < 3; i++) dup2(nowhere, i);
        dup2(pair[1], FD_CONTROL);
        dup2(shared_fd, FD_SHARED);
        dup2(last_pid, FD_LAST_PID);
        dup2(layers[1], FD_MOUNTS);
        dup2(ns_user, FD_USER);
        dup2(host_proc, FD_PROC);
        syscall(SYS_close_range, 3u, FD_CONTROL - 1u, 0u);
        syscall(SYS_close_range, FD_PROC + 1u, ~0u, 0u);
        for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        umask(022);
        if (chdir(config.directory)) CHECK(chdir("/"), "chdir /");
        filter_calls();
        int listener = notice_calls();
        if (listener < 0 || !send_with(FD_CONTROL, "", 1, &listener, 1)) _exit(125);
        close(listener);
        take_declared_limits();
        if (!strcmp(config.shell_mode, "fresh")) {
            serve(config.environment);
            exec_fresh(config.environment);
        }
        personality(ADDR_NO_RANDOMIZE);  /* all servers of a system have the same addresses, so that shells can change machines */
        static char mode[32], *environment[260];
        snprintf(mode, sizeof mode, "SHIOENV_SERVER=%s", config.shell_mode);
        int n = 0;
        for (; n < config.n_environment; n++) environment[n] = config.environment[n];
        environment[n++] = mode;
        environment[n++] = "LD_PRELOAD=/.shioenv.so";
        environment[n++] = "LD_BIND_NOW=1";
        if (!strcmp(config.shell_mode, "late")) environment[n++] = "BASH_ENV=/.shioenv-late";
        char *arguments[] = {"bash", "--norc", "--noprofile", "-c", ":", NULL};
        execve("/bin/bash", arguments, environment);
        _exit(125);
    }
    close(pair[1]);
    close(last_pid);
    server_socket = pair[0];
    server_process = server;
    return server;
}

bool await_server(void) { return await_answer(server_socket, server_process); }

void give_layers(int library_layer, int layer)
{
    char byte = 0;
    int fds[DESCRIPTORS] = {library_layer, layer};
    if (!send_with(server_socket, &byte, 1, fds, 2) || !await_server() || receive_with(server_socket, &byte, 1, fds) != 1) { errno = EPIPE; die("listen to system calls (seccomp)"); }
    notices = fds[0];
    struct server_reply ready = hear_server();
    if (ready.error) { errno = ready.error; die("start the fork server (%s)", config.shell_mode); }
}

struct server_reply hear_server(void)
{
    struct server_reply word;
    ssize_t n = recv(server_socket, &word, sizeof word, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN && await_server()) n = recv(server_socket, &word, sizeof word, 0);
    if (n != sizeof word) word = (struct server_reply){.error = EPIPE};
    return word;
}

/* Overwrite the memory that shells share, keeping its pages, if it holds no more than an ordinary run leaves; else return false.
 * Of a text, only the pages present for every text are kept, because a shell can see how many pages there are. */
static bool write_over_shared_memory(void)
{
    enum { USUAL_STATE = 16 * PAGE };
    const off_t texts = (offsetof(struct shared, input) / PAGE + 1) * PAGE, state = offsetof(struct shared, state) / PAGE * PAGE;
    for (off_t from = 0, to; (from = lseek(shared_fd, from, SEEK_DATA)) >= 0; from = to) {
        to = lseek(shared_fd, from, SEEK_HOLE);
        if (to < 0 || (to > texts && (from < state || to > state + USUAL_STATE))) return false;
        memset((char *)shared + from, 0, (size_t)(to - from));
    }
    return errno == ENXIO;  /* no more data */
}

void empty_shared_memory(void)
{
    if (write_over_shared_memory()) return;
    CHECK(fallocate(shared_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SHARED_BYTES), "empty the shared memory");
}
