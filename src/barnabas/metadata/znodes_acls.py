"""Access control lists: for each resource that has rules its path, what they mean, and their bytes. Pure.

```
/kafka-acl/TYPE/NAME                      rules for the resource of this name; NAME `*` is every resource of the type
/kafka-acl-extended/prefixed/TYPE/NAME    rules for all resources whose name starts so
/kafka-acl-changes/acl_changes_N              a literal resource whose rules changed: `TOPIC:orders`
/kafka-acl-extended-changes/acl_changes_N     the same of a prefix, as JSON
```

TYPE is a `ResourceType`; Kafka's authorizer makes a node for each type when it starts. Names are in the path as they
are, so a name with a `/` has no rules: Kafka refuses to write them.

A rule that cannot be read raises `CorruptNode`. The authorizer must then refuse: the rule may be one that
denies.
"""

import enum
from dataclasses import dataclass
from typing import Final, TypeVar

from barnabas.metadata.errors import CorruptNode
from barnabas.metadata.json_node import JsonObject, decode_json, encode_json

ACLS: Final = "/kafka-acl"
EXTENDED_ACLS: Final = "/kafka-acl-extended"
ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"

ANY_NAME: Final = "*"
ANY_HOST: Final = "*"
ANY_USER: Final = "User:*"

_VERSION: Final = 1


class ResourceType(enum.StrEnum):
    """As it is written in paths."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTIONAL_ID = "TransactionalId"
    DELEGATION_TOKEN = "DelegationToken"
    USER = "User"


class PatternType(enum.StrEnum):
    """As it is written in paths."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


class AclOperation(enum.StrEnum):
    ALL = "All"
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"
    IDEMPOTENT_WRITE = "IdempotentWrite"
    CREATE_TOKENS = "CreateTokens"
    DESCRIBE_TOKENS = "DescribeTokens"


class AclPermission(enum.StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


_Enum = TypeVar("_Enum", bound=enum.StrEnum)


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resources that a list of rules is for."""

    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    @property
    def path(self) -> str:
        parent = ACLS if self.pattern_type is PatternType.LITERAL else f"{EXTENDED_ACLS}/{self.pattern_type}"
        return f"{parent}/{self.type}/{self.name}"

    @classmethod
    def of_path(cls, path: str) -> "ResourcePattern":
        match path.split("/"):
            case ["", "kafka-acl", kind, name]:
                pattern_type = PatternType.LITERAL
            case ["", "kafka-acl-extended", PatternType.PREFIXED, kind, name]:
                pattern_type = PatternType.PREFIXED
            case _:
                raise CorruptNode(path, "not the path of a resource")
        return cls(_member(path, ResourceType, kind), name, pattern_type)


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Who may, or must not, do what, from which host."""

    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = ANY_HOST

    @classmethod
    def of(cls, fields: JsonObject) -> "AccessRule":
        return cls(
            principal=fields.text("principal"),
            operation=_member(fields.path, AclOperation, fields.text("operation")),
            permission=_member(fields.path, AclPermission, fields.text("permissionType")),
            host=fields.text("host"),
        )


@dataclass(frozen=True, slots=True)
class ResourceAcls:
    """The rules of a resource, version 1. Their order means nothing."""

    resource: ResourcePattern
    rules: tuple[AccessRule, ...]

    @property
    def path(self) -> str:
        return self.resource.path

    def encode(self) -> bytes:
        rules = [
            {
                "principal": rule.principal,
                "permissionType": rule.permission,
                "operation": rule.operation,
                "host": rule.host,
            }
            for rule in self.rules
        ]
        return encode_json({"version": _VERSION, "acls": rules})

    @classmethod
    def decode(cls, resource: ResourcePattern, data: bytes) -> "ResourceAcls":
        if not data:
            return cls(resource, ())
        fields = decode_json(resource.path, data)
        if fields.number("version") != _VERSION:
            raise CorruptNode(resource.path, f"rules of version {fields.number('version')} are not known")
        return cls(resource, tuple([AccessRule.of(item) for item in fields.objects("acls")]))


@dataclass(frozen=True, slots=True)
class AclChange:
    """A notification that the rules of a resource changed. Barnabas watches the rules and writes none."""

    resource: ResourcePattern

    @property
    def prefix(self) -> str:
        """The path without its number."""
        is_literal = self.resource.pattern_type is PatternType.LITERAL
        return f"{ACL_CHANGES if is_literal else EXTENDED_ACL_CHANGES}/acl_changes_"

    def encode(self) -> bytes:
        resource = self.resource
        if resource.pattern_type is PatternType.LITERAL:
            return f"{resource.type.name}:{resource.name}".encode()
        return encode_json(
            {
                "version": _VERSION,
                "resourceType": resource.type.name,
                "name": resource.name,
                "patternType": resource.pattern_type.name,
            }
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> "AclChange":
        if not path.startswith(f"{ACL_CHANGES}/"):
            fields = decode_json(path, data)
            pattern_type = _named(path, PatternType, fields.text("patternType"))
            kind = _named(path, ResourceType, fields.text("resourceType"))
            return cls(ResourcePattern(kind, fields.text("name"), pattern_type))
        try:
            kind_name, separator, name = data.decode().partition(":")
        except UnicodeDecodeError as error:
            raise CorruptNode(path, str(error)) from None
        if not separator:
            raise CorruptNode(path, f"not a resource: {kind_name[:80]!r}")
        return cls(ResourcePattern(_named(path, ResourceType, kind_name), name))


def _member(path: str, kind: type[_Enum], value: str) -> _Enum:
    try:
        return kind(value)
    except ValueError:
        raise CorruptNode(path, f"{value[:80]!r} is not known") from None


def _named(path: str, kind: type[_Enum], name: str) -> _Enum:
    try:
        return kind[name]
    except KeyError:
        raise CorruptNode(path, f"{name[:80]!r} is not known") from None
