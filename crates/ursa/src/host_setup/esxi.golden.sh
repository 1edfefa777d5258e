# ESXi host for Ursa volumes: in the ESXi shell, or over SSH. Target iqn.2026-11.io.ursa:db.

# 1. The software initiator. Its name (in the last line) is what the host group wants.
esxcli iscsi software set --enabled=true
HBA=$(esxcli iscsi adapter list | awk '/iscsi_vmk/ { print $1; exit }')
esxcli iscsi adapter get --adapter="$HBA" | grep 'Name: iqn'

# 2. All ways carry I/O together, and each request may take another one (ALUA, round robin). Before the first volume is
#    seen: what is claimed already keeps its rule until the host is restarted.
esxcli storage nmp satp rule add --satp=VMW_SATP_ALUA --vendor=URSA --model=VOLUME --claim-option=tpgs_on \
  --psp=VMW_PSP_RR --psp-option=iops=1 --description="Ursa"

{ # As far as the brace at the end it is read before anything of it is run: the question takes no line that is pasted.
# The secret of the host group, for every target of this adapter:
read -rsp 'CHAP secret: ' SECRET; echo
esxcli iscsi adapter auth chap set --adapter="$HBA" --direction=uni --level=required --authname=web --secret="$SECRET"
unset SECRET

# 3. Where the nodes are. With two networks, each needs a VMkernel port of its own; bind them if both are in one subnet:
#    esxcli iscsi networkportal add --adapter="$HBA" --nic=vmk1
esxcli iscsi adapter discovery sendtarget add --adapter="$HBA" --address=10.1.1.5:3260
esxcli iscsi adapter discovery sendtarget add --adapter="$HBA" --address=10.1.2.5:3261

# 4. A silent server is noticed after 5 + 5 seconds; after 10 more its ways are dead, and others are used.
esxcli iscsi adapter param set --adapter="$HBA" --key=NoopOutInterval --value=5 || true
esxcli iscsi adapter param set --adapter="$HBA" --key=NoopOutTimeout --value=10 || true
esxcli iscsi adapter param set --adapter="$HBA" --key=RecoveryTimeout --value=10 || true

# 5. Look: each volume is one device (naa.6...), with one way a portal.
esxcli storage core adapter rescan --adapter="$HBA"
esxcli storage nmp device list | grep -A 8 URSA
}
