"""Creates the certificate of the server and a key pair for every device of a fleet."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hetero_tf.base import files
from hetero_tf.base.errors import InputError

# File names. A device needs AUTHORITY and its private key, the server all other files.
AUTHORITY, CERTIFICATE, SERVER_KEY, KEYS = "authority.pem", "server.pem", "server.key", "devices"
VALID = datetime.timedelta(days=365)


def make(folder: Path, hosts: Sequence[str], clients: int) -> None:
    """Write certificates that are valid for a year, and keys of devices 0 to `clients` - 1.

    The authority's private key is not stored, so no further server can be certified.

    Args:
        folder: A new folder.
        hosts: Host names and addresses of the server.
        clients: Number of devices.

    Raises:
        InputError: The folder exists.
        DiskProblem: The folder cannot be written.
    """
    if folder.exists():
        raise InputError(f"{folder}: already exists; choose a new folder, since devices trust the existing keys")
    with files.disk_errors(folder, "create"):
        # Must be created here: another user who created the folder could replace its files.
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        (folder / KEYS).mkdir(mode=0o700)
    authority_key, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    name = _name("hetero_tf authority")
    limits = x509.BasicConstraints(ca=True, path_length=0)
    authority = _certificate(name, name, authority_key.public_key(), limits, []).sign(authority_key, hashes.SHA384())
    limits = x509.BasicConstraints(ca=False, path_length=None)
    server = _certificate(_name(hosts[0]), name, key.public_key(), limits, hosts).sign(authority_key, hashes.SHA384())
    files.write_private(folder / AUTHORITY, authority.public_bytes(serialization.Encoding.PEM))
    files.write_private(folder / CERTIFICATE, server.public_bytes(serialization.Encoding.PEM))
    files.write_private(folder / SERVER_KEY, _private(key, serialization.PrivateFormat.PKCS8))
    for client in range(clients):
        key = ec.generate_private_key(ec.SECP384R1())
        files.write_private(folder / KEYS / f"{client}.key", _private(key, serialization.PrivateFormat.OpenSSH))
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        files.write_private(folder / KEYS / f"{client}.pub", public + b"\n")


def public_keys(folder: Path) -> dict[int, Path]:
    """Return the paths of the public keys of devices, by client.

    Raises:
        InputError: The folder has no keys.
    """
    names = [each for each in (folder / KEYS).glob("*.pub") if each.stem.isdecimal()]
    if not names:
        raise InputError(f"{folder / KEYS}: has no file N.pub, the public key of client N")
    return {int(each.stem): each for each in sorted(names, key=lambda each: int(each.stem))}


def find_server_files(folder: Path) -> tuple[Path, Path, Path]:
    """Return the paths of the authority's certificate, the server's certificate, and the server's private key.

    Raises:
        InputError: A file is missing.
    """
    paths = (folder / AUTHORITY, folder / CERTIFICATE, folder / SERVER_KEY)
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path}: is missing; name the folder that `flower keys` wrote on the server's machine")
    return paths


def find_authority(key: Path) -> Path:
    """Return the authority's certificate for a device: in the folder of its private key, or one folder above.

    Raises:
        InputError: The key or the certificate is missing.
    """
    if not key.is_file():
        raise InputError(
            f"{key}: is missing; name the private key of this device, a file N.key that `flower keys` wrote"
        )
    for folder in (key.parent, key.parent.parent):
        if (folder / AUTHORITY).is_file():
            return folder / AUTHORITY
    raise InputError(
        f"{key.parent / AUTHORITY}: is missing; copy the file that `flower keys` wrote to the folder of the key"
    )


def _name(common):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _certificate(subject, issuer, public_key, limits, hosts):
    """Builder of an unsigned certificate."""
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + VALID)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_general_name, hosts))), critical=False)
    return builder.add_extension(limits, critical=True)


def _general_name(host):
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key, form):
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
