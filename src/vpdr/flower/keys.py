"""Certificates and node keys for one deployment, made on the spot and readable by their owner alone."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vpdr.files import write_atomically

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName, KeyUsage

DAYS = 30  # a deployment that lasts longer should have certificates of its owner's own authority


@dataclass(frozen=True, slots=True)
class Keys:
    """A folder with an authority, a server certificate, and one key pair for each node."""

    folder: Path

    @property
    def authority(self) -> Path:
        """What nodes and users check the server by."""
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The server's."""
        return self.folder / "server.pem"

    @property
    def server_key(self) -> Path:
        """The server's, secret."""
        return self.folder / "server.key"

    def node_key(self, name: str) -> Path:
        """A node's, secret; the public half is beside it with the ending .pub."""
        return self.folder / name

    def make(self, hosts: Sequence[str], nodes: Sequence[str]) -> None:
        """Write everything that is not there yet."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hosts and not self.certificate.exists():
            self._make_certificates(hosts)
        for node in nodes:
            if not self.node_key(node).exists():
                self.make_node(node)

    def make_node(self, name: str) -> None:
        """A P-384 pair in OpenSSH's format, as Flower wants it; a node is let in once it is registered."""
        from cryptography.hazmat.primitives import serialization as form

        key = _new_key()
        kind = form.PrivateFormat.OpenSSH
        secret = key.private_bytes(form.Encoding.PEM, kind, form.NoEncryption())
        public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
        write_atomically(self.node_key(name), secret, mode=0o600)
        write_atomically(self.folder / f"{name}.pub", public + b"\n")

    def _make_certificates(self, hosts: Sequence[str]) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding

        root, server = _new_key(), _new_key()
        authority = _certificate("vpdr", root, root, "vpdr")
        signed = _certificate(hosts[0], server, root, "vpdr", hosts)
        write_atomically(self.authority, authority.public_bytes(Encoding.PEM))
        write_atomically(self.server_key, _pem(server), mode=0o600)
        write_atomically(self.certificate, signed.public_bytes(Encoding.PEM))


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def _certificate(
    name: str,
    key: "EllipticCurvePrivateKey",
    signer: "EllipticCurvePrivateKey",
    issuer: str,
    hosts: Sequence[str] = (),
) -> "Certificate":
    """A certificate for these hosts; without any, an authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
        )
    else:
        builder = builder.add_extension(_signing(), critical=True)
    return builder.sign(signer, hashes.SHA384())


def _host(host: str) -> "GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _signing() -> "KeyUsage":
    from cryptography import x509

    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment")
    more = ("key_agreement", "encipher_only", "decipher_only")
    return x509.KeyUsage(**dict.fromkeys((*names, *more), False), key_cert_sign=True, crl_sign=True)
