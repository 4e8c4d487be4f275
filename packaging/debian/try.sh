#!/bin/bash
# Installs the packages in a chroot, serves as the unit says, upgrades, removes and purges them.
#
#   unshare --mount --net --pid --fork packaging/debian/try.sh ROOT FIRST SECOND LIBRARY DEVELOPMENT
#
# ROOT is a fresh Debian system. FIRST and SECOND are two revisions of mneme. There is no systemd in
# a chroot: the unit is verified from outside, and its command is run as its user.
set -euo pipefail
root=$1 first=$2 second=$3 library=$4 development=$5

say() { printf -- '-- %s\n' "$*"; }
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}
inside() { chroot "$root" "$@"; }
# Files of the system, without what dpkg and its tools keep about packages.
files() {
    (cd "$root" && find . -xdev -path ./proc -prune -o -path ./dev -prune -o -path ./tmp -prune \
        -o -path ./var/lib/dpkg -prune -o -path ./var/log -prune -o -path ./var/cache -prune \
        -o -path ./var/lib/systemd/deb-systemd-helper-enabled -prune -o -print | sort)
}
install() {
    for package in "$@"; do
        cp "$package" "$root/tmp/"
        inside dpkg --install "/tmp/${package##*/}" >/dev/null
    done
}

mount --make-rprivate /
mount -t proc proc "$root/proc"
ip link set lo up
files >"$root/tmp/before"

unit=usr/lib/systemd/system/mneme.service
libraries=usr/lib/$(uname -m)-linux-gnu
value() { sed -n "s/^$1=//p" "$root/$unit"; }

serve() {
    local variables command
    read -ra variables <<<"$(value Environment)"
    read -ra command <<<"$(value ExecStart)"
    chroot --userspec="$(value User):$(value Group)" "$root" \
        env "${variables[@]}" "${command[@]}" &
    server=$!
    for _ in $(seq 600); do
        inside mneme stat >/dev/null 2>&1 && return
        kill -0 "$server" 2>/dev/null || fail "the server ended"
        sleep 0.2
    done
    fail "the server does not answer"
}
stop() {
    kill -TERM "$server"
    wait "$server" || fail "the server ended with $?"
}
# One command and its reply, without the line's end.
ask() {
    exec 3<>/dev/tcp/127.0.0.1/6379
    printf '%s\r\nQUIT\r\n' "$1" >&3
    tr -d '\r' <&3
    exec 3>&-
}
expect() {
    local reply
    for _ in $(seq 600); do
        reply=$(ask "$1" | head -n "$(wc -l <<<"$2")")
        [[ "$reply" = -LOADING* ]] || break
        sleep 0.2
    done
    [ "$reply" = "$2" ] || fail "$1 gives \`$reply\`"
}

say "install"
# Another user made the registry's directory first.
mkdir -p "$root/dev/shm/mneme/segments"
chown -R 65534:65534 "$root/dev/shm/mneme"
chmod 0777 "$root/dev/shm/mneme"
install "$first" "$library" "$development"
inside id mneme >/dev/null
[ "$(stat -c %u "$root/dev/shm/mneme")" != 65534 ] && [ ! -e "$root/dev/shm/mneme/segments" ] ||
    fail "the registry is a directory that another user made"
rmdir "$root/dev/shm/mneme"
[ "$(inside mneme --version | cut -d' ' -f1)" = mneme ] || fail "the command does not run"
for file in usr/share/man/man1/mneme-serve.1.gz usr/share/bash-completion/completions/mneme \
    etc/mneme/mneme.toml "$libraries/libmneme.so.0" usr/include/mneme.h \
    "$libraries/pkgconfig/mneme.pc"; do
    [ -e "$root/$file" ] || fail "there is no /$file"
done
inside dpkg-query --show --showformat='${Conffiles}' mneme | grep -q /etc/mneme/mneme.toml ||
    fail "the configuration file is none to dpkg"
grep -q "^libdir=\${prefix}/${libraries#usr/}\$" "$root/$libraries/pkgconfig/mneme.pc" ||
    fail "pkg-config is told of another directory"

if command -v systemd-analyze >/dev/null; then
    say "the unit"
    # The chroot has none of the units that it leads to: what counts is said of its own lines.
    complaints=$(systemd-analyze verify --man=no --root="$root" mneme.service 2>&1 |
        grep -E 'mneme\.service:[0-9]+' || true)
    [ -z "$complaints" ] || fail "$complaints"
    systemd-analyze security --offline=true --root="$root" --threshold=25 --no-pager mneme.service |
        tail -n 1
fi
registry=$(sed -n 's/^d \([^ ]*\) .*/\1/p' "$root/usr/lib/tmpfiles.d/mneme.conf")
read -r mode user group < <(sed -n 's/^d [^ ]* \([^-]*\) -$/\1/p' "$root/usr/lib/tmpfiles.d/mneme.conf")
# What systemd makes when the machine starts, and before it starts the unit.
boot() {
    mount -t tmpfs -o nosuid,nodev tmpfs "$root/dev/shm"
    inside install -d -m "$mode" -o "$user" -g "$group" "$registry"
    inside install -d -m "$(value StateDirectoryMode)" -o "$(value User)" -g "$(value Group)" \
        "/var/lib/$(value StateDirectory)"
}
boot

say "serve"
serve
expect "SET greeting hello" "+OK"

if command -v cc >/dev/null; then
    say "a C program"
    cat >"$root/tmp/count.c" <<'C'
#include <mneme.h>
#include <stdio.h>
int main(void) {
    mneme_store_t store = mneme_attach("default", MNEME_READ);
    if (store == NULL) {
        fprintf(stderr, "%s\n", mneme_error());
        return 1;
    }
    printf("%ld\n", (long)mneme_length(store));
    mneme_detach(store);
    return 0;
}
C
    cc -std=c11 -I "$root/usr/include" "$root/tmp/count.c" -L "$root/$libraries" -lmneme \
        -o "$root/tmp/count"
    found=$(chroot --userspec=mneme:mneme "$root" env MNEME_DIR="$registry" /tmp/count)
    [ "$found" = 1 ] || fail "a C program finds \`$found\` records"
fi

say "upgrade"
echo '# ours' >>"$root/etc/mneme/mneme.toml"
install "$second"
grep -q '# ours' "$root/etc/mneme/mneme.toml" || fail "the upgrade changed the configuration"
stop
serve
expect "GET greeting" $'$5\nhello'
stop

say "data on a disk"
settings=$root/etc/mneme/mneme.toml
sed -i "s|^#data = .*|data = \"/var/lib/$(value StateDirectory)\"|" "$settings"
grep -q '^data = ' "$settings" || fail "the configuration file does not name \`data\`"
echo 'appendfsync = "always"' >>"$settings"
serve
expect "GET greeting" $'$5\nhello'
expect "SET kept still" "+OK"
kill -KILL "$server"
wait "$server" || true
umount "$root/dev/shm"
boot
serve
expect "GET greeting" $'$5\nhello'
expect "GET kept" $'$5\nstill'
stop

say "remove"
inside dpkg --remove libmneme-dev libmneme0 mneme >/dev/null
[ ! -e "$root/usr/bin/mneme" ] || fail "the command is still there"
[ -e "$root/etc/mneme/mneme.toml" ] || fail "the configuration is gone"
[ -e "$root$registry/segments" ] || [ -n "$(ls -A "$root$registry")" ] || fail "the records are gone"

say "purge"
inside dpkg --purge mneme libmneme-dev libmneme0 >/dev/null
left=$(ls -A "$root/dev/shm")
[ -z "$left" ] || fail "the records are still there, in $left"
files >"$root/tmp/after"
# Its user stays, as Debian's policy has it, and with it copies of the files that list users.
left=$(comm -13 "$root/tmp/before" "$root/tmp/after" | grep -vE '^\./etc/(g?shadow|passwd|group)-$' || true)
[ -z "$left" ] || fail "purged packages left $left"
say "done"
