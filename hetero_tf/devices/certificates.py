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
# Permissions of the files: only the owner may read them.
PRIVATE = 0o600


def make(folder: Path, hosts: Sequence[str], clients: int) -> None:
    """Write a certificate that is valid for a year, and keys of devices 0 to `clients` - 1.

    The certificate is self-signed: devices trust it as its own authority.
    """
    if folder.exists():
        raise InputError(f"{folder}: already exists; choose a new folder, since devices trust the existing keys")
    with files.disk_errors(folder, "create"):
        # Must be created here: another user who created the folder could replace its files.
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        (folder / KEYS).mkdir(mode=0o700)
    key = _write_key(folder / SERVER_KEY, serialization.PrivateFormat.PKCS8)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName(list(map(_general_name, hosts))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA384())
    )
    for each in (AUTHORITY, CERTIFICATE):
        files.write_new(folder / each, certificate.public_bytes(serialization.Encoding.PEM), PRIVATE)
    for client in range(clients):
        key = _write_key(folder / KEYS / f"{client}.key", serialization.PrivateFormat.OpenSSH)
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        files.write_new(folder / KEYS / f"{client}.pub", public + b"\n", PRIVATE)


def _write_key(path, form):
    """Create a private key and write it in PEM."""
    key = ec.generate_private_key(ec.SECP384R1())
    files.write_new(path, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()), PRIVATE)
    return key


def _general_name(host):
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def read_public_keys(folder: Path) -> dict[int, bytes]:
    """Return the public keys of devices in PEM, by client.

    Raises:
        InputError: The folder has no keys, a file is not a key, or two files have the same one.
    """
    paths = {int(each.stem): each for each in (folder / KEYS).glob("*.pub") if each.stem.isdecimal()}
    if not paths:
        raise InputError(f"{folder / KEYS}: has no file N.pub, the public key of client N")
    keys: dict[int, bytes] = {}
    for client, path in sorted(paths.items()):
        key = _load(path, serialization.load_ssh_public_key)
        pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        if pem in keys.values():
            raise InputError(f"{path}: is also the key of another client; each device needs a key of its own")
        keys[client] = pem
    return keys


def find_server_files(folder: Path) -> tuple[Path, Path]:
    """Return the paths of the server's certificate and of its private key."""
    _read(folder / CERTIFICATE)
    _read(folder / SERVER_KEY)
    return folder / CERTIFICATE, folder / SERVER_KEY


def read_device_files(key: Path) -> tuple[bytes, ec.EllipticCurvePrivateKey]:
    """Return the authority's certificate, from the folder of a device's private key or the one above, and the key."""
    private = _load(key, serialization.load_ssh_private_key, None)
    folder = key.parent.parent if (key.parent.parent / AUTHORITY).is_file() else key.parent
    return _read(folder / AUTHORITY), private


def _read(path):
    if not path.is_file():
        raise InputError(f"{path}: is missing; copy it from the folder that `flower keys` wrote")
    return path.read_bytes()


def _load(path, load, *arguments):
    try:
        return load(_read(path), *arguments)
    except ValueError as error:
        raise InputError(f"{path}: is not a key that `flower keys` wrote: {error}") from error
