#!/usr/bin/env bash
# Layout, banned calls, and who may include whom (the table of DESIGN.md, section 4).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bad=0
complain() { printf '%s\n' "$*" >&2; bad=1; }

# folder: what it may include from this tree
declare -A may=(
    [base]='base'
    [proto]='base proto'
    [compute]='base compute'
    [batching]='base compute batching'
    [agents]='base compute batching agents'
    [worlds]='base batching agents worlds'
    [server]='base proto parley grpc inference compute batching agents worlds server'
    [client/lib]='base proto parley grpc client/lib'
    [client/cli]='base proto parley client/lib client/cli compute batching agents worlds'
)

# Every source of a folder, but tests, which may include all.
for folder in "${!may[@]}"; do
    while read -r file line include; do
        top=${include%%/*}
        [ "$top" = client ] && { rest=${include#client/}; top=client/${rest%%/*}; }
        case " ${may[$folder]} " in
        *" $top "*) ;;
        *) complain "$file:$line: $folder/ may not include \"$include\"" ;;
        esac
    done < <(git ls-files "$folder/*.c" "$folder/*.h" "$folder/*.cu" | while read -r f; do
        sed -n 's/^#include "\([^"]*\)".*/\1/p;' "$f" | while read -r i; do
            echo "$f $(grep -nF "\"$i\"" "$f" | head -n 1 | cut -d: -f1) $i"
        done
    done)
done

domain=$(git ls-files 'base/*.[ch]' 'compute/*.[ch]' 'batching/*.[ch]' 'agents/*.[ch]' 'worlds/*.[ch]')
# shellcheck disable=SC2086 # one word a file
if grep -nE '#include <(grpc|protobuf-c)/' $domain; then
    complain 'domain folders see neither gRPC nor protobuf-c'
fi
if git ls-files '*.[ch]' ':!compute/cuda/*' ':!tests/cuda_host/*' | xargs grep -nE '#include <(cuda|cublas)'; then
    complain 'CUDA headers stay in compute/cuda/'
fi

# Calls that have a better form here: bounded copies, error_set, arenas, events.
calls='strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atof|alloca|rand|srand|sleep|usleep|gets'
if git ls-files '*.[ch]' | xargs grep -nE "(^|[^_[:alnum:]\"])($calls)\(" | grep -vE '^[^:]*:[0-9]*: *(/?\*|//)'; then
    complain 'banned calls (above)'
fi
if git ls-files '*.[ch]' ':!server/main.c' ':!client/cli/*' ':!tests/*' |
    xargs grep -nE '(^|[^_[:alnum:]"])(exit|_exit|printf)\(' | grep -vE '^[^:]*:[0-9]*: *(/?\*|//)'; then
    complain 'exit and printf belong to main, client/cli and tests (above)'
fi

# Layout, one version of the tool for all: Debian 12's.
git ls-files '*.c' '*.h' | xargs clang-format --dry-run --Werror 2>&1 | head -n 40 || true
git ls-files '*.c' '*.h' | xargs clang-format --dry-run --Werror >/dev/null 2>&1 ||
    complain './run format lays the sources out'

exit $bad
