"""TLS certificates and node keys of one deployment; secret files are readable by their owner only."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vpdr.io import write_atomically

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName, KeyUsage


VALIDITY_DAYS = 30  # longer deployments should use certificates of their own authority


@dataclass(frozen=True, slots=True)
class Keys:
    """A directory with a certificate authority, a server certificate and one key pair per node."""

    directory: Path

    @property
    def ca_certificate(self) -> Path:
        """The certificate of the authority, with which nodes and users verify the server."""
        return self.directory / "ca.crt"

    @property
    def server_certificate(self) -> Path:
        """The certificate of the server."""
        return self.directory / "server.pem"

    @property
    def server_key(self) -> Path:
        """The private key of the server."""
        return self.directory / "server.key"

    def node_key(self, name: str) -> Path:
        """The private key of a node; the public key has the suffix .pub."""
        return self.directory / name

    def make(self, hosts: Sequence[str], nodes: Sequence[str]) -> None:
        """Write the server certificate for these hosts and the keys of these nodes, unless they exist."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hosts and not self.server_certificate.exists():
            self._make_certificates(hosts)
        for node in nodes:
            if not self.node_key(node).exists():
                self.make_node_key(node)

    def make_node_key(self, name: str) -> None:
        """Write a P-384 key pair in OpenSSH format, as Flower needs it; the node must still be registered."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

        key = _new_key()
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        write_atomically(self.node_key(name), secret, mode=0o600)
        write_atomically(self.directory / f"{name}.pub", public + b"\n")

    def _make_certificates(self, hosts: Sequence[str]) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        ca_key, server_key = _new_key(), _new_key()
        ca_certificate = _certificate("vpdr", ca_key, ca_key, "vpdr")
        server_certificate = _certificate(hosts[0], server_key, ca_key, "vpdr", hosts)
        secret = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_atomically(self.ca_certificate, ca_certificate.public_bytes(Encoding.PEM))
        write_atomically(self.server_key, secret, mode=0o600)
        write_atomically(self.server_certificate, server_certificate.public_bytes(Encoding.PEM))


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _certificate(
    name: str, key: "EllipticCurvePrivateKey", signer: "EllipticCurvePrivateKey", issuer: str, hosts: Sequence[str] = ()
) -> "Certificate":
    """A certificate for these hosts; without hosts, one of an authority."""
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
        .not_valid_after(now + datetime.timedelta(days=VALIDITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative_name(host) for host in hosts]), critical=False
        )
    else:
        builder = builder.add_extension(_ca_key_usage(), critical=True)
    return builder.sign(signer, hashes.SHA384())


def _alternative_name(host: str) -> "GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _ca_key_usage() -> "KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
