"""Signatures of bundles: who made the files of a bundle, by OpenSSF Model Signing 1.0.

A signature is the file `model.sig` of a bundle, which `model_signing` of the package model-signing writes and reads as
well: a Sigstore bundle (v0.3) around a DSSE envelope, whose payload is an in-toto statement with name and sha256 of
every file. Signed are the manifest and exactly the files that it lists. Since the manifest holds the same checksums,
and the bytes that a model is loaded from are compared with these while they are copied, a signature is checked without
reading a file twice: nothing can be replaced between the check and the load.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from models.bundle.manifest import MANIFEST, SIGNATURE
from models.errors import ModelError
from models.files import read_regular

__all__ = ["MAX_SIGNATURE_BYTES", "SignatureError", "Signer", "TrustedKey"]

MAX_SIGNATURE_BYTES = 4 << 20
"""Largest signature; one of ten files has 3 KB, and the certificates of its chain."""
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
_PUBLIC_KEY = "-----BEGIN PUBLIC KEY-----"


class SignatureError(ModelError, ValueError):
    """A signature that is missing or does not match, or a key that signs or verifies nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedKey:
    """The public key whose signatures are accepted, or the certificates that certificates of signers must lead to."""

    pem: str
    """The key (NIST P-256, P-384 or P-521), or one or more certificates, in PEM."""

    @classmethod
    def read(cls, path: Path) -> "TrustedKey":
        """Return the key or the certificates of a file; raises `SignatureError` and `OSError`."""
        pem = path.read_text(encoding="ascii", errors="replace")
        if _CERTIFICATE not in pem and _PUBLIC_KEY not in pem:
            raise SignatureError(f"{path} holds neither a public key nor certificates in PEM")
        key = cls(pem=pem)
        with _refusing(f"{path} cannot be used"):
            key._verifier()
        return key

    def check(self, bundle: Path, manifest: bytes, files: Mapping[str, str]) -> None:
        """Check that the signature of a bundle covers its manifest and the checksums of `files`, and nothing else.

        `manifest` is the content of the manifest, `files` the sha256 of every other file, as the manifest lists them.
        Raises `SignatureError`.
        """
        signed = self._signed(_read(bundle / SIGNATURE))
        if problems := list(_differences(signed, {MANIFEST: hashlib.sha256(manifest).hexdigest(), **files})):
            raise SignatureError(f"{SIGNATURE} is the signature of other files: {'; '.join(problems)}")

    def _signed(self, data: bytes) -> list[tuple[str, str, str]]:
        """Return name, hash algorithm and digest of each signed file; raises `SignatureError`."""
        with _refusing(f"{SIGNATURE} does not verify"), tempfile.TemporaryDirectory() as directory:
            from model_signing._signing.sign_sigstore_pb import Signature

            (path := Path(directory) / SIGNATURE).write_bytes(data)
            signature: Any = Signature.read(path)
            if _PUBLIC_KEY not in self.pem:
                _check_dates(signature.bundle)
            self._verifier().verify(signature)
            return _resources(json.loads(signature.bundle.dsse_envelope.payload))

    def _verifier(self) -> Any:
        """Return the library's verifier of signatures; raises its exceptions."""
        with _library(), tempfile.TemporaryDirectory() as directory:
            from model_signing import verifying

            (path := Path(directory) / "key.pem").write_text(self.pem)
            if _PUBLIC_KEY in self.pem:
                return verifying.Config().use_elliptic_key_verifier(public_key=path)._verifier
            return verifying.Config().use_certificate_verifier(certificate_chain=[path])._verifier


@dataclass(frozen=True, kw_only=True, slots=True)
class Signer:
    """A private key that signs bundles."""

    private_key: Path
    """PEM file of a key of NIST P-256, P-384 or P-521, not encrypted."""
    certificate: Path | None = None
    """Certificate of the key; with it the signature holds the certificate and the chain."""
    chain: Sequence[Path] = ()
    """Certificates between that one and the one that services trust."""

    def sign(self, bundle: Path) -> Path:
        """Write the signature of a bundle whose files have been checked, and return its path.

        An earlier signature is replaced. Raises `SignatureError` and `OSError`.
        """
        unfinished = bundle.parent / f".{bundle.name}.{SIGNATURE}.{os.getpid()}"
        try:
            with _refusing(f"{bundle} cannot be signed"):
                self._config().sign(bundle, unfinished)
            os.replace(unfinished, bundle / SIGNATURE)
        finally:
            unfinished.unlink(missing_ok=True)
        return bundle / SIGNATURE

    def _config(self) -> Any:
        with _library():
            from model_signing import hashing, signing

        files = hashing.Config().use_file_serialization(hashing_algorithm="sha256")
        config = signing.Config().set_hashing_config(files.set_ignored_paths(paths=[SIGNATURE], ignore_git_paths=False))
        if self.certificate is None:
            return config.use_elliptic_key_signer(private_key=self.private_key)
        chain = self.chain or (self.certificate,)  # the library takes no empty one
        return config.use_certificate_signer(
            private_key=self.private_key, signing_certificate=self.certificate, certificate_chain=chain
        )


@contextlib.contextmanager
def _library() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise SignatureError(f"signatures need {error.name}: pip install 'softserve[signing]'") from error


@contextlib.contextmanager
def _refusing(failure: str) -> Iterator[None]:
    """Turn every exception of the library and of reading a damaged signature into a `SignatureError`."""
    try:
        yield
    except (SignatureError, OSError):
        raise
    except Exception as error:
        name = type(error).__name__
        raise SignatureError(f"{failure}: {f'{name}: {error}' if str(error) else name}") from error


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, MAX_SIGNATURE_BYTES)
    except FileNotFoundError:
        raise SignatureError(f"it is not signed: {SIGNATURE} is missing") from None
    except OSError as error:
        raise SignatureError(f"{SIGNATURE} cannot be read: {error.strerror}") from error


def _check_dates(signature: Any) -> None:
    """Refuse certificates that are not valid now.

    The library checks a chain as of the first day of the signer's certificate, since no one states when it was used:
    a certificate that has expired, and whose key may be in other hands since, would be accepted for ever.
    """
    from cryptography import x509

    now = datetime.now(UTC)
    for each in signature.verification_material.x509_certificate_chain.certificates:
        certificate = x509.load_der_x509_certificate(each.raw_bytes)
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
            raise SignatureError(
                f"the certificate {certificate.subject.rfc4514_string()} of {SIGNATURE} is valid"
                f" from {first:%Y-%m-%d} to {last:%Y-%m-%d} only"
            )


def _resources(statement: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, algorithm and digest of each file of a statement of model signing 1.0.

    Statements of earlier versions, and other methods than one digest for each whole file, are refused.
    """
    if (kind := statement["predicateType"]) != "https://model_signing/signature/v1.0":
        raise SignatureError(f"{SIGNATURE} is a statement of the type {kind!r}, not of model signing 1.0")
    predicate = statement["predicate"]
    if (method := predicate["serialization"]["method"]) != "files":
        raise SignatureError(f"{SIGNATURE} covers {method!r}, not whole files")
    return [(each["name"], each["algorithm"], each["digest"]) for each in predicate["resources"]]


def _differences(signed: Sequence[tuple[str, str, str]], found: Mapping[str, str]) -> Iterator[str]:
    """Yield the problems of the signed files, compared with those of a bundle: sha256 by name."""
    names = [name for name, _, _ in signed]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{name!r} is signed twice"
    for name, algorithm, digest in signed:
        if name not in found:
            yield f"{name!r} is signed, but not a file of the bundle"
        elif algorithm != "sha256":
            yield f"{name} is signed by its {algorithm}, not its sha256"
        elif digest != found[name]:
            yield f"{name} has changed since it was signed"
    for name in sorted(found.keys() - set(names)):
        yield f"{name} is not signed"
