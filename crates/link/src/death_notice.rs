//! Reports, in a node's name, that a life of it is over.
//!
//! A process that was killed cannot report that, but its watcher can: it has the node's credentials, which
//! prove that it speaks for this node and no other. It makes a connection of its own to each node, sends a
//! hello of the life that is over, and gets the other's hello as the answer.

use std::io;
use std::net::SocketAddr;

use replica::{Incarnation, NodeId};
use rt::Stream;

use crate::hello::{Hello, Opening, PREAMBLE_BYTES, Preamble, Purpose, Refusal, Refused};
use crate::tls::Configs;
use crate::wire::{Wire, WireError};
use crate::{ClusterId, Limits, LinkTrouble, NodeCredentials, Protocol, Role, Versions};

/// A life of a node that is over.
pub struct DeathNotice {
    cluster: ClusterId,
    node: NodeId,
    incarnation: Incarnation,
    tls: Option<Configs>,
}

/// Why a node was not notified.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum DeathNoticeError {
    #[error("the credentials are not valid")]
    Tls(#[source] rustls::Error),
    #[error("cannot connect to {0}: {1}")]
    Unreached(SocketAddr, LinkTrouble),
    #[error("refused: {0}")]
    Refused(Refusal),
}

impl DeathNotice {
    /// The end of this life of the node that has these credentials.
    pub fn new(
        credentials: &NodeCredentials,
        incarnation: Incarnation,
    ) -> Result<DeathNotice, DeathNoticeError> {
        let tls = Some(Configs::new(credentials).map_err(DeathNoticeError::Tls)?);
        Ok(DeathNotice { cluster: credentials.cluster(), node: credentials.node(), incarnation, tls })
    }

    /// The same without credentials, for simulated worlds: nodes that have credentials refuse it.
    pub fn unproven(cluster: ClusterId, node: NodeId, incarnation: Incarnation) -> DeathNotice {
        DeathNotice { cluster, node, incarnation, tls: None }
    }

    /// Notifies the node that listens at the address. When this returns, that node has acted on it.
    pub async fn tell(
        &self,
        to: NodeId,
        address: SocketAddr,
        limits: &Limits,
    ) -> Result<(), DeathNoticeError> {
        let unreached = |error: WireError| DeathNoticeError::Unreached(address, error.trouble());
        let exchange = async {
            let stream = Stream::connect(address, limits.connect).await?;
            let mut wire = Wire::new(stream, Versions::CURRENT);
            let tls = self.tls.is_some();
            wire.send(&Preamble { versions: wire.versions(), purpose: Purpose::DeathNotice, tls }.encode())
                .await?;
            if let Some(tls) = &self.tls {
                wire.start_tls(tls.client(to)?).await?;
            }
            wire.send(&self.hello(to).encode()).await?;
            let opening: [u8; PREAMBLE_BYTES] = wire.receive().await?;
            if let Opening::Refused(refusal, theirs) = Opening::parse(opening, wire.versions()) {
                return Err(WireError::Refused(Refused { refusal, ours: wire.versions(), theirs }));
            }
            Hello::read(&mut wire, opening).await
        };
        let late = |_| unreached(WireError::Io(io::ErrorKind::TimedOut.into()));
        let answer = rt::timeout(limits.handshake, exchange).await.map_err(late)?.map_err(unreached)?;
        match answer {
            Some(Hello { refusal: None, .. }) => Ok(()),
            Some(Hello { refusal: Some(refusal), .. }) => Err(DeathNoticeError::Refused(refusal)),
            None => Err(unreached(WireError::Closed)),
        }
    }

    fn hello(&self, to: NodeId) -> Hello {
        Hello {
            role: Role::Control,
            number: 0,
            refusal: None,
            cluster: self.cluster,
            from: self.node,
            to,
            cores: 1,
            incarnation: self.incarnation,
            attempt: 0,
            // A life is over in every generation: a node's number is never reused.
            generation: 0,
            protocol: Protocol::default(),
        }
    }
}
