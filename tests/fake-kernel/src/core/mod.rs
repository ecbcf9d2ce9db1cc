//! What Linux' RDMA core does for every family: commands, methods, objects with their references, and the
//! rules of a queue pair's states.

pub(crate) mod cleanup;
pub(crate) mod commands;
pub(crate) mod create;
pub(crate) mod device_memory;
pub(crate) mod extended;
pub(crate) mod facts;
pub(crate) mod flow;
pub(crate) mod memory;
pub(crate) mod methods;
pub(crate) mod modify_qp;
pub(crate) mod objects;
pub(crate) mod qp_state;
pub(crate) mod work_queue;
pub(crate) mod xrc;
