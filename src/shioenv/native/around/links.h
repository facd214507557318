/* Hard links: a file of the lower layers is made one that can have several names. */
#pragma once

#include <linux/seccomp.h>
#include <sys/types.h>

/* Before a process makes a hard link (`call` is link(2) or linkat(2)): 0 where the call may go on, or the errno that it
 * fails with.
 *
 * An overlay finds a file of a lower layer by that layer's inode, and after a copy to the upper layer still does so as
 * long as the name is cached. Another name of the copy is found by the upper layer's inode. So both names would have an
 * inode of the overlay each, with two numbers: `cp` and `cat` would not see that they write to what they read. Looking
 * both names up anew is enough, and a name is only looked up anew once it was replaced. So the file gets a second name
 * for a moment, and that name is renamed over the first one. Content, attributes and open descriptors stay the file's;
 * its inode number becomes the upper layer's. */
int prepare_link(pid_t process, const struct seccomp_data *call);
