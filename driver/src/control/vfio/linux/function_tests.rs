use std::os::unix::fs::symlink;

use super::*;

/// A tree as sysfs has it, with functions in it.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn add(&self, address: &str, ids: (&str, &str), driver: Option<&str>, group: Option<u32>) {
        let directory = self.root().join("bus/pci/devices").join(address);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("vendor"), format!("{}\n", ids.0)).unwrap();
        fs::write(directory.join("device"), format!("{}\n", ids.1)).unwrap();
        if let Some(driver) = driver {
            symlink(format!("../../drivers/{driver}"), directory.join("driver")).unwrap();
        }
        if let Some(group) = group {
            let members = self.root().join(format!("kernel/iommu_groups/{group}"));
            fs::create_dir_all(members.join("devices")).unwrap();
            symlink(&directory, members.join("devices").join(address)).unwrap();
            symlink(&members, directory.join("iommu_group")).unwrap();
        }
    }

    fn refusal(&self, address: &str) -> String {
        let function = function_at(self.root(), address);
        function
            .and_then(|function| function.check())
            .unwrap_err()
            .to_string()
    }
}

const CONNECTX6: (&str, &str) = ("0x15b3", "0x101b");

#[test]
fn addresses_are_read_and_printed() {
    for (text, printed) in [
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("3b:00.1", "0000:3b:00.1"),
        ("10000:e1:1f.7", "10000:e1:1f.7"),
    ] {
        assert_eq!(Address::parse(text).unwrap().to_string(), printed);
    }
    for wrong in [
        "",
        "3b",
        "3b:00",
        ".",
        ":.",
        "3b:20.0",
        "3b:00.8",
        "3b:00.10",
        "x:3b:00.0",
        "0:0:3b:00.0",
        "+b:00.0",
        "03b:00.0",
    ] {
        assert_eq!(Address::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_function_of_vfio_is_for_programs() {
    let tree = Tree::new();
    tree.add("0000:3b:00.0", CONNECTX6, Some("vfio-pci"), Some(31));
    tree.add(
        "0000:3a:00.0",
        ("0x8086", "0x2030"),
        Some("pcieport"),
        Some(31),
    );
    tree.add(
        "0000:5e:00.2",
        ("0x15b3", "0x101e"),
        Some("mlx5_core"),
        Some(40),
    );
    let function = function_at(tree.root(), "3b:00.0").unwrap();
    assert_eq!(function.mlx5, Some(0x101b));
    assert!(function.is_for_programs());
    assert_eq!(function.check().unwrap(), 31, "bridges are no obstacle");
    let all = Function::all_mlx5(tree.root());
    let all: Vec<_> = all
        .iter()
        .map(|found| (found.address.to_string(), found.is_for_programs()))
        .collect();
    let expected = [("0000:3b:00.0", true), ("0000:5e:00.2", false)];
    assert_eq!(all, expected.map(|(name, mine)| (name.to_owned(), mine)));
}

#[test]
fn a_name_that_is_none_lists_the_functions() {
    let tree = Tree::new();
    assert!(tree.refusal("3b:00.0").contains("no mlx5 hardware"));
    tree.add("0000:3b:00.0", CONNECTX6, None, None);
    let message = tree.refusal("0000:af:00.0");
    assert!(
        message.contains("mlx5 hardware is at 0000:3b:00.0"),
        "{message}"
    );
    assert!(tree.refusal("mlx5_0").contains("vfio:0000:3b:00.0"));
}

#[test]
fn another_device_is_refused() {
    let tree = Tree::new();
    tree.add(
        "0000:00:02.0",
        ("0x8086", "0x1572"),
        Some("vfio-pci"),
        Some(1),
    );
    assert!(tree.refusal("0000:00:02.0").contains("no mlx5 hardware"));
}

#[test]
fn no_iommu_is_named() {
    let tree = Tree::new();
    tree.add("0000:3b:00.0", CONNECTX6, Some("vfio-pci"), None);
    assert!(tree.refusal("0000:3b:00.0").contains("intel_iommu=on"));
}

#[test]
fn the_commands_that_bind_are_said() {
    let tree = Tree::new();
    tree.add("0000:3b:00.0", CONNECTX6, Some("mlx5_core"), Some(31));
    tree.add("0000:3b:00.1", CONNECTX6, None, Some(32));
    let message = tree.refusal("0000:3b:00.0");
    for part in [
        "mlx5_core has it",
        "echo vfio-pci > /sys/bus/pci/devices/0000:3b:00.0/driver_override",
        "echo 0000:3b:00.0 > /sys/bus/pci/devices/0000:3b:00.0/driver/unbind",
        "echo 0000:3b:00.0 > /sys/bus/pci/drivers_probe",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let message = tree.refusal("0000:3b:00.1");
    assert!(message.contains("no driver has it"), "{message}");
    assert!(!message.contains("unbind"), "{message}");
}

#[test]
fn others_in_the_group_are_named() {
    let tree = Tree::new();
    tree.add("0000:3b:00.0", CONNECTX6, Some("vfio-pci"), Some(31));
    tree.add("0000:3b:00.1", CONNECTX6, Some("mlx5_core"), Some(31));
    let message = tree.refusal("0000:3b:00.0");
    assert!(message.contains("group 31"), "{message}");
    assert!(message.contains("0000:3b:00.1 (mlx5_core)"), "{message}");
}
