"""docker/signatures.yaml: with its environment the service serves signed bundles, and ends where one was changed."""

import re
import shutil
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.containers import podman
from tests.containers.files import ROOT, SIGNATURES
from tests.containers.test_image import Container, assert_packages_are_listed, inspected
from tests.service.process import Process
from tests.support.waiting import wait_until

SERVICE = SIGNATURES["services"]["softserve"]
ENVIRONMENT = {name: re.sub(r"\$\{\w+:-(.+)\}", r"\1", value) for name, value in SERVICE["environment"].items()}
KEY = SERVICE["volumes"][0]["target"]


@pytest.fixture
def signed(tmp_path):
    """A model directory with a bundle that `softserve-train sign` has signed, and the public key next to it."""
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (tmp_path / "key.pub").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    bundle = shutil.copytree(ROOT / "models/bundled/next-word/5", tmp_path / "models" / "next-word" / "5")
    sign = [sys.executable, "-m", "training.cli", "sign", str(bundle), "--private-key", str(tmp_path / "key")]
    subprocess.run(sign, cwd=ROOT, check=True, timeout=120)
    return bundle


def test_a_signed_bundle_is_served_and_a_changed_one_ends_the_service(signed, tmp_path):
    paths = {KEY: str(tmp_path / "key.pub"), '["/models"]': f'["{tmp_path / "models"}"]'}
    settings = {name: paths[value] for name, value in ENVIRONMENT.items()}
    serving = Process(tmp_path / "log", settings=settings)
    try:
        wait_until(serving.ready)
        assert serving.post("thank you very") == "much"
    finally:
        serving.end()
    with (signed / "manifest.json").open("a") as manifest:
        manifest.write(" ")
    refusing = Process(tmp_path / "log", settings=settings)
    assert refusing.process.wait(60) == 1
    assert "next-word/5: model.sig is the signature of other files: manifest.json has changed" in refusing.text


@pytest.mark.containers
def test_the_image_with_the_packages_serves_a_signed_bundle(engine, signed, tmp_path):
    tag = f"{podman.IMAGE}-signing"
    (argument,) = (f"{name}={value}" for name, value in SERVICE["build"]["args"].items())
    podman.build("cpu", tag, podman.ensure_base(engine), argument)
    print(f"\nimage {int(inspected(tag, '{{.Size}}')) / 1e6:.0f} MB")
    settings = [f"--env={name}={value}" for name, value in ENVIRONMENT.items()]
    mounts = [f"--volume={tmp_path / 'models'}:/models:ro", f"--volume={tmp_path / 'key.pub'}:{KEY}:ro"]
    container = Container(tag, *settings, *mounts)
    try:
        status, text = podman.ask(f"{container.url}/v1/next-word", {"context": "thank you very"})
        assert (status, "much" in text) == (200, True)
        assert_packages_are_listed(container)
    finally:
        container.remove()
