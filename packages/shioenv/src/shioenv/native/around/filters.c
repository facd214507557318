/* Seccomp filters for inputs: calls that are refused, and calls that notify the supervisor. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../inside/rows.h"
#include "common.h"
#include "configuration.h"
#include "filters.h"

/* Without no_new_privs, which would disable setuid programs. Root of a user namespace does not need it, and ids outside the
 * namespace cannot be gained here. */
void filter_calls(void)
{
    if (!config.seccomp.len) return;
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &config.seccomp), "seccomp filter");
}

enum { WAIT_KILLABLE = 1 << 5 };  /* SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: no signal interrupts a noticed call */
enum { SYS_OPEN_TREE_ATTR = 467 };
enum { SOCKET_REQUESTS = 0x8900, WIRELESS_REQUESTS = 0x8b00 };  /* of ioctl(2): 256 each */
enum { LAST_OWN = 999 };  /* the largest process id of a declared process */
enum { IOPRIO_WHO_PGRP = 2, IOPRIO_WHO_USER = 3 };

/* Matches a call by its number and up to two arguments, each within a range of 32 bits. A filter sees only registers, not the
 * memory that they point to. */
struct pattern {
    unsigned call;
    struct { bool given; unsigned argument, least, most; } wanted[2];
    unsigned what;  /* NOTICED_* */
};
#define ANY(call, what) {call, {{0}}, what}
#define WITH(call, argument, value, what) {call, {{true, argument, value, value}}, what}
#define WITHIN(call, argument, least, most, what) {call, {{true, argument, least, most}}, what}
#define BOTH(call, level, least, most) {call, {{true, 1, level, level}, {true, 2, least, most}}, 0}

/* The harmless ones of the calls below, which only read or only change their own socket; they are not noticed. All that are
 * not known to be harmless are noticed. */
#define OPTIONS(call) \
    WITH(call, 1, SOL_SOCKET, 0), WITH(call, 1, SOL_NETLINK, 0), BOTH(call, IPPROTO_TCP, TCP_NODELAY, TCP_QUICKACK), \
    BOTH(call, IPPROTO_IP, IP_TOS, IP_HDRINCL), BOTH(call, IPPROTO_IP, IP_PKTINFO, IP_FREEBIND), \
    BOTH(call, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_V6ONLY)
#define GETS(request) WITH(SYS_ioctl, 1, request, 0)
static const struct pattern harmless[] = {
    WITHIN(SYS_ioctl, 1, 0, SOCKET_REQUESTS - 1, 0),
    GETS(FIOGETOWN), GETS(SIOCGPGRP), GETS(SIOCATMARK), GETS(SIOCGIFNAME),
    GETS(SIOCGIFCONF), GETS(SIOCGIFFLAGS), GETS(SIOCGIFADDR), GETS(SIOCGIFDSTADDR), GETS(SIOCGIFBRDADDR),
    GETS(SIOCGIFNETMASK), GETS(SIOCGIFMETRIC), GETS(SIOCGIFMTU), GETS(SIOCGIFHWADDR), GETS(SIOCGIFINDEX),
    GETS(SIOCGIFTXQLEN), GETS(SIOCGIFMAP), GETS(SIOCGARP),
    OPTIONS(SYS_setsockopt), OPTIONS(SYS_getsockopt),
    WITH(SYS_kill, 1, 0, 0),  /* only a query */
};

/* Effects that checks after a run would not find, or only slowly. */
static const struct pattern noticed[] = {
    ANY(SYS_mount, NOTICED_MOUNTS),
    ANY(SYS_umount2, NOTICED_MOUNTS),
    ANY(SYS_pivot_root, NOTICED_MOUNTS),
    ANY(SYS_move_mount, NOTICED_MOUNTS),
    ANY(SYS_mount_setattr, NOTICED_MOUNTS),
    ANY(SYS_OPEN_TREE_ATTR, NOTICED_MOUNTS),
    ANY(SYS_shmget, NOTICED_IPC),
    ANY(SYS_msgget, NOTICED_IPC),
    ANY(SYS_semget, NOTICED_IPC),
    ANY(SYS_mq_open, NOTICED_IPC),
    ANY(SYS_sethostname, NOTICED_NAMES),
    ANY(SYS_setdomainname, NOTICED_NAMES),
    /* Without such a socket, only interfaces can be changed, through the ioctl of any socket. */
    WITH(SYS_socket, 0, AF_INET, NOTICED_SOCKETS),
    WITH(SYS_socket, 0, AF_INET6, NOTICED_SOCKETS),
    WITH(SYS_socket, 0, AF_NETLINK, NOTICED_SOCKETS),
    ANY(SYS_setsockopt, NOTICED_SETTINGS),
    ANY(SYS_getsockopt, NOTICED_SETTINGS),  /* a query about iptables creates its tables */
    WITHIN(SYS_ioctl, 1, SOCKET_REQUESTS, SOCKET_REQUESTS + 0xff, NOTICED_SETTINGS),
    WITHIN(SYS_ioctl, 1, WIRELESS_REQUESTS, WIRELESS_REQUESTS + 0xff, NOTICED_SETTINGS),
    /* The declared processes belong to the input's user, who may set their limits and priorities, */
    WITHIN(SYS_prlimit64, 0, 1, LAST_OWN, NOTICED_INIT),
    WITHIN(SYS_sched_setaffinity, 0, 1, LAST_OWN, NOTICED_INIT),
    WITHIN(SYS_sched_setscheduler, 0, 1, LAST_OWN, NOTICED_INIT),
    WITHIN(SYS_sched_setparam, 0, 1, LAST_OWN, NOTICED_INIT),
    WITHIN(SYS_sched_setattr, 0, 1, LAST_OWN, NOTICED_INIT),
    WITHIN(SYS_setpriority, 1, 1, LAST_OWN, NOTICED_INIT),
    WITH(SYS_setpriority, 0, PRIO_PGRP, NOTICED_INIT),
    WITH(SYS_setpriority, 0, PRIO_USER, NOTICED_INIT),
    WITHIN(SYS_ioprio_set, 1, 1, LAST_OWN, NOTICED_INIT),
    WITH(SYS_ioprio_set, 0, IOPRIO_WHO_PGRP, NOTICED_INIT),
    WITH(SYS_ioprio_set, 0, IOPRIO_WHO_USER, NOTICED_INIT),
    /* and send them signals. A stopped process would go undetected. (Process 1 and the shells' parent are immune.) */
    WITHIN(SYS_kill, 0, 2, LAST_OWN, NOTICED_INIT),
    WITHIN(SYS_kill, 0, (unsigned)-LAST_OWN, (unsigned)-1, NOTICED_INIT),
    WITHIN(SYS_tkill, 0, 2, LAST_OWN, NOTICED_INIT),
    WITHIN(SYS_tgkill, 1, 2, LAST_OWN, NOTICED_INIT),
    WITHIN(SYS_rt_sigqueueinfo, 0, 2, LAST_OWN, NOTICED_INIT),
    WITHIN(SYS_rt_tgsigqueueinfo, 1, 2, LAST_OWN, NOTICED_INIT),
    WITHIN(SYS_pidfd_open, 0, 1, LAST_OWN, NOTICED_INIT),
    /* The process that receives a file's signals, and which signal. */
    WITH(SYS_fcntl, 1, F_SETOWN, NOTICED_INIT),
    WITH(SYS_fcntl, 1, F_SETOWN_EX, NOTICED_INIT),
    WITH(SYS_ioctl, 1, FIOSETOWN, NOTICED_INIT),
    WITH(SYS_ioctl, 1, SIOCSPGRP, NOTICED_INIT),
    WITH(SYS_prctl, 0, LINE_CALL, NOTICED_LINE),
    /* A file with a second name must remain one file. */
    ANY(SYS_link, 0),
    ANY(SYS_linkat, 0),
};
enum { N_HARMLESS = sizeof harmless / sizeof *harmless, N_NOTICED = sizeof noticed / sizeof *noticed };
enum { PER_PATTERN = 9 };  /* maximum number of instructions */

struct program { struct sock_filter at[2 + PER_PATTERN * (N_HARMLESS + N_NOTICED)]; unsigned short length; };

static void add(struct program *program, struct sock_filter instruction) { program->at[program->length++] = instruction; }

/* The call's number is loaded before this code and, if the pattern does not match, after it. */
static void add_pattern(struct program *program, const struct pattern *pattern, uint32_t answer)
{
    unsigned left = 2;  /* instructions after the conditions: return the answer, load the number */
    for (int i = 0; i < 2; i++) left += pattern->wanted[i].given ? 3 : 0;
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, pattern->call, 0, (uint8_t)left));
    for (int i = 0; i < 2; i++) {
        if (!pattern->wanted[i].given) continue;
        uint32_t argument = (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (size_t)pattern->wanted[i].argument);
        add(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument));
        left -= 3;
        add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, pattern->wanted[i].least, 0, (uint8_t)(left)));
        add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, pattern->wanted[i].most, (uint8_t)(left - 1), 0));
    }
    add(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer));
    add(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
}

int notice_calls(void)
{
    static struct program program;
    program.length = 0;
    add(&program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (int i = 0; i < N_HARMLESS; i++) add_pattern(&program, &harmless[i], SECCOMP_RET_ALLOW);
    for (int i = 0; i < N_NOTICED; i++) add_pattern(&program, &noticed[i], SECCOMP_RET_USER_NOTIF);
    add(&program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog filter = {program.length, program.at};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE, &filter);
}

static bool matches(const struct pattern *pattern, const struct seccomp_data *call)
{
    if ((int)pattern->call != call->nr) return false;
    for (int i = 0; i < 2; i++) {
        unsigned value = (unsigned)call->args[pattern->wanted[i].argument];
        if (pattern->wanted[i].given && (value < pattern->wanted[i].least || value > pattern->wanted[i].most)) return false;
    }
    return true;
}

/* Whether every undetectable effect of such a socket requires a noticed call. False for sockets that control the kernel by
 * messages (netlink) or send raw packets, and for less common protocols, whose effects are unknown. */
static bool is_plain_socket(const struct seccomp_data *call)
{
    unsigned family = (unsigned)call->args[0], kind = (unsigned)call->args[1] & 0xf, protocol = (unsigned)call->args[2];
    if (family == AF_NETLINK) return protocol == NETLINK_SOCK_DIAG;  /* only lists sockets, or closes one */
    if (family != AF_INET && family != AF_INET6) return false;
    if (kind == SOCK_STREAM) return protocol == 0 || protocol == IPPROTO_TCP;
    return kind == SOCK_DGRAM &&
           (protocol == 0 || protocol == IPPROTO_UDP || protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6);
}

unsigned noticed_as(const struct seccomp_data *call)
{
    unsigned what = 0;
    for (int i = 0; i < N_NOTICED; i++)
        if (matches(&noticed[i], call)) what |= noticed[i].what;
    return what & NOTICED_SOCKETS && !is_plain_socket(call) ? what | NOTICED_SETTINGS : what;
}
