//! Which blocks take space, as several nodes report it: a host that copies a volume skips the others.

use initiator::command::{GetLbaStatus, Provisioning};

use super::*;

/// A node is stopped while the others continue without it and a block is written for the first time.
///
/// Afterwards it must not answer from what it has: to report that the block takes no space would be as wrong
/// as old data.
#[test]
fn a_node_that_was_frozen_does_not_report_unwritten_blocks() {
    each_seed(5, |seed| {
        let cluster = Cluster::new(seed, 2, 1);
        cluster.add_volume(VolumeKind::Ram, 2);
        let (host, portals) = (cluster.client("host"), [cluster.portal(0), cluster.portal(1)]);
        let status_of = |session: Rc<Session>| async move {
            let status = session.send(LUN, &GetLbaStatus { lba: Lba(0) }).await?;
            Ok::<Provisioning, initiator::Error>(status[0].provisioning)
        };
        let sessions = cluster.world.block_on(host, CoreId(0), move || async move {
            let sessions =
                [log_in(portals[0], "host").await.unwrap(), log_in(portals[1], "host").await.unwrap()];
            assert_eq!(status_of(Rc::clone(&sessions[1])).await.unwrap(), Provisioning::Deallocated);
            sessions
        });
        cluster.world.pause(cluster.servers[0]);
        let [stands_still, goes_on] = sessions;
        cluster.world.block_on(host, CoreId(0), move || async move { write(&goes_on, 0, 1).await.unwrap() });
        let asked = cluster.world.spawn_on(host, CoreId(0), move || async move {
            let mut answers = Vec::new();
            // It reports new states of paths first, and may be out of service for a moment.
            while answers.len() < 20 {
                if let Ok(answer) = status_of(Rc::clone(&stands_still)).await {
                    answers.push(answer);
                }
                rt::sleep(Duration::from_micros(100)).await;
            }
            answers
        });
        cluster.world.run_for(Duration::from_millis(10));
        cluster.world.resume(cluster.servers[0]);
        let answers = cluster.world.wait_for(asked).expect("the host is there");
        assert!(answers.iter().all(|answer| *answer == Provisioning::Mapped), "{answers:?}");
    });
}
