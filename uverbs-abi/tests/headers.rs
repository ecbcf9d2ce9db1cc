//! Every number of this crate against the C headers that it comes from.
//!
//! The system's `/usr/include` is one witness; `OXVERBS_UAPI_HEADERS=dir[:dir]` names further include
//! directories, each with `rdma/` and `linux/` in it, such as those of another release's
//! linux-libc-dev, and `OXVERBS_RDMA_CORE_SRC=dir[:dir]` source trees of rdma-core, which has a copy. What a
//! tree is too old to know is skipped by name and version.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use test_support::c::{compile_and_run, include_dirs};
use test_support::skip::skip_part;
use uverbs_abi::udata::mlx5;
use uverbs_abi::{layout, netlink, object, types, write};

const HEADERS: &[&str] = &[
    "rdma/ib_user_ioctl_cmds.h",
    "rdma/ib_user_ioctl_verbs.h",
    "rdma/ib_user_verbs.h",
    "rdma/mlx5-abi.h",
    "rdma/mlx5_user_ioctl_cmds.h",
    "rdma/mlx5_user_ioctl_verbs.h",
    "rdma/rdma_netlink.h",
    "rdma/rdma_user_ioctl.h",
    "rdma/rdma_user_ioctl_cmds.h",
    "rdma/rdma_user_rxe.h",
];

/// What headers before 6.12 may lack.
const SINCE_6_12: &[&str] = &[
    "IB_UVERBS_ACCESS_FLUSH_GLOBAL",
    "IB_UVERBS_ACCESS_FLUSH_PERSISTENT",
    "IB_UVERBS_DEVICE_ATOMIC_WRITE",
    "IB_UVERBS_DEVICE_FLUSH_GLOBAL",
    "IB_UVERBS_DEVICE_FLUSH_PERSISTENT",
    "IB_UVERBS_WC_ATOMIC_WRITE",
    "IB_UVERBS_WC_FLUSH",
    "IB_UVERBS_WR_ATOMIC_WRITE",
    "IB_UVERBS_WR_FLUSH",
    "MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX",
    "MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH",
    "MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS",
    "MLX5_IB_METHOD_GET_DATA_DIRECT_SYSFS_PATH",
    "MLX5_IB_UAPI_DM_TYPE_ENCAP_SW_ICM",
    "MLX5_IB_UAPI_REG_DMABUF_ACCESS_DATA_DIRECT",
    "RDMA_DRIVER_MANA",
    "RDMA_NLDEV_ATTR_DEV_TYPE",
    "RDMA_NLDEV_ATTR_DRIVER_DETAILS",
    "RDMA_NLDEV_ATTR_EVENT_TYPE",
    "RDMA_NLDEV_ATTR_NAME_ASSIGN_TYPE",
    "RDMA_NLDEV_ATTR_PARENT_NAME",
    "RDMA_NLDEV_ATTR_RES_SUBTYPE",
    "RDMA_NLDEV_CMD_DELDEV",
    "RDMA_NLDEV_CMD_MONITOR",
    "RDMA_NLDEV_CMD_NEWDEV",
    "RDMA_NLDEV_CMD_RES_SRQ_GET_RAW",
    "RDMA_NLDEV_SYS_ATTR_MONITOR_MODE",
    "RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE",
    "ib_uverbs_query_port_resp_ex.active_speed_ex",
    "mlx5_ib_query_device_resp.reg_c0",
];

/// What headers before 6.13 lack.
const SINCE_6_13: &[&str] = &[
    "MLX5_IB_MODIFY_QP_OOO_DP",
    "MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP",
];

/// A tree of headers.
struct Tree {
    dir: PathBuf,
    /// `KERNEL_VERSION(a, b, _)`.
    version: (u32, u32),
    /// Text of [`HEADERS`].
    text: String,
    /// What was left out, for one line when the test is done with the tree.
    absent: RefCell<Vec<String>>,
}

impl Drop for Tree {
    fn drop(&mut self) {
        let absent = self.absent.borrow();
        if !absent.is_empty() {
            skip_part(
                &format!("uverbs-abi::headers::{}.{}", self.version.0, self.version.1),
                &format!(
                    "{} not in the {}: {}",
                    absent.len(),
                    self.name(),
                    absent.join(", ")
                ),
            );
        }
    }
}

impl Tree {
    fn read(dir: &Path) -> Self {
        let path = dir.join("linux/version.h");
        let version =
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let code = version
            .lines()
            .find_map(|line| line.strip_prefix("#define LINUX_VERSION_CODE "))
            .and_then(|code| code.trim().parse::<u32>().ok())
            .expect("linux/version.h says its version");
        Self::of_version(dir, (code >> 16, code >> 8 & 0xff))
    }

    fn of_version(dir: &Path, version: (u32, u32)) -> Self {
        let read = |name: &str| {
            let path = dir.join(name);
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        Self {
            dir: dir.to_owned(),
            version,
            text: HEADERS.iter().map(|name| read(name)).collect(),
            absent: RefCell::default(),
        }
    }

    /// Installed headers and Debian's packages of them.
    fn packaged() -> Vec<Self> {
        let mut dirs = vec![PathBuf::from("/usr/include")];
        dirs.extend(include_dirs("OXVERBS_UAPI_HEADERS"));
        dirs.iter().map(|dir| Self::read(dir)).collect()
    }

    fn all() -> Vec<Self> {
        let mut trees = Self::packaged();
        // rdma-core carries the headers of the kernel of its day; since release 55 that of 6.13 or later
        for source in include_dirs("OXVERBS_RDMA_CORE_SRC") {
            let tree = Self::of_version(&source.join("kernel-headers"), (6, 13));
            if tree.has("MLX5_IB_MODIFY_QP_OOO_DP") {
                trees.push(tree);
            }
        }
        trees
    }

    fn name(&self) -> String {
        format!("headers of Linux {}.{}", self.version.0, self.version.1)
    }

    /// Whether a word is in the headers, or in the struct before its dot.
    fn has(&self, identifier: &str) -> bool {
        let (text, identifier) = match identifier.split_once('.') {
            Some((tag, field)) => {
                let start = self.text.find(&format!("struct {tag} {{"));
                let body = start.map_or("", |at| &self.text[at..]);
                (body.split("};").next().unwrap_or_default(), field)
            }
            None => (&*self.text, identifier),
        };
        text.split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| word == identifier)
    }

    /// Whether to leave `identifier` out, which is noted.
    fn skips(&self, identifier: &str) -> bool {
        let young = self.version < (6, 12) && SINCE_6_12.contains(&identifier)
            || self.version < (6, 13) && SINCE_6_13.contains(&identifier);
        let absent = young && !self.has(identifier);
        if absent {
            self.absent.borrow_mut().push(identifier.to_owned());
        }
        absent
    }

    /// Compiles a `main` with `body` against this tree; each line that it prints is `key value…`.
    fn witness(&self, body: &str) -> BTreeMap<String, String> {
        let mut source = String::from("#include <stddef.h>\n#include <stdio.h>\n");
        source.push_str("#include <linux/netlink.h>\n");
        for header in HEADERS {
            writeln!(source, "#include <{header}>").unwrap();
        }
        // packages name the architecture's own headers in a directory beside the common ones
        let own = self
            .dir
            .join(format!("{}-linux-gnu", std::env::consts::ARCH));
        writeln!(source, "int main(void) {{\n{body}return 0;\n}}").unwrap();
        let output = compile_and_run(&source, &[&own, &self.dir])
            .unwrap_or_else(|e| panic!("{}: {e}", self.name()));
        output
            .lines()
            .map(|line| {
                let (key, value) = line.split_once(' ').expect("a key and a value");
                (key.to_owned(), value.to_owned())
            })
            .collect()
    }
}

/// Where C's name of a field differs from ours.
fn c_field(c_struct: &str, field: &str) -> String {
    match (c_struct, field) {
        ("ib_uverbs_attr", "elem_id" | "reserved") => format!("attr_data.enum_data.{field}"),
        _ => field.trim_start_matches("r#").to_owned(),
    }
}

#[test]
fn sizes_and_offsets() {
    let structs = layout::ALL.iter().flat_map(|(_, layouts)| layouts.iter());
    for tree in Tree::all() {
        let mut body = String::new();
        let mut expected = BTreeMap::new();
        for layout in structs.clone() {
            // an unnamed struct is written as its parent and the member that it is
            let (place, base) = match layout.c_name.split_once("::") {
                Some((parent, member)) => (
                    format!("((struct {parent} *)0)->{member}"),
                    format!("offsetof(struct {parent}, {member})"),
                ),
                None => (format!("(*(struct {} *)0)", layout.c_name), "0".to_owned()),
            };
            let key = layout.c_name;
            writeln!(body, r#"printf("{key} %zu\n", sizeof({place}));"#).unwrap();
            let mut size = layout.size;
            if key == "mlx5_ib_query_device_resp" && !tree.has("mlx5_ib_query_device_resp.reg_c0") {
                size -= 8; // the last field
            }
            expected.insert(key.to_owned(), size.to_string());
            for field in layout.fields {
                let name = format!("{}.{}", layout.c_name, field.name);
                if field.name == "padding" || tree.skips(&name) {
                    continue;
                }
                if layout.c_name == "ib_uverbs_query_port_resp_ex"
                    && field.name == "reserved"
                    && !tree.has("ib_uverbs_query_port_resp_ex.active_speed_ex")
                {
                    continue; // six bytes there, of which four became active_speed_ex
                }
                let c = c_field(layout.c_name, field.name);
                let address = format!("(size_t)&({place}.{c}) - {base}");
                let key = format!("{}.{}", layout.c_name, field.name);
                writeln!(
                    body,
                    r#"printf("{key} %zu+%zu\n", {address}, sizeof({place}.{c}));"#
                )
                .unwrap();
                expected.insert(key, format!("{}+{}", field.offset, field.size));
            }
        }
        assert_eq!(tree.witness(&body), expected, "{}", tree.name());
        println!(
            "{}: {} structs and fields agree",
            tree.name(),
            expected.len()
        );
    }
}

/// Names and numbers of `rdma/mlx5-abi.h`.
const MLX5: [&[(&str, u64)]; 23] = [
    mlx5::mmap::MmapCommand::NAMES,
    &[
        ("MLX5_IB_CLOCK_INFO_V1", mlx5::CLOCK_INFO_V1 as u64),
        (
            "MLX5_IB_CLOCK_INFO_KERNEL_UPDATING",
            mlx5::CLOCK_INFO_KERNEL_UPDATING as u64,
        ),
    ],
    mlx5::AllocUcontextFlags::NAMES,
    mlx5::LibCaps::NAMES,
    mlx5::AllocUcontextRespMask::NAMES,
    mlx5::CmdsSuppUhw::NAMES,
    mlx5::InlineMode::NAMES,
    mlx5::FlowActionFlags::NAMES,
    mlx5::CqeCompFormat::NAMES,
    mlx5::PacketPacingCapFlags::NAMES,
    mlx5::MpwCaps::NAMES,
    mlx5::SwParsingOffloads::NAMES,
    mlx5::QueryDeviceFlags::NAMES,
    mlx5::TunnelOffloads::NAMES,
    mlx5::RxHashFunction::NAMES,
    mlx5::RxHashFields::NAMES,
    mlx5::CreateCqFlags::NAMES,
    mlx5::CreateSrqFlags::NAMES,
    mlx5::CreateQpFlags::NAMES,
    mlx5::CreateQpRespMask::NAMES,
    mlx5::ModifyQpMask::NAMES,
    mlx5::CreateWqMask::NAMES,
    mlx5::CreateWqFlags::NAMES,
];

/// Names and numbers of mlx5's objects and values in `rdma/mlx5_user_ioctl_{cmds,verbs}.h`; those of methods
/// and attributes are in the object tree.
const MLX5_OBJECTS: [&[(&str, u64)]; 13] = [
    object::mlx5::OBJECT_NAMES,
    object::mlx5::UarAllocType::NAMES,
    object::mlx5::DmType::NAMES,
    object::mlx5::FlowTableType::NAMES,
    object::mlx5::PacketReformatType::NAMES,
    object::mlx5::FlowType::NAMES,
    object::mlx5::DevxEventChannelFlags::NAMES,
    object::mlx5::PpAllocFlags::NAMES,
    object::mlx5::RegDmabufFlags::NAMES,
    object::mlx5::CreateFlowFlags::NAMES,
    object::mlx5::FlowActionFlags::NAMES,
    object::mlx5::QueryPortFlags::NAMES,
    &[(
        "MLX5_IB_DW_MATCH_PARAM",
        object::mlx5::DW_MATCH_PARAM as u64,
    )],
];

/// Names and numbers that uapi headers have.
fn numbers() -> BTreeMap<&'static str, u64> {
    use netlink::nldev;
    let mut all = BTreeMap::new();
    let mut add = |name, number| {
        let before = all.insert(name, number);
        assert!(before.is_none_or(|b| b == number), "{name} has two numbers");
    };
    let lists = [
        object::Object::NAMES,
        types::DriverId::NAMES,
        types::QpType::NAMES,
        types::SrqType::NAMES,
        types::WqType::NAMES,
        types::AdviseMrAdvice::NAMES,
        types::WrOpcode::NAMES,
        types::WcOpcode::NAMES,
        types::GidType::NAMES,
        types::EspKeymat::NAMES,
        types::EspIvAlgo::NAMES,
        types::EspReplay::NAMES,
        types::AccessFlags::NAMES,
        types::DeviceCapFlags::NAMES,
        types::RawPacketCaps::NAMES,
        types::PortCapFlags::NAMES,
        types::CoreSupport::NAMES,
        types::CreateCqFlags::NAMES,
        types::CreateQpFlags::NAMES,
        types::WqFlags::NAMES,
        types::AdviseMrFlags::NAMES,
        types::ReadCountersFlags::NAMES,
        types::QueryPortFlags::NAMES,
        types::EspFlags::NAMES,
        nldev::Command::NAMES,
        nldev::Attr::NAMES,
    ];
    let lists = lists.into_iter().chain(MLX5).chain(MLX5_OBJECTS);
    for (name, number) in lists.flatten() {
        add(*name, *number);
    }
    for (_, attributes) in object::mlx5::extra::ATTRIBUTES {
        for attr in *attributes {
            add(attr.name, attr.id.into());
        }
    }
    for (_, methods) in object::OBJECTS.iter().chain(object::mlx5::OBJECTS) {
        for method in *methods {
            add(method.name, method.id.into());
            for attr in method.attributes {
                add(attr.name, attr.id.into());
            }
        }
    }
    for spec in write::COMMANDS.iter().flat_map(|module| module.iter()) {
        add(spec.name, spec.number.into());
    }
    use uverbs_abi::ioctl::wire;
    add("RDMA_VERBS_IOCTL", wire::RDMA_VERBS_IOCTL);
    add("UVERBS_ATTR_F_MANDATORY", wire::ATTR_F_MANDATORY.into());
    add(
        "UVERBS_ATTR_F_VALID_OUTPUT",
        wire::ATTR_F_VALID_OUTPUT.into(),
    );
    add("UVERBS_ATTR_UHW_IN", wire::ATTR_UHW_IN.into());
    add("UVERBS_ATTR_UHW_OUT", wire::ATTR_UHW_OUT.into());
    add(
        "IB_USER_VERBS_CMD_FLAG_EXTENDED",
        write::frame::FLAG_EXTENDED.into(),
    );
    add(
        "IB_USER_VERBS_CMD_COMMAND_MASK",
        write::frame::COMMAND_MASK.into(),
    );
    add("NETLINK_RDMA", netlink::NETLINK_RDMA as u64);
    add("RDMA_NL_NLDEV", nldev::CLIENT.into());
    add("NLM_F_REQUEST", netlink::NLM_F_REQUEST.into());
    add("NLM_F_MULTI", netlink::NLM_F_MULTI.into());
    add("NLM_F_ACK", netlink::NLM_F_ACK.into());
    add("NLM_F_DUMP", netlink::NLM_F_DUMP.into());
    add("NLMSG_ERROR", netlink::NLMSG_ERROR.into());
    add("NLMSG_DONE", netlink::NLMSG_DONE.into());
    add("NLA_F_NESTED", netlink::NLA_F_NESTED.into());
    all
}

#[test]
fn values_of_names() {
    for tree in Tree::all() {
        let mut body = String::new();
        let mut expected = BTreeMap::new();
        for (name, number) in numbers() {
            if !tree.skips(name) {
                // an enumerator of bit 31 is a negative int to C
                let value = format!("({name} < 0 ? (unsigned)({name}) : ({name}))");
                writeln!(
                    body,
                    r#"printf("{name} %llu\n", (unsigned long long){value});"#
                )
                .unwrap();
                expected.insert(name.to_owned(), number.to_string());
            }
        }
        assert_eq!(tree.witness(&body), expected, "{}", tree.name());
        println!("{}: {} numbers agree", tree.name(), expected.len());
    }
}

/// Enumerators of a header's text that start with `prefix`.
fn enumerators<'t>(text: &'t str, prefix: &str) -> BTreeSet<&'t str> {
    text.lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with(prefix) && !line.contains('('))
        .filter_map(|line| {
            line.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
        })
        .collect()
}

/// The counts of the 6.12 kernel, and that the headers have nothing that the tables lack.
#[test]
fn the_core_tree_is_complete() {
    let mut objects = BTreeSet::new();
    let mut methods = BTreeSet::new();
    let mut attributes = BTreeSet::new();
    for (object, list) in object::OBJECTS {
        let (name, _) = object::Object::NAMES
            .iter()
            .find(|(_, number)| *number == u64::from(object.0))
            .expect("every object has a name");
        objects.insert(*name);
        for (index, method) in list.iter().enumerate() {
            assert_eq!(usize::from(method.id), index, "{}", method.name);
            assert_eq!(method.object, *object, "{}", method.name);
            methods.insert(method.name);
            for (index, attr) in method.attributes.iter().enumerate() {
                assert_eq!(usize::from(attr.id), index, "{}", attr.name);
                attributes.insert(attr.name);
            }
        }
    }
    // The headers name 131 attributes when lines are counted: these, the two of the driver's data,
    // and one name that stands there twice (the handle of ESP_MODIFY is defined by that of ESP_CREATE).
    assert_eq!(
        (objects.len(), methods.len(), attributes.len()),
        (17, 35, 128)
    );

    for tree in Tree::packaged() {
        let path = tree.dir.join("rdma/ib_user_ioctl_cmds.h");
        let text = std::fs::read_to_string(path).unwrap();
        let ours = [
            ("UVERBS_OBJECT_", &objects),
            ("UVERBS_METHOD_", &methods),
            ("UVERBS_ATTR_", &attributes),
        ];
        for (prefix, ours) in ours {
            let mut theirs = enumerators(&text, prefix);
            theirs.retain(|name| !name.starts_with("UVERBS_ATTR_UHW_"));
            assert!(ours.is_subset(&theirs), "{}: {prefix}", tree.name());
            let newer: Vec<_> = theirs.difference(ours).collect();
            if tree.version <= (6, 12) {
                assert!(newer.is_empty(), "{}: only there: {newer:?}", tree.name());
            } else if !newer.is_empty() {
                skip_part(
                    &format!("uverbs-abi::headers::{prefix}* since 6.13"),
                    &format!(
                        "{} of the {} are not in our tables",
                        newer.len(),
                        tree.name()
                    ),
                );
            }
        }
    }
}

/// Every struct and command of `ib_user_verbs.h` is in the tables.
#[test]
fn the_write_commands_are_complete() {
    let structs: BTreeSet<_> = layout::ALL
        .iter()
        .flat_map(|(_, layouts)| layouts.iter().map(|layout| layout.c_name))
        .collect();
    let commands: BTreeSet<_> = write::COMMANDS
        .iter()
        .flat_map(|module| module.iter().map(|spec| spec.name))
        .collect();
    // the kernel has no handler for these, and no header a struct
    let never_made = [
        "IB_USER_VERBS_CMD_MODIFY_AH",
        "IB_USER_VERBS_CMD_QUERY_AH",
        "IB_USER_VERBS_CMD_REG_SMR",
        "IB_USER_VERBS_CMD_QUERY_MR",
        "IB_USER_VERBS_CMD_BIND_MW",
        "IB_USER_VERBS_CMD_PEEK_CQ",
    ];
    // no command has it; it is the connection manager's (`rdma_user_cm.h`)
    let elsewhere = ["ib_uverbs_qp_attr"];
    for tree in Tree::packaged() {
        let path = tree.dir.join("rdma/ib_user_verbs.h");
        let text = std::fs::read_to_string(path).unwrap();
        for line in text.lines().filter(|line| line.ends_with('{')) {
            if let Some(name) = line.strip_prefix("struct ")
                && let Some(name) = name.split_whitespace().next()
                && !elsewhere.contains(&name)
            {
                assert!(structs.contains(name), "{}: struct {name}", tree.name());
            }
        }
        for prefix in ["IB_USER_VERBS_CMD_", "IB_USER_VERBS_EX_CMD_"] {
            for name in enumerators(&text, prefix) {
                assert!(
                    commands.contains(name) || never_made.contains(&name),
                    "{}: {name}",
                    tree.name()
                );
            }
        }
    }
}

/// The counts of the 6.12 kernel, and that the headers have nothing that the tables lack.
#[test]
fn the_tree_of_mlx5_is_complete() {
    use object::mlx5::{OBJECT_NAMES, OBJECTS, extra};
    let mut ours = BTreeSet::new();
    let mut methods = 0;
    let mut attributes = 0;
    for (object, list) in OBJECTS {
        for (index, method) in list.iter().enumerate() {
            assert_eq!(usize::from(method.id), 0x1000 + index, "{}", method.name);
            assert_eq!(method.object, *object, "{}", method.name);
            assert_eq!(
                object::mlx5::find(*object, method.id).map(|m| m.name),
                Some(method.name)
            );
            methods += usize::from(ours.insert(method.name));
            for (index, attr) in method.attributes.iter().enumerate() {
                assert_eq!(usize::from(attr.id), 0x1000 + index, "{}", attr.name);
                attributes += usize::from(ours.insert(attr.name));
            }
        }
    }
    for (method, list) in extra::ATTRIBUTES {
        for (index, attr) in list.iter().enumerate() {
            // the driver's data have the first two numbers where there are any
            let first = if method.has_uhw { 0x1002 } else { 0x1000 };
            assert_eq!(usize::from(attr.id), first + index, "{}", attr.name);
            attributes += usize::from(ours.insert(attr.name));
        }
    }
    // 105 lines of the header begin with `MLX5_IB_ATTR_`: these, and two flags of a rule
    assert_eq!((OBJECT_NAMES.len(), methods, attributes), (10, 32, 103));

    ours.extend(
        MLX5_OBJECTS
            .iter()
            .flat_map(|list| list.iter().map(|(name, _)| *name)),
    );
    for tree in Tree::all() {
        if tree.has("MLX5_IB_ATTR_VAR_OBJ_ALLOC_FLAGS") {
            continue; // later than 6.13
        }
        for header in [
            "rdma/mlx5_user_ioctl_cmds.h",
            "rdma/mlx5_user_ioctl_verbs.h",
        ] {
            let text = std::fs::read_to_string(tree.dir.join(header)).unwrap();
            let lines = text
                .lines()
                .map(|line| line.trim_start_matches("#define").trim());
            let theirs: BTreeSet<_> = lines
                .filter(|line| line.starts_with("MLX5_IB_"))
                .filter_map(|line| line.split([' ', '\t', ',']).next())
                .collect();
            let absent: Vec<_> = theirs.difference(&ours).collect();
            assert!(absent.is_empty(), "{}: {absent:?}", tree.name());
        }
    }
}

/// Every struct and enumerator of `mlx5-abi.h` is in the tables.
#[test]
fn the_driver_data_of_mlx5_is_complete() {
    let structs: BTreeSet<_> = mlx5::LAYOUTS
        .iter()
        .flat_map(|module| module.iter().map(|layout| layout.c_name))
        .collect();
    let names: BTreeSet<_> = MLX5
        .iter()
        .flat_map(|list| list.iter().map(|(name, _)| *name))
        .collect();
    for tree in Tree::all() {
        let path = tree.dir.join("rdma/mlx5-abi.h");
        let text = std::fs::read_to_string(path).unwrap();
        let theirs: BTreeSet<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("struct ")?.strip_suffix(" {"))
            // the first 8 bytes of its second version
            .filter(|name| *name != "mlx5_ib_alloc_ucontext_req")
            .collect();
        let absent: Vec<_> = theirs.difference(&structs).collect();
        assert!(absent.is_empty(), "{}: {absent:?}", tree.name());
        for prefix in ["MLX5_", "MPW_"] {
            let absent: Vec<_> = enumerators(&text, prefix)
                .into_iter()
                .filter(|name| !names.contains(name))
                .collect();
            assert!(absent.is_empty(), "{}: {absent:?}", tree.name());
        }
    }
}

/// Numbers that no uapi header has, from libibverbs' public one: the installed, and those that
/// `OXVERBS_VERBS_HEADERS=dir[:dir]` names.
#[test]
fn numbers_of_libibverbs() {
    let mut dirs = vec![PathBuf::from("/usr/include")];
    dirs.extend(include_dirs("OXVERBS_VERBS_HEADERS"));
    dirs.retain(|dir| dir.join("infiniband/verbs.h").exists());
    if dirs.is_empty() {
        test_support::skip(
            "uverbs-abi::headers::numbers_of_libibverbs",
            "libibverbs-dev is not installed",
        );
        return;
    }
    for dir in &dirs {
        let text = std::fs::read_to_string(dir.join("infiniband/verbs.h")).unwrap();
        let mut body = String::new();
        let mut expected = String::new();
        let lists = [
            types::QpState::NAMES,
            types::QpAttrMask::NAMES,
            types::SrqAttrMask::NAMES,
            types::ReregMrFlags::NAMES,
            types::MwType::NAMES,
            types::EventType::NAMES,
        ];
        for (name, number) in lists.into_iter().flatten() {
            if *name == "IBV_EVENT_DEVICE_SPEED_CHANGE" && !text.contains(name) {
                skip_part(
                    "uverbs-abi::headers::IBV_EVENT_DEVICE_SPEED_CHANGE",
                    "not in libibverbs before 62",
                );
                continue;
            }
            writeln!(body, r#"printf("{name} %lld\n", (long long)({name}));"#).unwrap();
            writeln!(expected, "{name} {number}").unwrap();
        }
        let source = format!(
            "#include <stdio.h>\n#include <infiniband/verbs.h>\n\
             int main(void) {{\n{body}return 0;\n}}\n"
        );
        let seen = compile_and_run(&source, &[dir]).unwrap();
        assert_eq!(seen, expected, "{}", dir.display());
    }
}
