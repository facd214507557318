/* Limits of open files if the host's hard limit is lower than the declared one: root can raise it as on a machine, though more
 * files than the host allows cannot be opened. */
#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "facts.h"
#include "kept_limits.h"

#ifdef __x86_64__

static long kernel_limit(pid_t pid, int resource, const struct rlimit *wanted, struct rlimit *found)
{
    return call(SYS_prlimit64, pid, resource, (long)wanted, (long)found, 0);
}

/* Read the declared limits of a process; return false if the kernel's limits apply. */
static bool read_kept(pid_t pid, struct rlimit *limit)
{
    struct rlimit locks;
    if (kernel_limit(pid, RLIMIT_LOCKS, NULL, &locks) || !IS_KEPT(locks.rlim_cur)) return false;
    *limit = (struct rlimit){KEPT_SOFT(locks.rlim_cur), KEPT_HARD(locks.rlim_cur)};
    return true;
}

static long show_limit(pid_t pid, int resource, struct rlimit *found)
{
    struct rlimit limit;
    long error = kernel_limit(pid, resource, NULL, found);
    if (error || (resource != RLIMIT_NOFILE && resource != RLIMIT_LOCKS) || !read_kept(pid, &limit)) return error;
    *found = resource == RLIMIT_NOFILE ? limit : (struct rlimit){RLIM_INFINITY, RLIM_INFINITY};
    return 0;
}

static long set_limit(pid_t pid, int resource, const struct rlimit *wanted)
{
    struct rlimit known, kernel, new;
    if (resource != RLIMIT_NOFILE || !read_kept(pid, &known)) return kernel_limit(pid, resource, wanted, NULL);
    new = *wanted;
    if (new.rlim_cur > new.rlim_max) return -EINVAL;
    if (new.rlim_max > MOST_OPEN_FILES) return -EPERM;
    if (new.rlim_max > known.rlim_max && call(SYS_geteuid, 0, 0, 0, 0, 0)) return -EPERM;
    long error = kernel_limit(pid, RLIMIT_NOFILE, NULL, &kernel);
    if (error) return error;
    kernel.rlim_cur = new.rlim_cur < kernel.rlim_max ? new.rlim_cur : kernel.rlim_max;
    error = kernel_limit(pid, RLIMIT_NOFILE, &kernel, NULL);
    if (error) return error;
    struct rlimit locks = {KEPT_LIMITS(new.rlim_cur, new.rlim_max), RLIM_INFINITY};
    return kernel_limit(pid, RLIMIT_LOCKS, &locks, NULL);
}

EXPORT int getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
    return answer(show_limit(0, (int)resource, limit));
}

EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
    return answer(set_limit(0, (int)resource, limit));
}

EXPORT int prlimit(pid_t pid, int resource, const struct rlimit *wanted, struct rlimit *found)
{
    struct rlimit before;
    long error = show_limit(pid, resource, &before);
    if (!error && wanted) error = set_limit(pid, resource, wanted);
    if (!error && found) *found = before;
    return answer(error);
}

ALSO(getrlimit, getrlimit64);
ALSO(setrlimit, setrlimit64);
ALSO(prlimit, prlimit64);
#endif
