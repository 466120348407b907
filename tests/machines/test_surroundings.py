"""A fresh system learns from the machine around it where packages come from and which certificates to trust."""

from __future__ import annotations

from pathlib import Path

from tests.machines.surroundings import paths, pip_settings, surroundings

LISTED = r"""
:env:.disable-pip-version-check='1'
:env:.find-links='/srv/wheels'
global.cache-dir='/root/.cache/pip'
global.extra-index-url='\nhttps://a.example/simple\nfile:///srv/simple'
global.find-links='/elsewhere'
install.constraint='/etc/constraints.txt'
"""


def test_the_settings_of_pips_files_become_variables_and_the_environment_comes_first() -> None:
    assert pip_settings(LISTED.strip()) == {
        "PIP_EXTRA_INDEX_URL": "https://a.example/simple file:///srv/simple",
        "PIP_FIND_LINKS": "/srv/wheels",
        "PIP_CONSTRAINT": "/etc/constraints.txt",
    }


def test_only_certificates_proxies_the_schemas_and_variables_of_the_tests_are_handed_on(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    environment = {
        "SSL_CERT_FILE": "/etc/ca.pem",
        "https_proxy": "http://proxy.example:3128",
        "NO_PROXY": "localhost",
        "COVERAGE": "1",
        "MCP_SPEC_DIR": f"{tmp_path}/link",
        "HOME": "/root",
        "PIP_CACHE_DIR": "/root/.cache/pip",
        "PYTHONPATH": "/srv",
    }

    assert surroundings(environment) == {
        "SSL_CERT_FILE": "/etc/ca.pem",
        "https_proxy": "http://proxy.example:3128",
        "NO_PROXY": "localhost",
        "COVERAGE": "1",
        "MCP_SPEC_DIR": str(tmp_path),
    }


def test_existing_files_and_folders_of_the_settings_are_mounted(tmp_path: Path) -> None:
    certificates, index = tmp_path / "certificates", tmp_path / "index"
    for folder in (certificates, index):
        folder.mkdir()
    (certificates / "ca.pem").touch()
    (tmp_path / "constraints.txt").touch()
    files = [f"{certificates}/ca.pem", f"{tmp_path}/constraints.txt"]
    values = [f"file://{index}/simple https://a.example/simple", *files]

    assert paths(values) == [*files, str(index)]
    assert paths([*values, str(certificates), f"{tmp_path}/missing", "file:///simple", "localhost", "180"]) == [
        str(certificates),
        f"{tmp_path}/constraints.txt",
        str(index),
    ]
