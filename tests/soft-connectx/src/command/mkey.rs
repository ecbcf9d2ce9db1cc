//! Memory keys.

use wqe_format::mlx5::firmware::mkey::{
    CreateMkeyIn, CreateMkeyOut, DestroyMkeyIn, Mkc, QueryMkeyIn, QueryMkeyOut,
};

use super::refusal::{Refusal, bad_parameter, bad_resource, busy, limit, no_resources};
use super::{Reply, done, owner};
use crate::device::Device;
use crate::resources::{AccessMode, Mkey};

/// Where `CREATE_MKEY` lists pages or keys.
const LIST: usize = CreateMkeyIn::SIZE;
/// Bytes of an octword.
const OCTWORD: usize = 16;
/// Octwords of the largest translation: what `log_max_mrw_sz` would allow is more than a model
/// should keep.
const LONGEST: u32 = 1 << 24;

pub(super) fn create(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateMkeyIn::new(input)?;
    let context = view.memory_key_mkey_entry();
    if context.translations_octword_size() > LONGEST {
        return Err(limit("the translation is too long"));
    }
    let mut bytes = [0; 64];
    bytes.copy_from_slice(context.as_bytes());
    let translation = translation(&view, &context, input)?;
    let mut key = Mkey::new(owner::uid(input), bytes, translation);
    // The kernel marks pages that are there if it says so here, and whenever it lists pages by UMR (`mlx5_ib_populate_pas`).
    key.may_miss_pages = device.caps.has_paging() && (view.pg_access() || key.umr_enabled);
    check(device, input, &key)?;
    let table = &mut device.resources.mkeys;
    let number = table
        .free_number()
        .ok_or(no_resources("no memory key is left"))?;
    table.insert(number, key);
    let mut output = CreateMkeyOut::zeroed();
    output.set_mkey_index(number);
    Ok(output.into_inner().to_vec())
}

/// The list of pages or keys, as long as it is claimed to be.
fn translation(
    view: &CreateMkeyIn<&[u8]>,
    context: &Mkc<&[u8]>,
    input: &[u8],
) -> Result<Vec<u8>, Refusal> {
    if view.mkey_umem_valid() {
        return Err(bad_parameter("translations in user memory are not offered"));
    }
    let octwords = view.translations_octword_actual_size();
    if octwords > context.translations_octword_size() {
        return Err(bad_parameter("the list is longer than the translation"));
    }
    let len = octwords as usize * OCTWORD;
    // A list of an odd number of pages ends in the middle of an octword.
    let list = &input[LIST.min(input.len())..];
    if list.len() + OCTWORD / 2 < len {
        return Err(bad_parameter(
            "there are fewer pages or keys than are claimed",
        ));
    }
    let mut list = list[..len.min(list.len())].to_vec();
    list.resize(len, 0);
    Ok(list)
}

/// Whether a key can be as it is described.
fn check(device: &Device, input: &[u8], key: &Mkey) -> Result<(), Refusal> {
    if matches!(key.mode, AccessMode::Other(_)) {
        return Err(bad_parameter("there is no such access mode"));
    }
    if key.free {
        return Ok(()); // UMR says the rest
    }
    owner::pd(device, input, key.pd)?;
    if !key.whole && key.start.checked_add(key.len).is_none() {
        return Err(bad_parameter("the region ends beyond the address space"));
    }
    if key.mode == AccessMode::Memic && !device.memic.is_allocated(key.start, key.len) {
        return Err(bad_parameter("the key reaches beyond memory on the device"));
    }
    // A user's own command can't name physical memory.
    if matches!(key.mode, AccessMode::Pa | AccessMode::Memic) && owner::uid(input) != 0 {
        return Err(bad_resource("physical memory is the kernel's"));
    }
    Ok(())
}

pub(super) fn destroy(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyMkeyIn::new(input)?.mkey_index();
    let key = device.resources.mkeys.get(number);
    owner::check(input, key.map(|key| key.uid))?;
    if key.is_some_and(|key| key.windows != 0) {
        return Err(busy("memory windows are bound to the key"));
    }
    device.resources.mkeys.remove(number);
    done()
}

pub(super) fn query(device: &mut Device, input: &[u8]) -> Reply {
    let number = QueryMkeyIn::new(input)?.mkey_index();
    let key = device.resources.mkeys.get(number);
    owner::check(input, key.map(|key| key.uid))?;
    let key = key.ok_or(bad_resource("there is no such memory key"))?;
    let mut output = QueryMkeyOut::zeroed();
    output
        .memory_key_mkey_entry_mut()
        .as_bytes_mut()
        .copy_from_slice(&key.context);
    Ok(output.into_inner().to_vec())
}
