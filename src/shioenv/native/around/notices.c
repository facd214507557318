/* System calls of inputs: those that are refused, and those that the supervisor is told of. */
#define _GNU_SOURCE
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common.h"
#include "configuration.h"
#include "notices.h"

void filter_calls(void)
{
    if (!config.seccomp.len) return;
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &config.seccomp), "seccomp filter");
}

/* What no check after a run would find, or only a slow one. `argument` says which of the call's arguments
 * must have `value`; -1: none must. */
enum { WAIT_KILLABLE = 1 << 5 };  /* SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: no signal interrupts a noticed call */
enum { ANY = -1, SYS_OPEN_TREE_ATTR = 467 };
static const struct { unsigned call; int argument; unsigned value; unsigned what; } noticed[] = {
    {SYS_mount, ANY, 0, NOTICED_MOUNTS},
    {SYS_umount2, ANY, 0, NOTICED_MOUNTS},
    {SYS_pivot_root, ANY, 0, NOTICED_MOUNTS},
    {SYS_move_mount, ANY, 0, NOTICED_MOUNTS},
    {SYS_mount_setattr, ANY, 0, NOTICED_MOUNTS},
    {SYS_OPEN_TREE_ATTR, ANY, 0, NOTICED_MOUNTS},
    {SYS_shmget, ANY, 0, NOTICED_IPC},
    {SYS_msgget, ANY, 0, NOTICED_IPC},
    {SYS_semget, ANY, 0, NOTICED_IPC},
    {SYS_mq_open, ANY, 0, NOTICED_IPC},
    {SYS_sethostname, ANY, 0, NOTICED_NAMES},
    {SYS_setdomainname, ANY, 0, NOTICED_NAMES},
    {SYS_socket, 0, AF_INET, NOTICED_SOCKETS},
    {SYS_socket, 0, AF_INET6, NOTICED_SOCKETS},
    /* process 1 belongs to the input's user, who may set its limits and priorities */
    {SYS_prlimit64, 0, 1, NOTICED_INIT},
    {SYS_sched_setaffinity, 0, 1, NOTICED_INIT},
    {SYS_sched_setscheduler, 0, 1, NOTICED_INIT},
    {SYS_sched_setparam, 0, 1, NOTICED_INIT},
    {SYS_sched_setattr, 0, 1, NOTICED_INIT},
    {SYS_setpriority, 1, 1, NOTICED_INIT},
    {SYS_setpriority, 0, PRIO_PGRP, NOTICED_INIT},
    {SYS_setpriority, 0, PRIO_USER, NOTICED_INIT},
    {SYS_ioprio_set, 1, 1, NOTICED_INIT},
    {SYS_ioprio_set, 0, 2 /* IOPRIO_WHO_PGRP */, NOTICED_INIT},
    {SYS_ioprio_set, 0, 3 /* IOPRIO_WHO_USER */, NOTICED_INIT},
};
enum { N_NOTICED = sizeof noticed / sizeof noticed[0], PER_CALL = 4, LONGEST = 1 + PER_CALL * N_NOTICED + 2 };
_Static_assert(LONGEST < 256, "a jump reaches the program's end");

static const struct sock_filter load_call = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));

int notice_calls(void)
{
    struct sock_filter program[LONGEST] = {load_call};
    int n = 1;
    for (int i = 0; i < N_NOTICED; i++) {
        bool any = noticed[i].argument == ANY;
        /* to the last instruction, counted from the one after this */
        uint8_t told = (uint8_t)(LONGEST - 1 - (n + (any ? 0 : 2)) - 1);
        program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, noticed[i].call, any ? told : 0, any ? 0 : 3);
        if (any) continue;
        uint32_t argument = (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (size_t)noticed[i].argument);
        program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument);
        program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, noticed[i].value, told, 0);
        program[n++] = load_call;
    }
    while (n < LONGEST - 1) program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    struct sock_fprog filter = {(unsigned short)n, program};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE, &filter);
}

unsigned attend_notice(int listener)
{
    struct seccomp_notif notice = {0};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &notice)) return 0;  /* its process was killed meanwhile */
    struct seccomp_notif_resp go_on = {.id = notice.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &go_on);
    unsigned what = 0;
    for (int i = 0; i < N_NOTICED; i++)
        if ((int)noticed[i].call == notice.data.nr &&
            (noticed[i].argument == ANY || (unsigned)notice.data.args[noticed[i].argument] == noticed[i].value))
            what |= noticed[i].what;
    return what;
}
