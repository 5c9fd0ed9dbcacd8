from __future__ import annotations

import pytest

from engine.rewards.addresses import is_public, url_problem


@pytest.mark.parametrize(
    "url", ["https://grader.example.com/v1?x=1", "https://1.1.1.1:8443/", "https://[2606:4700::1111]/", "https://a.co:443"]
)
def test_public_endpoints_are_let_in(url):
    assert url_problem(url) is None


@pytest.mark.parametrize(
    "url",
    [
        *("https://127.0.0.1/", "https://localhost/", "https://0.0.0.0/", "https://127.1/", "https://2130706433/", "https://0x7f000001/"),
        *("https://0177.0.0.1/", "https://0x7f.0.0.1/", "https://017700000001/", "https://[::1]/", "https://[::]/", "https://0/"),
        *("https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://[::127.0.0.1]/", "https://[64:ff9b::7f00:1]/"),
        *("https://[2002:7f00:1::]/", "https://[fe80::1%25eth0]/", "https://[fd00::1]/", "https://[2001:0:7f00:1::]/"),
        *("https://10.0.0.1/", "https://172.16.0.1/", "https://192.168.1.1/", "https://169.254.169.254/latest/meta-data/"),
        *("https://100.64.0.1/", "https://metadata.google.internal/", "https://redis/", "https://LOCALHOST./", "https://a.localhost/"),
        *("https://example.com@127.0.0.1/", "https://127.0.0.1#@example.com/", "https://example.com\\@127.0.0.1/"),
        *("https://①②⑦.⓪.⓪.①/", "https://%31%32%37.0.0.1/", "https://127。0。0。1/", "https://ⓛocalhost/", "https://224.0.0.1/"),
    ],
)
def test_no_spelling_of_a_private_address_gets_in(url):
    assert url_problem(url)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://grader.example.com/", "https://"),
        ("ftp://grader.example.com/", "https://"),
        ("https://grader.example.com:22/", "port 22"),
        ("https://grader.example.com:99999/", "no URL"),
        ("https:///x", "no host"),
        ("https://a.example.com/\r\nHost: b", "printable"),
        ("https://a.example.com/" + "x" * 2000, "longer"),
        ("https://[::1", "no URL"),
        ("", "https://"),
    ],
)
def test_other_bad_urls_are_refused_in_words(url, why):
    assert why in url_problem(url)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_public_addresses_are_public_also_inside_ipv6(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "0.0.0.0", "169.254.169.254", "100.64.0.1", "192.0.0.8", "198.18.0.1", "203.0.113.7", "240.0.0.1"),
        *("224.0.0.1", "255.255.255.255", "192.88.99.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "2001:db8::1"),
        *("::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1", "2002:a00:1::", "2001:0:1::1", "fec0::1", "x", ""),
    ],
)
def test_private_addresses_are_not(address):
    assert not is_public(address)
