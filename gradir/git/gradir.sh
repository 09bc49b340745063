#!/bin/sh
# Written by 'gradir git install', removed by 'gradir git uninstall'.
#
# git runs this for .gir files; 'git config --get-regexp gradir' says how.
#   gradir.sh COMMAND...              runs the command
#   gradir.sh --text COMMAND... FILE  prints what the command says of a file, or the file where the command fails

# Python would import from the folder that git is in what an empty or relative entry of PYTHONPATH names.
case ":$PYTHONPATH:" in *::* | *:[!/]*) unset PYTHONPATH ;; esac

if [ "$1" != --text ]; then
    exec "$@"
fi
shift

# git caches what is printed here, but not while there is a ref below that of its cache, the stop. It holds the id of
# the run of git that could not show a graph, since that run must not cache anything.
cache=refs/notes/textconv/gradir
stop=$cache/stop
by=$(git ls-tree --full-tree --name-only $stop 2>/dev/null)

if "$@" 2>/dev/null; then
    if [ -n "$by" ] && [ "$by" != $PPID ]; then
        git update-ref -d $stop 2>/dev/null
    fi
    exit 0
fi

if [ "$by" != $PPID ]; then
    {
        git update-ref -d $cache
        entry=$(git hash-object -w --stdin </dev/null)
        tree=$(printf '100644 blob %s\t%s\n' "$entry" $PPID | git mktree)
        git update-ref $stop "$tree"
    } >/dev/null 2>&1
fi

# Text is shown without what acts on a terminal. A merge that was not finished may have left its first mark in place of
# the first brace. Of other files there is a line with the id: git shows nothing of two files with the same text.
for file; do :; done
export LC_ALL=C
first=$(tr -d '\357\273\277 \t\r\n' <"$file" 2>/dev/null | head -c 1)
case $first in
'' | '{' | '<') tr -d '\000-\010\013\014\016-\037\177' <"$file" ;;
*) echo "$(git hash-object --stdin <"$file"): no text; gradir shows it, and is missing here or failed" ;;
esac
