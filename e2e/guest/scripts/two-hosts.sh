# two-hosts: two sessions of two initiator names (SCSI: two nexuses of two initiator ports), each with its own
# disk: /run/host-a and /run/host-b.
pidof iscsid >/dev/null || iscsid
login() { # HOST PORTAL
  iscsiadm -m iface -I "$1" -o new >/dev/null || return 1
  iscsiadm -m iface -I "$1" -o update -n iface.initiatorname -v "iqn.2026-11.e2e.guest:$1" || return 1
  iscsiadm -m iface -I "$1" -o update -n iface.transport_name -v tcp
  iscsiadm -m node -T "$TARGET" -p "$2" -I "$1" -o new >/dev/null || return 1
  iscsiadm -m node -T "$TARGET" -p "$2" -I "$1" -o update -n node.session.timeo.replacement_timeout -v 60
  iscsiadm -m node -T "$TARGET" -p "$2" -I "$1" --login || return 1
  for _ in $(seq 100); do
    for session in /sys/class/iscsi_session/session*; do
      [ "$(cat "$session/initiatorname")" = "iqn.2026-11.e2e.guest:$1" ] || continue
      disk=$(ls -d "$session"/device/target*/*/block/* 2>/dev/null | head -1)
      [ -n "$disk" ] && [ -b "/dev/${disk##*/}" ] && { ln -sf "/dev/${disk##*/}" "/run/$1"; return 0; }
    done
    sleep 0.1
  done
  echo "$1 has no disk"; return 1
}
set -- $PORTALS
login host-a "$1" && login host-b "$2" && ls -l /run/host-a /run/host-b
