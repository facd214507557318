/* Constants shared by the programs and modules in sshd's namespaces. */
#ifndef SHIOENV_SSH_CALLS_H
#define SHIOENV_SSH_CALLS_H

#define GATE "/run/front/gate"          /* the socket for checking passwords */
#define SESSIONS "/run/front/sessions"  /* the socket for login shells */
#define CONNECTION "SHIOENV_CONNECTION" /* the environment variable with the name of sshd's connection */
#define SHELL "/bin/session"            /* the login shell of all users */

enum { EVERYBODY = 1000 };              /* the user and group id of all users */

#endif
