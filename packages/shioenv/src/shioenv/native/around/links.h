/* Hard links: a file of the lower layers is made one that can have several names. */
#pragma once

#include <linux/seccomp.h>

/* Before a process makes a hard link (the notice is of link(2) or linkat(2)): 0 where the call may go on, or the errno that it
 * fails with.
 *
 * An overlay finds a file of a lower layer by that layer's inode, and after a copy to the upper layer still does so as
 * long as the name is cached. Another name of the copy is found by the upper layer's inode. So both names would have an
 * inode of the overlay each, with two numbers: `cp` and `cat` would not see that they write to what they read. Looking
 * both names up anew is enough, and a name is only looked up anew once it was replaced. So the file gets a second name
 * for a moment, and that name is renamed over the first one. Content and attributes stay the file's; its inode number
 * becomes the upper layer's. A descriptor that was opened before reads and writes the same content by another inode: its
 * locks, watches and comparisons are not those of later openings. */
int prepare_link(int listener, const struct seccomp_notif *notice);
