//! Traces of commands, in the format of `mlx5_core`'s own dump, so that those of cards and of this device can be compared.
//!
//! The kernel prints such dumps with `modprobe mlx5_core debug_mask=1` and dynamic debugging of its `cmd.c`
//! (`dump_command`). Its log puts the device's name and a line number before some lines and nothing before others;
//! [`parse`] reads both, and what it has read prints without any of that.

use std::fmt;
use std::io::Write;

use log::warn;
use wqe_format::mlx5::firmware::Opcode;

/// Most bytes of a half that are written: the driver may claim to have made any room.
const LONGEST: usize = 1 << 20;

/// Bytes of a line.
const LINE: usize = 16;

/// Which half of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the driver wrote.
    Input,
    /// What the device answered.
    Output,
}

/// Input or output of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// Entry of the command queue.
    pub slot: u8,
    /// What was asked for.
    pub opcode: Opcode,
    /// Which half it is.
    pub direction: Direction,
    /// The bytes, in whole lines of 16.
    pub bytes: Vec<u8>,
}

impl Dump {
    /// The dump of `bytes`, which are filled up with zeros to `len`: the driver prints as much as it made room for.
    pub fn new(slot: u8, opcode: Opcode, direction: Direction, bytes: &[u8], len: usize) -> Dump {
        let mut bytes = bytes.to_vec();
        bytes.resize(len.max(1).next_multiple_of(LINE), 0);
        Dump {
            slot,
            opcode,
            direction,
            bytes,
        }
    }
}

/// The lines as the kernel prints them, without what its log puts before them.
impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dump { slot, opcode, .. } = self;
        let name = opcode.name().unwrap_or("unknown command opcode");
        let direction = match self.direction {
            Direction::Input => "INPUT",
            Direction::Output => "OUTPUT",
        };
        writeln!(f, "cmd[{slot}]: start dump")?;
        writeln!(
            f,
            "cmd[{slot}]: dump command data {name}({:#x}) {direction}",
            opcode.0
        )?;
        for (index, line) in self.bytes.chunks_exact(LINE).enumerate() {
            write!(f, "cmd[{slot}]: {:03x}:", index * LINE)?;
            for word in line.chunks_exact(4) {
                let word = word
                    .iter()
                    .fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
                write!(f, " {word:08x}")?;
            }
            writeln!(f)?;
        }
        writeln!(f)?;
        writeln!(f, "cmd[{slot}]: end dump")
    }
}

/// The dumps in a log of the kernel's or of this device's. Lines of anything else are passed over, and so are dumps that
/// are not whole; dumps of different slots may be interleaved.
pub fn parse(log: &str) -> Vec<Dump> {
    let mut open: Vec<Dump> = Vec::new();
    let mut done = Vec::new();
    for line in log.lines() {
        let Some((slot, rest)) = line.split_once("cmd[").and_then(|(_, rest)| {
            let (slot, rest) = rest.split_once("]: ")?;
            Some((slot.parse::<u8>().ok()?, rest.trim_end()))
        }) else {
            continue;
        };
        if let Some((opcode, direction)) = title(rest) {
            open.retain(|dump| dump.slot != slot);
            open.push(Dump {
                slot,
                opcode,
                direction,
                bytes: Vec::new(),
            });
        } else if let Some(at) = open.iter().position(|dump| dump.slot == slot) {
            if rest == "end dump" {
                done.push(open.remove(at));
            } else if let Some((offset, words)) = words(rest)
                && offset == open[at].bytes.len()
            {
                open[at].bytes.extend(words.map(u32::to_be_bytes).concat());
            }
        }
    }
    done
}

/// `dump command data NAME(0xOP) INPUT`.
fn title(rest: &str) -> Option<(Opcode, Direction)> {
    let rest = rest.strip_prefix("dump command data ")?;
    let (_, rest) = rest.split_once("(0x")?;
    let (number, direction) = rest.split_once(") ")?;
    let direction = match direction {
        "INPUT" => Direction::Input,
        "OUTPUT" => Direction::Output,
        _ => return None,
    };
    Some((Opcode(u16::from_str_radix(number, 16).ok()?), direction))
}

/// `000: 00000000 00000000 00000000 00000000`.
fn words(rest: &str) -> Option<(usize, [u32; 4])> {
    let (offset, rest) = rest.split_once(": ")?;
    let mut words = rest
        .split(' ')
        .map(|word| u32::from_str_radix(word, 16).ok());
    let mut next = || words.next().flatten();
    let words = [next()?, next()?, next()?, next()?];
    Some((usize::from_str_radix(offset, 16).ok()?, words))
}

/// Where a device's dumps go.
#[derive(Default)]
pub(crate) struct Trace {
    sink: Option<Box<dyn Write + Send>>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = self.sink.is_some();
        f.debug_struct("Trace").field("on", &on).finish()
    }
}

impl Trace {
    pub(crate) fn to(sink: Box<dyn Write + Send>) -> Trace {
        Trace { sink: Some(sink) }
    }

    /// Writes half a command. A sink that fails is not tried again.
    pub(crate) fn write(
        &mut self,
        slot: u8,
        opcode: Opcode,
        direction: Direction,
        bytes: &[u8],
        len: usize,
    ) {
        let Some(sink) = &mut self.sink else { return };
        let dump = Dump::new(slot, opcode, direction, bytes, len.min(LONGEST));
        let written = write!(sink, "{dump}").and_then(|()| sink.flush());
        if let Err(error) = written {
            warn!("the trace ends here: {error}");
            self.sink = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As `dmesg` shows it: `mlx5_core_dbg_mask` and `dev_dbg` put something before their lines, `pr_debug` only the
    /// module's name, if `dynamic_debug` is told so.
    const KERNEL: &str = "\
[    3.141592] mlx5_core 0000:01:00.0: dump_command:879:(pid 77): cmd[0]: start dump
[    3.141593] mlx5_core 0000:01:00.0: dump_command:883:(pid 77): cmd[0]: dump command data QUERY_ISSI(0x10a) INPUT
[    3.141594] cmd[0]: 000: 010a0000 00000000 00000000 00000000
[    3.141595] 
[    3.141596] mlx5_core 0000:01:00.0: dump_command:922:(pid 77): cmd[0]: end dump
[    3.141597] mlx5_core 0000:01:00.0: firmware version: 20.0.1
[    3.141598] mlx5_core 0000:01:00.0: dump_command:879:(pid 78): cmd[1]: start dump
[    3.141599] mlx5_core 0000:01:00.0: dump_command:883:(pid 78): cmd[1]: dump command data 2RST_QP(0x50a) OUTPUT
[    3.141600] cmd[1]: 000: 00000000 00000000 00000000 00000000
[    3.141601] 
[    3.141602] mlx5_core 0000:01:00.0: dump_command:922:(pid 78): cmd[1]: end dump
";

    #[test]
    fn the_kernels_log_is_read_and_ours_looks_like_it() {
        let read = parse(KERNEL);
        let mut input = [0; 16];
        input[..2].copy_from_slice(&[0x01, 0x0a]);
        let ours = [
            Dump::new(0, Opcode::QUERY_ISSI, Direction::Input, &input, 16),
            Dump::new(1, Opcode(0x50a), Direction::Output, &[0; 16], 16),
        ];
        assert_eq!(read, ours);
        let printed: Vec<String> = ours
            .iter()
            .flat_map(|dump| {
                dump.to_string()
                    .lines()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect();
        let kernel: Vec<&str> = KERNEL
            .lines()
            .filter(|line| !line.contains("firmware"))
            .map(|line| line.find("cmd[").map_or("", |at| &line[at..]))
            .collect();
        assert_eq!(printed, kernel);
    }

    #[test]
    fn unknown_commands_and_odd_lengths_have_dumps_too() {
        let dump = Dump::new(31, Opcode(0xffff), Direction::Input, &[0xff; 17], 17);
        let text = dump.to_string();
        assert!(
            text.contains("unknown command opcode(0xffff) INPUT"),
            "{text}"
        );
        assert!(text.contains("cmd[31]: 010: ff000000 00000000"), "{text}");
        assert_eq!(parse(&text), [dump]);
    }

    #[test]
    fn a_sink_that_fails_is_left_alone() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut trace = Trace::to(Box::new(Full));
        trace.write(0, Opcode::NOP, Direction::Input, &[0; 16], 16);
        assert!(trace.sink.is_none());
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(
            bytes in prop::collection::vec(any::<u8>(), 0..700),
            slot in 0..32_u8,
            opcode: u16,
            output: bool,
        ) {
            let direction = if output { Direction::Output } else { Direction::Input };
            let dump = Dump::new(slot, Opcode(opcode), direction, &bytes, bytes.len());
            prop_assert_eq!(parse(&dump.to_string()), [dump]);
        }

        #[test]
        fn no_log_makes_it_panic(log in "(cmd|\\[|\\]: |0|1f|dump command data X\\(0x1\\) INPUT|end dump|: |\n| ){0,60}") {
            let _ = parse(&log);
        }
    }
}
