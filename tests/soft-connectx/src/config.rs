//! What a device is made as.

/// The link layer of the device's port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLayer {
    /// An InfiniBand port (`port_type` 0).
    #[default]
    InfiniBand,
    /// An Ethernet port with RoCE (`port_type` 1).
    Ethernet,
}

/// How a device behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The port's link layer.
    pub link: LinkLayer,
    /// Whether what a real device would let pass is fatal here.
    pub strict: bool,
    /// The seed of an adversary, which uses the freedoms that a real device has.
    pub adversary: Option<u64>,
    /// Tells devices of one fabric apart: GUIDs, the LID and the MAC address are made of it.
    pub serial: u16,
    /// Whether it is a virtual function of a card (SR-IOV). What belongs to the card's physical function it may not change, it
    /// has a share of the resources, and an Ethernet port's address is its driver's to choose.
    pub virtual_function: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            link: LinkLayer::InfiniBand,
            strict: false,
            adversary: None,
            serial: 1,
            virtual_function: false,
        }
    }
}

impl Config {
    /// The node's GUID: of Mellanox' OUI 00:02:c9, as an EUI-64.
    pub(crate) fn node_guid(&self) -> u64 {
        0x0002_c903_0000_0000 | u64::from(self.serial) << 8
    }

    /// The port's GUID.
    pub(crate) fn port_guid(&self) -> u64 {
        self.node_guid() + 1
    }

    /// What the firmware calls the function that pages are for.
    pub(crate) fn function_id(&self) -> u16 {
        self.virtual_function.into()
    }

    /// The address that a physical function's port was made with.
    pub(crate) fn mac(&self) -> [u8; 6] {
        let [high, low] = self.serial.to_be_bytes();
        [0x00, 0x02, 0xc9, 0x00, high, low]
    }

    /// The local identifier an InfiniBand port has as if a subnet manager had given it.
    pub(crate) fn lid(&self) -> u16 {
        self.serial
    }
}
