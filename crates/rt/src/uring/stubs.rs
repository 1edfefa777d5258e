#![allow(missing_docs, unused_variables)]
//! To be replaced.
use crate::{DiskError, Durability, OpenError, OpenOptions};
use base::{Buf, SendBatch, SharedBuf};
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;

pub struct Disk;
pub struct SharedDisk;
impl SharedDisk {
    pub fn open(&self) -> Disk {
        todo!()
    }
}
impl Disk {
    pub async fn open(path: &Path, options: OpenOptions) -> Result<Disk, OpenError> {
        todo!()
    }
    pub fn share(&self) -> SharedDisk {
        todo!()
    }
    pub fn size(&self) -> u64 {
        todo!()
    }
    pub fn block(&self) -> u32 {
        todo!()
    }
    pub async fn read(&self, offset: u64, buf: Buf) -> Result<Buf, DiskError> {
        todo!()
    }
    pub async fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> Result<(), DiskError> {
        todo!()
    }
    pub async fn flush(&self) -> Result<(), DiskError> {
        todo!()
    }
    pub async fn zero(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        todo!()
    }
    pub async fn allocated(&self, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, DiskError> {
        todo!()
    }
}
pub struct Listener;
impl Listener {
    pub fn bind(address: SocketAddr) -> io::Result<Listener> {
        todo!()
    }
    pub fn local_address(&self) -> SocketAddr {
        todo!()
    }
    pub async fn accept(&self) -> io::Result<(DetachedStream, SocketAddr)> {
        todo!()
    }
}
pub struct DetachedStream;
impl DetachedStream {
    pub fn attach(self) -> Stream {
        todo!()
    }
}
pub struct Stream;
pub struct Received;
impl Deref for Received {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}
impl Stream {
    pub async fn connect(address: SocketAddr) -> io::Result<Stream> {
        todo!()
    }
    pub fn peer_address(&self) -> SocketAddr {
        todo!()
    }
    pub fn local_address(&self) -> SocketAddr {
        todo!()
    }
    pub async fn receive(&self) -> io::Result<Received> {
        todo!()
    }
    pub async fn receive_exact(&self, buf: Buf, filled: usize) -> io::Result<Buf> {
        todo!()
    }
    pub async fn send(&self, batch: SendBatch) -> io::Result<SendBatch> {
        todo!()
    }
    pub fn shutdown(&self) {
        todo!()
    }
    pub async fn detach(self) -> DetachedStream {
        todo!()
    }
}
