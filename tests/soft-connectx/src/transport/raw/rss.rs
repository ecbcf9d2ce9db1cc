//! Which of several receive queues takes a packet: a hash of its addresses and ports.

use wqe_format::mlx5::firmware::tir::Tirc;

use super::headers::{Headers, TCP};

/// `rx_hash_fn` (`MLX5_RX_HASH_FN_*` of `mlx5_ifc.h`).
const XOR8: u8 = 1;
const TOEPLITZ: u8 = 2;
/// `rx_hash_field_select.selected_fields` (`MLX5_HASH_FIELD_SEL_*`).
const SOURCE: u32 = 1 << 0;
const DESTINATION: u32 = 1 << 1;
const SOURCE_PORT: u32 = 1 << 2;
const DESTINATION_PORT: u32 = 1 << 3;
/// `rss_hash_type` of a completion: what the hash is over (`CQE_RSS_*` of Linux include/linux/mlx5/device.h).
const OVER_IPV4: u8 = 0x04;
const OVER_IPV6: u8 = 0x08;
const OVER_TCP: u8 = 0x40;
const OVER_UDP: u8 = 0x80;

/// A hash, and what it is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hash {
    pub(super) value: u32,
    pub(super) kind: u8,
}

/// Toeplitz' hash, as Microsoft's receive side scaling has it: for each bit of the input the 32 bits of the key from there on.
fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| u32::from(bytes[at / 8] >> (7 - at % 8) & 1);
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut hash = 0;
    for at in 0..(input.len() * 8).min(key.len() * 8 - 32) {
        if bit(input, at) != 0 {
            hash ^= window;
        }
        window = window << 1 | bit(key, at + 32);
    }
    hash
}

/// Two fields one behind the other; of a symmetric hash what both have and what only one has (`RXH_XFRM_SYM_OR_XOR` of
/// Linux include/uapi/linux/ethtool.h).
fn pair(input: &mut Vec<u8>, (from, to): (&[u8], &[u8]), selected: (bool, bool), symmetric: bool) {
    let both = |join: fn(&u8, &u8) -> u8| from.iter().zip(to).map(move |(a, b)| join(a, b));
    match selected {
        (true, true) if symmetric => {
            input.extend(both(|a, b| a | b));
            input.extend(both(|a, b| a ^ b));
        }
        (is_from, is_to) => {
            input.extend(from.iter().filter(|_| is_from));
            input.extend(to.iter().filter(|_| is_to));
        }
    }
}

/// The hash of a packet, by what a TIR selects; none of packets of another protocol than it names.
pub(super) fn hash(tir: &Tirc<&[u8]>, frame: &[u8], headers: &Headers) -> Hash {
    let select = tir.rx_hash_field_selector_outer();
    let fields = select.selected_fields();
    let symmetric = tir.rx_hash_symmetric();
    let Some(ip) = &headers.ip else {
        return Hash::default();
    };
    if select.l3_prot_type() != ip.is_v6 {
        return Hash::default();
    }
    let first = if ip.is_v6 { 0 } else { 12 };
    let (mut input, mut kind) = (Vec::new(), 0);
    if fields & (SOURCE | DESTINATION) != 0 {
        let selected = (fields & SOURCE != 0, fields & DESTINATION != 0);
        let addresses = (&ip.source[first..], &ip.destination[first..]);
        pair(&mut input, addresses, selected, symmetric);
        kind |= if ip.is_v6 { OVER_IPV6 } else { OVER_IPV4 };
    }
    let is_udp = ip.protocol != TCP;
    if fields & (SOURCE_PORT | DESTINATION_PORT) != 0
        && let Some((from, to)) = ip.ports(frame)
        && select.l4_prot_type() == is_udp
    {
        let selected = (fields & SOURCE_PORT != 0, fields & DESTINATION_PORT != 0);
        let ports = (from.to_be_bytes(), to.to_be_bytes());
        pair(&mut input, (&ports.0, &ports.1), selected, symmetric);
        kind |= if is_udp { OVER_UDP } else { OVER_TCP };
    }
    let value = match tir.rx_hash_fn() {
        _ if kind == 0 => 0,
        TOEPLITZ => {
            let mut key = [0; 40];
            for (place, index) in key.chunks_exact_mut(4).zip(0..) {
                place.copy_from_slice(&tir.rx_hash_toeplitz_key(index).unwrap_or(0).to_be_bytes());
            }
            toeplitz(&key, &input)
        }
        XOR8 => u32::from(!input.iter().fold(0, |all, byte| all ^ byte)),
        _ => return Hash::default(),
    };
    Hash { value, kind }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// "Verifying the RSS hash calculation", Microsoft's documentation of network drivers.
    pub(in super::super) const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn input(source: &str, destination: &str, ports: Option<(u16, u16)>) -> Vec<u8> {
        let bytes = |address: &str| match address.parse().unwrap() {
            std::net::IpAddr::V4(it) => it.octets().to_vec(),
            std::net::IpAddr::V6(it) => it.octets().to_vec(),
        };
        let mut input = [bytes(source), bytes(destination)].concat();
        if let Some((from, to)) = ports {
            input.extend(from.to_be_bytes());
            input.extend(to.to_be_bytes());
        }
        input
    }

    /// The verification suite: source, source port, destination, destination port, hash of the addresses, hash with ports.
    #[test]
    fn published_hashes() {
        for (source, from, destination, to, addresses, ports) in [
            (
                "66.9.149.187",
                2794,
                "161.142.100.80",
                1766,
                0x323e_8fc2,
                0x51cc_c178,
            ),
            (
                "199.92.111.2",
                14230,
                "65.69.140.83",
                4739,
                0xd718_262a,
                0xc626_b0ea,
            ),
            (
                "24.19.198.95",
                12898,
                "12.22.207.184",
                38024,
                0xd2d0_a5de,
                0x5c2b_394a,
            ),
            (
                "38.27.205.30",
                48228,
                "209.142.163.6",
                2217,
                0x8298_9176,
                0xafc7_327f,
            ),
            (
                "153.39.163.191",
                44251,
                "202.188.127.2",
                1303,
                0x5d18_09c5,
                0x10e8_28a2,
            ),
            (
                "3ffe:2501:200:1fff::7",
                2794,
                "3ffe:2501:200:3::1",
                1766,
                0x2cc1_8cd5,
                0x4020_7d3d,
            ),
            (
                "3ffe:501:8::260:97ff:fe40:efab",
                14230,
                "ff02::1",
                4739,
                0x0f0c_461c,
                0xdde5_1bbf,
            ),
            (
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44251,
                "fe80::200:f8ff:fe21:67cf",
                38024,
                0x4b61_e985,
                0x02d1_feef,
            ),
        ] {
            let without = input(source, destination, None);
            assert_eq!(toeplitz(&KEY, &without), addresses, "{source}");
            let with = input(source, destination, Some((from, to)));
            assert_eq!(toeplitz(&KEY, &with), ports, "{source}");
        }
    }

    /// Both directions of a connection hash alike.
    #[test]
    fn symmetric_pairs() {
        let (mut there, mut back) = (Vec::new(), Vec::new());
        pair(&mut there, (&[1, 2], &[3, 5]), (true, true), true);
        pair(&mut back, (&[3, 5], &[1, 2]), (true, true), true);
        assert_eq!((there.as_slice(), &back), ([3, 7, 2, 7].as_slice(), &there));
    }
}
