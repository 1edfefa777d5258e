//! Configures addresses with `ip` (iproute2), which supports every kind of device and every kernel.

use std::io::{self, Read};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use node::access::AddressRange;
use node::floating::{AddressOn, DeviceTrouble, HOLD_LENGTH, IpFault};
use serde::Deserialize;

/// How long `ip` may take; it normally takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(1);
/// How often to check whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The path of `ip` where distributions do not have its directory in users' PATH.
const NOT_IN_PATH: &str = "/usr/sbin/ip";

/// The arguments that list all devices with their addresses.
const SHOW: [&str; 3] = ["-json", "address", "show"];

/// What `ip` prints if the process lacks the privilege.
const NOT_PERMITTED: &str = "Operation not permitted";

/// A device with its addresses, from `ip -json address show`.
#[derive(Debug, Deserialize)]
struct Link {
    #[serde(default)]
    ifname: String,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Debug, Deserialize)]
struct Address {
    local: Option<IpAddr>,
    #[serde(default)]
    prefixlen: u8,
    /// In seconds; `u32::MAX`: forever.
    valid_life_time: Option<u32>,
}

/// A device that has an address.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    device: String,
    /// The prefix length of its network.
    prefix: u8,
    /// A node has set it, with a lifetime of seconds.
    is_ours: bool,
}

/// The longest lifetime of an address that a node sets, in seconds.
///
/// An address with a longer one was set from outside: permanently, by DHCP, or by IPv6 autoconfiguration
/// (SLAAC). One second is added in case a kernel rounds up.
const OURS_SECONDS_MAX: u64 = HOLD_LENGTH.as_secs() + 1;

/// Sets an address, or extends its lifetime, until `until` or up to a second less; returns its device.
///
/// # Errors
/// What is wrong.
pub(super) fn put_on(on: &AddressOn, until: Instant) -> Result<String, DeviceTrouble> {
    let links = links()?;
    if let Some(here) = holders(&links, on.address).iter().find(|here| !here.is_ours) {
        return Err(DeviceTrouble::OfMachine { address: on.address, device: here.device.clone() });
    }
    let device = match &on.device {
        Some(device) => device.clone(),
        None => device_of(&links, on)
            .ok_or(DeviceTrouble::NoDeviceInNetwork { address: on.address, prefix: on.prefix })?,
    };
    let address = format!("{}/{}", on.address, on.prefix);
    // The steps above take time, and another node may hold the address after `until`.
    let seconds = seconds_until(until, Instant::now())?.to_string();
    let (address, device_name, seconds) = (address.as_str(), device.as_str(), seconds.as_str());
    let mut arguments = vec!["address", "replace", address, "dev", device_name];
    arguments.extend(["valid_lft", seconds, "preferred_lft", seconds]);
    if on.address.is_ipv6() {
        // The record ensures that no other node has it; duplicate address detection would delay its use by a
        // second.
        arguments.push("nodad");
    }
    run(&arguments)?;
    Ok(device)
}

/// The whole seconds until then.
fn seconds_until(until: Instant, now: Instant) -> Result<u64, DeviceTrouble> {
    match until.saturating_duration_since(now).as_secs() {
        0 => Err(DeviceTrouble::Late),
        seconds => Ok(seconds),
    }
}

/// Removes an address that a node has set.
///
/// Does nothing if no device has it, if it was set from outside, or if there is no `ip`, which must have set
/// it.
///
/// # Errors
/// What is wrong.
pub(super) fn take_off(on: &AddressOn) -> Result<(), DeviceTrouble> {
    let links = match start(&SHOW) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        started => parse(&ended(&SHOW, started)?)?,
    };
    for Place { device, prefix, is_ours } in holders(&links, on.address) {
        let address = format!("{}/{prefix}", on.address);
        if is_ours {
            run(&["address", "del", address.as_str(), "dev", device.as_str()])?;
        }
    }
    Ok(())
}

fn links() -> Result<Vec<Link>, DeviceTrouble> {
    parse(&run(&SHOW)?)
}

fn parse(json: &str) -> Result<Vec<Link>, DeviceTrouble> {
    let unread = |error: serde_json::Error| IpFault::Output { line: error.line(), column: error.column() };
    serde_json::from_str(json).map_err(|error| failed(&SHOW, unread(error)))
}

fn failed(arguments: &[&str], fault: IpFault) -> DeviceTrouble {
    DeviceTrouble::Ip { arguments: arguments.join(" "), fault }
}

/// The first device with an address in the same network.
fn device_of(links: &[Link], on: &AddressOn) -> Option<String> {
    let network = AddressRange::new(on.address, on.prefix).ok()?;
    let same =
        |address: &Address| address.local.is_some_and(|local| local != on.address && network.contains(local));
    links.iter().find(|link| link.addr_info.iter().any(same)).map(|link| link.ifname.clone())
}

/// The devices that have an address.
fn holders(links: &[Link], address: IpAddr) -> Vec<Place> {
    let on = |link: &Link| {
        let here = link.addr_info.iter().filter(|here| here.local == Some(address));
        let place = |here: &Address| Place {
            device: link.ifname.clone(),
            prefix: here.prefixlen,
            is_ours: here.valid_life_time.is_some_and(|seconds| u64::from(seconds) <= OURS_SECONDS_MAX),
        };
        here.map(place).collect::<Vec<_>>()
    };
    links.iter().flat_map(on).collect()
}

/// Runs `ip`; returns what it prints.
fn run(arguments: &[&str]) -> Result<String, DeviceTrouble> {
    ended(arguments, start(arguments))
}

fn start(arguments: &[&str]) -> io::Result<Child> {
    let start = |program: &str| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    match start("ip") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => start(NOT_IN_PATH),
        started => started,
    }
}

/// What a process prints, if it succeeds.
///
/// The output is read while it runs, since a list of addresses may be longer than a pipe holds.
fn ended(arguments: &[&str], started: io::Result<Child>) -> Result<String, DeviceTrouble> {
    let failed = |fault| failed(arguments, fault);
    let mut child = started.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => failed(IpFault::NotFound),
        _ => failed(IpFault::NotRun { errno: rt::errno(&error) }),
    })?;
    let output = child.stdout.take().map(read_aside);
    let errors = child.stderr.take().map(read_aside);
    let until = Instant::now() + DEADLINE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => thread::sleep(LOOK_EVERY),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(IpFault::TimedOut));
            }
            Err(error) => return Err(failed(IpFault::NotRun { errno: rt::errno(&error) })),
        }
    };
    let text = |aside: Option<thread::JoinHandle<String>>| {
        aside.and_then(|aside| aside.join().ok()).unwrap_or_default()
    };
    let (output, errors) = (text(output), text(errors));
    if status.success() {
        return Ok(output);
    }
    let errors = errors.trim().to_owned();
    Err(failed(match errors.contains(NOT_PERMITTED) {
        true => IpFault::NotPermitted(errors),
        false => IpFault::Failed(errors),
    }))
}

fn read_aside(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        // Output that is not UTF-8 is of no use.
        let _ = pipe.read_to_string(&mut text);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of iproute2 6.1, without fields that are not read.
    const SHOWN: &str = r#"[
        {"ifindex":1,"ifname":"lo","addr_info":[
            {"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host","valid_life_time":4294967295},
            {"family":"inet6","local":"::1","prefixlen":128,"scope":"host"}]},
        {"ifindex":2,"ifname":"eth0","flags":["BROADCAST","UP"],"addr_info":[
            {"family":"inet","local":"192.0.2.1","prefixlen":24,"broadcast":"192.0.2.255"},
            {"family":"inet","local":"192.0.2.10","prefixlen":24,"secondary":true,"dynamic":true,"valid_life_time":3},
            {"family":"inet","local":"192.0.2.20","prefixlen":24,"dynamic":true,"valid_life_time":3600},
            {"family":"inet","local":"192.0.2.21","prefixlen":24,"dynamic":true,"valid_life_time":5},
            {"family":"inet","local":"192.0.2.22","prefixlen":24,"dynamic":true,"valid_life_time":6}]},
        {"ifindex":3,"ifname":"eth1","addr_info":[{"family":"inet6","local":"fd00::1","prefixlen":64}]},
        {}]"#;

    fn on(address: &str, prefix: u8) -> AddressOn {
        AddressOn { address: address.parse().unwrap(), prefix, device: None }
    }

    #[test]
    fn the_device_is_that_of_the_network() {
        let links = parse(SHOWN).unwrap();
        let device = |address, prefix| device_of(&links, &on(address, prefix));
        assert_eq!(device("192.0.2.99", 24).as_deref(), Some("eth0"));
        assert_eq!(device("fd00::99", 64).as_deref(), Some("eth1"));
        assert_eq!(device("127.9.9.9", 8).as_deref(), Some("lo"));
        assert_eq!(device("192.0.3.99", 24), None);
        assert_eq!(device("192.0.2.99", 32), None, "a network of one address");
        assert_eq!(device("fd00:0:0:1::99", 64), None);
    }

    #[test]
    fn an_address_is_found_where_it_is() {
        let links = parse(SHOWN).unwrap();
        let places = |address: &str| holders(&links, address.parse().unwrap());
        assert_eq!(places("192.0.2.10"), [Place { device: "eth0".into(), prefix: 24, is_ours: true }]);
        assert_eq!(places("127.0.0.1"), [Place { device: "lo".into(), prefix: 8, is_ours: false }]);
        assert_eq!(places("192.0.2.11"), []);
        assert!(parse("eth0").is_err());
    }

    #[test]
    fn an_address_with_a_longer_lifetime_is_not_ours() {
        let links = parse(SHOWN).unwrap();
        let is_ours = |address: &str| holders(&links, address.parse().unwrap())[0].is_ours;
        assert!(!is_ours("127.0.0.1"), "for good");
        assert!(!is_ours("192.0.2.1"), "nothing is said of it");
        assert!(!is_ours("192.0.2.20"), "by DHCP");
        assert!(!is_ours("192.0.2.22"));
        assert!(is_ours("192.0.2.21"), "by a kernel that rounds up");
    }

    #[test]
    fn an_address_set_late_has_a_shorter_lifetime() {
        let now = Instant::now();
        let seconds = |left| seconds_until(now + Duration::from_millis(left), now).ok();
        assert_eq!([3_999, 3_000, 1_000].map(seconds), [Some(3), Some(3), Some(1)]);
        assert_eq!(seconds(999), None, "kernels count whole seconds");
        assert_eq!(seconds_until(now, now + Duration::from_secs(1)).ok(), None);
    }

    #[test]
    fn a_program_that_fails_says_why() {
        let failed = run(&["address", "replace", "no-address", "dev", "lo"]).unwrap_err().to_string();
        assert!(failed.starts_with("`ip address replace no-address dev lo`: "), "{failed}");
    }
}
