"""The Jinja side of `Template`: the tags, the sandbox, the compiler extension, and errors with file and line.

Each tag becomes an element, whose props are the attributes of the tag. The output of a template is
a sequence of items, texts and elements, and never one string with markers in it. So no text can
imitate an element.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from functools import lru_cache, partial, wraps
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, cast

import attrs
from jinja2 import (
    FunctionLoader,
    StrictUndefined,
    Template as JinjaTemplate,
    TemplateError as JinjaError,
    TemplateNotFound,
    TemplateRuntimeError,
    TemplateSyntaxError,
    Undefined,
    UndefinedError,
    nodes,
)
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from promptkit.elements import builtin
from promptkit.elements.element import (
    Child,
    PromptElement,
    flatten,
    has_type,
    prop_name,
    signature_names,
)
from promptkit.elements.template.items import (
    TagDraft,
    TagKind,
    TemplateFragment,
    TemplateItem,
    TemplateText,
    ToolCallTag,
    build_children,
    holds_messages,
    is_blank,
    trim_last_break,
)
from promptkit.errors import BadChildError, PromptKitError, TemplateError
from promptkit.messages import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
    from importlib.resources.abc import Traversable

    from jinja2.parser import Parser

UNNAMED_FILE = "<template>"
"""The file name in errors of a template that is given as `source`."""

ELEMENT_FILTER = "promptkit element"
"""The filter that turns a tag into an element. A template cannot call it, since its name contains a
space."""

COMPONENT_FILTER = "promptkit component"
"""The filter that creates the element of a component."""


@attrs.frozen(kw_only=True)
class TagSpec:
    """The element of a tag. The attributes of the tag are the fields of `cls`."""

    cls: type[PromptElement | ToolCallTag]
    kind: TagKind
    positional: str = ""
    """The attribute that may be written without its name."""
    hidden: tuple[str, ...] = ("children",)
    """The fields that are not attributes."""

    def fields(self) -> dict[str, attrs.Attribute[object]]:
        """Map each attribute name to its field."""
        # attrs declares a tuple class
        fields = cast("Iterable[attrs.Attribute[object]]", attrs.fields(self.cls))
        return {
            prop_name(field).removeprefix("tool_"): field
            for field in fields
            if field.name not in self.hidden
        }


TAGS: Mapping[str, TagSpec] = {
    "system": TagSpec(cls=builtin.SystemMessage, kind="message"),
    "user": TagSpec(cls=builtin.UserMessage, kind="message"),
    "assistant": TagSpec(
        cls=builtin.AssistantMessage, kind="message", hidden=("children", "tool_calls", "keep_with")
    ),
    "tool": TagSpec(cls=builtin.ToolMessage, kind="message"),
    "tool_call": TagSpec(cls=ToolCallTag, kind="call"),
    "group": TagSpec(cls=builtin.Group, kind="layout"),
    "chunk": TagSpec(cls=builtin.Chunk, kind="layout"),
    "limit": TagSpec(cls=builtin.TokenLimit, kind="layout", positional="max_tokens"),
    "keep_with": TagSpec(cls=builtin.KeepWith, kind="layout", positional="group"),
    "isolate": TagSpec(cls=builtin.Isolate, kind="layout", positional="tokens"),
    "if_empty": TagSpec(cls=builtin.IfEmpty, kind="layout"),
    "list": TagSpec(cls=builtin.PrioritizedList, kind="items"),
    "first": TagSpec(cls=builtin.First, kind="items"),
    "text": TagSpec(cls=builtin.TextChunk, kind="content"),
    "truncate": TagSpec(cls=builtin.Truncate, kind="content"),
    "tag": TagSpec(cls=builtin.Tag, kind="content", positional="tag"),
    "image": TagSpec(cls=builtin.Image, kind="content", positional="url"),
    "document": TagSpec(cls=builtin.Document, kind="content"),
    "cache_breakpoint": TagSpec(cls=builtin.CacheBreakpoint, kind="content"),
    "reserve": TagSpec(cls=builtin.Reserve, kind="mark", positional="tokens"),
    "reference": TagSpec(cls=builtin.Reference, kind="mark", positional="to"),
    "metadata": TagSpec(cls=builtin.Metadata, kind="mark", positional="value"),
}
"""The tags by name."""

SELF_CLOSING = {
    "tool_call",
    "image",
    "document",
    "cache_breakpoint",
    "reserve",
    "reference",
    "metadata",
}
"""The tags without an end tag."""

TRIMMED = {"system", "user", "assistant", "tool", "tag"}
"""The tags whose body loses its last line break."""

TYPES: Mapping[str, str] = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "None": "none",
}
"""The type of a field, as written in the class → its name in errors."""

CHOICES: Mapping[str, tuple[str, ...]] = {"keep": ("head", "tail", "middle")}
"""Attribute → its valid values."""


def render_template(
    root: Path | Traversable | None, name: str, source: str | None, values: Mapping[str, object]
) -> Child:
    """Render a template to children.

    Args:
        root: The folder of the template and of the templates that it includes.
        name: The path of the template in `root`; unused with `source`.
        source: The text of the template, instead of a file.
        values: Name → value.

    Raises:
        TemplateError: The template is invalid or fails.
    """
    file = UNNAMED_FILE if source is not None else str(root.joinpath(name)) if root else name
    try:
        key = cast("Hashable", root)  # a Path is hashable; a Traversable that is not raises here
        template = (
            _create_environment(key).get_template(name) if source is None else _compile(key, source)
        )
        output = template.root_render_func(template.new_context(dict(values)))
        return build_children(trim_last_break(tuple(_collect_items(output, file, 0))))
    except PromptKitError:  # such as a text that is too long: the original error is clearer
        raise
    except Exception as error:
        raise _template_error(error, file, root) from error


def _template_error(error: Exception, file: str, root: Path | Traversable | None) -> TemplateError:
    message = (
        f"{type(error).__name__}: {error}"
        if not isinstance(error, JinjaError)
        else str(error.message)
    )
    if isinstance(error, TemplateSyntaxError):
        return TemplateError(message, file=error.filename or error.name or file, line=error.lineno)
    if isinstance(error, UndefinedError) and message.endswith("is undefined"):
        message += ". Add it to `values`, or write what to do without it: `{{ name | default('…') }}`, `{% if name is defined %}`."
    if isinstance(error, TemplateNotFound):
        remedy = (
            f" in {root}: write its path relative to that folder, with `/` and without `..`; a link that leads out of it is not followed"
            if root
            else ": give the Template a `root` to read it from"
        )
        message = (
            f"there is no template {', '.join(repr(name) for name in error.templates)}{remedy}"
        )
    line = 0
    for frame, number in walk_tb(error.__traceback__):
        template = frame.f_globals.get("__jinja_template__")
        if isinstance(template, JinjaTemplate):
            file, line = template.filename or file, template.get_corresponding_lineno(number)
    return TemplateError(message, file=file, line=line)


@lru_cache(maxsize=256)
def _compile(root: Hashable, source: str) -> JinjaTemplate:
    return _create_environment(root).from_string(source)


@lru_cache(maxsize=32)  # folders; Jinja caches the last 400 templates of each
def _create_environment(root: Hashable) -> _Sandbox:  # Hashable: the type of lru_cache keys
    environment = _Sandbox(
        loader=FunctionLoader(partial(_read_template, cast("Path | Traversable | None", root))),
        extensions=[_Tags, _ComponentTag],
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # otherwise the text after an include would continue its last line
        keep_trailing_newline=True,
        autoescape=False,  # the result is plain text for a model: escaping would change the values
    )
    # Any: the declared type admits only the built-in filters
    filters: dict[str, Any] = environment.filters
    for name, function in filters.items():
        if name not in {"default", "d", "attr"}:
            filters[name] = _reject_elements(name, function)
    filters |= {
        ELEMENT_FILTER: _draft_tag,
        COMPONENT_FILTER: _create_component,
        "tojson": _to_json,
    }
    return environment


def _read_template(
    root: Path | Traversable | None, name: str
) -> tuple[str, str, Callable[[], bool]] | None:
    """Read a template for Jinja: its text, its path, and a function that returns whether the file is unchanged.

    `name` is a relative path with `/`. Returns None if `root` has no such file. A name or a
    symbolic link that leads out of `root` is not found.
    """
    parts = name.split("/")
    if root is None or {"", ".."} & set(parts) or "\\" in name:
        return None
    path = root.joinpath(*parts)
    if not path.is_file() or (
        isinstance(path, Path)
        # a Path joins to a Path
        and not path.resolve().is_relative_to(cast("Path", root).resolve())
    ):
        return None
    version = _read_file_version(path)
    # utf-8-sig: the byte order mark of an editor is not part of a prompt.
    return (
        path.read_text(encoding="utf-8-sig"),
        str(path),
        lambda: _read_file_version(path) == version,
    )


def _read_file_version(path: Path | Traversable) -> tuple[int, int]:
    if not isinstance(path, Path):
        return (0, 0)  # a package does not change while it runs
    try:
        stat = path.stat()
    except OSError:
        return (-1, -1)  # the file is gone: Jinja loads it again and reports that
    return (stat.st_mtime_ns, stat.st_size)


def _reject_elements(name: str, function: Callable[..., object]) -> Callable[..., object]:
    """Wrap a filter so that it rejects elements, which it would convert to their `repr`."""

    @wraps(function)  # also copies the attribute that tells Jinja which arguments to pass
    def checked(*args: object, **kwargs: object) -> object:
        for value in args[:2]:
            # the types are unknown
            items = (
                cast("list[object]", value)
                if name == "join" and isinstance(value, list | tuple)
                else [value]
            )
            if any(isinstance(item, PromptElement | TemplateFragment) for item in items):
                raise TemplateRuntimeError(
                    f"the filter {name!r} needs text, but this is an element: insert it on its own with {{{{ … }}}}"
                )
        return function(*args, **kwargs)

    return checked


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


class _Tags(Extension):
    """Parses the tags, such as `{% user priority=900 %}…{% enduser %}`."""

    tags = set(TAGS)  # noqa: RUF012  # Jinja declares the type

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Parse a tag into an assignment of its attributes to a variable, and a filter block that turns the body into an element."""
        token = next(parser.stream)
        name, line = str(token.value), token.lineno
        pairs = self._parse_attributes(parser, name, line)
        body = (
            []
            if name in SELF_CLOSING
            else parser.parse_statements((f"name:end{name}",), drop_needle=True)
        )
        variable = parser.free_identifier(lineno=line)
        args: list[nodes.Expr] = [
            nodes.Const(name),
            variable,
            nodes.Const(parser.filename or UNNAMED_FILE),
            nodes.Const(line),
        ]
        # Not a call block: in the body of a call block, `caller()` would no longer be the one of
        # the macro around it.
        call = nodes.Filter(None, ELEMENT_FILTER, args, [], None, None, lineno=line)
        return [
            nodes.Assign(variable, nodes.Dict(pairs), lineno=line),
            nodes.FilterBlock(body, call, lineno=line),
        ]

    def _parse_attributes(self, parser: Parser, name: str, line: int) -> list[nodes.Pair]:
        tag, stream = TAGS[name], parser.stream
        fields = tag.fields()
        pairs: dict[str, nodes.Pair] = {}
        while stream.current.type != "block_end":
            if stream.current.type == "name" and stream.look().type == "assign":
                attribute = str(next(stream).value)
                next(stream)
            elif tag.positional and not pairs:
                attribute = tag.positional
            else:
                parser.fail(
                    f"{{% {name} %}} takes attributes, such as {next(iter(fields))}=…, not {stream.current.value!r}",
                    line,
                )
            if attribute not in fields and tag.cls is not builtin.Tag:
                near = get_close_matches(attribute, fields, 1)
                hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(fields)}."
                parser.fail(f"{{% {name} %}} has no attribute {attribute!r}: {hint}", line)
            if attribute in pairs:
                parser.fail(f"{{% {name} %}} has the attribute {attribute!r} twice", line)
            pairs[attribute] = nodes.Pair(nodes.Const(attribute), parser.parse_expression())
            stream.skip_if("comma")
        for attribute, field in fields.items():
            if field.default is attrs.NOTHING and attribute not in pairs:
                parser.fail(f"{{% {name} %}} needs {attribute}=…", line)
        return list(pairs.values())


class _ComponentTag(Extension):
    """Parses `{% component History(turns=turns, flex_grow=1) %}`, which inserts a component of the program."""

    tags = {"component"}  # noqa: RUF012  # Jinja declares the type

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the tag into an output of the element that the filter creates."""
        line = next(parser.stream).lineno
        call = parser.parse_expression()
        if not (isinstance(call, nodes.Call) and isinstance(call.node, nodes.Name)):
            parser.fail(
                "{% component %} takes a component with its props, such as {% component History(turns=turns) %}",
                line,
            )
        if call.dyn_args is not None or call.dyn_kwargs is not None:
            parser.fail("{% component %} takes each prop by itself, without * and **", line)
        props = [nodes.Pair(nodes.Const(each.key), each.value) for each in call.kwargs]
        args: list[nodes.Expr] = [
            nodes.Const(call.node.name),
            nodes.List(call.args),
            nodes.Dict(props, lineno=line),
            nodes.Const((parser.filename or UNNAMED_FILE, line)),
        ]
        return nodes.Output(
            [nodes.Filter(call.node, COMPONENT_FILTER, args, [], None, None, lineno=line)],
            lineno=line,
        )


def _create_component(
    made: object,
    name: str,
    args: Sequence[object],
    props: Mapping[str, object],
    place: tuple[str, int],
) -> PromptElement:
    """Create the element of a component that the program passed, with checked props.

    Raises TemplateError if it is none, or does not take these props.
    """
    file, line = place
    _refuse_undefined(made, *args, *props.values())
    cls: object = getattr(made, "__element__", made)
    if not (isinstance(cls, type) and issubclass(cls, PromptElement)):
        raise TemplateError(
            f"{name} is no component, but {made!r:.60}: pass a class or a function under @component in `values`.",
            file=file,
            line=line,
        )
    for field in cls.__attrs_attrs__:
        prop = prop_name(field)
        if prop in props and (expected := _describe_expected(prop, field, props[prop])):
            raise TemplateError(
                f"{name}(…) has {prop}={props[prop]!r}: it must be {expected}.",
                file=file,
                line=line,
            )
    try:
        create = cast("Callable[..., PromptElement]", made)  # checked above
        layout = {prop: value for prop, value in props.items() if prop in _LAYOUT}
        own = {prop: value for prop, value in props.items() if prop not in _LAYOUT}
        return create(*args, **own).replace(**layout)
    except PromptKitError as error:
        raise TemplateError(str(error), file=file, line=line) from error


def _refuse_undefined(*values: object) -> None:
    for value in values:
        if isinstance(value, Undefined):
            str(value)  # raises an error that names the undefined variable


_LAYOUT = signature_names(PromptElement)


class _Generator(CodeGenerator):
    """Generates code that yields items, each text with its place, instead of the strings that Jinja yields."""

    has_messages = False

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:  # noqa: N802  # Jinja's name
        self.has_messages = any(
            call.name == ELEMENT_FILTER
            and isinstance(tag := call.args[0], nodes.Const)
            and TAGS[tag.value].kind == "message"
            for call in node.find_all(nodes.Filter)
        )
        super().visit_Template(node, frame)

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        for child in node.nodes:  # one at a time, so that each gets its own line number
            self._line = child.lineno
            super().visit_Output(nodes.Output([child], lineno=child.lineno), frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        self.write("environment.concat((")
        for child in node.nodes:
            self.write("environment.output_item(")
            self.visit(child, frame)
            self.write(f", {self._format_place(child.lineno)}), ")
        self.write("))")

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        if node.name == ELEMENT_FILTER:
            # pass the list of items itself, which Jinja would join
            buffer = object.__new__(nodes.InternalName)
            nodes.Node.__init__(buffer, frame.buffer, lineno=node.lineno)
            node.node = buffer
        super().visit_Filter(node, frame)

    def visit_Include(self, node: nodes.Include, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        # Jinja would output it before the tag around it
        if not node.with_context and frame.buffer is not None:
            self.fail(
                "`without context` does not work inside a tag, a macro or a set block: remove it",
                node.lineno,
            )
        super().visit_Include(node, frame)

    def _format_place(self, line: int) -> str:
        return f"{self.filename or UNNAMED_FILE!r}, {line}, in_message_template={self.has_messages}"

    def _output_child_to_const(
        self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo
    ) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    # Any: Jinja declares it; the items are texts
    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return f"environment.literal_text({''.join(group)!r}, {self._format_place(self._line)})"

    def _output_child_pre(
        self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo
    ) -> None:
        self.write("environment.output_item(")

    def _output_child_post(
        self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo
    ) -> None:
        self.write(f", {self._format_place(node.lineno)})")


class _Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox of Jinja, with output that keeps elements."""

    code_generator_class = _Generator

    @staticmethod
    def literal_text(text: str, file: str, line: int, *, in_message_template: bool) -> TemplateText:
        return TemplateText(
            text, literal=True, file=file, line=line, in_message_template=in_message_template
        )

    @staticmethod
    def output_item(
        value: object, file: str, line: int, *, in_message_template: bool
    ) -> TemplateItem | TemplateFragment:
        if isinstance(value, PromptElement | TagDraft | TemplateFragment):
            return value
        if _is_fragment(value):
            try:
                children = flatten(cast("Child", value), "{{ … }}")  # flatten checks each item
            except BadChildError as error:
                raise TemplateError(str(error), file=file, line=line) from error
            texts = (
                _Sandbox.output_item(child, file, line, in_message_template=in_message_template)
                for child in children
                if child is not None
            )
            return TemplateFragment(tuple(_collect_items(texts, file, line)))
        return TemplateText(
            "" if value is None else str(value),
            literal=False,
            file=file,
            line=line,
            in_message_template=in_message_template,
        )

    @staticmethod
    def concat(output: Iterable[object]) -> Any:  # noqa: ANN401  # Any: a str or a TemplateFragment, but Jinja declares str
        items = tuple(_collect_items(output, UNNAMED_FILE, 0))
        texts = [item.text for item in items if isinstance(item, TemplateText)]
        return "".join(texts) if len(texts) == len(items) else TemplateFragment(items)

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        return not isinstance(obj, TagDraft | TemplateFragment) and super().is_safe_attribute(
            obj, attr, value
        )


def _is_fragment(value: object) -> bool:
    """Return whether a value is a sequence of children: a list or tuple with elements, or a tuple of texts.

    Jinja prints other values.
    """
    if not isinstance(value, list | tuple):
        return False
    items = cast("Sequence[object]", value)  # the types of the items are unknown
    return any(isinstance(item, PromptElement) for item in items) or (
        isinstance(value, tuple) and all(item is None or isinstance(item, str) for item in items)
    )


def _collect_items(output: Iterable[object], file: str, line: int) -> Iterator[TemplateItem]:
    """Collect the items in the output of generated code.

    `file` and `line` are the place of text that Jinja adds itself.
    """
    for item in output:
        if isinstance(item, TemplateFragment):
            yield from item.items
        else:
            yield (
                item
                if isinstance(item, TemplateText | TagDraft | PromptElement)
                else TemplateText(
                    str(item), literal=False, file=file, line=line, in_message_template=False
                )
            )


def _draft_tag(
    output: Iterable[object], name: str, attributes: Mapping[str, object], file: str, line: int
) -> TagDraft:
    """Check the attributes of a rendered tag and return the draft of its element.

    Raises TemplateError for an invalid value.
    """
    _refuse_undefined(*attributes.values())
    items = tuple(_collect_items(output, file, line))
    tag = TAGS[name]
    fields = tag.fields()
    props: dict[str, object] = {}
    xml_attributes: dict[str, str] = {}
    for attribute, value in attributes.items():
        if attribute in fields:
            if expected := _describe_expected(attribute, fields[attribute], value):
                raise TemplateError(
                    f"{{% {name} %}} has {attribute}={value!r}: it must be {expected}.",
                    file=file,
                    line=line,
                )
            props[prop_name(fields[attribute])] = value
        elif value is not None:
            xml_attributes[attribute] = (
                str(value).lower() if isinstance(value, bool) else str(value)
            )
    if tag.cls is builtin.Tag:
        props["attributes"] = {
            **cast("Mapping[str, str]", props.get("attributes", {})),
            **xml_attributes,
        }  # a mapping: its items are not checked
    if name == "assistant":
        calls = [item.props for item in items if isinstance(item, TagDraft) and item.kind == "call"]
        items = tuple(
            item for item in items if not isinstance(item, TagDraft) or item.kind != "call"
        )
        props["tool_calls"] = tuple(map(_build_tool_call, calls))
        props["keep_with"] = {
            call["id"]: call["keep_with"] for call in calls if call.get("keep_with") is not None
        }
    body = trim_last_break(items) if name in TRIMMED else () if is_blank(items) else items
    return TagDraft(
        tag=name,
        kind=tag.kind,
        cls=tag.cls,
        props=props,
        body=body,
        file=file,
        line=line,
        has_messages=tag.kind == "message" or holds_messages(body),
    )


def _build_tool_call(attributes: Mapping[str, object]) -> ToolCall:
    arguments = attributes.get("arguments", "{}")
    return ToolCall(
        id=str(attributes["id"]),
        name=str(attributes["name"]),
        arguments=arguments if isinstance(arguments, str) else _to_json(arguments),
    )


def _describe_expected(attribute: str, field: attrs.Attribute[object], value: object) -> str:
    """Describe the expected value of an attribute; empty if the value is valid or the type is not checked."""
    if choices := CHOICES.get(attribute):
        return "" if value in choices else f"one of {', '.join(choices)}"
    annotation = field.type.__name__ if isinstance(field.type, type) else str(field.type)
    return (
        ""
        if has_type(value, annotation)
        else " or ".join(TYPES[name] for name in annotation.split(" | "))
    )
