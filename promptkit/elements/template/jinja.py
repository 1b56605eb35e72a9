"""The Jinja side of `Template`: the tags, a sandbox whose output keeps elements apart from text, and errors with file and line.

A template's output is a sequence of items and never a string with marks in it, so no text can forge an element.

What each tag of a template stands for: an element, whose props are the tag's attributes.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any, cast

import attrs
from jinja2 import (
    FunctionLoader,
    StrictUndefined,
    TemplateNotFound,
    TemplateRuntimeError,
    TemplateSyntaxError,
    Undefined,
    UndefinedError,
    nodes,
)
from jinja2 import Template as JinjaTemplate
from jinja2 import TemplateError as JinjaError
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from promptkit.element import Child, PromptElement, flatten
from promptkit.elements import chat, layout, media, text
from promptkit.elements.template.items import (
    Call,
    Fragment,
    Item,
    Kind,
    TemplateDraft,
    TemplatePiece,
    build,
    holds_messages,
    is_blank,
    trimmed,
)
from promptkit.elements.template.template import read_template
from promptkit.elements.text import Tag
from promptkit.errors import BadChildError, PromptKitError, TemplateError
from promptkit.messages import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
    from importlib.resources.abc import Traversable
    from pathlib import Path

    from jinja2.parser import Parser

__all__ = ["SELF_CLOSING", "TAGS", "TagSpec", "draft", "render_template"]


@attrs.frozen(kw_only=True)
class TagSpec:
    """What a tag stands for: its attributes are the fields of `cls`."""

    cls: type[PromptElement | Call]
    kind: Kind
    first: str = ""
    """The attribute that may be given without its name."""
    hidden: tuple[str, ...] = ("children",)
    """Fields that are no attributes."""

    def fields(self) -> dict[str, attrs.Attribute[object]]:
        """Attribute → field."""
        fields = cast("Iterable[attrs.Attribute[object]]", attrs.fields(self.cls))  # a tuple class of its own in attrs
        return {field.name.removeprefix("tool_"): field for field in fields if field.name not in self.hidden}


TAGS: Mapping[str, TagSpec] = {
    "system": TagSpec(cls=chat.SystemMessage, kind="message"),
    "user": TagSpec(cls=chat.UserMessage, kind="message"),
    "assistant": TagSpec(cls=chat.AssistantMessage, kind="message", hidden=("children", "tool_calls", "keep_with")),
    "tool": TagSpec(cls=chat.ToolMessage, kind="message"),
    "tool_call": TagSpec(cls=Call, kind="call"),
    "group": TagSpec(cls=layout.Group, kind="layout"),
    "chunk": TagSpec(cls=layout.Chunk, kind="layout"),
    "limit": TagSpec(cls=layout.TokenLimit, kind="layout", first="max_tokens"),
    "keep_with": TagSpec(cls=layout.KeepWith, kind="layout", first="group"),
    "isolate": TagSpec(cls=layout.Isolate, kind="layout", first="tokens"),
    "if_empty": TagSpec(cls=layout.IfEmpty, kind="layout"),
    "list": TagSpec(cls=layout.PrioritizedList, kind="items"),
    "first": TagSpec(cls=layout.First, kind="items"),
    "text": TagSpec(cls=text.TextChunk, kind="content"),
    "truncate": TagSpec(cls=text.Truncate, kind="content"),
    "tag": TagSpec(cls=text.Tag, kind="content", first="tag", hidden=("children", "name")),
    "image": TagSpec(cls=media.Image, kind="content", first="src"),
    "document": TagSpec(cls=media.Document, kind="content"),
    "cache_boundary": TagSpec(cls=layout.CacheBreakpoint, kind="content"),
    "reserve": TagSpec(cls=layout.Reserve, kind="mark", first="tokens"),
    "reference": TagSpec(cls=media.Reference, kind="mark", first="to"),
    "metadata": TagSpec(cls=media.Metadata, kind="mark", first="value"),
}
SELF_CLOSING = {"tool_call", "image", "document", "cache_boundary", "reserve", "reference", "metadata"}
TRIMMED = {"system", "user", "assistant", "tool", "tag"}
TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {  # a field's type as it is written → in words, as classes
    "bool": ("true or false", (bool,)),
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "str": ("a text", (str,)),
    "None": ("none", (type(None),)),
}
CHOICES: Mapping[str, tuple[str, ...]] = {"keep": ("head", "tail", "middle")}


def draft(name: str, given: Mapping[str, object], items: tuple[Item, ...], *, file: str, line: int) -> TemplateDraft:
    """A tag with its attributes and its body. Raises TemplateError for an attribute's value that it cannot have."""
    tag = TAGS[name]
    fields = tag.fields()
    props: dict[str, object] = {}
    free: dict[str, str] = {}
    for attribute, value in given.items():
        if attribute in fields:
            wanted = _wanted(attribute, fields[attribute], value)
            if wanted:
                message = f"{{% {name} %}} has {attribute}={value!r}: it must be {wanted}."
                raise TemplateError(message, file=file, line=line)
            props[fields[attribute].name] = value
        elif value is not None:
            free[attribute] = str(value).lower() if isinstance(value, bool) else str(value)
    if tag.cls is text.Tag:
        props["attributes"] = {**cast("Mapping[str, str]", props.get("attributes", {})), **free}  # a mapping: str() makes the rest
    if name == "assistant":
        calls = [item.props for item in items if isinstance(item, TemplateDraft) and item.kind == "call"]
        items = tuple(item for item in items if not isinstance(item, TemplateDraft) or item.kind != "call")
        props["tool_calls"] = tuple(_tool_call(call) for call in calls)
        props["keep_with"] = {call["id"]: call["keep_with"] for call in calls if call.get("keep_with") is not None}
    body = trimmed(items) if name in TRIMMED else () if is_blank(items) else items
    messages = tag.kind == "message" or holds_messages(body)
    return TemplateDraft(tag=name, kind=tag.kind, cls=tag.cls, props=props, body=body, file=file, line=line, messages=messages)


def _tool_call(given: Mapping[str, object]) -> ToolCall:
    arguments = given.get("arguments", "{}")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=str(given["id"]), name=str(given["name"]), arguments=written)


def _wanted(attribute: str, field: attrs.Attribute[object], value: object) -> str:
    """What the attribute has to be instead; nothing if the value is right, or if there is no telling."""
    choices = CHOICES.get(attribute, ())
    if choices:
        return "" if value in choices else f"one of {', '.join(choices)}"
    names = str(field.type).split(" | ")
    if not set(names) <= set(TYPES):
        return ""
    kinds = tuple(kind for name in names for kind in TYPES[name][1])
    if isinstance(value, kinds) and (not isinstance(value, bool) or "bool" in names):
        return ""
    return " or ".join(TYPES[name][0] for name in names)


SOURCE = "<template>"  # the file of a template that has none
ELEMENT = "promptkit element"  # a filter whose name has a space in it cannot be called by a template


def render_template(root: Path | Traversable | None, name: str, source: str | None, values: Mapping[str, object]) -> Child:
    """The children that a template makes: the file `name` in `root`, or `source`. Raises TemplateError."""
    file = SOURCE if source is not None else str(root.joinpath(name)) if root else name
    try:
        key = cast("Hashable", root)  # a path is; of other folders nobody knows, and one that is not raises here
        template = _environment(key).get_template(name) if source is None else _compiled(key, source)
        output = template.root_render_func(template.new_context(dict(values)))
        return build(trimmed(_items(output, file, 0)))
    except PromptKitError:  # its own words are better: a budget that was asked for could not be found, a text is too long
        raise
    except Exception as error:
        raise _located(error, file, root) from error


def _located(error: Exception, file: str, root: Path | Traversable | None) -> TemplateError:
    message = f"{type(error).__name__}: {error}" if not isinstance(error, JinjaError) else str(error.message)
    if isinstance(error, TemplateSyntaxError):
        return TemplateError(message, file=error.filename or error.name or file, line=error.lineno)
    if isinstance(error, UndefinedError) and message.endswith("is undefined"):
        message += ". Give it in `values`, or say what to do without it: `{{ name | default('…') }}`, `{% if name is defined %}`."
    if isinstance(error, TemplateNotFound):
        remedy = (
            f" in {root}: name it from that folder, with `/` and without `..`" if root else ": give the Template a `root` to read it from"
        )
        message = f"there is no template {', '.join(repr(name) for name in error.templates)}{remedy}"
    line, trace = 0, error.__traceback__
    while trace:
        template = trace.tb_frame.f_globals.get("__jinja_template__")
        if isinstance(template, JinjaTemplate):
            file, line = template.filename or file, template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return TemplateError(message, file=file, line=line)


class _Tags(Extension):
    """Parses `{% user priority=900 %}…{% enduser %}` and its siblings."""

    tags = set(TAGS)  # noqa: RUF012  # Jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Collect the attributes in a variable, then the body, and hand both to a filter that makes the element."""
        token = next(parser.stream)
        name, line = str(token.value), token.lineno
        pairs = self._attributes(parser, name, line)
        body = [] if name in SELF_CLOSING else parser.parse_statements((f"name:end{name}",), drop_needle=True)
        given = parser.free_identifier(lineno=line)
        args: list[nodes.Expr] = [nodes.Const(name), given, nodes.Const(parser.filename or SOURCE), nodes.Const(line)]
        # A filter block and no call block: in the body of a call block `caller()` would no longer be the macro's around it.
        call = nodes.Filter(None, ELEMENT, args, [], None, None, lineno=line)
        return [nodes.Assign(given, nodes.Dict(pairs), lineno=line), nodes.FilterBlock(body, call, lineno=line)]

    def _attributes(self, parser: Parser, name: str, line: int) -> list[nodes.Pair]:
        tag, stream = TAGS[name], parser.stream
        fields = tag.fields()
        pairs: dict[str, nodes.Pair] = {}
        while stream.current.type != "block_end":
            if stream.current.type == "name" and stream.look().type == "assign":
                attribute = str(next(stream).value)
                next(stream)
            elif tag.first and not pairs:
                attribute = tag.first
            else:
                parser.fail(f"{{% {name} %}} takes attributes, such as {next(iter(fields))}=…, not {stream.current.value!r}", line)
            if attribute not in fields and tag.cls is not Tag:
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


class _Generator(CodeGenerator):
    """Writes code that yields items, each piece of text with its place, where Jinja's own would yield strings."""

    tagged = False

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:  # noqa: N802  # Jinja's name
        made = (call.args[0] for call in node.find_all(nodes.Filter) if call.name == ELEMENT)
        self.tagged = any(isinstance(arg, nodes.Const) and TAGS[arg.value].kind == "message" for arg in made)
        super().visit_Template(node, frame)

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        for child in node.nodes:  # one at a time, so that each has its own line
            self._line = child.lineno
            super().visit_Output(nodes.Output([child], lineno=child.lineno), frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        self.write("environment.concat((")
        for child in node.nodes:
            self.write("environment.piece(")
            self.visit(child, frame)
            self.write(f", {self._place(child.lineno)}), ")
        self.write("))")

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        if node.name == ELEMENT:
            buffer = object.__new__(nodes.InternalName)  # the list of items itself, where Jinja would join it
            nodes.Node.__init__(buffer, frame.buffer, lineno=node.lineno)
            node.node = buffer
        super().visit_Filter(node, frame)

    def visit_Include(self, node: nodes.Include, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        if not node.with_context and frame.buffer is not None:  # Jinja would write it before what it stands in
            self.fail("`without context` does not work inside a tag, a macro or a set block: leave it out", node.lineno)
        super().visit_Include(node, frame)

    def _place(self, line: int) -> str:
        return f"{self.filename or SOURCE!r}, {line}, {self.tagged}"

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def _output_const_repr(self, group: Iterable[Any]) -> str:  # Any: Jinja's signature; it is text
        return f"environment.own({''.join(group)!r}, {self._place(self._line)})"

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        _ = node, frame, finalize
        self.write("environment.piece(")

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        _ = frame, finalize
        self.write(f", {self._place(node.lineno)})")


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, with output that keeps elements."""

    code_generator_class = _Generator

    @staticmethod
    def own(text: str, file: str, line: int, tagged: bool) -> TemplatePiece:  # noqa: FBT001  # called by generated code
        return TemplatePiece(text, own=True, file=file, line=line, tagged=tagged)

    @staticmethod
    def piece(value: object, file: str, line: int, tagged: bool) -> Item | Fragment:  # noqa: FBT001  # called by generated code
        if isinstance(value, PromptElement | TemplateDraft | Fragment):
            return value
        if _is_fragment(value):
            try:
                children = flatten(cast("Child", value), "{{ … }}")  # flatten looks at each item
            except BadChildError as error:
                raise TemplateError(str(error), file=file, line=line) from error
            texts = (
                TemplatePiece(child, own=False, file=file, line=line, tagged=tagged) if isinstance(child, str) else child
                for child in children
            )
            return Fragment(item for item in texts if item is not None)
        return TemplatePiece("" if value is None else str(value), own=False, file=file, line=line, tagged=tagged)

    @staticmethod
    def concat(output: Iterable[object]) -> Any:  # noqa: ANN401  # Any: a str, or a Fragment, where Jinja knows only str
        items = _items(output, SOURCE, 0)
        texts = [item.text for item in items if isinstance(item, TemplatePiece)]
        return "".join(texts) if len(texts) == len(items) else Fragment(items)

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        return not isinstance(obj, TemplateDraft | Fragment) and super().is_safe_attribute(obj, attr, value)


def _is_fragment(value: object) -> bool:
    """Whether these are children: a list or tuple with elements, or a tuple of texts. Any other is printed as Jinja prints it."""
    if not isinstance(value, list | tuple):
        return False
    items = cast("Sequence[object]", value)  # of unknown items
    texts = isinstance(value, tuple) and all(item is None or isinstance(item, str) for item in items)
    return texts or any(isinstance(item, PromptElement) for item in items)


def _items(output: Iterable[object], file: str, line: int) -> tuple[Item, ...]:
    """The items in the output of generated code; `file` and `line` are for text that Jinja put there by itself."""
    items: list[Item] = []
    for item in output:
        if isinstance(item, Fragment):
            items.extend(item.items)
        elif isinstance(item, TemplatePiece | TemplateDraft | PromptElement):
            items.append(item)
        else:
            items.append(TemplatePiece(str(item), own=False, file=file, line=line, tagged=False))
    return tuple(items)


def _draft(output: Iterable[object], name: str, given: Mapping[str, object], file: str, line: int) -> TemplateDraft:
    for value in given.values():
        if isinstance(value, Undefined):
            str(value)  # raises, and says what is undefined
    return draft(name, given, _items(output, file, line), file=file, line=line)


def _guarded(name: str, function: Callable[..., object]) -> Callable[..., object]:
    """A filter that refuses elements, which it would turn into the text of their `repr`."""

    @wraps(function)  # also copies the mark by which Jinja knows what to pass
    def guarded(*args: object, **kwargs: object) -> object:
        for value in args[:2]:
            among = cast("list[object]", value) if name == "join" and isinstance(value, list | tuple) else [value]  # of unknown items
            if any(isinstance(item, PromptElement | Fragment) for item in among):
                message = f"the filter {name!r} works on text and this is an element: insert it on its own with {{{{ … }}}}"
                raise TemplateRuntimeError(message)
        return function(*args, **kwargs)

    return guarded


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


@lru_cache(maxsize=32)  # folders; Jinja keeps the last 400 templates of each
def _environment(root: Hashable) -> _Sandbox:  # Hashable: all that a cache asks of its keys
    environment = _Sandbox(
        loader=FunctionLoader(partial(read_template, cast("Path | Traversable | None", root))),
        extensions=[_Tags],
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,  # or what follows an include would be glued to its last line
        autoescape=False,  # the result is plain text for a model: escaping would change what the user said
    )
    filters: dict[str, Any] = environment.filters  # Any: to a type checker no other function could ever be a filter
    for name, function in filters.items():
        if name not in {"default", "d", "attr"}:
            filters[name] = _guarded(name, function)
    filters |= {ELEMENT: _draft, "tojson": _to_json}
    return environment


@lru_cache(maxsize=256)
def _compiled(root: Hashable, source: str) -> JinjaTemplate:
    return _environment(root).from_string(source)
