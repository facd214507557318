/* Effects of a run other than changed files: in the network, in process 1, in objects shared by all runs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "filters.h"
#include "protocol.h"
#include "sockets.h"
#include "terminal.h"
#include "traces.h"

static int net_events = -1, filter_events = -1, policy_events = -1;

/* Directories that a new layer does not reset: that of POSIX message queues, which can be created without a noticed call, and that
 * of terminals with its multiplexer. */
enum { QUEUES, TERMINALS, MULTIPLEXER, N_STANDING };
static int standing_fd[N_STANDING];
static struct standing { off_t size; mode_t mode; uid_t uid; gid_t gid; struct timespec accessed, modified, changed; } standing[N_STANDING];

static struct standing standing_now(int i)
{
    struct standing now;
    memset(&now, 0, sizeof now);
    struct stat status;
    if (!fstat(standing_fd[i], &status)) {
        now.size = status.st_size;  /* for the directory of queues: grows with each queue */
        now.mode = status.st_mode;
        now.uid = status.st_uid;
        now.gid = status.st_gid;
        now.accessed = status.st_atim;
        now.modified = status.st_mtim;
        now.changed = status.st_ctim;
    }
    return now;
}

/* Whether a run changed any of them. A run on a terminal always changes the multiplexer's times. */
static bool standing_changed(bool had_terminal)
{
    for (int i = 0; i < N_STANDING; i++) {
        struct standing now = standing_now(i);
        if (i == MULTIPLEXER && had_terminal) {
            now.accessed = standing[i].accessed;
            now.modified = standing[i].modified;
            now.changed = standing[i].changed;
        }
        if (memcmp(&now, &standing[i], sizeof now)) return true;
    }
    return false;
}

static void remember_standing(void)
{
    for (int i = 0; i < N_STANDING; i++) standing[i] = standing_now(i);
}

/* Files of the host's /proc that reveal changes without a netlink message or a noticed call. */
static struct watched_file {
    char path[64];
    const char *line;  /* prefix of the only relevant line; NULL: the whole file */
    int fd;
    char pristine[8192];
}
  /* Counters of the network, which change with every packet; a run with packets may also leave a closed connection that
   * lingers. (Counters of eth0 also change without a run in the first seconds.) */
  traffic[] = {{.path = "self/net/snmp", .fd = -1}, {.path = "self/net/dev", .line = "lo:", .fd = -1}},
  traffic_of_ipv6 = {.path = "self/net/snmp6", .fd = -1},
  /* Sockets that outlive all processes, with any files whose descriptors they pass in a cycle, until the kernel's garbage
   * collection. (Only sockets of this family pass descriptors.) */
  sockets = {.path = "self/net/unix", .fd = -1},
  /* The number of sockets of all families, including those in flight. */
  used_sockets = {.path = "self/net/sockstat", .line = "sockets: used", .fd = -1};
enum { N_TRAFFIC = sizeof traffic / sizeof *traffic };

static const char *read_watched(const struct watched_file *file)
{
    static char text[sizeof file->pristine];
    ssize_t length = pread(file->fd, text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = 0;
    char *line = file->line ? strstr(text, file->line) : text;
    if (!line) return "";
    if (file->line) line[strcspn(line, "\n")] = 0;
    return line;
}

static void start_watching(struct watched_file *file)
{
    close_fd(&file->fd);
    file->fd = openat(host_proc, file->path, O_RDONLY | O_CLOEXEC);
    strcpy(file->pristine, read_watched(file));
}

static bool is_changed(const struct watched_file *file) { return strcmp(read_watched(file), file->pristine); }

static long number_behind(const char *text, const char *name)
{
    const char *line = strstr(text, name);
    return line ? atol(line + strlen(name)) : 0;
}

/* The number of packets sent over IPv6, without the multicast reports that the kernel sends once a link is up. (The network is
 * created anew after inputs that join a group.) */
static long packets_over_ipv6(const char *counters)
{
    return number_behind(counters, "Ip6OutRequests") - number_behind(counters, "Icmp6OutMLDv2Reports");
}

/* Whether any packet was sent. */
static bool has_traffic(void)
{
    for (unsigned i = 0; i < N_TRAFFIC; i++) if (is_changed(&traffic[i])) return true;
    return packets_over_ipv6(read_watched(&traffic_of_ipv6)) != packets_over_ipv6(traffic_of_ipv6.pristine);
}

/* Whether the network has only the sockets of this process, of any kind, including unreferenced ones. The total is quick to read;
 * listing them is slower. */
static bool has_own_sockets_alone(void)
{
    long own = (net_events >= 0) + (policy_events >= 0) + (filter_events >= 0) + sockets_held();
    return number_behind(read_watched(&used_sockets), used_sockets.line) == own;
}

/* Wait up to 50 ms for the sockets of a run to disappear; return whether some are left. */
static bool has_sockets_left(void)
{
    if (has_own_sockets_alone()) return false;
    for (int tries = 0; tries < 50; tries++) {
        if (!is_changed(&sockets)) return false;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return true;
}

/* Open a netlink socket. Inputs see it in `ss -a`, so it is bound to the id of process 1 instead of this process's id on the host,
 * which the kernel would choose. */
static int listen_to(int protocol, uint32_t groups)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_pid = 1, .nl_groups = groups};
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address)) close_fd(&fd);
    return fd;
}

/* Receive messages from the kernel only; inputs may write to these sockets as well. */
static ssize_t hear(int fd, void *bytes, size_t size, int flags)
{
    for (;;) {
        struct sockaddr_nl sender = {0};
        socklen_t length = sizeof sender;
        ssize_t heard = recvfrom(fd, bytes, size, flags, (struct sockaddr *)&sender, &length);
        if (heard < 0 || !sender.nl_pid) return heard;
    }
}

static bool drained(int fd)
{
    static char bytes[65536];
    bool any = false;
    while (fd >= 0 && (hear(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0 || errno == ENOBUFS)) any = true;
    return any;
}

/* Whether a link in a dump is known to be connected. */
static bool is_connected(const struct nlmsghdr *message)
{
    const struct ifinfomsg *link = NLMSG_DATA(message);
    int length = (int)IFLA_PAYLOAD(message);
    for (const struct rtattr *each = IFLA_RTA(link); RTA_OK(each, length); each = RTA_NEXT(each, length))
        if (each->rta_type == IFLA_OPERSTATE) return *(const uint8_t *)RTA_DATA(each) == IF_OPER_UP;
    return true;
}

/* The links except lo: how many are up, and whether one of these is not yet known to be connected. */
struct links { unsigned on; bool coming_up; };

static struct links links_now(void)
{
    static _Alignas(struct nlmsghdr) char bytes[65536];
    const struct { struct nlmsghdr header; struct ifinfomsg link; } question = {
        {.nlmsg_len = sizeof question, .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}, {0}};
    CHECK(send(net_events, &question, sizeof question, 0), "ask for the links");
    struct links links = {0};
    for (;;) {
        poll(&(struct pollfd){net_events, POLLIN, 0}, 1, -1);
        int length = (int)hear(net_events, bytes, sizeof bytes, 0);
        CHECK(length, "hear of the links");
        for (const struct nlmsghdr *each = (void *)bytes; NLMSG_OK(each, length); each = NLMSG_NEXT(each, length)) {
            if (each->nlmsg_type == NLMSG_DONE || each->nlmsg_type == NLMSG_ERROR) return links;
            if (!(each->nlmsg_flags & NLM_F_MULTI) || each->nlmsg_type != RTM_NEWLINK) continue;  /* an event, not an answer */
            const struct ifinfomsg *link = NLMSG_DATA(each);
            if (!(link->ifi_flags & IFF_UP) || link->ifi_flags & IFF_LOOPBACK) continue;
            links.on++;
            links.coming_up |= !is_connected(each);
        }
    }
}

/* Whether there are that many link-local addresses, and no address is still tentative; its route appears once it is not. */
static bool addresses_are_settled(unsigned link_local)
{
    struct watched_file addresses = {.fd = openat(host_proc, "self/net/if_inet6", O_RDONLY | O_CLOEXEC)};
    if (addresses.fd < 0) return true;  /* a kernel without IPv6 */
    enum { LINK_LOCAL = 0x20 };
    const char *line = read_watched(&addresses);
    close_fd(&addresses.fd);
    unsigned found = 0;
    for (; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        unsigned scope, flags;
        if (sscanf(line, "%*s %*x %*x %x %x", &scope, &flags) != 2) continue;
        if (flags & IFA_F_TENTATIVE) return false;
        found += scope == LINK_LOCAL;
    }
    return found >= link_local;
}

/* Wait until the kernel has detected that each cable is connected and has finished its background work, so that inputs see the
 * final state. A link may have no link-local address, but first wait for one. Finally make a change without an effect, which waits
 * for the kernel's work on the network. */
static void wait_for_links(void)
{
    static const struct { struct nlmsghdr header; struct ifinfomsg link; } nothing = {
        {.nlmsg_len = sizeof nothing, .nlmsg_type = RTM_NEWLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK}, {.ifi_index = 1}};
    enum { PATIENT = 100 };
    for (int tries = 0; tries < 1000; tries++) {
        struct links links = links_now();
        if (!links.coming_up && addresses_are_settled(tries < PATIENT ? links.on : 0)) break;
        poll(&(struct pollfd){net_events, POLLIN, 0}, 1, 1);
        drained(net_events);
    }
    CHECK(send(net_events, &nothing, sizeof nothing, 0), "wait for the network");
    drained(net_events);
}

void watch_network(void)
{
    close_fd(&net_events);
    close_fd(&policy_events);
    close_fd(&filter_events);
    /* link, neighbour, tc, addresses, routes and rules of both families */
    net_events = listen_to(NETLINK_ROUTE, 1 | 4 | 8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800 | 0x20000 | 0x40000);
    CHECK(net_events, "netlink listener");
    wait_for_links();
    int next_hops = 32;  /* RTNLGRP_NEXTHOP, beyond the bits of an address */
    setsockopt(net_events, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &next_hops, sizeof next_hops);
    policy_events = listen_to(NETLINK_XFRM, 4 | 8);  /* associations and policies */
    filter_events = listen_to(NETLINK_NETFILTER, 0);
    if (filter_events >= 0)
        for (int group = 1; group < 8; group++)
            setsockopt(filter_events, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group);
    for (unsigned i = 0; i < N_TRAFFIC; i++) start_watching(&traffic[i]);
    start_watching(&traffic_of_ipv6);
    start_watching(&sockets);
    start_watching(&used_sockets);
}

void watch_for_traces(void)
{
    watch_network();
    static const char *const paths[N_STANDING] = {"/queues", "/terminals", "/terminals/ptmx"};
    for (int i = 0; i < N_STANDING; i++) standing_fd[i] = open(paths[i], O_PATH | O_CLOEXEC);
    remember_standing();
}

/* The subjects of the events of a run. Neighbours change with any packet, and are not recorded. */
enum { ABOUT_NEIGHBOURS = 1, ABOUT_NETWORK = 2 };

static unsigned drained_network(void)
{
    static _Alignas(struct nlmsghdr) char bytes[65536];
    unsigned about = 0;
    for (;;) {
        int length = (int)hear(net_events, bytes, sizeof bytes, MSG_DONTWAIT | MSG_TRUNC);
        if (length < 0 && errno != ENOBUFS) return about;
        if (length < 0 || length > (int)sizeof bytes) {
            about |= ABOUT_NETWORK;
            continue;
        }
        for (const struct nlmsghdr *each = (void *)bytes; NLMSG_OK(each, length); each = NLMSG_NEXT(each, length))
            about |= each->nlmsg_type == RTM_NEWNEIGH || each->nlmsg_type == RTM_DELNEIGH ? ABOUT_NEIGHBOURS : ABOUT_NETWORK;
    }
}

uint32_t traces_of_line(unsigned noticed)
{
    uint32_t flags = 0;
    if (noticed & NOTICED_IPC) flags |= REPLY_IPC;
    if (noticed & NOTICED_NAMES) flags |= REPLY_HOSTNAME;
    if (noticed & NOTICED_MOUNTS) flags |= REPLY_MOUNTS;
    if (noticed & NOTICED_INIT) flags |= REPLY_INIT;
    unsigned network = drained_network();
    bool filter = drained(filter_events), policy = drained(policy_events);
    if (network & ABOUT_NETWORK || filter || policy) flags |= REPLY_NETWORK;
    if (network & ABOUT_NEIGHBOURS) flags |= REPLY_TRAFFIC;
    return flags;
}

uint32_t traces_left(unsigned noticed, bool had_terminal)
{
    uint32_t flags = traces_of_line(noticed);
    if (standing_changed(had_terminal)) flags |= REPLY_IPC;
    else if (had_terminal) {
        settle_terminals();
        remember_standing();
    }
    if (noticed & NOTICED_SOCKETS && has_traffic()) flags |= REPLY_TRAFFIC;
    if (noticed & NOTICED_SETTINGS || !sockets_stand()) flags |= REPLY_TRAFFIC;
    if (has_sockets_left()) flags |= REPLY_SOCKETS;
    return flags;
}
