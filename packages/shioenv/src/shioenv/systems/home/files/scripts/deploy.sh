#!/bin/sh
# Copy the status page to the web server's directory.
# usage: deploy.sh [staging|production]

stage=${1:-staging}
case $stage in
    staging)    root=/srv/www/staging ;;
    production) root=/srv/www/html ;;
    *) echo "deploy: unknown stage '$stage'" >&2; exit 2 ;;
esac

if [ ! -d "$root" ]; then
    echo "deploy: $root does not exist" >&2
    exit 1
fi
cp documents/index.html "$root/index.html" && echo "deployed to $stage"
