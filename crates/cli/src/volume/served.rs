//! Whether a volume is served, in words.

use api::{Volume, VolumeHealth};

/// The health in a word, for a list.
pub(super) fn state(volume: &Volume) -> &'static str {
    match volume.health {
        VolumeHealth::SplitBrain => "SPLIT BRAIN",
        VolumeHealth::Unavailable => "UNAVAILABLE",
        VolumeHealth::ContinuedAlone => "continues alone",
        VolumeHealth::Resyncing => "resyncing",
        VolumeHealth::Degraded => "degraded",
        VolumeHealth::Healthy => "healthy",
    }
}

/// Whether the volume is served, on its own line.
pub(super) fn served(volume: &Volume) -> String {
    let is_unavailable = volume.health == VolumeHealth::Unavailable;
    match (&volume.problem, volume.serving) {
        (Some(problem), _) if is_unavailable => format!("NO: {problem}"),
        (None, _) if is_unavailable => "NO: no node with a copy in sync responds".into(),
        (Some(problem), _) => format!("by other nodes, but NOT BY THIS NODE: {problem}"),
        (None, false) if volume.copies.is_empty() => "by the node that has it, not by this node".into(),
        (None, false) if !volume.copies.iter().any(|copy| copy.here) => {
            "not by this node, which has no copy".into()
        }
        (None, false) => "NOT BY THIS NODE NOW: its copy is not serving".into(),
        (None, true) => "yes".into(),
    }
}

/// A remark below a list with this volume; `None`: it is served normally.
pub(super) fn remark(volume: &Volume) -> Option<String> {
    let name = &volume.name;
    let is = match volume.health {
        VolumeHealth::Unavailable => "is NOT SERVED",
        _ if volume.problem.is_some() => "is served by other nodes, but NOT BY THIS NODE",
        _ => return None,
    };
    Some(format!("Volume {name} {is}: see `ursa volume show {name}`."))
}

#[cfg(test)]
mod tests {
    use terms::samples;

    use super::*;

    #[test]
    fn a_local_failure_is_distinguished_from_an_unavailable_volume() {
        let copies = || vec![samples::copy(0, 1, api::CopyState::InSync)];
        let failed = |health| Volume {
            problem: Some("a write to this copy failed".into()),
            serving: false,
            health,
            ..samples::volume("db", copies())
        };
        let here = failed(VolumeHealth::Degraded);
        assert_eq!(served(&here), "by other nodes, but NOT BY THIS NODE: a write to this copy failed");
        let said = remark(&here).unwrap();
        assert!(said.starts_with("Volume db is served by other nodes, but NOT BY"), "{said}");
        let gone = failed(VolumeHealth::Unavailable);
        assert_eq!(served(&gone), "NO: a write to this copy failed");
        assert_eq!(remark(&gone).unwrap(), "Volume db is NOT SERVED: see `ursa volume show db`.");
        let silent = Volume { problem: None, ..gone };
        assert_eq!(served(&silent), "NO: no node with a copy in sync responds");
        assert_eq!(remark(&silent).unwrap(), "Volume db is NOT SERVED: see `ursa volume show db`.");
        let well = samples::volume("db", copies());
        assert_eq!((served(&well).as_str(), remark(&well)), ("yes", None));
    }
}
