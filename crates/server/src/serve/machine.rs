//! Whether this machine is virtual. Then its clocks may stop while time continues elsewhere.
//!
//! On x86 the processor shows it: CPUID.1:ECX bit 31, the flag `hypervisor` of `/proc/cpuinfo`, is reserved
//! for this purpose and zero on every real processor; containers see it, too. If a hypervisor hides it, and
//! on other architectures, firmware tables and devices that only hypervisors have show it. A false positive
//! costs a round trip per read; for a false negative there is `read-confirm = always`.

use std::fs;
use std::path::Path;

use api::HypervisorSign;

/// Prefixes of vendors, products and boards in the firmware of virtual machines, from systemd-detect-virt.
const VIRTUAL: [&str; 20] = [
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
    AMAZON,
];
/// Amazon's bare-metal machines have this vendor, too; their products end in [`REAL_OF_AMAZON`].
const AMAZON: &str = "Amazon EC2";
const REAL_OF_AMAZON: &str = ".metal";
/// Devices of hypervisors: a vmclock, the device tree's entry, Xen's.
///
/// A driver for generation ids shows one if it has found a device: then its directory has a link beside the
/// driver's own files.
const DEVICES: [&str; 3] = ["dev/vmclock0", "proc/device-tree/hypervisor", "sys/hypervisor/type"];
const GENERATION_ID_DRIVERS: [&str; 2] = ["sys/bus/platform/drivers/vmgenid", "sys/bus/acpi/drivers/vmgenid"];
const FILES_OF_DRIVERS: [&str; 4] = ["bind", "unbind", "uevent", "module"];

/// What was found out about a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The sign by which it is known to be virtual; `None`: no sign was found.
    pub hypervisor: Option<HypervisorSign>,
    /// Vendor and product, from the firmware.
    pub product: Option<String>,
}

impl Machine {
    /// Examines this machine.
    pub fn this() -> Machine {
        Machine::below(Path::new("/"))
    }

    fn below(root: &Path) -> Machine {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let dmi = ["sys_vendor", "product_name", "board_vendor"]
            .map(|name| read(&format!("sys/class/dmi/id/{name}")).trim().to_owned());
        let hypervisor = if has_flag(&read("proc/cpuinfo")) {
            Some(HypervisorSign::Cpu)
        } else if is_virtual(&dmi) {
            Some(HypervisorSign::Firmware)
        } else if has_device(root) {
            Some(HypervisorSign::Device)
        } else {
            None
        };
        let [vendor, product, _] = &dmi;
        let product = format!("{vendor} {product}").trim().to_owned();
        Machine { hypervisor, product: Some(product).filter(|name| !name.is_empty()) }
    }
}

/// Whether vendor, product or board belong to a hypervisor.
fn is_virtual(dmi: &[String; 3]) -> bool {
    let [vendor, product, _] = dmi;
    let is_real_of_amazon = vendor.starts_with(AMAZON) && product.ends_with(REAL_OF_AMAZON);
    !is_real_of_amazon && dmi.iter().any(|name| VIRTUAL.iter().any(|begin| name.starts_with(begin)))
}

fn has_device(root: &Path) -> bool {
    let has_generation_id = |driver: &str| {
        let files = fs::read_dir(root.join(driver)).into_iter().flatten().flatten();
        files.map(|file| file.file_name()).any(|name| !FILES_OF_DRIVERS.iter().any(|own| name == *own))
    };
    DEVICES.iter().any(|path| root.join(path).exists())
        || GENERATION_ID_DRIVERS.iter().any(|driver| has_generation_id(driver))
}

/// Whether the processors' flags show a hypervisor.
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
    fn the_flag_of_the_processor_tells() {
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
    fn a_real_server_is_not_virtual() {
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
    fn the_firmware_reveals_a_hypervisor_that_the_processor_hides() {
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
        let cloud = |product| {
            let vendor = ("sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
            seen(&[vendor, ("sys/class/dmi/id/product_name", product)]).hypervisor
        };
        assert_eq!((cloud("m7g.large\n"), cloud("m7g.metal\n")), (Some(HypervisorSign::Firmware), None));
    }

    #[test]
    fn a_device_that_only_hypervisors_have_reveals_one_too() {
        for path in [
            "dev/vmclock0",
            "proc/device-tree/hypervisor/compatible",
            "sys/hypervisor/type",
            "sys/bus/platform/drivers/vmgenid/VMGENCTR:00",
            "sys/bus/acpi/drivers/vmgenid/QEMUVGID:00",
        ] {
            assert_eq!(seen(&[(path, "xen\n")]).hypervisor, Some(HypervisorSign::Device), "{path}");
        }
        let driver_alone = "sys/bus/platform/drivers/vmgenid/bind";
        assert_eq!(seen(&[(driver_alone, "")]).hypervisor, None, "every kernel has the driver");
    }
}
