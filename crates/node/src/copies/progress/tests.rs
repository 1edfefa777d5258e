use replica::{NodeId, SyncFrom};

use super::super::entry::{StandingEntry, VolumeEntry};
use super::*;

const MIB: u64 = 1 << 20;

fn slot(number: usize) -> Slot {
    Slot::new(number).unwrap()
}

fn volume() -> VolumeEntry {
    use StandingEntry::{InSync, Outside};
    VolumeEntry::with_copies(&[(1, InSync), (2, InSync), (3, Outside)])
}

fn sync(slice: u16, left: u64, copied: u64, part: Part) -> SliceSync {
    let address = Address { volume: 7, slice };
    SliceSync {
        address,
        slot: slot(2),
        left_bytes: left,
        copied_bytes: copied,
        dirtied_bytes: 0,
        part,
        limited_by: None,
        no_room: false,
    }
}

fn local(slices: &[SliceSync]) -> Local {
    let mut local = Local::default();
    slices.iter().for_each(|slice| local.add(slice));
    local
}

fn at(millis: u64) -> Instant {
    Instant(1_000_000_000_000) + Duration::from_millis(millis)
}

fn who<'a>(volume: &'a VolumeEntry, kept_out: Option<&'a KeptOut>) -> Who<'a> {
    Who { volume, me: NodeId(1), copy: slot(2), kept_out }
}

fn report(progress: &Progress, millis: u64) -> Report {
    progress.report(at(millis), who(&volume(), None))
}

#[test]
fn a_sync_shows_its_rate_over_the_last_seconds_and_what_is_left() {
    let next = Part::Source(SyncNext::Read(3));
    let given = |copied: u64| local(&[sync(0, (100 - copied) * MIB, (40 + copied) * MIB, next)]);
    let mut progress = Progress::new(at(0), given(0));
    // Ten seconds with 1 MiB each, then four with 8 MiB each.
    (1..=100).for_each(|tenth| progress.observe(at(tenth * 100), given(tenth / 10)));
    let slow = report(&progress, 10_000);
    assert_eq!((slow.total, slow.left, slow.copied), (100 * MIB, 90 * MIB, 10 * MIB));
    assert!((900_000..1_300_000).contains(&slow.bytes_per_second), "{slow:?}");
    (1..=60).for_each(|tenth| progress.observe(at(10_000 + tenth * 100), given(10 + tenth * 8 / 10)));
    let fast = report(&progress, 16_000);
    assert!((7_500_000..9_200_000).contains(&fast.bytes_per_second), "{fast:?}");
    let shown = CopySync::of(&[&fast], Cause::Silent, || unreachable!());
    assert_eq!((shown.left_bytes, shown.copied_bytes, shown.waits_for.clone()), (42 * MIB, 58 * MIB, None));
    assert_eq!(shown.seconds_left(), Some(5));
    // Hosts' writes add to what there is to copy.
    progress.observe(at(16_100), local(&[sync(0, 50 * MIB, 98 * MIB, next)]));
    assert_eq!(report(&progress, 16_100).total, 108 * MIB);
}

#[test]
fn host_writes_increase_the_time_left() {
    let next = Part::Source(SyncNext::Read(3));
    // 8 MiB a second are copied, and `added` MiB a second are added.
    let shown = |added: u64| {
        let given = |tenth: u64| {
            let (copied, dirtied) = (tenth * 8 * MIB / 10, tenth * added * MIB / 10);
            let slice = sync(0, 100 * MIB + dirtied - copied, copied, next);
            local(&[SliceSync { dirtied_bytes: dirtied, ..slice }])
        };
        let mut progress = Progress::new(at(0), given(0));
        (1..=50).for_each(|tenth| progress.observe(at(tenth * 100), given(tenth)));
        CopySync::of(&[&report(&progress, 5000)], Cause::Silent, || unreachable!()).seconds_left()
    };
    assert_eq!((shown(0), shown(4)), (Some(7), Some(20)));
    assert_eq!((shown(8), shown(9)), (None, None));
}

#[test]
fn a_resync_that_waited_shows_its_present_rate() {
    let next = Part::Source(SyncNext::Read(3));
    let given = |copied: u64| local(&[sync(0, (100 - copied) * MIB, copied * MIB, next)]);
    let mut progress = Progress::new(at(0), given(0));
    let mut go = |from: u64, tenths: u64, copied: &dyn Fn(u64) -> u64| {
        (1..=tenths).for_each(|tenth| progress.observe(at(from + tenth * 100), given(copied(tenth))));
        report(&progress, from + tenths * 100).bytes_per_second / MIB
    };
    // Nothing for four seconds, then 10 MiB a second; the same again after a pause of three seconds.
    assert_eq!(go(0, 40, &|_| 0), 0);
    assert_eq!(go(4000, 10, &|tenth| tenth), 10);
    assert_eq!(go(5000, 10, &|tenth| 10 + tenth), 10);
    assert!(go(6000, 30, &|_| 20) < 10);
    assert_eq!(go(9000, 10, &|tenth| 20 + tenth), 10);
}

#[test]
fn a_stalled_resync_says_what_it_waits_for() {
    let waits = |next| {
        let still =
            local(&[sync(0, 0, 0, Part::Source(SyncNext::Admission)), sync(5, MIB, 0, Part::Source(next))]);
        let mut progress = Progress::new(at(0), still);
        progress.observe(at(1900), still);
        assert_eq!(report(&progress, 1900).waits_for, None);
        // Hosts' writes are more to copy, and no progress.
        progress.observe(at(1950), Local { given_left: still.given_left + 1, ..still });
        report(&progress, 12_000).waits_for.unwrap().to_string()
    };
    assert_eq!(
        waits(SyncNext::Read(9)),
        "the disks of its source, node 1, to read region 9 of slice 5, for 12 s"
    );
    assert_eq!(waits(SyncNext::Confirmed(9)), "node 3 to write region 9 of slice 5 to its disks, for 12 s");
    assert_eq!(waits(SyncNext::WritesEnd(9)), "host writes to region 9 of slice 5 to finish, for 12 s");
    assert_eq!(waits(SyncNext::Admission), "the cluster's record to admit it, for 12 s");
    let still = local(&[sync(0, 0, 0, Part::Source(SyncNext::Admission))]);
    let progress = Progress::new(at(0), still);
    let waits = |kept_out: KeptOut| {
        let report = progress.report(at(12_000), who(&volume(), Some(&kept_out)));
        let wire = serde_json::to_vec(&report).unwrap();
        assert_eq!(serde_json::from_slice::<Report>(&wire).unwrap(), report);
        // A wait that only a later version knows is not shown.
        let mut later: serde_json::Value = serde_json::from_slice(&wire).unwrap();
        later["waits_for"] = serde_json::json!({"awaited": "something_new"});
        let read: Report = serde_json::from_value(later).unwrap();
        assert_eq!(read, Report { waits_for: None, ..report.clone() });
        report.waits_for.unwrap().to_string()
    };
    assert_eq!(
        waits(KeptOut::Apart(NodeId(3), NodeId(2))),
        "node 3 and node 2 to reach each other over all links, for 12 s"
    );
    assert_eq!(
        waits(KeptOut::Quiet(NodeId(3), Duration::from_millis(310))),
        "310 ms to pass: leases that node 3 granted before its recent start may still be valid, for 12 s"
    );
    assert_eq!(
        waits(KeptOut::Penalty(Duration::from_millis(17_300))),
        "18 s to pass: it was too slow to finish writes when it was last in sync, for 12 s"
    );
}

#[test]
fn the_copy_itself_says_that_its_source_is_silent() {
    let own = |source, awaits_disk, silent_ticks| {
        let from = SyncFrom { source, awaits_disk, silent_ticks, failed: false };
        let progress = Progress::new(at(0), local(&[sync(0, MIB, 0, Part::Own(from))]));
        let report = report(&progress, 0);
        CopySync::of(&[&report], Cause::Silent, || unreachable!()).waits_for.map(|wait| wait.to_string())
    };
    assert_eq!(own(Some(slot(1)), false, 7), None);
    assert_eq!(own(Some(slot(1)), false, 48).unwrap(), "its source, node 2, to respond, for 12 s");
    assert_eq!(own(None, false, 8).unwrap(), "a link to a node whose copy is in sync");
    assert_eq!(own(None, true, 7), None);
    assert_eq!(own(None, true, 48).unwrap(), "its disks on node 1 to finish earlier writes, for 12 s");
}

#[test]
fn sources_are_added_up_and_override_observers() {
    let of = |slices: &[SliceSync]| report(&Progress::new(at(0), local(slices)), 0);
    let give = Part::Source(SyncNext::Pass);
    let first = of(&[sync(0, 10 * MIB, 0, give), sync(1, 70 * MIB, 0, Part::Witness)]);
    let second = of(&[sync(1, 20 * MIB, 0, give), sync(0, 60 * MIB, 0, Part::Witness)]);
    let from = SyncFrom { source: None, awaits_disk: false, silent_ticks: 99, failed: false };
    let own = of(&[sync(0, 99 * MIB, 0, Part::Own(from))]);
    let absent = || Awaited::Node(NodeId(3));
    let both = CopySync::of(&[&first, &second, &own], Cause::Silent, absent);
    assert_eq!((both.left_bytes, both.waits_for), (30 * MIB, None));
    let on_looker = of(&[sync(0, 60 * MIB, 0, Part::Witness), sync(1, MIB, 0, Part::Witness)]);
    let nobody = CopySync::of(&[&on_looker], Cause::Silent, absent);
    assert_eq!((nobody.left_bytes, nobody.waits_for.clone()), (61 * MIB, Some(absent().into())));
    assert_eq!(nobody.seconds_left(), None);
}

#[test]
fn old_reports_of_a_node_do_not_count() {
    let heard =
        ReceivedReports { at: at(0), reports: vec![report(&Progress::new(at(0), Local::default()), 0)] };
    assert_eq!((heard.fresh(at(3000)).len(), heard.fresh(at(3001)).len()), (1, 0));
}
