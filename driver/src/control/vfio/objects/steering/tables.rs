//! Flow tables of what the port receives: a table for each priority that has rules, chained by where packets go that a table
//! does not match.

use std::collections::BTreeMap;

use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::flow::entry::{DeleteFteIn, SetFteIn};
use wqe_format::mlx5::firmware::flow::group::{
    CreateFlowGroupIn, CreateFlowGroupOut, DestroyFlowGroupIn,
};
use wqe_format::mlx5::firmware::flow::table::{
    CreateFlowTableIn, CreateFlowTableOut, DestroyFlowTableIn, ModifyFlowTableIn,
    SetFlowTableRootIn,
};

use super::Target;
use super::specs::Match;
use crate::control::vfio::objects::Platform;
use crate::sys::errno::Errno;

/// `table_type` of what a port receives (`FS_FT_NIC_RX` of the kernel's `fs_core.h`).
const RECEIVED: u8 = 0;
/// Entries of a group and of a table, as logarithms: so many groups of different masks.
const LOG_GROUP: u32 = 6;
const LOG_TABLE: u32 = 10;
/// `op_mod` of SET_FLOW_TABLE_ROOT, which takes the root away, and of SET_FLOW_TABLE_ENTRY, which changes an entry
/// (`MLX5_FLOW_TABLE_ROOT_OPMOD_*`, `enum fs_cmd`).
const DISCONNECT: u16 = 1;
const CHANGE: u16 = 1;
/// What of an entry is changed: what is done, and where packets go (`MLX5_SET_FTE_MODIFY_ENABLE_MASK_*`).
const CHANGES: u8 = 1 << 0 | 1 << 2;
/// `table_miss_action`: on to another table (`MLX5_FLOW_TABLE_MISS_ACTION_FWD`), and what MODIFY_FLOW_TABLE changes.
const FORWARD_MISS: u8 = 1;
const MISS_TABLE: u16 = 1 << 0;
/// `flow_context.action` (`MLX5_FLOW_CONTEXT_ACTION_*`).
const DROP: u16 = 1 << 1;
const FORWARD: u16 = 1 << 2;
/// `destination_type` (`MLX5_IFC_FLOW_DESTINATION_TYPE_TIR`).
const TO_TIR: u64 = 2;

/// The tables there are, by priority.
#[derive(Debug, Default)]
pub(super) struct Tables {
    tables: BTreeMap<u8, Table>,
}

#[derive(Debug)]
struct Table {
    number: u32,
    /// Groups by their place in the table.
    groups: BTreeMap<u32, Group>,
}

/// Entries that look at the same bits.
#[derive(Debug)]
struct Group {
    number: u32,
    enable: u8,
    mask: Box<[u8; 512]>,
    /// By their place in the table.
    entries: BTreeMap<u32, Entry>,
}

#[derive(Debug)]
struct Entry {
    wants: Match,
    tag: u32,
    /// Rules that share it.
    targets: Vec<Target>,
}

fn run(platform: &dyn Platform, input: &[u8]) -> Result<(), Errno> {
    Ok(platform.execute(input, &mut [0; 16])?)
}

impl Tables {
    /// Adds what a rule wants. `ENOSPC` if rules of a priority look at packets in too many ways, `EINVAL` if other rules want the
    /// same packets with another tag.
    pub(super) fn add(
        &mut self,
        platform: &dyn Platform,
        priority: u8,
        wants: &Match,
        target: Target,
        tag: u32,
    ) -> Result<(), Errno> {
        if !self.tables.contains_key(&priority) {
            let table = self.make_table(platform, priority)?;
            self.tables.insert(priority, table);
        }
        let table = self.tables.get_mut(&priority).ok_or(Errno(libc::EIO))?;
        let added = table.add(platform, wants, target, tag);
        if added.is_err() {
            self.tidy(platform, priority)?;
        }
        added
    }

    /// Takes away what a rule wanted.
    pub(super) fn remove(
        &mut self,
        platform: &dyn Platform,
        priority: u8,
        wants: &Match,
        target: Target,
    ) -> Result<(), Errno> {
        let table = self.tables.get_mut(&priority).ok_or(Errno(libc::EINVAL))?;
        table.remove(platform, wants, target)?;
        self.tidy(platform, priority)
    }

    /// The table that packets come to behind a priority.
    fn behind(&self, priority: u8) -> Option<u32> {
        let mut later = self.tables.range(priority + 1..);
        later.next().map(|(_, table)| table.number)
    }

    /// Makes the table of a priority, between those before and behind it.
    fn make_table(&self, platform: &dyn Platform, priority: u8) -> Result<Table, Errno> {
        let mut command = CreateFlowTableIn::zeroed();
        command
            .set_opcode(Opcode::CREATE_FLOW_TABLE.0)
            .set_table_type(RECEIVED);
        let mut context = command.flow_table_context_mut();
        context
            .set_level(priority + 1)
            .set_log_size(LOG_TABLE as u8);
        if let Some(behind) = self.behind(priority) {
            context
                .set_table_miss_action(FORWARD_MISS)
                .set_table_miss_id(behind);
        }
        let mut output = CreateFlowTableOut::zeroed();
        platform.execute(command.as_bytes(), output.as_bytes_mut())?;
        let number = output.table_id();
        if let Err(errno) = self.lead(platform, priority, Some(number)) {
            // it has not been reached yet
            let _ = destroy_table(platform, number);
            return Err(errno);
        }
        Ok(Table {
            number,
            groups: BTreeMap::new(),
        })
    }

    /// Leads packets that come from before a priority to a table, or nowhere.
    fn lead(&self, platform: &dyn Platform, priority: u8, to: Option<u32>) -> Result<(), Errno> {
        let before = self.tables.range(..priority).next_back();
        let Some((_, before)) = before else {
            let mut command = SetFlowTableRootIn::zeroed();
            command
                .set_opcode(Opcode::SET_FLOW_TABLE_ROOT.0)
                .set_op_mod(if to.is_some() { 0 } else { DISCONNECT })
                .set_table_type(RECEIVED)
                .set_table_id(to.unwrap_or(0));
            return run(platform, command.as_bytes());
        };
        let mut command = ModifyFlowTableIn::zeroed();
        command
            .set_opcode(Opcode::MODIFY_FLOW_TABLE.0)
            .set_table_type(RECEIVED)
            .set_table_id(before.number)
            .set_modify_field_select(MISS_TABLE);
        if let Some(to) = to {
            { command.flow_table_context_mut() }
                .set_table_miss_action(FORWARD_MISS)
                .set_table_miss_id(to);
        }
        run(platform, command.as_bytes())
    }

    /// Destroys the table of a priority if it is empty.
    fn tidy(&mut self, platform: &dyn Platform, priority: u8) -> Result<(), Errno> {
        let Some(table) = self.tables.get(&priority) else {
            return Ok(());
        };
        if !table.groups.is_empty() {
            return Ok(());
        }
        let number = table.number;
        self.lead(platform, priority, self.behind(priority))?;
        destroy_table(platform, number)?;
        self.tables.remove(&priority);
        Ok(())
    }
}

fn destroy_table(platform: &dyn Platform, number: u32) -> Result<(), Errno> {
    let mut command = DestroyFlowTableIn::zeroed();
    command
        .set_opcode(Opcode::DESTROY_FLOW_TABLE.0)
        .set_table_type(RECEIVED)
        .set_table_id(number);
    run(platform, command.as_bytes())
}

impl Table {
    fn add(
        &mut self,
        platform: &dyn Platform,
        wants: &Match,
        target: Target,
        tag: u32,
    ) -> Result<(), Errno> {
        let number = self.number;
        if let Some((group, index, entry)) = self.find(wants) {
            if entry.tag != tag {
                return Err(Errno(libc::EINVAL));
            }
            entry.targets.push(target);
            let set = entry.set(platform, (number, group, index), CHANGE);
            if set.is_err() {
                entry.targets.pop();
            }
            return set;
        }
        let first = self.room(platform, wants)?;
        let group = self.groups.get_mut(&first).ok_or(Errno(libc::EIO))?;
        let mut places = first..first + (1 << LOG_GROUP);
        let free = places.find(|index| !group.entries.contains_key(index));
        let index = free.ok_or(Errno(libc::ENOSPC))?;
        let entry = Entry {
            wants: wants.clone(),
            tag,
            targets: vec![target],
        };
        let set = entry.set(platform, (number, group.number, index), 0);
        if set.is_ok() {
            group.entries.insert(index, entry);
        } else {
            self.tidy(platform, first)?;
        }
        set
    }

    /// The entry that wants the same, its group's number and its place.
    fn find(&mut self, wants: &Match) -> Option<(u32, u32, &mut Entry)> {
        self.groups.values_mut().find_map(|group| {
            let number = group.number;
            let mut entries = group.entries.iter_mut();
            let (index, entry) = entries.find(|(_, entry)| entry.wants == *wants)?;
            Some((number, *index, entry))
        })
    }

    /// The place of a group that looks at the same bits and has room, which is made if there is none.
    fn room(&mut self, platform: &dyn Platform, wants: &Match) -> Result<u32, Errno> {
        let looks_alike = |group: &Group| group.enable == wants.enable && group.mask == wants.mask;
        let room = (self.groups.iter())
            .find(|(_, group)| looks_alike(group) && group.entries.len() < 1 << LOG_GROUP);
        if let Some((first, _)) = room {
            return Ok(*first);
        }
        let mut places = (0..1 << LOG_TABLE).step_by(1 << LOG_GROUP);
        let free = places.find(|first| !self.groups.contains_key(first));
        let first = free.ok_or(Errno(libc::ENOSPC))?;
        let mut command = CreateFlowGroupIn::zeroed();
        command
            .set_opcode(Opcode::CREATE_FLOW_GROUP.0)
            .set_table_type(RECEIVED)
            .set_table_id(self.number)
            .set_start_flow_index(first)
            .set_end_flow_index(first + (1 << LOG_GROUP) - 1)
            .set_match_criteria_enable(wants.enable);
        { command.match_criteria_mut() }
            .as_bytes_mut()
            .copy_from_slice(&wants.mask[..]);
        let mut output = CreateFlowGroupOut::zeroed();
        platform.execute(command.as_bytes(), output.as_bytes_mut())?;
        self.groups.insert(
            first,
            Group {
                number: output.group_id(),
                enable: wants.enable,
                mask: wants.mask.clone(),
                entries: BTreeMap::new(),
            },
        );
        Ok(first)
    }

    fn remove(
        &mut self,
        platform: &dyn Platform,
        wants: &Match,
        target: Target,
    ) -> Result<(), Errno> {
        let table = self.number;
        let (group, index, entry) = self.find(wants).ok_or(Errno(libc::EINVAL))?;
        let at = entry.targets.iter().position(|other| *other == target);
        let at = at.ok_or(Errno(libc::EINVAL))?;
        if entry.targets.len() > 1 {
            let target = entry.targets.remove(at);
            let set = entry.set(platform, (table, group, index), CHANGE);
            if set.is_err() {
                entry.targets.insert(at, target);
            }
            return set;
        }
        let mut command = DeleteFteIn::zeroed();
        command
            .set_opcode(Opcode::DELETE_FLOW_TABLE_ENTRY.0)
            .set_table_type(RECEIVED)
            .set_table_id(table)
            .set_flow_index(index);
        run(platform, command.as_bytes())?;
        let first = index >> LOG_GROUP << LOG_GROUP;
        if let Some(group) = self.groups.get_mut(&first) {
            group.entries.remove(&index);
        }
        self.tidy(platform, first)
    }

    /// Destroys the group at a place if it is empty.
    fn tidy(&mut self, platform: &dyn Platform, first: u32) -> Result<(), Errno> {
        let Some(group) = self.groups.get(&first) else {
            return Ok(());
        };
        if !group.entries.is_empty() {
            return Ok(());
        }
        let mut command = DestroyFlowGroupIn::zeroed();
        command
            .set_opcode(Opcode::DESTROY_FLOW_GROUP.0)
            .set_table_type(RECEIVED)
            .set_table_id(self.number)
            .set_group_id(group.number);
        run(platform, command.as_bytes())?;
        self.groups.remove(&first);
        Ok(())
    }
}

impl Entry {
    /// Writes the entry: a new one, or a change of it.
    fn set(
        &self,
        platform: &dyn Platform,
        (table, group, index): (u32, u32, u32),
        op_mod: u16,
    ) -> Result<(), Errno> {
        // each TIR once, however many rules want it
        let mut tirs = Vec::new();
        for target in &self.targets {
            if let Target::Tir(tir) = target
                && !tirs.contains(tir)
            {
                tirs.push(*tir);
            }
        }
        let mut bytes = vec![0; SetFteIn::SIZE + tirs.len() * 8];
        for (place, tir) in bytes[SetFteIn::SIZE..].chunks_exact_mut(8).zip(&tirs) {
            let destination = TO_TIR << 56 | u64::from(*tir) << 32;
            place.copy_from_slice(&destination.to_be_bytes());
        }
        let mut command = SetFteIn::new(&mut bytes[..]).map_err(|_| Errno(libc::EINVAL))?;
        command
            .set_opcode(Opcode::SET_FLOW_TABLE_ENTRY.0)
            .set_op_mod(op_mod)
            .set_table_type(RECEIVED)
            .set_table_id(table)
            .set_flow_index(index);
        if op_mod == CHANGE {
            command.set_modify_enable_mask(CHANGES);
        }
        let mut context = command.flow_context_mut();
        context
            .set_group_id(group)
            .set_flow_tag(self.tag)
            // a rule that drops does so for those beside it only if nobody else wants the packets
            .set_action(if tirs.is_empty() { DROP } else { FORWARD })
            .set_destination_list_size(tirs.len() as u32);
        { context.match_value_mut() }
            .as_bytes_mut()
            .copy_from_slice(&self.wants.value[..]);
        run(platform, &bytes)
    }
}
