//! Everything behind the fake kernel's lock.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use oxverbs::sys::Errno;
use uverbs_abi::types::EventType;

use crate::config::{Config, Lie};
use crate::core::objects::{Device, FileId, Object, Qp, Srq};
use crate::event::{self, EventFile, EventKind};
use crate::fault::Faults;
use crate::mlx5;
use crate::raw;
use crate::record::Recorder;
use crate::rxe::ring::{Producer, Ring};

/// An open device file.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) inode: Option<u64>,
    /// Whether `GET_CONTEXT` was called.
    pub(crate) is_made: bool,
    /// By handle. The lowest free number is given first, so 0 is a handle.
    pub(crate) objects: BTreeMap<u32, Object>,
    /// Queues that may be mapped once: offset and bytes.
    pub(crate) pending: Vec<(u64, usize)>,
    /// What the driver mlx5 keeps.
    pub(crate) mlx5: mlx5::ucontext::Ucontext,
    /// The first asynchronous event file, for objects that name none.
    pub(crate) async_file: Option<FileId>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: BTreeMap<RawFd, Context>,
    pub(crate) files: BTreeMap<FileId, EventFile>,
    next_file: FileId,
    /// The program's mappings made through the seam: address and bytes.
    pub(crate) mappings: BTreeMap<usize, usize>,
    pub(crate) faults: Faults,
    pub(crate) recorder: Recorder,
    pub(crate) doorbells: u64,
    /// Whether a thread waits for the next deadline.
    pub(crate) has_timer: bool,
}

/// What is alive in the fake kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of what is counted")]
pub struct Census {
    pub contexts: usize,
    pub event_files: usize,
    pub mappings: usize,
    pub pds: usize,
    pub mrs: usize,
    pub mws: usize,
    pub cqs: usize,
    pub qps: usize,
    pub srqs: usize,
    pub ahs: usize,
    pub xrcds: usize,
    pub wqs: usize,
    pub ind_tables: usize,
    pub flows: usize,
    pub dms: usize,
    pub counters: usize,
    pub uars: usize,
}

impl Census {
    /// Whether nothing is alive.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Number of objects with handles.
    pub fn objects(&self) -> usize {
        let common = self.pds
            + self.mrs
            + self.mws
            + self.cqs
            + self.qps
            + self.srqs
            + self.ahs
            + self.xrcds;
        let receive = self.wqs + self.ind_tables + self.flows + self.counters;
        common + receive + self.dms + self.uars
    }
}

impl State {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            devices: (0..config.devices)
                .map(|index| Device::new(index, &config))
                .collect(),
            config,
            contexts: BTreeMap::new(),
            files: BTreeMap::new(),
            next_file: 0,
            mappings: BTreeMap::new(),
            faults: Faults::default(),
            recorder: Recorder::default(),
            doorbells: 0,
            has_timer: false,
        }
    }

    /// The open device file with that number. One that was closed past the seam is ended first.
    pub(crate) fn context(&mut self, fd: RawFd) -> Result<&mut Context, Errno> {
        let stale = self
            .contexts
            .get(&fd)
            .is_some_and(|context| raw::inode(fd) != context.inode);
        if stale {
            self.end_context(fd);
        }
        self.contexts.get_mut(&fd).ok_or(Errno(libc::EBADF))
    }

    /// The device of an open file.
    pub(crate) fn device(&mut self, fd: RawFd) -> Result<&mut Device, Errno> {
        let index = self.context(fd)?.device;
        Ok(&mut self.devices[index])
    }

    /// What a handle stands for.
    pub(crate) fn object(&mut self, fd: RawFd, handle: u32) -> Result<Object, Errno> {
        let context = self.context(fd)?;
        context
            .objects
            .get(&handle)
            .copied()
            .ok_or(Errno(libc::ENOENT))
    }

    /// Gives an object the lowest free handle.
    pub(crate) fn add_object(&mut self, fd: RawFd, object: Object) -> Result<u32, Errno> {
        let context = self.context(fd)?;
        let objects = &context.objects;
        let count = objects.len() as u32;
        // Without a gap the next one is free, which is told without looking at each.
        let handle = match objects.last_key_value() {
            Some((last, _)) if *last + 1 != count => (0..)
                .find(|handle| !objects.contains_key(handle))
                .unwrap_or(0),
            _ => count,
        };
        context.objects.insert(handle, object);
        Ok(handle)
    }

    /// The number that a created object's handle is answered as.
    pub(crate) fn told_handle(&self, handle: u32) -> u32 {
        match self.config.lie {
            Some(Lie::Handle(other)) => other,
            _ => handle,
        }
    }

    /// A queue that the program may map.
    pub(crate) fn new_ring(
        &mut self,
        fd: RawFd,
        entries: u32,
        entry: usize,
        producer: Producer,
    ) -> Result<Ring, Errno> {
        let offset = self.device(fd)?.next_offset;
        let ring = Ring::new(fd, offset, entries, entry, producer)?;
        self.device(fd)?.next_offset += ring.len() as u64;
        self.context(fd)?.pending.push((offset, ring.len()));
        if let Some(lie) = self.config.lie {
            ring.lie(lie);
        }
        Ok(ring)
    }

    pub(crate) fn new_file(&mut self, kind: EventKind) -> Result<(FileId, RawFd), Errno> {
        let file = EventFile::new(kind)?;
        let fd = file.fd;
        self.next_file += 1;
        self.files.insert(self.next_file, file);
        Ok((self.next_file, fd))
    }

    /// The event file behind the program's descriptor.
    pub(crate) fn file_of(&self, fd: RawFd) -> Option<FileId> {
        let mut files = self.files.iter();
        files.find(|(_, file)| file.is(fd)).map(|(id, _)| *id)
    }

    /// Like [`file_of`](Self::file_of), as a command takes it.
    pub(crate) fn expect_file(&self, fd: RawFd, kind: EventKind) -> Result<FileId, Errno> {
        self.file_of(fd)
            .filter(|id| self.files[id].kind == kind)
            .ok_or(Errno(libc::EBADF))
    }

    /// Sends an asynchronous event; says whether it has a file to go to.
    pub(crate) fn send_async(
        &mut self,
        file: Option<FileId>,
        element: u64,
        event: EventType,
    ) -> bool {
        let Some(file) = file.and_then(|id| self.files.get_mut(&id)) else {
            return false;
        };
        file.push(&event::async_record(element, event));
        true
    }

    /// An event of a queue pair; says whether it has a file to go to.
    pub(crate) fn send_qp_event(&mut self, index: usize, qpn: u32, event: EventType) -> bool {
        let Some(qp) = self.devices[index].qps.get(&qpn) else {
            return false;
        };
        let sent = self.send_async(qp.async_file, qp.user_handle, event);
        if let Some(qp) = self.devices[index].qps.get_mut(&qpn) {
            qp.async_events += u32::from(sent);
        }
        sent
    }

    /// Event files that the program has closed are gone.
    pub(crate) fn reap(&mut self) {
        self.files.retain(|_, file| !file.is_closed());
        let stale: Vec<_> = self
            .contexts
            .iter()
            .filter(|(fd, context)| raw::inode(**fd) != context.inode)
            .map(|(fd, _)| *fd)
            .collect();
        for fd in stale {
            self.end_context(fd);
        }
    }

    pub(crate) fn census(&mut self) -> Census {
        self.reap();
        let sum = |count: fn(&Device) -> usize| self.devices.iter().map(count).sum();
        Census {
            contexts: self.contexts.len(),
            event_files: self.files.len(),
            mappings: self.mappings.len(),
            pds: sum(|device| device.pds.len()),
            mrs: sum(|device| device.mrs.len()),
            mws: sum(|device| device.mws.len()),
            cqs: sum(|device| device.cqs.len()),
            qps: sum(|device| device.qps.len()),
            srqs: sum(|device| device.srqs.len()),
            ahs: sum(|device| device.ahs.len()),
            xrcds: sum(|device| device.xrcds.len()),
            wqs: sum(|device| device.wqs.len()),
            ind_tables: sum(|device| device.ind_tables.len()),
            flows: sum(|device| device.flows.len()),
            dms: sum(|device| device.dms.len()),
            counters: sum(|device| device.counters.len()),
            uars: (self.contexts.values())
                .map(|context| context.mlx5.uars.objects.len())
                .sum(),
        }
    }
}

/// A queue pair stops using what it was made from.
pub(crate) fn release_qp(device: &mut Device, qp: &Qp) {
    for cq in [qp.send_cq, qp.recv_cq].into_iter().flatten() {
        if let Some(cq) = device.cqs.get_mut(&cq) {
            cq.users = cq.users.saturating_sub(1);
        }
    }
    if let Some(srq) = qp.srq.and_then(|srq| device.srqs.get_mut(&srq)) {
        srq.users = srq.users.saturating_sub(1);
    }
    if let Some(pd) = qp.pd {
        release_pd(device, pd);
    }
    if let Some(xrcd) = qp.xrcd.and_then(|xrcd| device.xrcds.get_mut(&xrcd)) {
        xrcd.users = xrcd.users.saturating_sub(1);
    }
    let table = qp
        .ind_table
        .and_then(|table| device.ind_tables.get_mut(&table));
    if let Some(table) = table {
        table.users = table.users.saturating_sub(1);
    }
}

/// A shared receive queue stops using what it was made from.
pub(crate) fn release_srq(device: &mut Device, srq: &Srq) {
    release_pd(device, srq.pd);
    if let Some(xrcd) = srq.xrcd.and_then(|xrcd| device.xrcds.get_mut(&xrcd)) {
        xrcd.users = xrcd.users.saturating_sub(1);
    }
    if let Some(cq) = srq.cq.and_then(|cq| device.cqs.get_mut(&cq)) {
        cq.users = cq.users.saturating_sub(1);
    }
}

/// An object stops using its protection domain.
pub(crate) fn release_pd(device: &mut Device, pd: u32) {
    if let Some(pd) = device.pds.get_mut(&pd) {
        pd.users = pd.users.saturating_sub(1);
    }
}
