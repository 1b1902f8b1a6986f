"""`softserve-train sign`: the signature of a bundle."""

from pathlib import Path
from typing import Annotated

import tyro

from models.reading import load_manifest
from models.signing import SignatureError, Signer

__all__ = ["sign"]


def sign(
    bundles: Annotated[tuple[Path, ...], tyro.conf.Positional],
    private_key: Path,
    certificate: Path | None = None,
    chain: tuple[Path, ...] = (),
) -> int:
    """Signs bundles by OpenSSF Model Signing: writes model.sig to each, in place of an earlier one.

    `softserve models verify` and `softserve serve --require-signature` check signatures, as the command `model_signing`
    does. Needs pip install 'softserve[signing]'.

    Args:
        bundles: Bundle directories, whose files must match their checksums.
        private_key: PEM file of a key of NIST P-256, P-384 or P-521, not encrypted: openssl ecparam -name prime256v1
            -genkey -noout -out signing.key
        certificate: PEM file of a certificate of the key; the signature then holds it, and services trust the
            certificate that issued it.
        chain: PEM files of the certificates between that one and the one that services trust.
    """
    if chain and certificate is None:
        raise SignatureError("--chain needs the --certificate whose chain it is")
    for bundle in bundles:
        load_manifest(bundle.resolve())
    signer = Signer(private_key=private_key, certificate=certificate, chain=chain)
    for bundle in bundles:
        print(f"wrote {signer.sign(bundle.resolve())}")
    return 0
