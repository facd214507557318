/* The two user namespaces, and the inner one's namespaces: pid, network, IPC, UTS and time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/securebits.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../inside/server.h"
#include "common.h"
#include "configuration.h"
#include "filters.h"
#include "gateway.h"
#include "namespaces.h"
#include "protocol.h"
#include "sockets.h"
#include "traces.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
/* All ids but the last (NOBODY_INSIDE in inside/server.h), so that no input can become the owner of the fork server. */
#define INNER_USERS "0 0 65535\n"
#define PROCESS_SLACK 16u  /* the supervisor, init and the fork server */
#define PENDING_SIGNALS 4096u  /* pending signals of all processes of a sandbox */
#define QUEUE_BYTES 204800u  /* for POSIX message queues: a quarter of Linux's default limit per user */

int ns_user = -1, ns_pid = -1, ns_time = -1;
pid_t init_pid;
bool init_alive = true;
static int ns_gateway = -1;  /* kept open, because closing it would remove the cables */
static int init_socket = -1;

static void become_its_root(void)
{
    CHECK(setresgid(0, 0, 0), "setresgid 0 in the user namespace");
    CHECK(setgroups(0, NULL), "setgroups in the user namespace");
    CHECK(setresuid(0, 0, 0), "setresuid 0 in the user namespace");
    prctl(PR_SET_DUMPABLE, 1);
}

void enter_unmapped_namespace(void)
{
    CHECK(unshare(CLONE_NEWUSER), "unshare user namespace");
    write_all(control, "U\n", 2);
    char go;
    if (!read_all(control, &go, 1) || go != 'M') _exit(125);
}

void enter_user_namespace(void)
{
    enter_unmapped_namespace();
    become_its_root();
}

/* Join the kept user namespace, as its id 0. */
void join_user_namespace(int kept)
{
    join_namespace(kept, CLONE_NEWUSER, "kept user");
    become_its_root();
}

int open_ns(pid_t pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%d/ns/%s", (int)pid, name);
    int fd = openat(host_proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die("open namespace %s", path);
    return fd;
}

/* Send prepared rtnetlink messages one by one, and require each acknowledgement. */
static void send_netlink(const uint8_t *bytes, uint32_t length)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    CHECK(fd, "netlink socket");
    for (uint32_t at = 0; at + sizeof(struct nlmsghdr) <= length;) {
        struct nlmsghdr header;
        memcpy(&header, bytes + at, sizeof header);
        if (header.nlmsg_len < sizeof header || at + header.nlmsg_len > length) break;
        CHECK(send(fd, bytes + at, header.nlmsg_len, 0), "netlink send");
        union { struct nlmsghdr header; char bytes[8192]; } answer;
        CHECK(recv(fd, &answer, sizeof answer, 0), "netlink receive");
        if (answer.header.nlmsg_type == NLMSG_ERROR) {
            int error = ((struct nlmsgerr *)NLMSG_DATA(&answer.header))->error;
            if (error) { errno = -error; die("configure the network (message at byte %u)", at); }
        }
        at += NLMSG_ALIGN(header.nlmsg_len);
    }
    close(fd);
}

static int web_listener = -1, web_root = -1;
static pid_t web_server;

/* Open the gateway's listening socket if the system has a directory ./web to serve. */
static void listen_for_web(void)
{
    if (web_root < 0) return;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(80)};
    web_listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(web_listener, "web socket");
    CHECK(bind(web_listener, (struct sockaddr *)&address, sizeof address), "bind the web server");
    CHECK(listen(web_listener, 64), "listen");
}

/* Make this process end with its parent, the supervisor. Must be repeated after each change of credentials, because the kernel
 * then resets this setting. */
static void end_with(pid_t supervisor)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(0);  /* it died before the setting took effect */
}

enum { LOWEST_KEPT = 512 };  /* lowest descriptor of the server, above all of the supervisor's */

/* Start a process of the inner user namespace that can access only the served files and its sockets. */
void start_web(void)
{
    struct listener listeners[MOST_LISTENERS];
    int fds[MOST_SOCKETS], n = 0;
    const char *banners[MOST_SOCKETS];
    int own = listening_sockets(fds, banners);
    if (web_listener >= 0) listeners[n++] = (struct listener){web_listener, NULL};
    for (int i = 0; i < own; i++) listeners[n++] = (struct listener){fds[i], banners[i]};
    if (!n) return;
    pid_t supervisor = getpid(), server = fork();
    CHECK(server, "fork the web server");
    if (server) {
        web_server = server;
        close_fd(&web_listener);
        return;
    }
    prctl(PR_SET_NAME, "gateway");
    signal(SIGCONT, SIG_DFL);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    if (chroot("/empty") || chdir("/") || setns(ns_user, CLONE_NEWUSER)) _exit(125);
    end_with(supervisor);
    prctl(PR_SET_DUMPABLE, 0);
    if (web_root < 0) web_root = open("/", O_PATH | O_CLOEXEC);
    for (int i = 0; i < n; i++) listeners[i].fd = fcntl(listeners[i].fd, F_DUPFD, LOWEST_KEPT);
    dup2(web_root, 0);
    syscall(SYS_close_range, 1u, LOWEST_KEPT - 1u, 0u);
    syscall(SYS_close_range, LOWEST_KEPT + (unsigned)n, ~0u, 0u);
    filter_calls();
    answer_all(listeners, n, 0, config.web_date);
}

bool web_is_alive(void) { return !web_server || !waitpid(web_server, NULL, WNOHANG); }

void leave_for_processes(void)
{
    join_namespace(ns_gateway, CLONE_NEWNET, "gateway network");
    CHECK(chroot("/empty"), "enter the empty directory");
    CHECK(chdir("/"), "enter the empty directory");
    join_namespace(ns_user, CLONE_NEWUSER, "inner user");
    prctl(PR_SET_DUMPABLE, 0);
}

/* Create the declared interfaces, each a cable (veth) to the gateway. The gateway is a namespace that inputs cannot enter. It
 * answers for the gateway's addresses and reports all others as unreachable. This process ends up in `inside`. */
static void configure_network(int inside, int gateway)
{
    join_namespace(inside, CLONE_NEWNET, "network");
    CHECK(dup2(gateway, FD_GATEWAY), "dup2");
    send_netlink(config.netlink.bytes, config.netlink.length);
    join_namespace(gateway, CLONE_NEWNET, "gateway network");
    write_file(host_proc, "sys/net/ipv4/ip_forward", "1");
    write_file(host_proc, "sys/net/ipv4/icmp_ratelimit", "0");
    send_netlink(config.gateway.bytes, config.gateway.length);
    listen_for_web();
    join_namespace(inside, CLONE_NEWNET, "network");
    close(FD_GATEWAY);
    open_sockets();
    ns_gateway = gateway;
}

/* Process 1 inside. It reaps orphans. For each byte read, it kills all other processes and answers when its children are gone;
 * if a network comes with the byte, it joins that instead. The first byte means that the mounts are ready. It ends with the
 * supervisor, and so does everything inside. */
static void __attribute__((noreturn)) run_init(int socket)
{
    char byte = 0;
    int fds[DESCRIPTORS];
    dup2(socket, 0);
    syscall(SYS_close_range, 1u, ~0u, 0u);
    prctl(PR_SET_NAME, "init");
    prctl(PR_SET_DUMPABLE, 0);
    setsid();
    signal(SIGCHLD, SIG_IGN);
    signal(SIGCONT, SIG_DFL);
    if (read(0, &byte, 1) != 1) _exit(0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  /* even if it was stopped: its parent is the supervisor by now */
    if ( chroot("/empty") || chdir("/") || write(0, &byte, 1) != 1) _exit(0);
    for (;;) {
        if (receive_with(0, &byte, 1, fds) != 1) _exit(0);
        if (fds[0] >= 0) {
            if (setns(fds[0], CLONE_NEWNET) || close(fds[0]) || write(0, &byte, 1) != 1) _exit(0);
            continue;
        }
        signal(SIGCHLD, SIG_DFL);  /* all awaited processes are reaped by then */
        kill(-1, SIGKILL);
        while (waitpid(-1, NULL, __WALL) > 0 || errno != ECHILD) {}
        signal(SIGCHLD, SIG_IGN);
        if (write(0, &byte, 1) != 1) _exit(0);
    }
}

/* Whether init answers a request that was sent. */
static bool init_answers(bool sent)
{
    char byte;
    return sent && await_answer(init_socket, init_pid) && read(init_socket, &byte, 1) == 1;
}

void ask_init(void)
{
    init_alive = init_alive && init_answers(send(init_socket, "", 1, MSG_NOSIGNAL) == 1);
}

/* Make the network deterministic: link-local addresses at once and derived from the hardware address, no solicitations, and no
 * multicast reports within a day. All users may `ping`, as systemd configures it. */
static void quiet_network(void)
{
    write_file(host_proc, "sys/net/ipv4/ping_group_range", "0 65535");
    static const struct { const char *name, *value; } settings[] = {
        {"accept_dad", "0"}, {"router_solicitations", "0"}, {"accept_ra", "0"}, {"addr_gen_mode", "0"},
        {"mldv1_unsolicited_report_interval", "86400000"}, {"mldv2_unsolicited_report_interval", "86400000"},
    };
    for (unsigned i = 0; i < sizeof settings / sizeof *settings; i++) {
        char path[96];
        snprintf(path, sizeof path, "sys/net/ipv6/conf/default/%s", settings[i].name);
        if (!faccessat(host_proc, path, F_OK, 0)) write_file(host_proc, path, settings[i].value);
    }
}

/* Allow or forbid new network namespaces inside. Inputs may create none, because their sockets would not be counted. Called in
 * the inner user namespace. */
static void allow_networks(bool allowed)
{
    write_file(host_proc, "sys/user/max_net_namespaces", allowed ? "1000" : "0");
}

/* Enter a new network namespace for the gateway. The outer user namespace owns it, because root inside could otherwise access
 * it by its id. */
static int make_gateway(void)
{
    CHECK(unshare(CLONE_NEWNET), "unshare gateway network namespace");
    quiet_network();
    int gateway = openat(host_proc, "self/ns/net", O_RDONLY | O_CLOEXEC);
    CHECK(gateway, "open the gateway's network namespace");
    return gateway;
}

/* Become an id that is unique among the sandboxes of this outer user namespace, keeping capabilities. Processes, signals and
 * queues of a user namespace also count against its creator's limits, which sandboxes would otherwise share. */
static void become_owner(uid_t owner)
{
    CHECK(prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP), "keep capabilities");
    CHECK(setresuid(owner, owner, owner), "become user %u", owner);
    prctl(PR_SET_DUMPABLE, 1);
}

/* Create the inner user namespace, with `owner` (an outer id) as creator, and its namespaces, through a short-lived child. Join
 * all of them but the user and pid namespaces. */
void make_inner_namespaces(uid_t owner)
{
    /* Owned by the outer namespace, so that inputs cannot mount the host's cgroups. */
    CHECK(unshare(CLONE_NEWCGROUP), "unshare cgroup namespace");
    web_root = open("web", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int up[2], down[2], pair[2];
    if (pipe2(up, O_CLOEXEC) || pipe2(down, O_CLOEXEC)) die("pipe");
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "socketpair");
    int gateway = make_gateway();  /* a socket keeps the network alive in which it was created */
    pid_t supervisor = getpid(), child = fork();
    CHECK(child, "fork");
    char byte = 0;
    if (child == 0) {
        become_owner(owner);
        end_with(supervisor);
        /* The limit of a user namespace's creator applies to all its ids together, and is not visible inside. */
        rlim_t all = config.processes + PROCESS_SLACK + config.n_processes - 2;  /* without init and the fork server */
        setrlimit(RLIMIT_NPROC, &(struct rlimit){all, all});
        setrlimit(RLIMIT_SIGPENDING, &(struct rlimit){PENDING_SIGNALS, PENDING_SIGNALS});
        setrlimit(RLIMIT_MSGQUEUE, &(struct rlimit){QUEUE_BYTES, QUEUE_BYTES});
        if (unshare(CLONE_NEWUSER) || write(up[1], &byte, 1) != 1 || read(down[0], &byte, 1) != 1)
            die("unshare inner user namespace");
        become_its_root();
        end_with(supervisor);
        CHECK(unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID | CLONE_NEWTIME),
              "unshare inner namespaces");
        quiet_network();
        /* No nested namespaces, which are the kernel's largest attack surface. */
        write_file(host_proc, "sys/user/max_user_namespaces", "0");
        /* No cgroup namespaces either: cgroups mounted there would be the host's. */
        write_file(host_proc, "sys/user/max_cgroup_namespaces", "0");
        allow_networks(false);
        /* Counted for each user of the host, whose other sandboxes need some as well. */
        write_file(host_proc, "sys/user/max_inotify_instances", "8");
        write_file(host_proc, "sys/user/max_inotify_watches", "4096");
        CHECK(sethostname(config.hostname, strlen(config.hostname)), "sethostname");
        CHECK(setdomainname(config.domainname, strlen(config.domainname)), "setdomainname");
        struct timespec since_boot;
        clock_gettime(CLOCK_BOOTTIME, &since_boot);
        long long offset = config.uptime - (long long)since_boot.tv_sec;
        char offsets[96];
        snprintf(offsets, sizeof offsets, "boottime %lld 0\nmonotonic %lld 0\n", offset, offset);
        write_file(host_proc, "self/timens_offsets", offsets);
        /* Others can join the pid and time namespaces once a process is in them. */
        pid_t init = fork();
        CHECK(init, "fork init");
        if (init == 0) run_init(pair[1]);
        if (write(up[1], &init, sizeof init) != sizeof init) _exit(125);
        for (;;) pause();
    }
    /* otherwise the child's death would go unnoticed */
    close(up[1]); close(down[0]); close(pair[1]);
    needed = child;
    char path[64];
    if (read(up[0], &byte, 1) != 1) _exit(125);
    snprintf(path, sizeof path, "%d/uid_map", (int)child);
    write_file(host_proc, path, INNER_USERS);
    snprintf(path, sizeof path, "%d/gid_map", (int)child);
    write_file(host_proc, path, "0 0 65536\n");
    if (write(down[1], &byte, 1) != 1 || read(up[0], &init_pid, sizeof init_pid) != sizeof init_pid) _exit(125);
    close(up[0]); close(down[1]);
    init_socket = pair[0];

    ns_user = open_ns(child, "user");
    ns_pid = open_ns(child, "pid_for_children");
    ns_time = open_ns(child, "time_for_children");
    int net = open_ns(child, "net"), ipc = open_ns(child, "ipc"), uts = open_ns(child, "uts");
    join_namespace(ipc, CLONE_NEWIPC, "IPC");
    join_namespace(uts, CLONE_NEWUTS, "UTS");
    configure_network(net, gateway);
    close(net); close(ipc); close(uts);
    needed = 0;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* List all neighbour proxies of this network, and remove those without an interface. Return their number. */
static unsigned forget_some_proxies(int questions, int orders)
{
    static _Alignas(struct nlmsghdr) char bytes[65536];
    const struct { struct nlmsghdr header; struct ndmsg neighbour; } question = {
        {.nlmsg_len = sizeof question, .nlmsg_type = RTM_GETNEIGH, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        {.ndm_family = AF_UNSPEC, .ndm_flags = NTF_PROXY}};
    CHECK(send(questions, &question, sizeof question, 0), "ask for proxies");
    for (unsigned found = 0;;) {
        int length = (int)recv(questions, bytes, sizeof bytes, 0);
        CHECK(length, "hear of proxies");
        for (struct nlmsghdr *each = (void *)bytes; NLMSG_OK(each, length); each = NLMSG_NEXT(each, length)) {
            if (each->nlmsg_type == NLMSG_DONE || each->nlmsg_type == NLMSG_ERROR) return found;
            if (each->nlmsg_type != RTM_NEWNEIGH || ((struct ndmsg *)NLMSG_DATA(each))->ndm_ifindex) continue;
            each->nlmsg_type = RTM_DELNEIGH;
            each->nlmsg_flags = NLM_F_REQUEST;
            each->nlmsg_pid = 0;
            found += send(orders, each, each->nlmsg_len, 0) > 0;
        }
    }
}

void forget_proxies(void)
{
    int questions = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    int orders = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (questions < 0 || orders < 0) die("netlink socket");
    for (int tries = 0; tries < 1000 && forget_some_proxies(questions, orders); tries++) {}
    close(questions);
    close(orders);
}

int renew_network(void)
{
    if (web_server) {
        kill(web_server, SIGKILL);
        waitpid(web_server, NULL, 0);
        web_server = 0;
    }
    close_fd(&ns_gateway);
    int gateway = make_gateway(), up[2];
    if (pipe2(up, O_CLOEXEC)) die("pipe");
    pid_t supervisor = getpid(), child = fork();
    CHECK(child, "fork");
    char byte = 0;
    if (child == 0) {
        join_namespace(ns_user, CLONE_NEWUSER, "inner user");
        end_with(supervisor);
        prctl(PR_SET_DUMPABLE, 1);  /* otherwise its network could not be opened from outside */
        allow_networks(true);
        CHECK(unshare(CLONE_NEWNET), "unshare network namespace");
        allow_networks(false);
        quiet_network();
        if (write(up[1], &byte, 1) != 1) _exit(125);
        for (;;) pause();
    }
    close(up[1]);
    if (read(up[0], &byte, 1) != 1) _exit(125);
    close(up[0]);
    int net = open_ns(child, "net");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    configure_network(net, gateway);
    start_web();
    init_alive = init_alive && init_answers(send_with(init_socket, &byte, 1, &net, 1));
    watch_network();
    return net;
}
