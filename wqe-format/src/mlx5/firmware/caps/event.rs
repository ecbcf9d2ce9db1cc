//! Capabilities of events that user space can subscribe to.

use crate::mlx5::firmware::layout::layouts;

layouts! {
    /// Events that user space can subscribe to (type 0x14).
    DeviceEventCap = "device_event_cap", 0x40 {
        [u64; 4] user_affiliated_events: 0x0, 0x40;
        [u64; 4] user_unaffiliated_events: 0x100, 0x40;
    }
}
