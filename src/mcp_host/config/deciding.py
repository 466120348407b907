"""Which variables of the environment decide what a program runs: where it, its libraries and its modules are looked for."""

from __future__ import annotations

import re

_DECIDING = re.compile(
    r"""
    GOAUTH | (?!.*(?:TOKEN|SECRET|PASSWORD|AUTH|API_?KEY))  # such as UV_PUBLISH_TOKEN: they are not to be shown
    (?: .+_(?:HOME|PATH|OPTS|OPTIONS|PREFIX|REGISTRY|PRELOAD|WRAPPER)  # of many launchers
      | PATH | PATHEXT | HOME | SHELL | COMSPEC | ENV | BASH_(?:ENV|FUNC_.*) | SHELLOPTS | BASHOPTS | IFS | PS4 | PROMPT_COMMAND
      | ZDOTDIR | FPATH | PSMODULEPATH | GLIBC_TUNABLES | XDG_.*_DIRS
      | USERPROFILE | HOME(?:DRIVE|PATH) | (?:LOCAL)?APPDATA | PROGRAM(?:FILES|DATA).* | SYSTEM(?:ROOT|DRIVE) | WINDIR
      | CLASSPATH | (?:JAVA|MAVEN|GRADLE|JBANG|COURSIER|CLJ|SDKMAN)_.* | (?:DOTNET|CORECLR|COR|COMPLUS)_.*
      | (?:LD|DYLD|OPENSSL|GIT|NODE|NPM|YARN|PNPM|COREPACK|BUN|DENO|JSR|TS_NODE|TSX|ESBUILD|ELECTRON|LUA|CARGO|CGO)_.*
      | (?:PUB|DART|CABAL|STACK|ELIXIR|GUILE|HERMIT|AQUA|HOMEBREW)_.* | (?:COMPOSER|OPAM|PKG_CONFIG).*
      | (?:UV|PIP|PIPX|POETRY|PDM|HATCH|CONDA|GEM|BUNDLE|DOCKER|CONTAINERS?|PODMAN|JULIA)_.* | VIRTUAL_ENV | KUBECONFIG
      | (?:COMPOSE|BUILDX|NERDCTL|APPTAINER|SINGULARITY|NIX|PIPENV|PEX|RYE|PIXI|MAMBA|NUGET|MIX|ERL|R|LEIN|SBT|JRUBY|PROTO)_.*
      | MSBUILD.* | PREFIX | __PYVENV_LAUNCHER__ | JAVACMD | HGRCPATH | (?:SVN|CVS|RSYNC)_(?:SSH|RSH) | LESSOPEN | TCLLIBPATH
      | AWS_CONFIG_FILE | CLOUDSDK_(?:PYTHON.*|CONFIG) | TF_CLI_CONFIG_FILE | HELM_PLUGINS  # they name programs, too
      | (?:NVM|FNM|VOLTA|NODENV|PYENV|RBENV|ASDF|MISE)_.* | (?:PYTHON|PERL|RUBY|PHP|RUST).*
      | GO[A-Z0-9]+ | OCAMLRUNPARAM | PLTCOLLECTS | HOSTALIASES
      | (?:HTTPS?|ALL)_PROXY | SSL_CERT_(?:FILE|DIR) | (?:REQUESTS|CURL)_CA_BUNDLE  # where packages are loaded from
      | EDITOR | VISUAL | PAGER | BROWSER | (?:SSH|SUDO)_ASKPASS | CC | CXX | MAKEFLAGS
    )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,  # Windows knows no case
)


def decides(name: str) -> bool:
    """Whether the variable *name* is known to decide what is run, such as PATH, LD_PRELOAD or NODE_OPTIONS."""
    return _DECIDING.fullmatch(name) is not None
