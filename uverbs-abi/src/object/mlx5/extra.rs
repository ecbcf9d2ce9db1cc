//! Attributes that mlx5 adds to methods of the core.

use crate::ioctl::attribute::{Attribute, Const, Flags, In, Out};
use crate::ioctl::{AttributeSpec, MethodSpec};
use crate::object::{cq, device, dm, flow_action, mr};
use crate::udata::mlx5::AllocUcontextResp;

use super::{DmType, FlowActionFlags, RegDmabufFlags};

macro_rules! extra_attributes {
    ($(
        $object:ident::$method:ident {
            $(
                $(#[$meta:meta])*
                $c_name:literal $attr:ident = $id:literal : $kind:ident<$ty:ty>, $need:ident;
            )*
        }
    )*) => {
        $($(
            $(#[$meta])*
            #[doc = ""]
            #[doc = concat!("`", $c_name, "`, ", stringify!($need), ".")]
            #[doc(alias = $c_name)]
            pub const $attr: $kind<$object::$method::Method, $ty> = $kind::new($id);
        )*)*

        /// All of them, by method.
        pub const ATTRIBUTES: &[(&MethodSpec, &[AttributeSpec])] = &[$((
            &$object::$method::SPEC,
            &[$(
                AttributeSpec {
                    id: $id,
                    name: $c_name,
                    kind: <$kind<$object::$method::Method, $ty> as Attribute>::KIND,
                    required: need!($need),
                    len: <$kind<$object::$method::Method, $ty> as Attribute>::LEN,
                }
            ),*],
        )),*];
    };
}

extra_attributes! {
    device::query_context {
        /// What get_context answered.
        "MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX" QUERY_CONTEXT_UCTX = 0x1000: Out<AllocUcontextResp>, required;
    }

    cq::create {
        /// The doorbell page to arm at, where its number does not fit
        /// [`uar_page_index`](crate::udata::mlx5::CreateCq::uar_page_index). Not in 6.1.
        "MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX" CREATE_CQ_UAR_INDEX = 0x1002: In<u32>, optional;
    }

    mr::reg_dmabuf {
        /// Not in 6.1.
        "MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS" REG_DMABUF_FLAGS = 0x1000: Flags<RegDmabufFlags>, optional;
    }

    flow_action::esp_create {
        "MLX5_IB_ATTR_CREATE_FLOW_ACTION_FLAGS" ESP_CREATE_FLAGS = 0x1000: Flags<FlowActionFlags>, optional;
    }

    dm::alloc {
        /// Where the memory starts: bytes from the start of the page, or the device's address.
        "MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET" ALLOC_DM_START_OFFSET = 0x1000: Out<u64>, required;
        /// Index for [`MmapCommand::DEVICE_MEM`](crate::udata::mlx5::mmap::MmapCommand::DEVICE_MEM); of
        /// [`MEMIC`](DmType::MEMIC) only.
        "MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX" ALLOC_DM_PAGE_INDEX = 0x1001: Out<u16>, optional;
        /// [`MEMIC`](DmType::MEMIC) if absent.
        "MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE" ALLOC_DM_TYPE = 0x1002: Const<DmType>, optional;
    }
}
