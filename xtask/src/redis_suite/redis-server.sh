#!/bin/sh
# Stands in for redis-server where the suite starts servers of its own: `mneme serve`, with those
# lines of the configuration file that it knows. $MNEME is the program.
file=$1
value() {
    sed -n "s/^$1 //p" "$file" | tail -n 1 | sed "s/^['\"{]//; s/['\"}]\$//"
}
port=$(value port)
set -- serve --private --memory 256mb --log error --enable-debug-command yes --port "$port"
for name in requirepass acl-pubsub-default; do
    text=$(value "$name")
    [ -z "$text" ] || set -- "$@" "--$name" "$text"
done
users=$(value aclfile)
[ -z "$users" ] || set -- "$@" --aclfile "$(value dir)/$users"
# The lines that the suite waits for. It tries whether the port is served.
echo "mneme PID: $$"
echo "Ready to accept connections"
exec "$MNEME" "$@"
