/* What the programs and modules in sshd's namespaces have in common. */
#ifndef SHIOENV_SSH_CALLS_H
#define SHIOENV_SSH_CALLS_H

#define GATE "/run/front/gate"          /* passwords are asked for here */
#define SESSIONS "/run/front/sessions"  /* login shells call here */
#define CONNECTION "SHIOENV_CONNECTION" /* the variable that names sshd's connection */
#define SHELL "/bin/session"            /* everybody's login shell */

enum { EVERYBODY = 1000 };              /* everybody's user and group number */

#endif
