"""``gradir git uninstall`` leaves every file with content as it was before, but for the end of its last line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from git_places import Run, runner
from tools import needs

pytest_plugins = ["git_fixtures"]
pytestmark = needs("git")

IN_GIT = {"objects", "refs", "logs"}
"""What git itself writes as it runs."""


def tree(folder: Path) -> dict[str, object]:
    """Every link and file with content below, with content and mode; a last line without an end has one."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", path.readlink())
        elif path.is_file() and (content := path.read_bytes()):
            found[name] = (content.removesuffix(b"\n"), path.stat().st_mode)
    return found


@pytest.fixture
def home(environment: dict[str, str]) -> Path:
    return Path(environment["HOME"])


def there_and_back(run: Run, folder: Path, where: str = "--global") -> None:
    before = tree(folder)
    run("gradir", "git", "install", where)
    installed = tree(folder)
    assert installed != before
    assert "installed (" in run("gradir", "git", "status", where)
    run("gradir", "git", "install", where)
    assert tree(folder) == installed
    run("gradir", "git", "uninstall", where)
    assert tree(folder) == before
    run("gradir", "git", "uninstall", where)
    assert tree(folder) == before


def test_an_empty_home(run: Run, home: Path) -> None:
    there_and_back(run, home)
    assert tree(home) == {}
    assert [path.name for path in home.rglob("*")] == [".config"]


CONFIGURATIONS = [
    b"",
    b"\n",
    b"# mine",
    b"# mine\n",
    b"[user]\n\tname = a",
    b"[user]\n\tname = a\n\n\n",
    b"[user]\r\n\tname = a\r\n",
    b"\xef\xbb\xbf[user]\n\tname = a\n",
    b'[diff "other"]\n\ttextconv = cat\n; the end',
    b'[diff "gradir"]\n\txfuncname = ^leaf\n',
    b'[difftool "gradir"]\n\tprompt = false\n[user]\n\tname = a\n',
]


@pytest.mark.parametrize("content", CONFIGURATIONS)
def test_the_configuration_of_the_user(content: bytes, run: Run, home: Path) -> None:
    (home / ".gitconfig").write_bytes(content)
    (home / ".gitconfig").chmod(0o600)
    there_and_back(run, home)


@pytest.mark.parametrize("content", [b"", b"\n", b"*.png binary", b"*.png binary\n", b"*.png binary\r\n# \xff\r\n"])
def test_the_attributes_of_the_user(content: bytes, run: Run, home: Path) -> None:
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "attributes").write_bytes(content)
    there_and_back(run, home)


@pytest.mark.parametrize("content", [b"", b"[user]\n\tname = a", b"# mine\n"])
def test_a_configuration_that_is_a_link(content: bytes, run: Run, home: Path) -> None:
    (home / "dotfiles").mkdir()
    (home / "dotfiles" / "gitconfig").write_bytes(content)
    (home / ".gitconfig").symlink_to("dotfiles/gitconfig")
    there_and_back(run, home)


def test_dangling_links_survive_install_and_uninstall(run: Run, home: Path) -> None:
    (home / "dotfiles").mkdir()
    (home / ".gitconfig").symlink_to("dotfiles/gitconfig")
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "attributes").symlink_to("../../dotfiles/attributes")
    there_and_back(run, home)


@pytest.mark.parametrize("content", [b"# mine\n", b"[user]\n\tname = a"])
def test_a_configuration_below_the_folder_of_configurations(content: bytes, run: Run, home: Path) -> None:
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "config").write_bytes(content)
    there_and_back(run, home)
    run("gradir", "git", "install", "--global")
    assert not (home / ".gitconfig").exists()


@pytest.mark.parametrize("exists", [False, True])
def test_another_folder_of_configurations(
    exists: bool, repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "else where" / "xdg"
    run = runner(repository, {**environment, "XDG_CONFIG_HOME": str(elsewhere)})
    if exists:
        (elsewhere / "git").mkdir(parents=True)
        (elsewhere / "git" / "config").write_bytes(b"[user]\n\tname = a")
    before = tree(tmp_path / "home")
    there_and_back(run, tmp_path / "else where")
    assert tree(tmp_path / "home") == before


@pytest.mark.parametrize("content", [None, b"", b"[user]\n\tname = a"])
def test_another_configuration(
    content: bytes | None, repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    own = home / "my settings"
    if content is not None:
        own.write_bytes(content)
    run = runner(repository, {**environment, "GIT_CONFIG_GLOBAL": str(own)})
    there_and_back(run, home)
    run("gradir", "git", "install", "--global")
    assert own.exists()
    assert not (home / ".gitconfig").exists()


def test_a_configuration_that_is_no_file_is_refused(
    repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    run = runner(repository, {**environment, "GIT_CONFIG_GLOBAL": str(tmp_path / "bin")})
    before = tree(tmp_path / "home")
    said = run("gradir", "git", "install", "--global", status=2)
    assert said == f"gradir: {tmp_path / 'bin'}: is not a file, so it cannot contain settings\n"
    assert tree(tmp_path / "home") == before


@pytest.mark.parametrize("content", [None, b"", b"*.png binary"])
def test_attributes_in_a_place_of_the_user(content: bytes | None, run: Run, home: Path) -> None:
    mine = home / "a" / "my attributes"
    run("git", "config", "--global", "core.attributesFile", "~/a/my attributes")
    if content is not None:
        mine.parent.mkdir()
        mine.write_bytes(content)
    there_and_back(run, home)


def test_attributes_that_git_looks_for_elsewhere_by_now(run: Run, home: Path) -> None:
    run("gradir", "git", "install", "--global")
    run("git", "config", "--global", "core.attributesFile", "~/mine")
    run("gradir", "git", "uninstall", "--global")
    assert list(tree(home)) == [".gitconfig"]
    assert (home / ".gitconfig").read_text() == "[core]\n\tattributesFile = ~/mine\n"


def test_uninstall_keeps_later_settings_of_the_user(run: Run, home: Path) -> None:
    run("gradir", "git", "install", "--global")
    run("git", "config", "--global", "user.name", "a")
    run("git", "config", "--global", "diff.gradir.xfuncname", "^leaf")
    run("git", "config", "--global", "difftool.gradir.trustExitCode", "true")
    with (home / ".config" / "git" / "attributes").open("a") as attributes:
        attributes.write("*.png binary\n")
    run("gradir", "git", "uninstall", "--global")
    assert (home / ".config" / "git" / "attributes").read_text() == "*.png binary\n"
    assert run("git", "config", "--global", "--list").splitlines() == [
        "diff.gradir.xfuncname=^leaf",
        "difftool.gradir.trustexitcode=true",
        "user.name=a",
    ]


@pytest.mark.parametrize("key", ["difftool.gradir.trustExitCode", "diff.gradir.binary"])
def test_a_setting_that_the_user_put_into_a_section_since_keeps_its_meaning(key: str, run: Run, home: Path) -> None:
    (home / ".gitconfig").write_text("[user]\n\tname = a\n")
    run("gradir", "git", "install", "--global")
    run("git", "config", "--global", key, "true")
    run("gradir", "git", "uninstall", "--global")
    assert run("git", "config", "--global", "--list").splitlines() == ["user.name=a", f"{key.lower()}=true"]


def test_a_second_install_restores_missing_files(run: Run, home: Path) -> None:
    run("gradir", "git", "install", "--global")
    installed = tree(home)
    shutil.rmtree(home / ".config")
    run("gradir", "git", "install", "--global")
    assert tree(home) == installed
    run("gradir", "git", "uninstall", "--global")
    assert tree(home) == {}


def test_a_folder_that_is_in_use_by_now_stays(run: Run, home: Path) -> None:
    run("gradir", "git", "install", "--global")
    (home / ".config" / "git" / "other").mkdir()
    run("gradir", "git", "uninstall", "--global")
    assert (home / ".config" / "git" / "other").is_dir()


def a_file_where_a_folder_should_be(home: Path) -> None:
    (home / ".config").write_text("")


def a_link_into_a_folder_that_is_not_there(home: Path) -> None:
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "attributes").symlink_to("nowhere/attributes")


def half_a_block(home: Path) -> None:
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "attributes").write_text("# gradir: begin\n")


@pytest.mark.parametrize(
    "state", [a_file_where_a_folder_should_be, a_link_into_a_folder_that_is_not_there, half_a_block]
)
def test_an_installation_that_fails_leaves_nothing(state: Callable[[Path], None], run: Run, home: Path) -> None:
    state(home)
    before = tree(home)
    said = run("gradir", "git", "install", "--global", status=2)
    assert said.count("\n") == 1
    assert tree(home) == before


def no_folder(git: Path) -> None:
    shutil.rmtree(git / "info", ignore_errors=True)


def empty_folder(git: Path) -> None:
    no_folder(git)
    (git / "info").mkdir()


def empty_file(git: Path) -> None:
    empty_folder(git)
    (git / "info" / "attributes").touch()


def lines_without_an_end(git: Path) -> None:
    empty_folder(git)
    (git / "info" / "attributes").write_bytes(b"*.png binary")
    (git / "config").write_bytes((git / "config").read_bytes() + b"# mine")


@pytest.mark.parametrize("state", [no_folder, empty_folder, empty_file, lines_without_an_end])
def test_a_repository(state: Callable[[Path], None], run: Run, repository: Path, tmp_path: Path) -> None:
    git = repository / ".git"
    state(git)
    run("git", "status")
    before = {name: data for name, data in tree(git).items() if IN_GIT.isdisjoint(Path(name).parts)}
    run("gradir", "git", "install")
    run("git", "diff", "HEAD~1")
    run("gradir", "git", "uninstall")
    after = {name: data for name, data in tree(git).items() if IN_GIT.isdisjoint(Path(name).parts)}
    assert after == before
    assert "gradir" not in run("git", "for-each-ref")
