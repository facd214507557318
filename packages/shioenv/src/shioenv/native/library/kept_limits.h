/* Limits of open files above those of the host. The kernel's limit is as high as possible; both declared numbers are stored in the
 * limit of file locks, which Linux ignores since 2.4.25. It is inherited, and survives execve. */
#pragma once

#define KEPT_MARK 0x7f10cull
#define KEPT_LIMITS(soft, hard) (KEPT_MARK << 44 | (unsigned long long)(soft) << 22 | (unsigned long long)(hard))
#define IS_KEPT(value) ((value) >> 44 == KEPT_MARK)
#define KEPT_SOFT(value) ((value) >> 22 & 0x3fffff)
#define KEPT_HARD(value) ((value) & 0x3fffff)
#define MOST_OPEN_FILES (1 << 20)  /* fs.nr_open, the maximum */
