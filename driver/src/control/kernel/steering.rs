//! mlx5's flow steering in the firmware's terms: matchers, rules, header actions, anchors.

use uverbs_abi::Command;
use uverbs_abi::handle::mlx5::{DevxObj, FlowMatcher, SteeringAnchor};
use uverbs_abi::handle::{Flow, FlowAction, Qp};
use uverbs_abi::object::flow_action as core_action;
use uverbs_abi::object::mlx5::{
    CreateFlowFlags, FlowTableType, FlowType, PacketReformatType, flow, flow_action, flow_matcher,
    steering_anchor,
};

use super::{Errno, Uctx};

/// A matcher to make.
#[derive(Clone, Copy, Debug)]
pub struct CreateMatcher<'a> {
    /// Bits that rules look at, as the manual's `fte_match_param`.
    pub mask: &'a [u8],
    /// Kind of the rules.
    pub flow_type: FlowType,
    /// Priority of [`NORMAL`](FlowType::NORMAL) rules.
    pub priority: u16,
    /// Parts of the mask that are not zero, a bit each.
    pub criteria: u8,
    /// Flags of rules (`enum ib_flow_flags`).
    pub flow_flags: u32,
    /// Where the table stands, if it is another than where received packets go.
    pub table: Option<FlowTableType>,
}

/// A rule to make.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateRule<'a> {
    /// What it looks at.
    pub matcher: FlowMatcher,
    /// What the bits have to be; as long as the matcher's mask.
    pub value: &'a [u8],
    /// Where packets go.
    pub qp: Option<Qp>,
    /// Where packets go, instead.
    pub devx: Option<DevxObj>,
    /// What becomes of the headers.
    pub actions: &'a [FlowAction],
    /// Comes back in completions.
    pub tag: Option<u32>,
    /// What becomes of packets without a destination.
    pub flags: CreateFlowFlags,
    /// Counters, and which of each.
    pub counters: &'a [DevxObj],
    /// For each of [`counters`](Self::counters), the number in it.
    pub counter_offsets: &'a [u32],
}

impl Uctx {
    /// Makes a matcher.
    pub fn create_flow_matcher(&self, matcher: &CreateMatcher<'_>) -> Result<FlowMatcher, Errno> {
        use flow_matcher::create;
        let mut cmd = Command::new();
        cmd.new_handle(create::HANDLE)
            .slice(create::MATCH_MASK, matcher.mask)
            .input(create::MATCH_CRITERIA, matcher.criteria);
        if matcher.flow_type == FlowType::NORMAL {
            cmd.enumerated(create::FLOW_TYPE, matcher.flow_type, matcher.priority);
        } else {
            cmd.enumerated(create::FLOW_TYPE, matcher.flow_type, ());
        }
        if let Some(table) = matcher.table {
            cmd.constant(create::FT_TYPE, table);
        }
        if matcher.flow_flags != 0 {
            cmd.flags_as_u64(create::FLOW_FLAGS, matcher.flow_flags);
        }
        self.method(&mut cmd)?;
        Ok(cmd.handle(create::HANDLE)?)
    }

    /// Destroys a matcher. `EBUSY` while rules use it.
    pub fn destroy_flow_matcher(&self, handle: FlowMatcher) -> Result<(), Errno> {
        let mut cmd = Command::new();
        cmd.destroy(flow_matcher::destroy::HANDLE, handle);
        self.method(&mut cmd)
    }

    /// Makes a rule of a matcher; [`destroy_flow`](Self::destroy_flow) destroys it.
    pub fn create_flow_rule(&self, rule: &CreateRule<'_>) -> Result<Flow, Errno> {
        use flow::create;
        let mut cmd = Command::new();
        cmd.new_handle(create::HANDLE)
            .slice(create::MATCH_VALUE, rule.value)
            .object(create::MATCHER, rule.matcher);
        if let Some(qp) = rule.qp {
            cmd.object(create::DEST_QP, qp);
        }
        if let Some(devx) = rule.devx {
            cmd.object(create::DEST_DEVX, devx);
        }
        if let Some(tag) = rule.tag {
            cmd.input(create::TAG, tag);
        }
        if !rule.counters.is_empty() {
            cmd.objects(create::COUNTERS_DEVX, rule.counters)
                .slice(create::COUNTERS_DEVX_OFFSET, rule.counter_offsets);
        }
        if !rule.flags.is_empty() {
            cmd.flags(create::FLAGS, rule.flags);
        }
        if !rule.actions.is_empty() {
            cmd.objects(create::ACTIONS, rule.actions);
        }
        self.method(&mut cmd)?;
        Ok(cmd.handle(create::HANDLE)?)
    }

    /// Makes an action that changes fields; `actions` as the manual has them.
    pub fn create_modify_header(
        &self,
        table: FlowTableType,
        actions: &[[u8; 8]],
    ) -> Result<FlowAction, Errno> {
        use flow_action::modify_header as create;
        let mut cmd = Command::new();
        cmd.new_handle(create::HANDLE)
            .slice(create::ACTIONS, actions)
            .constant(create::FT_TYPE, table);
        self.method(&mut cmd)?;
        Ok(cmd.handle(create::HANDLE)?)
    }

    /// Makes an action that adds or removes a tunnel's headers.
    pub fn create_packet_reformat(
        &self,
        kind: PacketReformatType,
        table: FlowTableType,
        headers: &[u8],
    ) -> Result<FlowAction, Errno> {
        use flow_action::packet_reformat as create;
        let mut cmd = Command::new();
        cmd.new_handle(create::HANDLE);
        if !headers.is_empty() {
            cmd.slice(create::DATA, headers);
        }
        cmd.constant(create::TYPE, kind)
            .constant(create::FT_TYPE, table);
        self.method(&mut cmd)?;
        Ok(cmd.handle(create::HANDLE)?)
    }

    /// Destroys an action. `EBUSY` while rules use it.
    pub fn destroy_flow_action(&self, handle: FlowAction) -> Result<(), Errno> {
        let mut cmd = Command::new();
        cmd.destroy(core_action::destroy::HANDLE, handle);
        self.method(&mut cmd)
    }

    /// Makes a flow table that firmware commands may name; answers the device's number of it too.
    pub fn create_steering_anchor(
        &self,
        table: FlowTableType,
        priority: u16,
    ) -> Result<(SteeringAnchor, u32), Errno> {
        use steering_anchor::create;
        let mut cmd = Command::new();
        cmd.new_handle(create::HANDLE)
            .constant(create::FT_TYPE, table)
            .input(create::PRIORITY, priority)
            .output(create::FT_ID);
        self.method(&mut cmd)?;
        Ok((cmd.handle(create::HANDLE)?, cmd.get(create::FT_ID)?))
    }

    /// Destroys an anchor.
    pub fn destroy_steering_anchor(&self, handle: SteeringAnchor) -> Result<(), Errno> {
        let mut cmd = Command::new();
        cmd.destroy(steering_anchor::destroy::HANDLE, handle);
        self.method(&mut cmd)
    }
}
