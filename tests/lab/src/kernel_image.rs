//! The ELF kernel inside a bzImage, and what a kernel module says about itself.
//!
//! QEMU boots an ELF kernel through its PVH entry without the decompressor, which emulation makes slow.
//! Sources: kernel documentation `arch/x86/boot` (setup header), System V ABI (ELF64).

use std::io::Read;

use anyhow::{Context, Result, anyhow, bail};

/// Offsets in the setup header of a bzImage.
mod setup {
    pub(super) const SECTORS: usize = 0x1f1;
    pub(super) const MAGIC: usize = 0x202;
    pub(super) const VERSION: usize = 0x206;
    pub(super) const PAYLOAD_OFFSET: usize = 0x248;
    pub(super) const PAYLOAD_LENGTH: usize = 0x24c;
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    Ok(u16::from_le_bytes(*field.ok_or_else(|| {
        anyhow!("file ends before offset {at:#x}")
    })?))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    Ok(u32::from_le_bytes(*field.ok_or_else(|| {
        anyhow!("file ends before offset {at:#x}")
    })?))
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    Ok(u64::from_le_bytes(*field.ok_or_else(|| {
        anyhow!("file ends before offset {at:#x}")
    })?))
}

/// The decompressed ELF kernel of a bzImage whose payload is zstd, xz or gzip.
pub fn vmlinux(image: &[u8]) -> Result<Vec<u8>> {
    if image.get(setup::MAGIC..setup::MAGIC + 4) != Some(b"HdrS") {
        bail!("not a bzImage: no HdrS at {:#x}", setup::MAGIC);
    }
    if u16_at(image, setup::VERSION)? < 0x208 {
        bail!("boot protocol before 2.08 does not say where the payload is");
    }
    // Zero means four, says the boot protocol.
    let sectors = match image.get(setup::SECTORS) {
        Some(0) | None => 4,
        Some(&sectors) => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + u32_at(image, setup::PAYLOAD_OFFSET)? as usize;
    let length = u32_at(image, setup::PAYLOAD_LENGTH)? as usize;
    let payload = image
        .get(start..start + length)
        .ok_or_else(|| anyhow!("payload lies beyond the end of the image"))?;
    // The build appends the decompressed size to formats that lack it (zstd, xz); gzip ends with it itself.
    let size = u32_at(payload, payload.len().saturating_sub(4))? as usize;
    let mut elf = Vec::with_capacity(size);
    match payload {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let mut decoder = ruzstd::decoding::StreamingDecoder::new(payload)
                .map_err(|e| anyhow!("zstd: {e}"))?;
            decoder.read_to_end(&mut elf).context("zstd payload")?;
        }
        [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            liblzma::read::XzDecoder::new(payload)
                .read_to_end(&mut elf)
                .context("xz payload")?;
        }
        [0x1f, 0x8b, ..] => {
            flate2::read::GzDecoder::new(payload)
                .read_to_end(&mut elf)
                .context("gzip payload")?;
        }
        [a, b, c, d, ..] => {
            bail!("payload of unknown compression: starts with {a:02x} {b:02x} {c:02x} {d:02x}")
        }
        _ => bail!("empty payload"),
    }
    if !elf.starts_with(b"\x7fELF") {
        bail!("the payload is no ELF file");
    }
    if elf.len() != size {
        bail!(
            "the payload has {} bytes, the image promises {size}",
            elf.len()
        );
    }
    Ok(elf)
}

/// `key=value` strings of a module's `.modinfo` section, in order.
pub fn modinfo(elf: &[u8]) -> Result<Vec<(String, String)>> {
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        bail!("not a little-endian ELF64 file");
    }
    // Elf64_Ehdr: e_shoff at 0x28, e_shentsize 0x3a, e_shnum 0x3c, e_shstrndx 0x3e.
    let table = u64_at(elf, 0x28)? as usize;
    let entry = usize::from(u16_at(elf, 0x3a)?);
    let count = usize::from(u16_at(elf, 0x3c)?);
    let names = usize::from(u16_at(elf, 0x3e)?);
    // Elf64_Shdr: sh_name at 0, sh_offset 0x18, sh_size 0x20.
    let section = |index: usize| -> Result<(u32, &[u8])> {
        let header = table + index * entry;
        let offset = u64_at(elf, header + 0x18)? as usize;
        let size = u64_at(elf, header + 0x20)? as usize;
        // A section without file contents (.bss) may point anywhere.
        let bytes = offset
            .checked_add(size)
            .and_then(|end| elf.get(offset..end))
            .unwrap_or_default();
        Ok((u32_at(elf, header)?, bytes))
    };
    let (_, strings) = section(names)?;
    for index in 0..count {
        let (name, bytes) = section(index)?;
        let name = strings.get(name as usize..).unwrap_or_default();
        if name.starts_with(b".modinfo\0") {
            return Ok(bytes
                .split(|&byte| byte == 0)
                .filter_map(|text| {
                    String::from_utf8_lossy(text)
                        .split_once('=')
                        .map(|(k, v)| (k.to_owned(), v.to_owned()))
                })
                .collect());
        }
    }
    bail!("no .modinfo section")
}

/// Names of the modules that a module needs, as it says itself.
pub fn module_dependencies(elf: &[u8]) -> Result<Vec<String>> {
    let info = modinfo(elf)?;
    let depends = info.iter().filter(|(key, _)| key == "depends");
    Ok(depends
        .flat_map(|(_, value)| value.split(','))
        .filter(|name| !name.is_empty())
        .map(canonical)
        .collect())
}

/// Module names with `-` and `_` mean the same.
pub fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn bz_image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 3 * 512];
        image[setup::SECTORS] = 2;
        image[setup::MAGIC..setup::MAGIC + 4].copy_from_slice(b"HdrS");
        image[setup::VERSION..setup::VERSION + 2].copy_from_slice(&0x20fu16.to_le_bytes());
        image[setup::PAYLOAD_OFFSET..setup::PAYLOAD_OFFSET + 4]
            .copy_from_slice(&16u32.to_le_bytes());
        image[setup::PAYLOAD_LENGTH..setup::PAYLOAD_LENGTH + 4]
            .copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend_from_slice(&[0xcc; 16]);
        image.extend_from_slice(payload);
        image.extend_from_slice(&[0xdd; 100]);
        image
    }

    fn elf() -> Vec<u8> {
        [
            b"\x7fELF\x02\x01".as_slice(),
            &(0..9000).map(|i| ((i * i) >> 3) as u8).collect::<Vec<_>>(),
        ]
        .concat()
    }

    fn with_size(mut packed: Vec<u8>, size: usize) -> Vec<u8> {
        packed.extend_from_slice(&(size as u32).to_le_bytes());
        packed
    }

    #[test]
    fn every_compression() {
        let elf = elf();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&elf).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(&elf).unwrap();
        let zstd = ruzstd::encoding::compress_to_vec(
            elf.as_slice(),
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        for payload in [
            gzip.finish().unwrap(),
            with_size(xz.finish().unwrap(), elf.len()),
            with_size(zstd, elf.len()),
        ] {
            assert_eq!(vmlinux(&bz_image(&payload)).unwrap(), elf);
        }
    }

    #[test]
    fn damage_is_named() {
        let message = |image: &[u8]| format!("{:#}", vmlinux(image).unwrap_err());
        assert!(message(b"short").contains("not a bzImage"));
        assert!(message(&bz_image(b"LZ4!....")).contains("4c 5a 34 21"));
        assert!(
            message(&bz_image(b"")).contains("file ends")
                || message(&bz_image(b"")).contains("empty")
        );
        let mut truncated = bz_image(&[0x28; 64]);
        truncated.truncate(3 * 512 + 20);
        assert!(message(&truncated).contains("beyond the end"));
        let zstd = ruzstd::encoding::compress_to_vec(
            elf().as_slice(),
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        assert!(message(&bz_image(&with_size(zstd, 5))).contains("promises 5"));
    }

    #[test]
    fn modinfo_of_a_synthetic_module() {
        let mut elf = vec![0; 0x40];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let info = b"license=GPL\0depends=ib_core,udp-tunnel\0name=x\0";
        let names = b"\0.shstrtab\0.modinfo\0";
        let (info_at, names_at) = (elf.len(), elf.len() + info.len());
        elf.extend_from_slice(info);
        elf.extend_from_slice(names);
        let table = elf.len();
        for (name, at, size) in [
            (0u32, 0, 0),
            (1, names_at, names.len()),
            (11, info_at, info.len()),
        ] {
            let mut header = [0; 0x40];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(at as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            elf.extend_from_slice(&header);
        }
        elf[0x28..0x30].copy_from_slice(&(table as u64).to_le_bytes());
        elf[0x3a..0x3c].copy_from_slice(&0x40u16.to_le_bytes());
        elf[0x3c..0x3e].copy_from_slice(&3u16.to_le_bytes());
        elf[0x3e..0x40].copy_from_slice(&1u16.to_le_bytes());
        assert_eq!(
            module_dependencies(&elf).unwrap(),
            ["ib_core", "udp_tunnel"]
        );
        assert!(modinfo(b"\x7fELF\x01").is_err());
        assert!(modinfo(&elf[..0x60]).is_err());
    }
}
