from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from engine.rewards.addresses import is_public
from engine.rewards.outbound import Outbound, Reply, Unreachable
from tests.engine.rewards.servers import Names, Server, http

LOOPBACK = ["127.0.0.1"]


def loopback_is_public(address: str) -> bool:
    return address == "127.0.0.1"


async def post(outbound: Outbound, port: int, *, scheme: str = "http", host: str = "grader.example.com", **changes) -> Reply:
    request = {"body": b"{}", "headers": {}, "seconds": 5.0, "max_bytes": 1000, **changes}
    try:
        return await outbound.post(f"{scheme}://{host}:{port}/grade", **request)
    finally:
        await outbound.close()


async def test_it_connects_to_the_address_that_it_looked_at():
    names = Names(LOOPBACK, ["10.0.0.1"])
    async with Server(answers=lambda _: http(b'{"reward": 1}')).running() as server:
        reply = await post(Outbound(resolve=names, allowed=loopback_is_public), server.port)

    assert (reply.status, reply.body, names.asked) == (200, b'{"reward": 1}', ["grader.example.com"])
    assert server.asked[0].headers["host"] == f"grader.example.com:{server.port}"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "fd00::1"])
async def test_a_name_that_leads_into_a_private_network_gets_no_connection(address):
    async with Server(answers=lambda _: http(b"{}")).running() as server:
        with pytest.raises(Unreachable, match="no public address") as refused:
            await post(Outbound(resolve=Names([address])), server.port)

    assert (server.asked, refused.value.retry) == ([], False)


async def test_one_private_address_among_public_ones_is_enough_to_refuse():
    async with Server(answers=lambda _: http(b"{}")).running() as server:
        with pytest.raises(Unreachable, match="no public address"):
            await post(Outbound(resolve=Names(["127.0.0.1", "10.0.0.1"]), allowed=loopback_is_public), server.port)

    assert server.asked == []


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]"]
)
async def test_the_real_name_service_finds_every_spelling_of_the_loopback_private(host):
    async with Server(answers=lambda _: http(b"{}")).running() as server:
        with pytest.raises(Unreachable):
            await post(Outbound(allowed=is_public), server.port, host=host)

    assert server.asked == []


async def test_a_name_that_changes_its_answer_is_looked_at_each_time_it_is_connected_to():
    names = Names(LOOPBACK, ["10.0.0.1"])
    outbound = Outbound(resolve=names, allowed=loopback_is_public)
    async with Server(answers=lambda _: http(b"{}")).running() as server:
        url = f"http://grader.example.com:{server.port}/"
        await outbound.post(url, body=b"", headers={}, seconds=5.0, max_bytes=100)
        with pytest.raises(Unreachable, match="no public address"):
            await outbound.post(url, body=b"", headers={}, seconds=5.0, max_bytes=100)
        await outbound.close()

    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status):
    async with Server(answers=lambda _: http(b"", status, "Location: http://127.0.0.1/")).running() as server:
        with pytest.raises(Unreachable, match="redirect"):
            await post(Outbound(resolve=Names(LOOPBACK), allowed=loopback_is_public), server.port)

    assert len(server.asked) == 1


async def test_a_long_answer_is_cut_off():
    endless = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * 100_000
    async with Server(answers=lambda _: endless).running() as server:
        with pytest.raises(Unreachable, match="longer than 1000 bytes"):
            await post(Outbound(resolve=Names(LOOPBACK), allowed=loopback_is_public), server.port)


async def test_an_endpoint_that_never_answers_ends_at_the_deadline():
    async with Server(answers=lambda _: None).running() as server:
        with pytest.raises(Unreachable, match=r"within 0\.1 s"):
            await post(Outbound(resolve=Names(LOOPBACK), allowed=loopback_is_public), server.port, seconds=0.1)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"])
async def test_what_is_no_http_is_no_answer(answer):
    async with Server(answers=lambda _: answer).running() as server:
        with pytest.raises(Unreachable, match="no answer"):
            await post(Outbound(resolve=Names(LOOPBACK), allowed=loopback_is_public), server.port)


def certificate_for(host: str, folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(the server's side, the client's side) of a certificate for ``host``."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    day = datetime.datetime(2020, 1, 1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), day, day.replace(year=2120))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "both.pem").write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "both.pem")
    return server, ssl.create_default_context(cadata=certificate.public_bytes(serialization.Encoding.PEM).decode())


async def test_tls_verifies_the_name_although_an_address_is_connected_to(tmp_path):
    server_side, client_side = certificate_for("grader.example.com", tmp_path)
    async with Server(answers=lambda _: http(b"{}")).running(server_side) as server:

        def outbound() -> Outbound:
            return Outbound(resolve=Names(LOOPBACK), allowed=loopback_is_public, tls=client_side)

        assert (await post(outbound(), server.port, scheme="https")).status == 200
        with pytest.raises(Unreachable, match="certificate"):
            await post(outbound(), server.port, scheme="https", host="other.example.com")
