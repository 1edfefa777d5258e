# ESXi host for Ursa volumes: run in the ESXi shell, or over SSH. Target iqn.2026-11.io.ursa:db.

# 1. The software initiator. The last line prints its name (IQN), for the host group.
esxcli iscsi software set --enabled=true
HBA=$(esxcli iscsi adapter list | awk '/iscsi_vmk/ { print $1; exit }')
esxcli iscsi adapter get --adapter="$HBA" | grep 'Name: iqn'

# 2. Round robin over all paths, a new path for each request (ALUA). Do this before the first volume appears: devices
#    already claimed keep their rule until the host is rebooted.
esxcli storage nmp satp rule add --satp=VMW_SATP_ALUA --vendor=URSA --model=VOLUME --claim-option=tpgs_on \
  --psp=VMW_PSP_RR --psp-option=iops=1 --description="Ursa"

{ # The shell reads up to the closing brace before it runs anything, so the prompt does not swallow pasted lines.
# The CHAP secret of the host group, for all targets of this adapter:
read -rsp 'CHAP secret: ' SECRET; echo
esxcli iscsi adapter auth chap set --adapter="$HBA" --direction=uni --level=required --authname=web --secret="$SECRET"
unset SECRET

# 3. Discovery. With two networks, each needs its own VMkernel port; bind the ports if both are in one subnet:
#    esxcli iscsi networkportal add --adapter="$HBA" --nic=vmk1
esxcli iscsi adapter discovery sendtarget add --adapter="$HBA" --address=10.1.1.5:3260
esxcli iscsi adapter discovery sendtarget add --adapter="$HBA" --address=10.1.2.5:3261

# 4. A server that does not respond is detected after 5 + 5 seconds; after 10 more its paths are dead, and others are used.
esxcli iscsi adapter param set --adapter="$HBA" --key=NoopOutInterval --value=5 || true
esxcli iscsi adapter param set --adapter="$HBA" --key=NoopOutTimeout --value=10 || true
esxcli iscsi adapter param set --adapter="$HBA" --key=RecoveryTimeout --value=10 || true

# 5. Check: each volume is one device (naa.6...) with one path per portal.
esxcli storage core adapter rescan --adapter="$HBA"
esxcli storage nmp device list | grep -A 8 URSA
}
