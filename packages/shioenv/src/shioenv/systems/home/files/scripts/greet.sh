#!/bin/sh
echo "hello, ${1:-$(id -un)}"
