/* Limits of open files that a host does not allow. The kernel keeps what it can; both declared numbers stand where it keeps
 * the limit of file locks, which nothing has looked at since Linux 2.4.25: it is inherited, and lasts over execve. */
#pragma once

#define KEPT_MARK 0x7f10cull
#define KEPT_LIMITS(soft, hard) (KEPT_MARK << 44 | (unsigned long long)(soft) << 22 | (unsigned long long)(hard))
#define IS_KEPT(value) ((value) >> 44 == KEPT_MARK)
#define KEPT_SOFT(value) ((value) >> 22 & 0x3fffff)
#define KEPT_HARD(value) ((value) & 0x3fffff)
#define MOST_OPEN_FILES (1 << 20)  /* fs.nr_open: nobody may have more */
