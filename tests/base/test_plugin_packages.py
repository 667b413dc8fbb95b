"""Entry points of installed packages: listed without an import, and used by name."""

import sys

import pytest
from refusals import refusal

from hetero_tf.base import registry
from hetero_tf.cli import main


@pytest.fixture
def install(tmp_path, plugin_module):
    """Function that writes a package with entry points, as pip does, into a folder of the path."""

    def write(package, entry_points):
        info = tmp_path / f"{package.replace('-', '_')}-1.5.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[hetero_tf.plugins]\n{entry_points}\n[console_scripts]\nx = x:y\n")

    plugin_module("strips", "def keep(size, count, round, client, seed):\n    return list(range(count))\n")
    return write


def test_a_plugin_of_a_package_is_registered_by_the_name_of_its_entry_point(install, capsys):
    install("acme-strips", "acme = strips")
    assert main.main(["hetero_tf", "list", "--plugins"]) == 0
    assert capsys.readouterr().out == "acme  acme-strips 1.5  strips\nuse one with --plugin NAME\n"
    assert "strips" not in sys.modules and "strips" not in registry.names("submodels")
    assert registry.register_plugin("acme") == [("submodels", "strips")]
    # The module's name works too; a run folder stores it.
    assert registry.register_plugin("strips") == [("submodels", "strips")]
    assert registry.plugin_modules() == ("strips",)


def test_two_packages_with_one_name_are_reported_when_it_is_used(install):
    install("acme-strips", "strips = strips")
    install("other", "strips = other.strips")
    assert list(map(registry.package_of, registry.installed_plugins())) == ["acme-strips 1.5", "other 1.5"]
    assert refusal(registry.register_plugin, "strips") == (
        "--plugin strips: is defined by acme-strips 1.5 and other 1.5; uninstall all but one, or name a module: "
        "--plugin strips or --plugin other.strips"
    )
