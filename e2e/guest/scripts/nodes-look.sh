# nodes-look: waits until the first node's copy is in the state $STATE, and of $EVENTS, as in
# `copy_out_of_sync=2`, each was told so many times, and $HEALTH is the severity of the worst finding apart
# from the missing witness, or `healthy`; prints the volume, what has happened and how it is as JSON.
told() {
  for event in $EVENTS; do
    [ "$(grep -c "\"code\": \"${event%=*}\"" /run/events)" -ge "${event#*=}" ] || return 1
  done
}
# Findings come first in the status, the worst one first; each has its code before its severity.
worst() {
  found=$(awk -F'"' '$2 == "code" { code = $4 } $2 == "severity" && code != "no-witness" { print $4; exit }' /run/status)
  echo "${found:-healthy}"
}
for _ in $(seq $TRIES); do
  at 2 volume show db -o json >/run/volume && at 1 events --node all --limit 500 -o json >/run/events || die 'not shown'
  grep -q "\"state\": \"$STATE\"" <(sed -n '/"copies"/,/"node": 2/p' /run/volume) && told &&
    at 1 status -o json >/run/status && [ "$(worst)" = "$HEALTH" ] && break
  sleep 0.2
done
# The host's kernel has seen nothing but a node that cannot be used for a while, and what is $TOLERATED of a
# path.
errors='i/o error|medium error|hardware error|critical|sense key'
dmesg | grep -iE "$errors" | grep -E "sd[a-z]|sd [0-9:]+|$(basename "$(readlink -f /run/disk)")|multipath" | grep -vE "$TOLERATED" >&2 && die 'the host has seen an error'
echo "{\"volume\": $(cat /run/volume), \"events\": $(cat /run/events), \"status\": $(cat /run/status)}"
dmesg -C
