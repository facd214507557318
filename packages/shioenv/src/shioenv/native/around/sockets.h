/* The sockets of the machine's own processes, in the inputs' network: some listen, some are connected to a host that is not
 * there. The supervisor holds them, so that they last as long as the network does. */
#pragma once

#include <stdbool.h>

/* Makes the declared sockets in the network that this process is in. Those of the last network are closed. */
void open_sockets(void);

/* How many there are. */
int sockets_held(void);

/* Whether all of them are what they were: an input may close them by force. */
bool sockets_stand(void);

/* The descriptors of those that listen, and what each says to whoever connects; their number. */
int listening_sockets(int fds[], const char *banners[]);
