//! Steering of received packets: tables of entries, which groups of them match by which bits.

use std::collections::BTreeMap;

use super::Table;

/// Bytes of `fte_match_param`.
pub(crate) const MATCH_LEN: usize = 0x200;
/// Tables a packet may pass: one for each level (`max_ft_level`), and the default table.
const LONGEST_WAY: usize = 129;
/// Tables of a level that a packet passes, and TIRs that get it, at most: as many as an entry may have destinations
/// (`log_max_destination`). Entries that each lead to two others would multiply without end.
const BRANCHES: usize = 256;

/// Entries that look at the same bits.
#[derive(Debug)]
pub(crate) struct FlowGroup {
    pub(crate) entries: std::ops::RangeInclusive<u32>,
    /// Which parts of `fte_match_param` count, 64 bytes each (`match_criteria_enable`).
    pub(crate) enable: u8,
    /// The bits of `fte_match_param` that are looked at.
    pub(crate) criteria: Vec<u8>,
}

/// Where an entry sends packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Table(u32),
    Tir(u32),
    /// A kind that this device hands nothing to.
    Other {
        kind: u8,
        number: u32,
    },
}

/// An entry.
#[derive(Clone, Debug)]
pub(crate) struct FlowEntry {
    pub(crate) group: u32,
    /// What completions of packets carry.
    pub(crate) tag: u32,
    /// `MLX5_FLOW_CONTEXT_ACTION_*`.
    pub(crate) action: u16,
    pub(crate) value: Vec<u8>,
    pub(crate) destinations: Vec<Destination>,
    pub(crate) counters: Vec<u32>,
    /// `flow_context` as it was given.
    pub(crate) context: Vec<u8>,
}

/// Actions of an entry.
pub(crate) mod action {
    pub(crate) const FORWARD: u16 = 4;
    pub(crate) const COUNT: u16 = 8;
}

/// A table.
#[derive(Debug)]
pub(crate) struct FlowTable {
    pub(crate) uid: u16,
    /// Where in the device it stands (`FS_FT_*` of the kernel: 0 is what a port receives).
    pub(crate) kind: u8,
    /// Packets go on to higher levels only.
    pub(crate) level: u8,
    pub(crate) log_size: u8,
    /// Where packets go on that no entry matches; `None` is the kind's default.
    pub(crate) miss: Option<u32>,
    pub(crate) groups: Table<FlowGroup>,
    pub(crate) entries: BTreeMap<u32, FlowEntry>,
}

/// What an entry counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowCounter {
    pub(crate) packets: u64,
    pub(crate) octets: u64,
}

/// All tables.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) tables: Table<FlowTable>,
    pub(crate) counters: Table<FlowCounter>,
    /// The first table of each kind.
    pub(crate) roots: BTreeMap<u8, u32>,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steered {
    pub(crate) tir: u32,
    pub(crate) tag: u32,
}

impl FlowGroup {
    /// Whether a packet has the bits that an entry wants.
    fn matches(&self, value: &[u8], packet: &[u8; MATCH_LEN]) -> bool {
        let bits = self.criteria.iter().zip(value).zip(packet);
        let looks_at = |index: usize| self.enable >> (index / 64).min(7) & 1 != 0;
        bits.enumerate().all(|(index, ((mask, value), packet))| {
            !looks_at(index) || (value ^ packet) & mask == 0
        })
    }
}

impl Flow {
    pub(crate) fn new() -> Flow {
        Flow {
            tables: Table::new(1, 1 << 16),
            counters: Table::new(1, 1 << 16),
            roots: BTreeMap::new(),
        }
    }

    /// Whether entries send packets to a TIR.
    pub(crate) fn reaches_tir(&self, tirn: u32) -> bool {
        let mut entries = self
            .tables
            .iter()
            .flat_map(|(_, table)| table.entries.values());
        entries.any(|entry| entry.destinations.contains(&Destination::Tir(tirn)))
    }

    /// Whether packets come to a table from elsewhere.
    pub(crate) fn reaches_table(&self, number: u32) -> bool {
        self.roots.values().any(|root| *root == number)
            || self.tables.iter().any(|(_, table)| {
                table.miss == Some(number)
                    || (table.entries.values())
                        .any(|entry| entry.destinations.contains(&Destination::Table(number)))
            })
    }

    /// Where a packet of `len` bytes goes, whose headers were put into a `fte_match_param`; what
    /// counts on its way counts it.
    pub(crate) fn steer(&mut self, kind: u8, packet: &[u8; MATCH_LEN], len: u64) -> Vec<Steered> {
        let mut steered = Vec::new();
        let mut tables: Vec<u32> = self.roots.get(&kind).copied().into_iter().collect();
        for _ in 0..LONGEST_WAY {
            let mut next = Vec::new();
            for number in tables {
                let Some(table) = self.tables.get(number) else {
                    continue;
                };
                let hit = table.entries.values().find(|entry| {
                    let group = table.groups.get(entry.group);
                    group.is_some_and(|group| group.matches(&entry.value, packet))
                });
                let Some(entry) = hit else {
                    next.extend(table.miss);
                    continue;
                };
                if entry.action & action::COUNT != 0 {
                    for counter in &entry.counters {
                        if let Some(counter) = self.counters.get_mut(*counter) {
                            counter.packets += 1;
                            counter.octets += len;
                        }
                    }
                }
                if entry.action & action::FORWARD == 0 {
                    continue;
                }
                for destination in &entry.destinations {
                    match *destination {
                        Destination::Table(number) => next.push(number),
                        Destination::Tir(tir) => steered.push(Steered {
                            tir,
                            tag: entry.tag,
                        }),
                        Destination::Other { .. } => {}
                    }
                }
            }
            if next.is_empty() || steered.len() >= BRANCHES {
                break;
            }
            next.truncate(BRANCHES);
            tables = next;
        }
        steered.truncate(BRANCHES);
        steered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(level: u8) -> FlowTable {
        FlowTable {
            uid: 0,
            kind: 0,
            level,
            log_size: 4,
            miss: None,
            groups: Table::new(0, 15),
            entries: BTreeMap::new(),
        }
    }

    fn entry(value: u8, destinations: Vec<Destination>, counters: Vec<u32>) -> FlowEntry {
        let mut bytes = vec![0; MATCH_LEN];
        bytes[5] = value;
        FlowEntry {
            group: 0,
            tag: value.into(),
            action: action::FORWARD | action::COUNT,
            value: bytes,
            destinations,
            counters,
            context: Vec::new(),
        }
    }

    #[test]
    fn packets_go_on_from_table_to_table() {
        let mut flow = Flow::new();
        let mut criteria = vec![0; MATCH_LEN];
        criteria[5] = 0xff;
        let group = || FlowGroup {
            entries: 0..=15,
            enable: 1,
            criteria: criteria.clone(),
        };
        let (mut first, mut second) = (table(1), table(2));
        first.groups.insert(0, group());
        second.groups.insert(0, group());
        first.entries.insert(
            3,
            entry(7, vec![Destination::Tir(9), Destination::Table(2)], vec![1]),
        );
        second
            .entries
            .insert(0, entry(7, vec![Destination::Tir(10)], vec![]));
        second
            .entries
            .insert(1, entry(8, vec![Destination::Tir(11)], vec![1]));
        first.miss = Some(2);
        flow.tables.insert(1, first);
        flow.tables.insert(2, second);
        flow.counters.insert(1, FlowCounter::default());
        flow.roots.insert(0, 1);
        let mut packet = [0xee; MATCH_LEN];
        packet[5] = 7;
        let both = [Steered { tir: 9, tag: 7 }, Steered { tir: 10, tag: 7 }];
        assert_eq!(flow.steer(0, &packet, 64), both);
        packet[5] = 8;
        assert_eq!(flow.steer(0, &packet, 60), [Steered { tir: 11, tag: 8 }]);
        packet[5] = 9;
        assert!(flow.steer(0, &packet, 60).is_empty());
        assert!(flow.steer(1, &packet, 60).is_empty());
        let counter = flow.counters.get(1).unwrap();
        assert_eq!((counter.packets, counter.octets), (2, 124));
    }

    #[test]
    fn a_circle_of_tables_ends() {
        let mut flow = Flow::new();
        let mut only = table(1);
        only.miss = Some(1);
        flow.tables.insert(1, only);
        flow.roots.insert(0, 1);
        assert!(flow.steer(0, &[0; MATCH_LEN], 60).is_empty());
    }

    #[test]
    fn branches_do_not_multiply() {
        let mut flow = Flow::new();
        let mut only = table(1);
        only.groups.insert(
            0,
            FlowGroup {
                entries: 0..=0,
                enable: 0,
                criteria: vec![0; MATCH_LEN],
            },
        );
        let destinations = vec![
            Destination::Table(1),
            Destination::Table(1),
            Destination::Tir(5),
        ];
        only.entries.insert(0, entry(0, destinations, Vec::new()));
        flow.tables.insert(1, only);
        flow.roots.insert(0, 1);
        let steered = flow.steer(0, &[0; MATCH_LEN], 60);
        assert_eq!(steered.len(), BRANCHES);
    }
}
