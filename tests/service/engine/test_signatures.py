"""A service that requires signatures loads signed bundles only, and serves the old model where a new one is refused."""

import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from pydantic import ValidationError

from models import BundleError
from models.signing import SignatureError, Signer
from service.engine.loading import Loader
from service.engine.resources import Resources
from service.observability.metrics import Metrics
from service.settings import Settings
from tests.service.engine.test_served_models import with_registry


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "key.pub").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return Signer(private_key=tmp_path / "key")


def test_a_tampered_bundle_is_refused_and_the_old_model_stays(
    copied_models: Path, signer: Signer, tmp_path: Path
) -> None:
    (bundle,) = (copied_models / "next-word").iterdir()
    signer.sign(bundle)

    async def scenario(registry) -> None:
        (old,) = registry.served.values()
        manifest = bundle / "manifest.json"
        manifest.write_text(manifest.read_text() + " ")
        with pytest.raises(BundleError, match=r"manifest\.json has changed since it was signed"):
            await registry.add("next-word")
        (bundle / "model.sig").unlink()
        with pytest.raises(BundleError, match="it is not signed"):
            await registry.add("next-word")
        assert list(registry.served.values()) == [old]
        signer.sign(bundle)
        assert await registry.add("next-word") is not old

    with_registry(scenario, model_dirs=(copied_models,), require_signature=tmp_path / "key.pub")


def test_an_unsigned_newer_version_does_not_replace_a_signed_one(
    two_versions: Path, signer: Signer, tmp_path: Path
) -> None:
    newest = two_versions / "next-word" / "9"
    shutil.move(newest, tmp_path / "9")
    signer.sign(two_versions / "next-word" / "8")

    async def scenario(registry) -> None:
        shutil.move(tmp_path / "9", newest)
        with pytest.raises(BundleError, match="it is not signed"):
            await registry.add("next-word")
        assert [version for _, version in registry.served] == [8]

    with_registry(scenario, model_dirs=(two_versions,), require_signature=tmp_path / "key.pub")


def test_a_service_without_a_usable_key_does_not_start(tmp_path: Path) -> None:
    def loader(key: Path) -> Loader:
        settings = Settings(require_signature=key)
        return Loader(settings, Metrics(), Resources(settings))

    with pytest.raises(FileNotFoundError):
        loader(tmp_path / "no.pub")
    (tmp_path / "no.pub").write_text("no key")
    with pytest.raises(SignatureError, match="neither a public key nor certificates"):
        loader(tmp_path / "no.pub")


def test_signed_weights_are_not_mapped_in_place(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="map_weights loads files that can change"):
        Settings(require_signature=tmp_path / "key.pub", map_weights=True)
