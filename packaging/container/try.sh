#!/bin/bash
# Runs the image's root file system in a chroot as the Containerfile says: as its user, as the first
# process of a PID namespace, with a /dev/shm of its own.
#
#   unshare --mount --net --pid --fork packaging/container/try.sh ROOT
set -euo pipefail
root=$1
chroot=$(command -v chroot)
file=$(dirname "$0")/Containerfile

say() { printf -- '-- %s\n' "$*"; }
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}
line() { sed -n "s/^$1 //p" "$file" | tail -n 1; }
# The words of ["a", "b"].
words() { tr -d '[]",' <<<"$1"; }

eval "variables=($(line ENV))"
user=$(line USER)
read -ra entry <<<"$(words "$(line ENTRYPOINT)")"
read -ra arguments <<<"$(words "$(line CMD)")"
read -ra health <<<"$(words "$(sed -n 's/^HEALTHCHECK.* CMD //p' "$file")")"

mount --make-rprivate /
mount -t proc proc /proc
mkdir -p "$root"/{proc,dev/shm}
mount -t proc proc "$root/proc"
ip link set lo up
inside() { env -i "${variables[@]}" "$chroot" --userspec="$user" "$root" "$@"; }

# As the first process of its namespace, as in a container: it gets a signal only if it asked for it.
serve() {
    log=$1
    env -i "${variables[@]}" unshare --pid --fork --kill-child \
        "$chroot" --userspec="$user" "$root" "${entry[@]}" "${arguments[@]}" >"$log" 2>&1 &
    outer=$!
    for _ in $(seq 600); do
        inside "${health[@]}" >/dev/null 2>&1 && return
        kill -0 "$outer" 2>/dev/null || fail "the server ended: $(cat "$log")"
        sleep 0.2
    done
    fail "it is not healthy"
}
stop() {
    kill -TERM "$(cat "/proc/$outer/task/$outer/children")"
    wait "$outer" || fail "SIGTERM gave $?"
    ! inside "${health[@]}" >/dev/null 2>&1 || fail "healthy without a server"
}
expect() {
    exec 3<>/dev/tcp/127.0.0.1/6379
    printf '%s\r\nQUIT\r\n' "$1" >&3
    local reply
    reply=$(tr -d '\r' <&3 | head -n "$(wc -l <<<"$2")")
    exec 3>&-
    [ "$reply" = "$2" ] || fail "$1 gives \`$reply\`"
}

say "a /dev/shm of 64 MiB, as without --shm-size"
mount -t tmpfs -o size=64m tmpfs "$root/dev/shm"
serve "$root.small"
expect "SET greeting hello" "+OK"
stop
grep -q -- --shm-size "$root.small" || fail "it does not say that /dev/shm is small"
umount "$root/dev/shm"

say "one that is large enough, and outlives the container"
mount -t tmpfs -o size=90% tmpfs "$root/dev/shm"
serve "$root.large"
expect "SET greeting hello" "+OK"
stop
serve "$root.again"
expect "GET greeting" $'$5\nhello'
stop
say "done"
