//! Flow steering rules and the counters that they count into.

use uverbs_abi::Command;
use uverbs_abi::handle::{Counters, Flow, Qp};
use uverbs_abi::object::{counters, flow};
use uverbs_abi::types::ReadCountersFlags;
use uverbs_abi::udata::mlx5;
use uverbs_abi::write::WriteCall;
use uverbs_abi::write::flow::{CreateFlow, DestroyFlow, FlowAttr};
use zerocopy::IntoBytes;

use super::{Errno, Tried, Uctx};

/// Memory of one command: the kernel takes at most 10 specifications, of at most 88 bytes.
const WORDS: usize = 128;

impl Uctx {
    /// Makes a rule that gives packets to `qp`. `specs` are the specifications one after the other,
    /// `attr.num_of_specs` of them ([`uverbs_abi::write::flow`]); `attr.size` is theirs.
    pub fn create_flow(&self, qp: Qp, attr: &FlowAttr, specs: &[u8]) -> Result<Flow, Errno> {
        self.create_flow_by(qp, attr, specs, &[])
    }

    /// [`create_flow`](Self::create_flow) on mlx5, which wants to know with the first rule of a set of
    /// counters what each of them counts.
    pub fn create_flow_mlx5(
        &self,
        qp: Qp,
        attr: &FlowAttr,
        specs: &[u8],
        counters: Option<&[mlx5::FlowCountersDesc]>,
    ) -> Result<Flow, Errno> {
        if self.objects().is_some() && counters.is_some() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let mut input = [0_u64; 3];
        let bytes = input.as_mut_bytes();
        let (header, data) = bytes.split_at_mut(size_of::<mlx5::CreateFlow>());
        let Some(counters) = counters else {
            return self.create_flow_by(qp, attr, specs, header);
        };
        let count = u32::try_from(counters.len()).map_err(|_| Errno(libc::EINVAL))?;
        header.copy_from_slice(
            mlx5::CreateFlow {
                ncounters_data: 1,
                ..mlx5::CreateFlow::default()
            }
            .as_bytes(),
        );
        data.copy_from_slice(
            mlx5::FlowCountersData {
                // the kernel reads there during the call (K2), and `counters` outlives it
                counters_data: counters.as_ptr().expose_provenance() as u64,
                ncounters: count,
                ..mlx5::FlowCountersData::default()
            }
            .as_bytes(),
        );
        self.create_flow_by(qp, attr, specs, bytes)
    }

    fn create_flow_by(
        &self,
        qp: Qp,
        attr: &FlowAttr,
        specs: &[u8],
        input: &[u8],
    ) -> Result<Flow, Errno> {
        if let Some(objects) = self.objects() {
            return objects.create_flow(qp, attr, specs);
        }
        let mut attr = *attr;
        attr.size = u16::try_from(specs.len()).map_err(|_| Errno(libc::EINVAL))?;
        let mut call = WriteCall::<_, WORDS, 8>::with_capacity(CreateFlow {
            comp_mask: 0,
            qp_handle: qp,
            flow_attr: attr,
        });
        call.tail(specs).uhw_in(input);
        self.write(&mut call)?;
        Ok(call.response().flow_handle)
    }

    /// Destroys a rule.
    pub fn destroy_flow(&self, handle: Flow) -> Result<(), Errno> {
        if let Some(objects) = self.objects() {
            return objects.destroy_flow(handle);
        }
        let mut cmd = Command::new();
        cmd.destroy(flow::destroy::HANDLE, handle);
        match self.try_method(&mut cmd)? {
            Tried::Done => Ok(()),
            Tried::Unknown => self.simple(DestroyFlow {
                comp_mask: 0,
                flow_handle: handle,
            }),
        }
    }

    /// Makes a set of counters.
    pub fn create_counters(&self) -> Result<Counters, Errno> {
        use counters::create;
        let mut cmd = Command::new();
        cmd.new_handle(create::HANDLE);
        self.method(&mut cmd)?;
        Ok(cmd.handle(create::HANDLE)?)
    }

    /// Reads counters. `EINVAL` while nothing counts into them.
    pub fn read_counters(
        &self,
        handle: Counters,
        flags: ReadCountersFlags,
        values: &mut [u64],
    ) -> Result<(), Errno> {
        use counters::read;
        let mut cmd = Command::new();
        cmd.object(read::HANDLE, handle)
            .output_slice(read::BUFF, values)
            .flags(read::FLAGS, flags);
        self.method(&mut cmd)
    }

    /// Destroys a set of counters. `EBUSY` while rules count into it.
    pub fn destroy_counters(&self, handle: Counters) -> Result<(), Errno> {
        let mut cmd = Command::new();
        cmd.destroy(counters::destroy::HANDLE, handle);
        self.method(&mut cmd)
    }
}
