//! Flow tables, groups, entries and counters.

use wqe_format::mlx5::firmware::flow::counter::{
    AllocFlowCounterIn, AllocFlowCounterOut, DeallocFlowCounterIn, QueryFlowCounterIn,
    QueryFlowCounterOut,
};
use wqe_format::mlx5::firmware::flow::entry::{
    DeleteFteIn, FlowContext, QueryFteIn, QueryFteOut, SetFteIn,
};
use wqe_format::mlx5::firmware::flow::group::{
    CreateFlowGroupIn, CreateFlowGroupOut, DestroyFlowGroupIn,
};
use wqe_format::mlx5::firmware::flow::table::{
    CreateFlowTableIn, CreateFlowTableOut, DestroyFlowTableIn, FlowTableContext, ModifyFlowTableIn,
    SetFlowTableRootIn,
};

use super::refusal::{
    Refusal, bad_index, bad_parameter, bad_resource, bad_state, busy, limit, no_resources,
};
use super::{Reply, done, owner};
use crate::device::Device;
use crate::resources::flow::action;
use crate::resources::{Destination, FlowCounter, FlowEntry, FlowGroup, FlowTable, Table};

/// Largest table, and highest level, as the capabilities tell.
const LOG_LARGEST: u8 = 16;
const LEVELS: u8 = 128;
/// Counters of one `ALLOC_FLOW_COUNTER`, at most.
const BULK: u32 = 128;
/// `table_miss_action`: on to `table_miss_id` (`MLX5_FLOW_TABLE_MISS_ACTION_FWD`).
const MISS_FORWARD: u8 = 1;
/// `destination_type` (`MLX5_IFC_FLOW_DESTINATION_TYPE_*`).
const TO_TABLE: u8 = 1;
const TO_TIR: u8 = 2;
/// `op_mod` of `SET_FLOW_TABLE_ROOT` (`MLX5_FLOW_TABLE_ROOT_OPMOD_*`).
const CONNECT: u16 = 0;
const DISCONNECT: u16 = 1;
/// `op_mod` of `SET_FLOW_TABLE_ENTRY`, and what a change changes
/// (`MLX5_SET_FTE_MODIFY_ENABLE_MASK_*`).
const ENTRY_NEW: u16 = 0;
const ENTRY_CHANGED: u16 = 1;
const CHANGES_ACTION: u8 = 1;
const CHANGES_TAG: u8 = 2;
const CHANGES_DESTINATIONS: u8 = 4;
const CHANGES_COUNTERS: u8 = 8;

/// What is sent and received by a port, sniffers, what RDMA receives and sends
/// (`FS_FT_*` of the kernel's `fs_core.h`).
fn kind(kind: u8) -> Result<u8, Refusal> {
    match kind {
        0 | 1 | 5..=8 => Ok(kind),
        _ => Err(bad_parameter("there are no flow tables of this kind")),
    }
}

/// A table of a kind that who sent the command may use.
fn table<'a>(
    device: &'a mut Device,
    input: &[u8],
    kind: u8,
    number: u32,
) -> Result<&'a mut FlowTable, Refusal> {
    let table = device
        .resources
        .flow
        .tables
        .get_mut(number)
        .filter(|table| table.kind == kind);
    owner::check(input, table.as_ref().map(|table| table.uid))?;
    table.ok_or(bad_resource("there is no such flow table"))
}

/// Where packets go that a table doesn't match.
fn miss(
    device: &mut Device,
    input: &[u8],
    kind: u8,
    context: &FlowTableContext<&[u8]>,
) -> Result<Option<u32>, Refusal> {
    if context.table_miss_action() != MISS_FORWARD {
        return Ok(None);
    }
    table(device, input, kind, context.table_miss_id())?;
    Ok(Some(context.table_miss_id()))
}

pub(super) fn create_table(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateFlowTableIn::new(input)?;
    let (kind, context) = (kind(view.table_type())?, view.flow_table_context());
    if context.log_size() > LOG_LARGEST || context.level() >= LEVELS {
        return Err(limit("the table is too large or its level too high"));
    }
    let new = FlowTable {
        uid: owner::uid(input),
        kind,
        level: context.level(),
        log_size: context.log_size(),
        miss: miss(device, input, kind, &context)?,
        groups: Table::new(0, 0xffff),
        entries: Default::default(),
    };
    let tables = &mut device.resources.flow.tables;
    let number = tables
        .free_number()
        .ok_or(no_resources("no flow table is left"))?;
    tables.insert(number, new);
    let mut output = CreateFlowTableOut::zeroed();
    output.set_table_id(number);
    Ok(output.into_inner().to_vec())
}

pub(super) fn modify_table(device: &mut Device, input: &[u8]) -> Reply {
    const MISS: u16 = 1;
    let view = ModifyFlowTableIn::new(input)?;
    let (kind, select) = (view.table_type(), view.modify_field_select());
    table(device, input, kind, view.table_id())?;
    if select & MISS != 0 {
        let miss = miss(device, input, kind, &view.flow_table_context())?;
        table(device, input, kind, view.table_id())?.miss = miss;
    }
    done()
}

pub(super) fn destroy_table(device: &mut Device, input: &[u8]) -> Reply {
    let view = DestroyFlowTableIn::new(input)?;
    let number = view.table_id();
    let table = table(device, input, view.table_type(), number)?;
    if table.groups.iter().next().is_some() {
        return Err(busy("the flow table has groups"));
    }
    if device.resources.flow.reaches_table(number) {
        return Err(busy("packets come to the flow table"));
    }
    device.resources.flow.tables.remove(number);
    done()
}

pub(super) fn set_root(device: &mut Device, input: &[u8]) -> Reply {
    let view = SetFlowTableRootIn::new(input)?;
    let kind = kind(view.table_type())?;
    match view.op_mod() {
        CONNECT => {
            table(device, input, kind, view.table_id())?;
            device.resources.flow.roots.insert(kind, view.table_id());
        }
        DISCONNECT => {
            device.resources.flow.roots.remove(&kind);
        }
        _ => return Err(bad_parameter("a root is connected or not")),
    }
    done()
}

pub(super) fn create_group(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateFlowGroupIn::new(input)?;
    let entries = view.start_flow_index()..=view.end_flow_index();
    let criteria = view.match_criteria().as_bytes().to_vec();
    let enable = view.match_criteria_enable();
    let table = table(device, input, view.table_type(), view.table_id())?;
    if entries.is_empty() || entries.end() >> table.log_size != 0 {
        return Err(bad_index("the group is not inside the flow table"));
    }
    let overlaps = |group: &FlowGroup| {
        group.entries.start() <= entries.end() && entries.start() <= group.entries.end()
    };
    if table.groups.iter().any(|(_, group)| overlaps(group)) {
        return Err(bad_parameter("another group has some of the entries"));
    }
    let number = table
        .groups
        .free_number()
        .ok_or(no_resources("no group is left"))?;
    table.groups.insert(
        number,
        FlowGroup {
            entries,
            enable,
            criteria,
        },
    );
    let mut output = CreateFlowGroupOut::zeroed();
    output.set_group_id(number);
    Ok(output.into_inner().to_vec())
}

pub(super) fn destroy_group(device: &mut Device, input: &[u8]) -> Reply {
    let view = DestroyFlowGroupIn::new(input)?;
    let number = view.group_id();
    let table = table(device, input, view.table_type(), view.table_id())?;
    if table.entries.values().any(|entry| entry.group == number) {
        return Err(busy("the group has entries"));
    }
    table
        .groups
        .remove(number)
        .ok_or(bad_resource("there is no such group"))?;
    done()
}

/// An entry's destinations and counters, which follow its context.
fn lists(
    device: &Device,
    input: &[u8],
    context: &FlowContext<&[u8]>,
) -> Result<(Vec<Destination>, Vec<u32>), Refusal> {
    if context.extended_destination() {
        return Err(bad_parameter("extended destinations are not offered"));
    }
    let mut list = owner::addresses(&input[SetFteIn::SIZE..]);
    let mut destinations = Vec::new();
    for _ in 0..context.destination_list_size() {
        let word = list
            .next()
            .ok_or(bad_parameter("there are fewer destinations"))?;
        let (kind, number) = ((word >> 56) as u8, (word >> 32) as u32 & 0xff_ffff);
        let flow = &device.resources.flow;
        let destination = match kind {
            TO_TABLE if flow.tables.get(number).is_some() => Destination::Table(number),
            TO_TIR if device.resources.steering.tirs.get(number).is_some() => {
                Destination::Tir(number)
            }
            TO_TABLE | TO_TIR => return Err(bad_resource("there is no such destination")),
            kind => Destination::Other { kind, number },
        };
        destinations.push(destination);
    }
    let mut counters = Vec::new();
    for _ in 0..context.flow_counter_list_size() {
        let word = list
            .next()
            .ok_or(bad_parameter("there are fewer counters"))?;
        let number = (word >> 32) as u32;
        if device.resources.flow.counters.get(number).is_none() {
            return Err(bad_resource("there is no such flow counter"));
        }
        counters.push(number);
    }
    Ok((destinations, counters))
}

pub(super) fn set_entry(device: &mut Device, input: &[u8]) -> Reply {
    let view = SetFteIn::new(input)?;
    let (index, context) = (view.flow_index(), view.flow_context());
    let (destinations, counters) = lists(device, input, &context)?;
    let levels: Vec<u8> = destinations
        .iter()
        .filter_map(|destination| match destination {
            Destination::Table(number) => device.resources.flow.tables.get(*number),
            _ => None,
        })
        .map(|table| table.level)
        .collect();
    let table = table(device, input, view.table_type(), view.table_id())?;
    if !view.ignore_flow_level() && levels.iter().any(|level| *level <= table.level) {
        return Err(bad_parameter("packets go on to higher levels only"));
    }
    if context.action() & action::FORWARD != 0 && destinations.is_empty() {
        return Err(bad_parameter("packets are sent on to nowhere"));
    }
    let new = FlowEntry {
        group: context.group_id(),
        tag: context.flow_tag(),
        action: context.action(),
        value: context.match_value().as_bytes().to_vec(),
        destinations,
        counters,
        context: context.as_bytes().to_vec(),
    };
    match view.op_mod() {
        ENTRY_NEW => {
            let group = table.groups.get(new.group);
            let group = group.ok_or(bad_resource("there is no such group"))?;
            if !group.entries.contains(&index) {
                return Err(bad_index("the entry is not inside its group"));
            }
            if table.entries.contains_key(&index) {
                return Err(bad_state("the entry is there already"));
            }
            table.entries.insert(index, new);
        }
        ENTRY_CHANGED => {
            let entry = table.entries.get_mut(&index);
            let entry = entry.ok_or(bad_resource("there is no such entry"))?;
            let mask = view.modify_enable_mask();
            if mask & CHANGES_ACTION != 0 {
                entry.action = new.action;
            }
            if mask & CHANGES_TAG != 0 {
                entry.tag = new.tag;
            }
            if mask & CHANGES_DESTINATIONS != 0 {
                entry.destinations = new.destinations;
            }
            if mask & CHANGES_COUNTERS != 0 {
                entry.counters = new.counters;
            }
        }
        _ => return Err(bad_parameter("an entry is set or changed")),
    }
    done()
}

pub(super) fn query_entry(device: &mut Device, input: &[u8]) -> Reply {
    let view = QueryFteIn::new(input)?;
    let table = table(device, input, view.table_type(), view.table_id())?;
    let entry = table.entries.get(&view.flow_index());
    let entry = entry.ok_or(bad_resource("there is no such entry"))?;
    let mut output = QueryFteOut::zeroed();
    output
        .flow_context_mut()
        .as_bytes_mut()
        .copy_from_slice(&entry.context);
    Ok(output.into_inner().to_vec())
}

pub(super) fn delete_entry(device: &mut Device, input: &[u8]) -> Reply {
    let view = DeleteFteIn::new(input)?;
    let table = table(device, input, view.table_type(), view.table_id())?;
    table
        .entries
        .remove(&view.flow_index())
        .ok_or(bad_resource("there is no such entry"))?;
    done()
}

/// `flow_counter_bulk` has a bit for each power of two from 128 on; 0 is one counter.
pub(super) fn alloc_counter(device: &mut Device, input: &[u8]) -> Reply {
    let view = AllocFlowCounterIn::new(input)?;
    let count = match view.flow_counter_bulk() {
        0 => 1,
        1 => BULK,
        _ => return Err(limit("so many flow counters at once are not offered")),
    };
    let counters = &mut device.resources.flow.counters;
    let mut numbers: Vec<u32> = Vec::new();
    // Counters of a bulk follow each other: where they don't, it begins again, a bounded time.
    for _ in 0..8 * BULK {
        let number = counters
            .free_number()
            .ok_or(no_resources("no flow counter is left"))?;
        if numbers.last().is_some_and(|last| last + 1 != number) {
            numbers.clear();
        }
        numbers.push(number);
        if numbers.len() == count as usize {
            break;
        }
    }
    if numbers.len() != count as usize {
        return Err(no_resources(
            "no flow counters are left that follow each other",
        ));
    }
    for number in &numbers {
        counters.insert(*number, FlowCounter::default());
    }
    let mut output = AllocFlowCounterOut::zeroed();
    output.set_flow_counter_id(numbers[0]);
    Ok(output.into_inner().to_vec())
}

pub(super) fn dealloc_counter(device: &mut Device, input: &[u8]) -> Reply {
    let number = DeallocFlowCounterIn::new(input)?.flow_counter_id();
    let flow = &mut device.resources.flow;
    let mut entries = flow
        .tables
        .iter()
        .flat_map(|(_, table)| table.entries.values());
    if entries.any(|entry| entry.counters.contains(&number)) {
        return Err(busy("entries count in the flow counter"));
    }
    flow.counters
        .remove(number)
        .ok_or(bad_resource("there is no such flow counter"))?;
    done()
}

pub(super) fn query_counter(device: &mut Device, input: &[u8]) -> Reply {
    let view = QueryFlowCounterIn::new(input)?;
    let first = view.flow_counter_id();
    let count = u32::from(view.num_of_counters()).clamp(1, BULK);
    let mut output = QueryFlowCounterOut::zeroed().into_inner().to_vec();
    for number in (0..count).map(|index| first.wrapping_add(index)) {
        let counter = device.resources.flow.counters.get_mut(number);
        let counter = counter.ok_or(bad_resource("there is no such flow counter"))?;
        output.extend(counter.packets.to_be_bytes());
        output.extend(counter.octets.to_be_bytes());
        if view.clear() {
            *counter = FlowCounter::default();
        }
    }
    Ok(output)
}
