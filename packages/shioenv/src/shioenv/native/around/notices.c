/* Noticed calls of inputs: each waits for an answer before it continues. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common.h"
#include "filters.h"
#include "links.h"
#include "notices.h"

/* Set a neighbour proxy on behalf of an input, and return an errno. Without an interface, the kernel would keep the proxy after
 * the network's end, for a later network. The arguments are in memory that other threads can change, so use a copy. */
static int set_neighbour(const struct seccomp_notif *notice)
{
    struct arpreq neighbour;
    struct iovec here = {&neighbour, sizeof neighbour}, there = {(void *)(uintptr_t)notice->data.args[2], sizeof neighbour};
    if (process_vm_readv((pid_t)notice->pid, &here, 1, &there, 1, 0) != sizeof neighbour) return EFAULT;
    if (!is_capable((int)notice->pid, CAP_NET_ADMIN)) return EPERM;
    bool by_hardware = neighbour.arp_flags & ATF_COM;  /* then the kernel searches for the interface, or fails */
    if (neighbour.arp_flags & ATF_PUBL && !by_hardware && !neighbour.arp_dev[0]) return EPERM;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int error = fd < 0 || ioctl(fd, SIOCSARP, &neighbour) ? errno : 0;
    close_fd(&fd);
    return error;
}

struct resident resident;

unsigned attend_notice(int listener)
{
    struct seccomp_notif notice = {0};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &notice)) return 0;  /* its process has been killed */
    unsigned what = noticed_as(&notice.data);
    if (what == NOTICED_LINE && (pid_t)notice.pid == resident.shell && !resident.call) {
        resident.call = notice.id;
        return NOTICED_LINE;
    }
    what &= ~(unsigned)NOTICED_LINE;  /* for other processes the kernel rejects this operation */
    struct seccomp_notif_resp answer = {.id = notice.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    if (notice.data.nr == SYS_ioctl && (unsigned)notice.data.args[1] == SIOCSARP)
        answer.flags = 0, answer.error = -set_neighbour(&notice);
    if (notice.data.nr == SYS_link || notice.data.nr == SYS_linkat) {
        int error = prepare_link(listener, &notice);
        if (error) answer.flags = 0, answer.error = -error;
    }
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    return what;
}

void answer_line(int listener)
{
    struct seccomp_notif_resp answer = {.id = resident.call};
    resident.call = 0;
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

bool answer_mounts(int listener, int mounts)
{
    struct seccomp_notif_addfd given = {.id = resident.call, .srcfd = (uint32_t)mounts, .newfd_flags = O_CLOEXEC};
    int number = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &given);
    if (number <= 0) return false;
    struct seccomp_notif_resp answer = {.id = resident.call, .val = number};
    resident.call = 0;
    return !ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}
