/* Placeholders of devices whose nodes cannot be created. The tree marks them by the nanoseconds of the access time, whose seconds
 * are the system's instant; the library recognizes the mark. */
#pragma once

#define DEVICE_MARK(block, major, minor) \
    ((long)((block) ? 1 : 0) << 28 | (long)((major) & 0xff) << 20 | (long)((minor) & 0xff) << 8 | 0xd1)
#define IS_DEVICE_MARK(mark) (((mark) & 0xff) == 0xd1)
#define MARKED_BLOCK(mark) ((mark) >> 28 & 1)
#define MARKED_MAJOR(mark) ((unsigned)((mark) >> 20 & 0xff))
#define MARKED_MINOR(mark) ((unsigned)((mark) >> 8 & 0xff))
#define KERNEL_LOG_MARK DEVICE_MARK(false, 1, 11)  /* the only one that can be read */
