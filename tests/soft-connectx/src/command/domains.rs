//! Doorbell pages, domains, user contexts and their memory, counters.

use wqe_format::mlx5::firmware::devx::{
    CreateUctxIn, CreateUctxOut, CreateUmemIn, CreateUmemOut, DestroyUctxIn, DestroyUmemIn,
};
use wqe_format::mlx5::firmware::domain::{
    AllocPdOut, AllocTransportDomainOut, AllocXrcdOut, DeallocPdIn, DeallocTransportDomainIn,
    DeallocXrcdIn,
};
use wqe_format::mlx5::firmware::psv::{CreatePsvIn, CreatePsvOut, DestroyPsvIn};
use wqe_format::mlx5::firmware::uar::{AllocUarOut, DeallocUarIn};

use super::owner::{self, uid};
use super::refusal::{bad_parameter, bad_resource, busy, no_resources};
use super::{Reply, done};
use crate::device::Device;
use crate::resources::{Buffer, Pd, Psv, QpKind, TransportDomain, Uar, Uctx, Umem, Xrcd};

/// Where `CREATE_UMEM` lists pages: `umem` lies at 0x80, its `mtt` 0x100 bits on.
const UMEM_PAGES: usize = 0x30;

pub(super) fn alloc_uar(device: &mut Device, input: &[u8]) -> Reply {
    let number = device
        .resources
        .uars
        .free_number()
        .ok_or(no_resources("no page is left"))?;
    device
        .resources
        .uars
        .insert(number, Uar { uid: uid(input) });
    let mut output = AllocUarOut::zeroed();
    output.set_uar(number);
    Ok(output.into_inner().to_vec())
}

pub(super) fn dealloc_uar(device: &mut Device, input: &[u8]) -> Reply {
    let number = DeallocUarIn::new(input)?.uar();
    let page = device.resources.uars.get(number).map(|page| page.uid);
    owner::check(input, page)?;
    // A page in which queues still have their doorbells goes too: rdma-core gives pages back when a
    // context is closed, before the kernel destroys what the program left behind.
    device.resources.uars.remove(number);
    done()
}

pub(super) fn alloc_pd(device: &mut Device, input: &[u8]) -> Reply {
    let number = device
        .resources
        .pds
        .free_number()
        .ok_or(no_resources("no PD is left"))?;
    device.resources.pds.insert(number, Pd { uid: uid(input) });
    let mut output = AllocPdOut::zeroed();
    output.set_pd(number);
    Ok(output.into_inner().to_vec())
}

pub(super) fn dealloc_pd(device: &mut Device, input: &[u8]) -> Reply {
    let number = DeallocPdIn::new(input)?.pd();
    owner::check(input, device.resources.pds.get(number).map(|pd| pd.uid))?;
    let resources = &device.resources;
    let used = resources.qps.iter().any(|(_, qp)| qp.pd == number)
        || resources.srqs.iter().any(|(_, srq)| srq.pd == number)
        || resources.psvs.iter().any(|(_, psv)| psv.pd == number)
        || resources
            .mkeys
            .iter()
            .any(|(_, key)| key.pd == number && !key.free);
    if used {
        return Err(busy("the PD is in use"));
    }
    device.resources.pds.remove(number);
    done()
}

/// Up to four states of signatures. Where one is not to be had, none is.
pub(super) fn create_psv(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreatePsvIn::new(input)?;
    let (count, pd) = (view.num_psv(), view.pd());
    if !(1..=4).contains(&count) {
        return Err(bad_parameter("there are one to four states"));
    }
    owner::pd(device, input, pd)?;
    let mut made = Vec::new();
    for _ in 0..count {
        let table = &mut device.resources.psvs;
        let Some(number) = table.free_number() else {
            for number in made {
                table.remove(number);
            }
            return Err(no_resources("no state of a signature is left"));
        };
        let uid = uid(input);
        table.insert(number, Psv { uid, pd });
        made.push(number);
    }
    let mut output = CreatePsvOut::zeroed();
    let at = |index: usize| made.get(index).copied().unwrap_or(0);
    output
        .set_psv0_index(at(0))
        .set_psv1_index(at(1))
        .set_psv2_index(at(2))
        .set_psv3_index(at(3));
    Ok(output.into_inner().to_vec())
}

pub(super) fn destroy_psv(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyPsvIn::new(input)?.psvn();
    let psv = device.resources.psvs.get(number);
    owner::check(input, psv.map(|psv| psv.uid))?;
    // A key whose signatures need it may still be there: libmlx5 destroys the key last.
    device.resources.psvs.remove(number);
    done()
}

pub(super) fn alloc_xrcd(device: &mut Device, input: &[u8]) -> Reply {
    let number = device
        .resources
        .xrcds
        .free_number()
        .ok_or(no_resources("no XRCD is left"))?;
    device
        .resources
        .xrcds
        .insert(number, Xrcd { uid: uid(input) });
    let mut output = AllocXrcdOut::zeroed();
    output.set_xrcd(number);
    Ok(output.into_inner().to_vec())
}

pub(super) fn dealloc_xrcd(device: &mut Device, input: &[u8]) -> Reply {
    let number = DeallocXrcdIn::new(input)?.xrcd();
    owner::check(
        input,
        device.resources.xrcds.get(number).map(|xrcd| xrcd.uid),
    )?;
    let resources = &device.resources;
    let used = resources
        .qps
        .iter()
        .any(|(_, qp)| qp.kind == QpKind::Xrc && qp.xrcd == number)
        || resources.srqs.iter().any(|(_, srq)| srq.xrcd == number);
    if used {
        return Err(busy("the XRC domain is in use"));
    }
    device.resources.xrcds.remove(number);
    done()
}

pub(super) fn alloc_transport_domain(device: &mut Device, input: &[u8]) -> Reply {
    let table = &mut device.resources.transport_domains;
    let number = table
        .free_number()
        .ok_or(no_resources("no transport domain is left"))?;
    table.insert(number, TransportDomain { uid: uid(input) });
    let mut output = AllocTransportDomainOut::zeroed();
    output.set_transport_domain(number);
    Ok(output.into_inner().to_vec())
}

pub(super) fn dealloc_transport_domain(device: &mut Device, input: &[u8]) -> Reply {
    let number = DeallocTransportDomainIn::new(input)?.transport_domain();
    let domain = device.resources.transport_domains.get(number);
    owner::check(input, domain.map(|domain| domain.uid))?;
    let steering = &device.resources.steering;
    let used = steering
        .tiss
        .iter()
        .any(|(_, tis)| tis.transport_domain == number)
        || steering
            .tirs
            .iter()
            .any(|(_, tir)| tir.transport_domain == number);
    if used {
        return Err(busy("the transport domain is in use"));
    }
    device.resources.transport_domains.remove(number);
    done()
}

pub(super) fn create_uctx(device: &mut Device, input: &[u8]) -> Reply {
    CreateUctxIn::new(input)?;
    let table = &mut device.resources.uctxs;
    let number = table
        .free_number()
        .ok_or(no_resources("no user context is left"))?;
    table.insert(number, Uctx);
    let mut output = CreateUctxOut::zeroed();
    output.set_uid(number as u16);
    Ok(output.into_inner().to_vec())
}

pub(super) fn destroy_uctx(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyUctxIn::new(input)?.uid();
    let resources = &device.resources;
    if resources.uctxs.get(u32::from(number)).is_none() {
        return Err(bad_resource("there is no such user context"));
    }
    let used = resources.qps.iter().any(|(_, qp)| qp.uid == number)
        || resources.srqs.iter().any(|(_, srq)| srq.uid == number)
        || resources.cqs.iter().any(|(_, cq)| cq.uid == number)
        || resources.mkeys.iter().any(|(_, key)| key.uid == number)
        || resources.pds.iter().any(|(_, pd)| pd.uid == number)
        || resources.umems.iter().any(|(_, umem)| umem.uid == number)
        || (resources.reserved_qpns.iter()).any(|(_, range)| range.uid == number);
    if used {
        return Err(busy("the user context has resources"));
    }
    device.resources.uctxs.remove(u32::from(number));
    done()
}

pub(super) fn create_umem(device: &mut Device, input: &[u8]) -> Reply {
    let view = CreateUmemIn::new(input)?;
    let umem = view.umem();
    // `log_page_size` counts from 4 KiB.
    let log_page = umem.log_page_size().saturating_add(12);
    let count = usize::try_from(umem.num_of_mtt()).unwrap_or(usize::MAX);
    // The lowest bits of an entry are rights.
    let list = input.get(UMEM_PAGES..).unwrap_or_default();
    let pages: Vec<u64> = owner::addresses(list)
        .take(count)
        .map(|page| page & !7)
        .collect();
    if pages.len() != count {
        return Err(bad_parameter("there are fewer pages than are claimed"));
    }
    if log_page > 40 || u64::from(umem.page_offset()) >> log_page != 0 {
        return Err(bad_parameter("the memory begins outside its first page"));
    }
    let buffer = Buffer {
        pages,
        log_page,
        start: umem.page_offset(),
    };
    let uid = uid(input);
    let table = &mut device.resources.umems;
    let number = table
        .free_number()
        .ok_or(no_resources("no user memory is left"))?;
    table.insert(number, Umem { uid, buffer });
    let mut output = CreateUmemOut::zeroed();
    output.set_umem_id(number);
    Ok(output.into_inner().to_vec())
}

pub(super) fn destroy_umem(device: &mut Device, input: &[u8]) -> Reply {
    let number = DestroyUmemIn::new(input)?.umem_id();
    owner::check(
        input,
        device.resources.umems.get(number).map(|umem| umem.uid),
    )?;
    device.resources.umems.remove(number);
    done()
}
