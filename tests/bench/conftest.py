"""Fixtures that the tests of the scripts share with those of the commands."""

from tests.cli.conftest import artifact as artifact
