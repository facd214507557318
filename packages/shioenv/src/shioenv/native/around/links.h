/* Hard links: prepare a file of the lower layers for having several names. */
#pragma once

#include <linux/seccomp.h>

/* Prepare a file before a process hard-links it (the notice is of link(2) or linkat(2)). Return 0 if the call may continue,
 * or the errno with which it fails.
 *
 * An overlay identifies a file of a lower layer by that layer's inode. After a copy-up this stays so while the name is
 * cached. A new name of the copy is identified by the upper layer's inode. So the two names would have different inode
 * numbers in the overlay: `cp` and `cat` would not detect that input and output are the same file. A new lookup of both names
 * fixes this, but the kernel only looks a name up again after it was replaced. So the file temporarily gets a second name,
 * which is then renamed over the first one. Content and attributes stay the same; the inode number becomes that of the upper
 * layer. Descriptors opened earlier access the same content through the old inode: their locks, watches and comparisons are
 * separate from those of later descriptors. */
int prepare_link(int listener, const struct seccomp_notif *notice);
