use super::*;

fn v2(version_and_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[version_and_command, family], &length, body].concat()
}

fn present(length: usize, source: &str) -> ProxyHeader {
    ProxyHeader::Present { length, source: source.parse().ok() }
}

#[test]
fn text_headers_are_parsed() {
    let malformed = ProxyHeader::Malformed("the line does not name a family, two addresses and two ports");
    for (bytes, expected) in [
        ("", ProxyHeader::Incomplete),
        ("PRO", ProxyHeader::Incomplete),
        ("POST / HTTP/1.1\r\n", ProxyHeader::Absent),
        ("GET /healthz HTTP/1.1\r\n\r\n", ProxyHeader::Absent),
        ("\n", ProxyHeader::Absent),
        ("PROXY TCP4 1.2.3.4 5.6.7.8 80 10356", ProxyHeader::Incomplete),
        ("PROXY TCP4 1.2.3.4 5.6.7.8 80 10356\r\nGET /", present(37, "1.2.3.4")),
        ("PROXY TCP6 fd00::1 fd00::2 80 10356\r\n", present(37, "fd00::1")),
        ("PROXY UNKNOWN\r\n", present(15, "")),
        ("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", present(35, "")),
        ("PROXY TCP4 fd00::1 fd00::2 80 10356\r\n", malformed),
        ("PROXY TCP6 1.2.3.4 5.6.7.8 80 10356\r\n", malformed),
        ("PROXY TCP4 1.2.3.4 5.6.7.8 80\r\n", malformed),
        ("PROXY TCP4 1.2.3.4 5.6.7.8 80 65536\r\n", malformed),
        ("PROXY TCP4 1.2.3.4 5.6.7.8 80 +1\r\n", malformed),
        ("PROXY TCP4  1.2.3.4 5.6.7.8 80 1\r\n", malformed),
        ("PROXY UDP4 1.2.3.4 5.6.7.8 80 1\r\n", malformed),
        ("PROXY \r\n", malformed),
    ] {
        assert_eq!(parse(bytes.as_bytes()), expected, "{bytes:?}");
    }
    let endless = format!("PROXY UNKNOWN{}", " ".repeat(200));
    assert_eq!(parse(&endless.as_bytes()[..106]), ProxyHeader::Incomplete);
    assert_eq!(parse(endless.as_bytes()), ProxyHeader::Malformed("the line does not end"));
    assert_eq!(parse(b"PROXY \xff\r\n"), ProxyHeader::Malformed("the line is not valid UTF-8"));
}

#[test]
fn binary_headers_are_parsed() {
    let ipv4 = [&[1, 2, 3, 4][..], &[5, 6, 7, 8], &[0, 80, 40, 116]].concat();
    let ipv6 = [&[0xfd; 16][..], &[0; 16], &[0, 80, 40, 116]].concat();
    // Azure adds the number of the private endpoint (type 0xEE).
    let azure = [&ipv4[..], &[0xee, 0, 5, 1, 1, 0, 0, 0]].concat();
    for (bytes, expected) in [
        (v2(0x21, 0x11, &ipv4), present(28, "1.2.3.4")),
        (v2(0x21, 0x11, &azure), present(36, "1.2.3.4")),
        (v2(0x21, 0x21, &ipv6), present(52, "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd")),
        (v2(0x21, 0x31, &[0; 216]), present(232, "")),
        (v2(0x21, 0x00, &[]), present(16, "")),
        (v2(0x21, 0xf0, &[1, 2]), present(18, "")),
        (v2(0x20, 0x00, &[]), present(16, "")),
        (v2(0x20, 0x11, &[]), present(16, "")),
        (v2(0x11, 0x11, &ipv4), ProxyHeader::Malformed("the version is not 2")),
        (v2(0x22, 0x11, &ipv4), ProxyHeader::Malformed("the command is neither LOCAL nor PROXY")),
        (v2(0x21, 0x11, &ipv4[..11]), ProxyHeader::Malformed("it is too short for its addresses")),
        (v2(0x21, 0x21, &ipv4), ProxyHeader::Malformed("it is too short for its addresses")),
        (v2(0x21, 0x31, &[0; 215]), ProxyHeader::Malformed("it is too short for its addresses")),
        (v2(0x21, 0x11, &[0; 4080]), present(4096, "0.0.0.0")),
        (v2(0x21, 0x11, &[0; 4081]), ProxyHeader::Malformed("it is longer than 4096 bytes")),
    ] {
        assert_eq!(parse(&bytes), expected, "{bytes:02x?}");
    }
}
