//! Whether this machine is virtual, and so its clocks may stop while time goes on elsewhere.
//!
//! On x86 the processor says so: CPUID.1:ECX[31], the flag `hypervisor` of `/proc/cpuinfo`, is reserved for that and zero on every real processor; so containers see it, too. What a hypervisor
//! has hidden, and what other architectures do not have, the firmware's tables and the kernel's own findings say. A wrong yes costs a round trip; a wrong no is what `read-confirm = always` is for.

use std::fs;
use std::path::Path;

use api::HypervisorSign;

/// What of the firmware's names is a hypervisor's, as systemd-detect-virt has them: the beginning of a vendor, product or board.
const VIRTUAL: [&str; 19] = [
    "KVM",
    "QEMU",
    "OpenStack",
    "KubeVirt",
    "Red Hat Enterprise Virtualization",
    "oVirt",
    "VMware",
    "VMW",
    "Virtual Machine",
    "innotek GmbH",
    "VirtualBox",
    "Xen",
    "HVM domU",
    "Bochs",
    "Parallels",
    "BHYVE",
    "Google Compute Engine",
    "Apple Virtualization",
    "Nutanix",
];

/// What was seen of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// By what it is known to be virtual; `None`: nothing says so.
    pub hypervisor: Option<HypervisorSign>,
    /// Vendor and product, as the firmware has them.
    pub product: Option<String>,
}

impl Machine {
    /// This one.
    pub fn this() -> Machine {
        Machine::below(Path::new("/"))
    }

    fn below(root: &Path) -> Machine {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let dmi = ["sys_vendor", "product_name", "board_vendor"]
            .map(|name| read(&format!("sys/class/dmi/id/{name}")).trim().to_owned());
        let is_there = |path: &str| root.join(path).exists();
        let sign = if has_flag(&read("proc/cpuinfo")) {
            Some(HypervisorSign::Cpu)
        } else if dmi.iter().any(|name| VIRTUAL.iter().any(|virtual_name| name.starts_with(virtual_name))) {
            Some(HypervisorSign::Firmware)
        } else if ["dev/vmclock0", "proc/device-tree/hypervisor"].into_iter().any(is_there)
            || !read("sys/hypervisor/type").is_empty()
        {
            Some(HypervisorSign::Kernel)
        } else {
            None
        };
        let [vendor, product, _] = &dmi;
        let product = format!("{vendor} {product}");
        Machine { hypervisor: sign, product: Some(product.trim().to_owned()).filter(|name| !name.is_empty()) }
    }
}

/// Whether the processors' flags say that there is a hypervisor.
fn has_flag(cpuinfo: &str) -> bool {
    let flags =
        cpuinfo.lines().filter_map(|line| line.split_once(':')).filter(|(key, _)| key.trim() == "flags");
    flags.flat_map(|(_, flags)| flags.split_whitespace()).any(|flag| flag == "hypervisor")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(files: &[(&str, &str)]) -> Machine {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        Machine::below(root.path())
    }

    const REAL: &str =
        "processor\t: 0\nmodel name\t: AMD EPYC 7443P\nflags\t\t: fpu vme sse4_2 x2apic\nbugs\t\t: none\n";
    const GUEST: &str = "processor\t: 0\nflags\t\t: fpu vme x2apic hypervisor lahf_lm\n";

    #[test]
    fn a_processor_that_says_so_is_a_hypervisors() {
        assert_eq!(seen(&[("proc/cpuinfo", GUEST)]).hypervisor, Some(HypervisorSign::Cpu));
        let named = "model name\t: hypervisor\nflags\t\t: fpu hypervisor_x\n";
        assert_eq!(seen(&[("proc/cpuinfo", named)]).hypervisor, None);
    }

    #[test]
    fn reads_are_confirmed_on_virtual_machines_unless_somebody_says_otherwise() {
        use crate::serve::given::ReadConfirm::{Always, Auto, Never};
        let (real, guest) = (Machine::default(), seen(&[("proc/cpuinfo", GUEST)]));
        let on = |machine| [Auto, Always, Never].map(|setting| setting.is_on(machine));
        assert_eq!(on(&real), [false, true, false]);
        assert_eq!(on(&guest), [true, true, false]);
    }

    #[test]
    fn a_server_is_none() {
        let dmi = [
            ("proc/cpuinfo", REAL),
            ("sys/class/dmi/id/sys_vendor", "Dell Inc.\n"),
            ("sys/class/dmi/id/product_name", "PowerEdge R750\n"),
            ("sys/class/dmi/id/board_vendor", "Dell Inc.\n"),
        ];
        let product = Some("Dell Inc. PowerEdge R750".to_owned());
        assert_eq!(seen(&dmi), Machine { hypervisor: None, product });
        assert_eq!(seen(&[]), Machine::default(), "nothing can be read");
    }

    #[test]
    fn what_the_processor_does_not_say_the_firmware_or_the_kernel_does() {
        let hidden = [("proc/cpuinfo", REAL), ("sys/class/dmi/id/sys_vendor", "QEMU\n")];
        assert_eq!(seen(&hidden).hypervisor, Some(HypervisorSign::Firmware));
        let hyper_v = [
            ("sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n"),
            ("sys/class/dmi/id/product_name", "Virtual Machine\n"),
        ];
        assert_eq!(seen(&hyper_v).hypervisor, Some(HypervisorSign::Firmware));
        let surface = [
            ("sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n"),
            ("sys/class/dmi/id/product_name", "Surface Pro\n"),
        ];
        assert_eq!(seen(&surface).hypervisor, None);
        for path in ["dev/vmclock0", "proc/device-tree/hypervisor/compatible", "sys/hypervisor/type"] {
            assert_eq!(seen(&[(path, "xen\n")]).hypervisor, Some(HypervisorSign::Kernel), "{path}");
        }
    }
}
