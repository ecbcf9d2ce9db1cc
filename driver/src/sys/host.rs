//! The machine.

/// The host's name, as `gethostname(2)` has it.
pub fn name() -> Option<String> {
    let mut buffer = [0_u8; 256];
    let room = buffer.len() - 1;
    // SAFETY: the buffer is writable for its length; the last byte stays 0.
    if unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), room) } != 0 {
        return None;
    }
    let end = buffer.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&buffer[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_host_has_the_name_that_the_kernel_says() {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(super::name().as_deref(), Some(kernel.trim_end()));
    }
}
