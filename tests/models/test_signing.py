"""Signatures of bundles: they verify, also for the library's own command, and every kind of tampering is refused."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from models import BundleError
from models.private_copy import private_directory, verified, verified_copy
from models.reading import sha256_of, validate, verify
from models.signing import MAX_SIGNATURE_BYTES, SignatureError, Signer, TrustedKey

NOW = datetime.now(UTC)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def write_key(path: Path, curve: ec.EllipticCurve | None = None) -> TrustedKey:
    """Write a new private key; return its public key."""
    key = ec.generate_private_key(curve or ec.SECP256R1())
    path.write_bytes(private_pem(key))
    return TrustedKey(pem=public_pem(key))


def certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None,
    days: tuple[int, int] = (-2, 10),
) -> x509.Certificate:
    """Return a certificate that is valid from and to so many days from now; one without an issuer is a root."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"), False
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW + timedelta(days=days[0]))
        .not_valid_after(NOW + timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=issuer is not None,
                key_cert_sign=issuer is None,
                encipher_only=False,
                decipher_only=False,
                **usage,
            ),
            critical=True,
        )
        .sign(key if issuer is None else issuer[1], hashes.SHA256())
    )


def pem_of(found: x509.Certificate) -> str:
    return found.public_bytes(Encoding.PEM).decode()


@pytest.fixture
def bundle(bundled: Path, tmp_path: Path) -> Path:
    """A bundle whose files are the first bytes of those of the bundled model: their checksums match, none is loaded."""
    (path := tmp_path / bundled.parent.name / bundled.name).mkdir(parents=True)
    content = json.loads((bundled / "manifest.json").read_text())
    for name in content["files"]:
        with (bundled / name).open("rb") as file:
            (path / name).write_bytes(file.read(2000))
        content["files"][name] = sha256_of(path / name)
    (path / "manifest.json").write_text(json.dumps(content, indent=2))
    return path


@pytest.fixture
def key(tmp_path: Path) -> TrustedKey:
    return write_key(tmp_path / "signing.key")


@pytest.fixture
def signed(bundle: Path, key: TrustedKey, tmp_path: Path) -> Path:
    Signer(private_key=tmp_path / "signing.key").sign(bundle)
    return bundle


def problems(bundle: Path, key: TrustedKey) -> str:
    """Return the problems of a bundle, as every way to load it raises them; empty where it loads."""
    found = []
    with private_directory() as directory:
        for load in (
            lambda: verify(bundle, trusted_key=key),
            lambda: verified_copy(bundle, directory, trusted_key=key),
        ):
            try:
                load()
                found.append("")
            except BundleError as error:
                found.append("; ".join(error.problems))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_a_signed_bundle_verifies(bundle: Path, tmp_path: Path, curve: ec.EllipticCurve) -> None:
    key = write_key(tmp_path / "signing.key", curve)
    assert Signer(private_key=tmp_path / "signing.key").sign(bundle) == bundle / "model.sig"
    assert problems(bundle, key) == ""
    assert validate(bundle) == []
    assert [path.name for path in bundle.parent.iterdir()] == [bundle.name]


def test_the_command_of_the_library_verifies_a_signature_and_writes_one(
    signed: Path, key: TrustedKey, tmp_path: Path
) -> None:
    (tmp_path / "signing.pub").write_text(key.pem)
    command = [sys.executable, "-W", "ignore", "-m", "model_signing"]
    signature = ["--signature", str(signed / "model.sig")]
    check = [*command, "verify", "key", *signature, "--public_key", str(tmp_path / "signing.pub"), str(signed)]
    ran = subprocess.run(check, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    (signed / "model.sig").unlink()
    sign = [*command, "sign", "key", *signature, "--private_key", str(tmp_path / "signing.key"), str(signed)]
    subprocess.run(sign, check=True, capture_output=True)
    assert problems(signed, key) == ""


def test_signing_again_replaces_the_signature(signed: Path, tmp_path: Path) -> None:
    other = write_key(tmp_path / "other.key")
    Signer(private_key=tmp_path / "other.key").sign(signed)
    assert problems(signed, other) == ""


def test_an_unsigned_bundle_is_refused_only_where_a_signature_is_required(bundle: Path, key: TrustedKey) -> None:
    assert problems(bundle, key) == "it is not signed: model.sig is missing"
    assert validate(bundle) == []


def change_weights(bundle: Path) -> None:
    with (bundle / "weights.bin").open("r+b") as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))


def edit_manifest(bundle: Path) -> None:
    path = bundle / "manifest.json"
    path.write_text(path.read_text().replace('"licence": "', '"licence": "not ', 1))


def reformat_manifest(bundle: Path) -> None:
    path = bundle / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text())))


def repeat_a_key_of_the_manifest(bundle: Path) -> None:
    path = bundle / "manifest.json"
    path.write_text(path.read_text().replace("{", '{"name": "next-word", ', 1))


def change_weights_and_their_checksum(bundle: Path) -> None:
    change_weights(bundle)
    relist(bundle, {"weights.bin": sha256_of(bundle / "weights.bin")})


def relist(bundle: Path, files: dict[str, str | None]) -> None:
    """Change the checksums that the manifest lists; None takes one out."""
    path = bundle / "manifest.json"
    content = json.loads(path.read_text())
    content["files"] = {name: value for name, value in (content["files"] | files).items() if value is not None}
    path.write_text(json.dumps(content, indent=2))


def add_a_file(bundle: Path) -> None:
    (bundle / "extra.bin").write_bytes(b"x")


def add_a_listed_file(bundle: Path) -> None:
    add_a_file(bundle)
    relist(bundle, {"extra.bin": sha256_of(bundle / "extra.bin")})


def add_a_file_that_git_ignores(bundle: Path) -> None:
    (bundle / ".gitattributes").write_text("x")


def remove_a_file(bundle: Path) -> None:
    (bundle / "MODEL_CARD.md").unlink()


def remove_a_listed_file(bundle: Path) -> None:
    remove_a_file(bundle)
    relist(bundle, {"MODEL_CARD.md": None})


def rename_a_file(bundle: Path) -> None:
    (bundle / "MODEL_CARD.md").rename(bundle / "MODEL.md")


def change_the_case_of_a_name(bundle: Path) -> None:
    (bundle / "weights.bin").rename(bundle / "Weights.bin")


def swap_files(bundle: Path) -> None:
    content = (bundle / "score.onnx").read_bytes()
    (bundle / "next_words.onnx").replace(bundle / "score.onnx")
    (bundle / "next_words.onnx").write_bytes(content)


def link_to_another_file(bundle: Path) -> None:
    (bundle.parent / "other.bin").write_bytes(b"other weights")
    (bundle / "weights.bin").unlink()
    (bundle / "weights.bin").symlink_to(bundle.parent / "other.bin")


def add_a_link(bundle: Path) -> None:
    (bundle / "extra").symlink_to("weights.bin")


def add_a_directory(bundle: Path) -> None:
    (bundle / "nested").mkdir()
    shutil.copy(bundle / "weights.bin", bundle / "nested")


def hide_files_in_a_git_directory(bundle: Path) -> None:
    (bundle / ".git").mkdir()
    (bundle / ".git" / "weights.bin").write_bytes(b"x")


def empty_signature(bundle: Path) -> None:
    (bundle / "model.sig").write_bytes(b"")


def truncated_signature(bundle: Path) -> None:
    os.truncate(bundle / "model.sig", (bundle / "model.sig").stat().st_size // 2)


def endless_signature(bundle: Path) -> None:
    (bundle / "model.sig").unlink()
    (bundle / "model.sig").symlink_to("/dev/zero")


def huge_signature(bundle: Path) -> None:
    os.truncate(bundle / "model.sig", MAX_SIGNATURE_BYTES + 1)


def signature_is_a_directory(bundle: Path) -> None:
    (bundle / "model.sig").unlink()
    (bundle / "model.sig").mkdir()


def listed_signature(bundle: Path) -> None:
    relist(bundle, {"model.sig": sha256_of(bundle / "model.sig")})


def change_signature(bundle: Path, change: Callable[[dict], None]) -> None:
    content = json.loads((bundle / "model.sig").read_text())
    change(content)
    (bundle / "model.sig").write_text(json.dumps(content))


def no_signatures(bundle: Path) -> None:
    change_signature(bundle, lambda content: content["dsseEnvelope"].update(signatures=[]))


def zero_signature(bundle: Path) -> None:
    zeros = [{"sig": base64.b64encode(b"\0" * 70).decode(), "keyid": ""}]
    change_signature(bundle, lambda content: content["dsseEnvelope"].update(signatures=zeros))


def payload_of_the_changed_bundle(bundle: Path) -> None:
    """Write a payload that fits changed weights under the old signature."""
    before = sha256_of(bundle / "weights.bin")
    change_weights_and_their_checksum(bundle)

    def change(content: dict) -> None:
        payload = base64.b64decode(content["dsseEnvelope"]["payload"]).decode()
        payload = payload.replace(before, sha256_of(bundle / "weights.bin"))
        content["dsseEnvelope"]["payload"] = base64.b64encode(payload.encode()).decode()

    change_signature(bundle, change)


def other_media_type(bundle: Path) -> None:
    change_signature(bundle, lambda content: content.update(mediaType="application/json"))


def other_payload_type(bundle: Path) -> None:
    change_signature(bundle, lambda content: content["dsseEnvelope"].update(payloadType="text/plain"))


def signature_by_another_key(bundle: Path) -> None:
    write_key(bundle.parent / "attacker.key")
    Signer(private_key=bundle.parent / "attacker.key").sign(bundle)


def signature_by_another_key_with_the_hint_of_the_first(bundle: Path) -> None:
    hint = json.loads((bundle / "model.sig").read_text())["verificationMaterial"]["publicKey"]["hint"]
    signature_by_another_key(bundle)
    change_signature(bundle, lambda content: content["verificationMaterial"]["publicKey"].update(hint=hint))


def signature_by_another_certificate(bundle: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    root = certificate("attacker", key)
    leaf = certificate("attacker's signer", key, (root, key))
    (bundle.parent / "attacker.key").write_bytes(private_pem(key))
    (bundle.parent / "attacker.pem").write_text(pem_of(leaf))
    (bundle.parent / "root.pem").write_text(pem_of(root))
    signer = Signer(
        private_key=bundle.parent / "attacker.key",
        certificate=bundle.parent / "attacker.pem",
        chain=[bundle.parent / "root.pem"],
    )
    signer.sign(bundle)


TAMPERING = {
    change_weights: "weights.bin does not match its checksum",
    change_weights_and_their_checksum: "manifest.json has changed since it was signed; weights.bin has changed",
    edit_manifest: "manifest.json has changed since it was signed",
    reformat_manifest: "manifest.json has changed since it was signed",
    repeat_a_key_of_the_manifest: "manifest.json has changed since it was signed",
    add_a_file: "extra.bin has no checksum",
    add_a_listed_file: "manifest.json has changed since it was signed; extra.bin is not signed",
    add_a_file_that_git_ignores: ".gitattributes has no checksum",
    remove_a_file: "MODEL_CARD.md is missing",
    remove_a_listed_file: "'MODEL_CARD.md' is signed, but not a file of the bundle",
    rename_a_file: "MODEL_CARD.md is missing; MODEL.md has no checksum",
    change_the_case_of_a_name: "weights.bin is missing; Weights.bin has no checksum",
    swap_files: "next_words.onnx does not match its checksum",
    link_to_another_file: "weights.bin does not match its checksum",
    add_a_link: "extra has no checksum",
    add_a_directory: "nested is a directory",
    hide_files_in_a_git_directory: ".git is a directory",
    empty_signature: "model.sig does not verify",
    truncated_signature: "model.sig does not verify",
    endless_signature: "model.sig cannot be read: it is a device",
    huge_signature: "model.sig cannot be read: it has",
    signature_is_a_directory: "model.sig cannot be read: it is a directory",
    listed_signature: "files lists model.sig",
    no_signatures: "model.sig does not verify",
    zero_signature: "model.sig does not verify: InvalidSignature",
    payload_of_the_changed_bundle: "model.sig does not verify: InvalidSignature",
    other_media_type: "model.sig does not verify",
    other_payload_type: "model.sig does not verify",
    signature_by_another_key: "Key mismatch",
    signature_by_another_key_with_the_hint_of_the_first: "model.sig does not verify: InvalidSignature",
    signature_by_another_certificate: "model.sig does not verify",
}


@pytest.mark.parametrize("tamper", TAMPERING, ids=lambda each: each.__name__)
def test_tampering_is_refused(signed: Path, key: TrustedKey, tamper: Callable[[Path], None]) -> None:
    tamper(signed)
    assert TAMPERING[tamper] in problems(signed, key)


def test_the_signature_of_another_model_is_refused(signed: Path, key: TrustedKey, tmp_path: Path) -> None:
    other = Path(shutil.copytree(signed, tmp_path / "other" / signed.parent.name / signed.name))
    edit_manifest(other)
    Signer(private_key=tmp_path / "signing.key").sign(other)
    shutil.copy(other / "model.sig", signed)
    assert "manifest.json has changed since it was signed" in problems(signed, key)


def resigned(bundle: Path, private_key: Path, change: Callable[[dict], None]) -> None:
    """Sign a statement other than the signer's, by the trusted key: what another program with that key may write."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from model_signing._signing.sign_sigstore_pb import pae

    key = load_pem_private_key(private_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)

    def sign(content: dict) -> None:
        envelope = content["dsseEnvelope"]
        statement = json.loads(base64.b64decode(envelope["payload"]))
        change(statement)
        payload = json.dumps(statement).encode()
        signature = key.sign(pae(payload), ec.ECDSA(hashes.SHA256()))
        envelope["payload"] = base64.b64encode(payload).decode()
        envelope["signatures"] = [{"sig": base64.b64encode(signature).decode(), "keyid": ""}]

    change_signature(bundle, sign)


def set_resources(statement: dict, resources: list[dict]) -> None:
    from hashlib import sha256

    statement["predicate"]["resources"] = resources
    digests = b"".join(bytes.fromhex(each["digest"]) for each in resources)
    statement["subject"][0]["digest"]["sha256"] = sha256(digests).hexdigest()


def weaker_hash(statement: dict) -> None:
    resources = statement["predicate"]["resources"]
    set_resources(statement, [each | {"algorithm": "md5"} for each in resources])


def path_traversal(statement: dict) -> None:
    resources = statement["predicate"]["resources"]
    set_resources(statement, [*resources, resources[0] | {"name": "../../etc/passwd"}])


def ignored_weights(statement: dict) -> None:
    predicate = statement["predicate"]
    predicate["serialization"]["ignore_paths"] = ["weights.bin"]
    set_resources(statement, [each for each in predicate["resources"] if each["name"] != "weights.bin"])


def file_signed_twice(statement: dict) -> None:
    resources = statement["predicate"]["resources"]
    set_resources(statement, [{**resources[0], "digest": "00" * 32}, *resources])


def shards(statement: dict) -> None:
    statement["predicate"]["serialization"] |= {"method": "shards", "shard_size": 1000}


def earlier_statement(statement: dict) -> None:
    resources = statement["predicate"]["resources"]
    statement["predicateType"] = "https://model_signing/Digests/v0.1"
    statement["subject"] = [{"name": each["name"], "digest": {"sha256": each["digest"]}} for each in resources]


def other_root_digest(statement: dict) -> None:
    statement["subject"][0]["digest"]["sha256"] = "00" * 32


STATEMENTS = {
    weaker_hash: "manifest.json is signed by its md5, not its sha256",
    path_traversal: "'../../etc/passwd' is signed, but not a file of the bundle",
    ignored_weights: "weights.bin is not signed",
    file_signed_twice: "is signed twice",
    shards: "model.sig",
    earlier_statement: "not of model signing 1.0",
    other_root_digest: "Manifest is inconsistent",
}


@pytest.mark.parametrize("change", STATEMENTS, ids=lambda each: each.__name__)
def test_statements_that_cover_less_than_the_files_are_refused(
    signed: Path, key: TrustedKey, tmp_path: Path, change: Callable[[dict], None]
) -> None:
    resigned(signed, tmp_path / "signing.key", lambda statement: None)
    assert problems(signed, key) == ""
    resigned(signed, tmp_path / "signing.key", change)
    assert STATEMENTS[change] in problems(signed, key)


def signed_with_certificate(bundle: Path, directory: Path, days: tuple[int, int] = (-2, 10)) -> TrustedKey:
    """Sign by a key whose certificate a root has issued; return the root as the key to trust."""
    root_key, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP256R1())
    root = certificate("root", root_key, days=(-400, 400))
    (directory / "leaf.key").write_bytes(private_pem(key))
    (directory / "leaf.pem").write_text(pem_of(certificate("signer", key, (root, root_key), days)))
    Signer(private_key=directory / "leaf.key", certificate=directory / "leaf.pem").sign(bundle)
    return TrustedKey(pem=pem_of(root))


def test_a_certificate_of_the_trusted_root_signs(bundle: Path, tmp_path: Path) -> None:
    assert problems(bundle, signed_with_certificate(bundle, tmp_path)) == ""


@pytest.mark.parametrize("days", [(-100, -50), (20, 40)], ids=["expired", "not yet valid"])
def test_a_certificate_that_is_not_valid_now_is_refused(bundle: Path, tmp_path: Path, days: tuple[int, int]) -> None:
    trusted = signed_with_certificate(bundle, tmp_path, days)
    assert "the certificate CN=signer of model.sig is valid from" in problems(bundle, trusted)


def test_a_certificate_of_another_root_is_refused(bundle: Path, tmp_path: Path) -> None:
    signed_with_certificate(bundle, tmp_path)
    other = TrustedKey(pem=pem_of(certificate("root", ec.generate_private_key(ec.SECP384R1()))))
    assert "model.sig does not verify" in problems(bundle, other)


def test_a_certificate_of_another_key_does_not_sign(bundle: Path, key: TrustedKey, tmp_path: Path) -> None:
    signed_with_certificate(bundle, tmp_path)
    with pytest.raises(SignatureError, match="does not match"):
        Signer(private_key=tmp_path / "signing.key", certificate=tmp_path / "leaf.pem").sign(bundle)


@pytest.mark.parametrize("pem", ["", "no key", public_pem(rsa.generate_private_key(65537, 2048))])
def test_a_file_that_holds_no_suitable_key_is_refused(tmp_path: Path, pem: str) -> None:
    (tmp_path / "some.pub").write_text(pem)
    with pytest.raises(SignatureError, match=r"some\.pub"):
        TrustedKey.read(tmp_path / "some.pub")


def test_the_checked_bytes_are_loaded_whatever_happens_to_the_bundle_later(signed: Path, key: TrustedKey) -> None:
    before = (signed / "weights.bin").read_bytes()
    with verified(signed, trusted_key=key) as found:
        change_weights(signed)
        edit_manifest(signed)
        assert found.path != signed
        assert (found.path / "weights.bin").read_bytes() == before
        assert sha256_of(found.path / "manifest.json") == found.digest


def test_files_that_can_change_after_their_check_are_not_loaded(signed: Path, key: TrustedKey) -> None:
    with pytest.raises(BundleError, match="signed bundles are loaded from a private copy"):
        verified_copy(signed, None, trusted_key=key)
    with pytest.raises(ValueError, match="map_weights"), verified(signed, map_weights=True, trusted_key=key):
        pass
