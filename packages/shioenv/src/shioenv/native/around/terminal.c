/* Pseudo-terminals that replace a run's pipes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"
#include "terminal.h"

#define MULTIPLEXER "/terminals/ptmx"

bool open_terminal(int ends[2], bool nobody_types)
{
    static const struct winsize size = {.ws_row = 24, .ws_col = 80};
    int unlocked = 0;
    ends[0] = open(MULTIPLEXER, O_RDWR | O_NOCTTY | O_CLOEXEC), ends[1] = -1;
    if (ends[0] < 0) return false;
    if (!ioctl(ends[0], TIOCSPTLCK, &unlocked) && !ioctl(ends[0], TIOCSWINSZ, &size))
        ends[1] = ioctl(ends[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[1] >= 0 && !fchown(ends[1], 0, 5 /* tty */) && !fchmod(ends[1], 0620)) {
        if (nobody_types) offer_ends_of_file(ends[0], 64);
        settle_terminals();
        return true;
    }
    close_fd(&ends[1]);
    close_fd(&ends[0]);
    return false;
}

void offer_ends_of_file(int master, size_t n)
{
    char marks[64];
    memset(marks, 4 /* ^D */, sizeof marks);
    if (write(master, marks, n < sizeof marks ? n : sizeof marks) < 0) return;  /* the buffer is full, so there are enough */
}

void settle_terminals(void)
{
    struct stat directory;
    if (!stat("/terminals", &directory))
        utimensat(AT_FDCWD, MULTIPLEXER, (struct timespec[]){directory.st_atim, directory.st_mtim}, 0);
}
