/* Processors that a process may use. If the machine has one processor, programs see the first, on every host. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>

#include "facts.h"

#ifdef __x86_64__

enum { MOST = 1024 };  /* bytes: 8,192 processors, the most that a kernel can be built for */

EXPORT int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *mask)
{
    char *bytes = (char *)mask;
    long length = call(SYS_sched_getaffinity, pid, (long)size, (long)mask, 0, 0);
    if (length < 0) return answer(length);
    for (size_t at = facts.processors == 1 ? 0 : (size_t)length; at < size; at++) bytes[at] = 0;
    if (facts.processors == 1) *bytes = 1;
    return 0;
}

EXPORT int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *mask)
{
    if (facts.processors != 1) return answer(call(SYS_sched_setaffinity, pid, (long)size, (long)mask, 0, 0));
    char kept[MOST];
    long result = call(SYS_sched_getaffinity, pid, sizeof kept, (long)kept, 0, 0);
    if (result > 0) result = call(SYS_sched_setaffinity, pid, result, (long)kept, 0, 0);  /* checks the permission */
    return answer(result < 0 || (size && *(const char *)mask & 1) ? result : -EINVAL);
}

EXPORT int sched_getcpu(void)
{
    unsigned processor = 0;
    if (facts.processors != 1) call(SYS_getcpu, (long)&processor, 0, 0, 0, 0);
    return (int)processor;
}

EXPORT int getcpu(unsigned *processor, unsigned *node)
{
    long result = call(SYS_getcpu, (long)processor, (long)node, 0, 0, 0);
    if (!result && facts.processors == 1 && processor) *processor = 0;
    if (!result && facts.processors == 1 && node) *node = 0;
    return answer(result);
}
#endif
