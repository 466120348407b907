"""A server.json, as registries have it: its schema of 2025-12-11, and the older ones since 2025-07-09.

https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AliasChoices,
    AliasGenerator,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from mcp_host.config.registry.choices import (
    BOOLEANS,
    CommandParts,
    Part,
    Question,
    QuestionFormat,
    ServerChoice,
    UrlParts,
)
from mcp_host.config.registry.package_types import (
    BASE_URL,
    PACKAGE_TYPES,
    UNSUPPORTED,
    PackageType,
    image_reference,
    version_problem,
)
from mcp_host.errors import RegistryError, escaped, excerpt, quoted

OFFICIAL_META = "io.modelcontextprotocol.registry/official"
MAX_CHOICES = 100  # packages and remotes of one server
MAX_PARTS = 1000  # arguments, variables and headers of one package

NAME = "[A-Za-z0-9.-]+/[A-Za-z0-9._-]+"
SERVER_NAME = re.compile(rf"(?=.{{3,200}}\Z){NAME}", re.ASCII)
ENV_NAME = r"^[A-Za-z_][^\s=\x00]*$"
HEADER_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
ACTIVE = "active"
OLD_TYPES = {"docker": "oci"}
FORMATS: Mapping[str, QuestionFormat] = {"number": "number", "boolean": "boolean", "filepath": "filepath"}
HTTP_TYPES = ("streamable-http", "streamable", "http")
NO_SSE = "HTTP+SSE, the transport of 2024-11-05, is not supported"
SERVES_HTTP = "the package serves HTTP once it runs: start it yourself, and add its URL"
UNPINNED = "its version is not pinned: each start may run another one"
UNCHECKED = "its fileSha256 is not checked: the command that runs it downloads it"

SENTENCES: Mapping[str, str] = {
    "missing": "it is missing",
    **dict.fromkeys(("model_type", "dict_type"), "it must be an object"),
    "list_type": "it must be a list",
    "string_type": "it must be text",
    **dict.fromkeys(("bool_parsing", "bool_type"), "it must be true or false"),
    "string_pattern_mismatch": "it has characters that such a name must not have",
    "literal_error": "it must be positional or named",
}
"""What is wrong, by pydantic's type of the error. Its own sentence is shown for others."""

ModelT = TypeVar("ModelT", bound="_Model")


def _as_text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _without_nul(value: object) -> object:
    if isinstance(value, str) and "\0" in value:
        raise ValueError("it has a NUL character")
    return _as_text(value)


Word = Annotated[str, BeforeValidator(_without_nul)]
"""What may be part of a command line. Some write numbers and booleans."""


class _Model(BaseModel):
    """Its fields are also read in snake_case, as until 2025-09-16, and null is as if a field were not there."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        coerce_numbers_to_str=True,
        hide_input_in_errors=True,
        alias_generator=AliasGenerator(validation_alias=lambda name: AliasChoices(to_camel(name), name)),
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if value is not None}


class _Input(_Model):
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    format: str = "string"
    value: Word | None = None
    default: Word | None = None
    placeholder: str = ""
    choices: list[Word] = []


class _WithVariables(_Input):
    variables: dict[str, _Input] = {}


class _EnvironmentVariable(_WithVariables):
    name: Annotated[str, Field(pattern=ENV_NAME)]


class _Header(_WithVariables):
    name: Annotated[str, Field(pattern=HEADER_NAME)]


class _Argument(_WithVariables):
    type: Literal["positional", "named"]
    name: Word = ""
    value_hint: str = ""
    is_repeated: bool = False

    @property
    def takes_no_value(self) -> bool:
        """Whether it is an option by itself, such as ``--rm``: nothing says what its value could be."""
        says = (self.is_required, self.is_secret, self.placeholder, self.choices, self.value_hint)
        return not any(says) and self.value is None and self.default is None and self.format == "string"


class _Transport(_Model):
    type: str = "stdio"


class _Package(_Model):
    registry_type: str = Field(validation_alias=AliasChoices("registryType", "registry_type", "registry_name"))
    identifier: str = Field(validation_alias=AliasChoices("identifier", "name"))
    version: str | None = None
    registry_base_url: str | None = None
    file_sha256: str | None = Field(None, validation_alias=AliasChoices("fileSha256", "file_sha256"))
    runtime_hint: str | None = None
    transport: _Transport = _Transport()
    runtime_arguments: list[_Argument] = Field([], max_length=MAX_PARTS)
    package_arguments: list[_Argument] = Field([], max_length=MAX_PARTS)
    environment_variables: list[_EnvironmentVariable] = Field([], max_length=MAX_PARTS)


class _Remote(_Model):
    type: str = Field(validation_alias=AliasChoices("type", "transport_type"))
    url: Word
    headers: list[_Header] = Field([], max_length=MAX_PARTS)
    variables: dict[str, _Input] = {}


class _Server(_Model):
    name: Annotated[str, Field(pattern=f"^{NAME}$", max_length=200)]
    title: str = ""
    description: str = ""
    version: str = Field("", validation_alias=AliasChoices("version", AliasPath("version_detail", "version")))
    status: str = ""
    repository: str | None = Field(None, validation_alias=AliasPath("repository", "url"))
    packages: list[object] = Field([], max_length=MAX_CHOICES)
    remotes: list[object] = Field([], max_length=MAX_CHOICES)


class _Official(_Model):
    """What the registry says beside the server.json."""

    status: str = ""
    status_message: str = ""
    is_latest: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryServer:
    """A server as a registry describes it, at one *version*.

    *choices* are its packages and the URLs where it runs, in the registry's order, with those that cannot be used. *status* is
    "active", "deprecated" or "deleted", and *status_message* why. *is_latest* is None if the registry does not say.
    """

    name: str
    version: str
    title: str = ""
    description: str = ""
    repository: str = ""
    status: str = ACTIVE
    status_message: str = ""
    is_latest: bool | None = None
    choices: tuple[ServerChoice, ...] = ()

    @property
    def notices(self) -> tuple[str, ...]:
        """What to know before it is used: that it is not active, or not the latest version."""
        status = f"its status is {excerpt(self.status)}" if self.status != ACTIVE else ""
        if status and self.status_message:
            status += f": {excerpt(self.status_message)}"
        return tuple(filter(None, (status, "there is a newer version" if self.is_latest is False else "")))

    @property
    def usable(self) -> tuple[ServerChoice, ...]:
        """The choices that can be used."""
        return tuple(choice for choice in self.choices if choice.problem is None)


def read_server_json(data: object) -> RegistryServer:
    """Read a server.json, or the answer of a registry that has it, which is decoded JSON. It starts nothing.

    What is wrong with one package is the *problem* of that choice.

    Raises:
        RegistryError: It is none.
    """
    outer = data if isinstance(data, dict) else {}
    inner = outer.get("server")
    server = _parsed(_Server, inner if isinstance(inner, dict) else data)
    meta = outer.get("_meta")
    official = _parsed(_Official, meta.get(OFFICIAL_META, {}) if isinstance(meta, dict) else {}, "_meta")
    packages = [_choice(_Package, each, f"packages[{index}]") for index, each in enumerate(server.packages)]
    remotes = [_choice(_Remote, each, f"remotes[{index}]") for index, each in enumerate(server.remotes)]
    return RegistryServer(
        name=server.name,
        version=server.version,
        title=server.title,
        description=server.description,
        repository=server.repository or "",
        status=official.status or server.status or ACTIVE,
        status_message=official.status_message,
        is_latest=official.is_latest,
        choices=(*packages, *remotes),
    )


def _choice(model: type[_Package | _Remote], data: object, at: str) -> ServerChoice:
    kind, name = ("remote" if model is _Remote else "package"), at
    try:
        parsed = _parsed(model, data, at)
        if isinstance(parsed, _Remote):
            name = parsed.url
            return _remote(parsed, at)
        kind, name = OLD_TYPES.get(parsed.registry_type, parsed.registry_type), parsed.identifier
        return _package(parsed, kind, at)
    except RegistryError as exc:
        return ServerChoice(kind=kind, name=name, problem=str(exc))


def _parsed(model: type[ModelT], data: object, at: str = "") -> ModelT:
    try:
        return model.model_validate(data)
    except ValidationError as exc:
        [error, *_] = exc.errors(include_url=False, include_input=False, include_context=False)
    place = at
    for step in error["loc"]:
        place += f"[{step}]" if isinstance(step, int) else f".{step}" if place else step
    sentence = SENTENCES.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    raise RegistryError(escaped(sentence), field=place or "server.json")


def _package(package: _Package, kind: str, at: str) -> ServerChoice:
    package_type = _package_type(package, kind, at)
    registry, word = _location(package, kind, package_type, at)
    base = (*package_type.before, *registry)
    parts = _Parts(at)
    runtime = parts.arguments("runtimeArguments", package.runtime_arguments)
    env = parts.pairs("environmentVariables", package.environment_variables)
    own = parts.arguments("packageArguments", package.package_arguments)
    command = CommandParts(
        command=package_type.command,
        runtime=(*_fixed(*base), *(part for part in runtime if not set(part.words()) <= set(base))),
        package=(*_fixed(word, *package_type.after, *(package_type.separator if own else ())), *own),
        env=env,
        names_environment=package_type.names_environment,
    )
    warnings = [f"the package is from {registry[-1]}, which is not the public registry"] if registry else []
    warnings += [] if package_type.is_pinned(word) else [UNPINNED]
    warnings += [] if package.file_sha256 is None else [UNCHECKED]
    return ServerChoice(
        kind=kind, name=package.identifier, parts=command, questions=parts.questions, warnings=tuple(warnings)
    )


def _package_type(package: _Package, kind: str, at: str) -> PackageType:
    """How the package is run.

    Raises:
        RegistryError: It cannot be.
    """
    if (package_type := PACKAGE_TYPES.get(kind)) is None:
        raise RegistryError(UNSUPPORTED.get(kind, f"packages of the type {quoted(kind)} are not supported"), field=at)
    if package.transport.type != "stdio":
        raise RegistryError(SERVES_HTTP, field=f"{at}.transport.type")
    if package.runtime_hint not in (None, package_type.command):
        reason = f"packages of {kind} are run with {package_type.command} only, not with {quoted(package.runtime_hint)}"
        raise RegistryError(reason, field=f"{at}.runtimeHint")
    return package_type


def _location(package: _Package, kind: str, package_type: PackageType, at: str) -> tuple[tuple[str, ...], str]:
    """The arguments that name a registry other than the public one, and the package with its version.

    Raises:
        RegistryError: One of them is not what it is called: it could be an option, a path or a range.
    """
    base_url, identifier, version = package.registry_base_url, package.identifier, package.version
    if base_url is not None and not BASE_URL.fullmatch(base_url):
        raise RegistryError("it must be a plain https URL", field=f"{at}.registryBaseUrl")
    if version is not None and (problem := version_problem(version)):
        raise RegistryError(problem, field=f"{at}.version")
    if kind == "oci":
        identifier, version, base_url = image_reference(identifier, version, base_url), None, None
    if not package_type.identifier.fullmatch(identifier):
        raise RegistryError(f"no package of {kind} has such a name", field=f"{at}.identifier")
    registry: tuple[str, ...] = ()
    if base_url is not None and (url := base_url.rstrip("/")) not in package_type.registries:
        has_index = url.endswith(package_type.index)
        registry = (package_type.registry_option, base_url if has_index else url + package_type.index)
    return registry, identifier if version is None else f"{identifier}{package_type.joined}{version}"


def _fixed(*words: str) -> tuple[Part, ...]:
    return tuple(Part(field="", pieces=(word,)) for word in words)


def _remote(remote: _Remote, at: str) -> ServerChoice:
    if remote.type not in HTTP_TYPES:
        reason = NO_SSE if remote.type == "sse" else f"the transport {quoted(remote.type)} is not supported"
        raise RegistryError(reason, field=f"{at}.type")
    parts = _Parts(at)
    template = _WithVariables(value=remote.url, variables=remote.variables, is_required=True)
    url = UrlParts(url=parts.part("url", template, "url"), headers=parts.pairs("headers", remote.headers))
    left = dict.fromkeys(name for name in PLACEHOLDER.findall(remote.url) if name not in remote.variables)
    warnings = tuple(f"url: {{{excerpt(name)}}} is no variable, and stays as it is" for name in left)
    return ServerChoice(kind="remote", name=remote.url, parts=url, questions=parts.questions, warnings=warnings)


class _Parts:
    """The parts of one choice, and the questions in them, each under a name that no other has."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._questions: dict[str, Question] = {}

    @property
    def questions(self) -> tuple[Question, ...]:
        return tuple(self._questions.values())

    def arguments(self, field: str, arguments: Iterable[_Argument]) -> list[Part]:
        return [self._argument(f"{field}[{index}]", each, index) for index, each in enumerate(arguments)]

    def _argument(self, field: str, argument: _Argument, index: int) -> Part:
        if argument.type == "positional":
            return self.part(field, argument, argument.value_hint or f"argument{index + 1}")
        if not argument.name:
            raise RegistryError("it has no name", field=f"{self._at}.{field}")
        if argument.takes_no_value:
            return Part(field=f"{self._at}.{field}", name=argument.name)
        return self.part(field, argument, argument.name.lstrip("-").rstrip("=") or argument.name, argument.name)

    def pairs(self, field: str, pairs: Iterable[_EnvironmentVariable | _Header]) -> tuple[Part, ...]:
        return tuple(self.part(f"{field}.{each.name}", each, each.name, each.name) for each in pairs)

    def part(self, field: str, value: _WithVariables, asked_as: str, name: str = "") -> Part:
        """A part. Without a value, its question is *asked_as*."""
        if value.value is None:
            pieces: tuple[str | Question, ...] = (self._question(asked_as, value, value),)
        else:
            pieces = tuple(piece for piece in self._pieces(asked_as, value, value.value) if piece)
        return Part(field=f"{self._at}.{field}", name=name, pieces=pieces)

    def _pieces(self, asked_as: str, part: _WithVariables, text: str) -> Iterator[str | Question]:
        """The *text*, with questions for the variables of *part*. Other names in braces "should remain unchanged"."""
        end = 0
        for found in PLACEHOLDER.finditer(text):
            if (variable := part.variables.get(found[1])) is not None:
                yield text[end : found.start()]
                yield self._question(found[1], variable, part, asked_as) if variable.value is None else variable.value
                end = found.end()
        yield text[end:]

    def _question(self, name: str, asked: _Input, part: _WithVariables, owner: str | None = None) -> Question:
        """The question for *asked*. Variables of one name that are described alike are one question."""
        choices = tuple(asked.choices) or (BOOLEANS if asked.format == "boolean" else ())
        question = Question(
            name=name,
            description=asked.description,
            required=asked.is_required or part.is_required,
            secret=asked.is_secret or part.is_secret,
            placeholder=asked.placeholder,
            choices=choices,
            format=FORMATS.get(asked.format, "string"),
            repeated=isinstance(part, _Argument) and part.is_repeated,
        )
        if asked.default is not None and question.problem(asked.default) is None:
            question = replace(question, default=asked.default)
        own = (name,) if owner is None else (name, f"{owner}.{name}")
        named = (replace(question, name=each) for each in chain(own, (f"{name}-{n}" for n in count(2))))
        question = next(each for each in named if self._questions.get(each.name) in (None, each if owner else None))
        self._questions[question.name] = question
        return question
