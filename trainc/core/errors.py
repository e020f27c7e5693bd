"""The one exception tree of trainc, and the exit code each error has on the command line.

Every message says what was expected, what came, for which name, and what to do.
"""

from typing import ClassVar


class TraincError(Exception):
    """Base of every error trainc raises on purpose.

    Attributes:
        exit_code: The process exit code of the command line for this error.
    """

    exit_code: ClassVar[int] = 1


class UsageError(TraincError, ValueError):
    """An argument or option that cannot be used as given."""

    exit_code = 2


class ConfigError(TraincError, ValueError):
    """A configuration value is unknown, missing or impossible; the message names the field."""

    exit_code = 2


class ShapeError(TraincError, ValueError):
    """Operand shapes that do not fit an operation."""

    exit_code = 2


class DtypeError(TraincError, TypeError):
    """An operand of the wrong element type."""

    exit_code = 2


class ArgumentTypeError(TraincError, TypeError):
    """An argument of the wrong kind of object, or a keyword that does not exist."""

    exit_code = 2


class UnsupportedError(TraincError, NotImplementedError):
    """Something that is well formed but that this version or target cannot do."""

    exit_code = 2


class VerifyError(TraincError, ValueError):
    """A program that breaks the rules of the train dialect."""

    exit_code = 3


class CompileError(TraincError, RuntimeError):
    """The compiler refused a program, crashed or ran out of time."""

    exit_code = 3


class ArtifactError(TraincError, ValueError):
    """A compiled artifact that is damaged, foreign or of another format version."""

    exit_code = 4


class CheckpointError(TraincError, ValueError):
    """A checkpoint that is damaged, foreign or of another geometry, or that cannot be written."""

    exit_code = 4


class DeviceError(TraincError, RuntimeError):
    """A device that is absent, unsuitable or lost."""

    exit_code = 5


class NumericsError(TraincError, ArithmeticError):
    """A value that is not finite, or a result outside its stated tolerance."""

    exit_code = 6


class NotFiniteError(NumericsError, ValueError):
    """An array that was passed in holds a value that is not finite."""


class DataError(TraincError, ValueError):
    """Training data that is missing, empty, too short or out of range."""

    exit_code = 1


class Interrupted(TraincError):
    """The run was stopped by a signal after its checkpoint was written."""

    exit_code = 130
