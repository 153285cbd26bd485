#!/usr/bin/env bash
# postgres.sh COMMAND…: runs a command beside a PostgreSQL of its own, whose URL is PARLEY_TEST_POSTGRES, and whose folder
# is PARLEY_TEST_POSTGRES_DIR. Status 77, by which meson skips a test: there is no PostgreSQL 14 or newer here.
# postgres.sh --pgbouncer COMMAND…: the same, behind a PgBouncer that gives each transaction another connection.
# postgres.sh --stop MODE, --start: of the one that PARLEY_TEST_POSTGRES_DIR names; MODE as of pg_ctl.
# postgres.sh --standby: gives that one a synchronous standby; --fail-over: kills the first one, and has the standby in
# its place, at the same socket.
set -euo pipefail
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
if [ ! -x "$bin/initdb" ] || [ "$(basename "$(dirname "$bin")")" -lt 14 ]; then
    echo "postgres.sh: there is no PostgreSQL" >&2
    exit 77
fi
as=() # PostgreSQL refuses to be run by root
[ "$(id -u)" != 0 ] || as=(runuser -u postgres --)

# Right after a kill the process that was killed may still be listed: then pg_ctl fails at once.
start() {
    for _ in {1..40}; do
        (cd "$1" && "${as[@]}" "$bin/pg_ctl" -D "$1/pg" -w -t 60 -s -l "$1/log" start) 2>/dev/null && return
        sleep 0.25
    done
    cat "$1/log" >&2
    return 1
}

case ${1-} in
--stop) cd "$PARLEY_TEST_POSTGRES_DIR" && exec "${as[@]}" "$bin/pg_ctl" -D "$PARLEY_TEST_POSTGRES_DIR/pg" -w -s -m "$2" stop ;;
--start) start "$PARLEY_TEST_POSTGRES_DIR" && exit ;;
--standby)
    dir=$PARLEY_TEST_POSTGRES_DIR
    cd "$dir"
    "${as[@]}" "$bin/pg_basebackup" -h "$dir" -p 21500 -U parley -D "$dir/standby" -R -X stream -c fast
    echo "port=21502" | "${as[@]}" tee -a "$dir/standby/postgresql.conf" >/dev/null
    "${as[@]}" "$bin/pg_ctl" -D "$dir/standby" -w -t 60 -s -l "$dir/standby.log" start
    psql -q -h "$dir" -p 21500 -U parley postgres -c "ALTER SYSTEM SET synchronous_standby_names = '*'" -c "SELECT pg_reload_conf()" -o /dev/null
    until [ "$(psql -qtA -h "$dir" -p 21500 -U parley postgres -c "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")" = 1 ]; do
        sleep 0.1 # it says when, to nobody
    done
    exit
    ;;
--fail-over)
    dir=$PARLEY_TEST_POSTGRES_DIR
    cd "$dir"
    "$0" --stop immediate
    "${as[@]}" "$bin/pg_ctl" -D "$dir/standby" -w -t 60 -s promote
    ln -sf "$dir/.s.PGSQL.21502" "$dir/.s.PGSQL.21500"
    exit
    ;;
--pgbouncer)
    shift
    if [ ! -x /usr/sbin/pgbouncer ]; then
        echo "postgres.sh: there is no PgBouncer" >&2
        exit 77
    fi
    bouncer=yes
    ;;
esac

PARLEY_TEST_POSTGRES_DIR=$(mktemp -d /tmp/pgXXXXXX) # short: it is the path of a socket
dir=$PARLEY_TEST_POSTGRES_DIR
# shellcheck disable=SC2064 # the folder of now
trap "cd /; [ ! -f '$dir/bouncer.pid' ] || kill \$(cat '$dir/bouncer.pid'); [ ! -d '$dir/standby' ] || ${as[*]} $bin/pg_ctl -D '$dir/standby' -s -m immediate stop || true; '$0' --stop immediate 2>/dev/null || true; rm -rf '$dir'" EXIT
[ ${#as[@]} = 0 ] || chown postgres "$dir"
(cd "$dir" && "${as[@]}" "$bin/initdb" -D "$dir/pg" -U parley -A trust --no-locale -E UTF8 --no-sync --no-instructions >/dev/null)
printf "listen_addresses=''\nport=21500\nunix_socket_directories='%s'\nfsync=on\nsynchronous_commit=on\njit=off\nmax_connections=40\n" "$dir" |
    "${as[@]}" tee -a "$dir/pg/postgresql.conf" >/dev/null
export PARLEY_TEST_POSTGRES_DIR
start "$dir"
export PARLEY_TEST_POSTGRES="postgresql://parley@/postgres?host=$dir&port=21500"
if [ "${bouncer-}" = yes ]; then
    printf '[databases]\npostgres = host=%s port=21500 user=parley\n[pgbouncer]\nlisten_addr=\nunix_socket_dir=%s\nlisten_port=21501\nauth_type=any\npool_mode=transaction\ndefault_pool_size=3\npidfile=%s/bouncer.pid\nlogfile=%s/bouncer.log\n' \
        "$dir" "$dir" "$dir" "$dir" >"$dir/bouncer.ini"
    (cd "$dir" && "${as[@]}" /usr/sbin/pgbouncer -q -d "$dir/bouncer.ini")
    # The program goes into the background before its socket listens.
    for _ in {1..1200}; do
        ! "$bin/pg_isready" -q -h "$dir" -p 21501 || break
        sleep 0.05
    done
    PARLEY_TEST_POSTGRES="postgresql://parley@/postgres?host=$dir&port=21501"
fi
"$@"
