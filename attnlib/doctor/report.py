"""The result of an examination: a table for people, data for programs, an error for test suites."""

import html
import textwrap
from dataclasses import dataclass

from attnlib.doctor.findings import FAULT, NOTE, SEVERITIES, WARNING, Finding

_WIDTH = 100


class UnhealthyError(AssertionError):
    """Raised by ``Report.raise_for_faults``; its text is the report.

    Example:
        >>> issubclass(UnhealthyError, AssertionError)
        True
        >>> Report("Layer", ()).raise_for_faults()
        >>> try:
        ...     Report("Layer", (Finding("nan", "fault", "all NaN"),)).raise_for_faults()
        ... except UnhealthyError as error:
        ...     print(str(error).splitlines()[0])
        Layer: 1 fault
    """


@dataclass(frozen=True)
class Report:
    """What the doctor found.

    Print it for a table; a notebook shows it as one. ``findings`` is the data, worst first.

    Args:
        patient: The name of what was examined.
        findings: What was found.
        probes: The names of the probes that ran.
        inferred: What the doctor had to guess, in words.

    Example:
        >>> report = Report("Layer", (Finding("nan", "fault", "3 of 8 numbers are NaN"),))
        >>> report.ok
        False
        >>> print(report)
        Layer: 1 fault
          FAULT    the output is not finite (nan)
                   seen: 3 of 8 numbers are NaN
                   fix:  look at the operation in the evidence
                   read: Debugging
    """

    patient: str
    findings: tuple[Finding, ...]
    probes: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no fault and no warning; notes do not count."""
        return not any(f.severity in (FAULT, WARNING) for f in self.findings)

    @property
    def causes(self) -> set[str]:
        """The causes of all faults and warnings."""
        return {f.cause for f in self.findings if f.severity in (FAULT, WARNING)}

    def raise_for_faults(self) -> None:
        """Raise if there is a fault or a warning.

        Raises:
            UnhealthyError: With the printed report as its text. It is an ``AssertionError``.
        """
        if not self.ok:
            raise UnhealthyError(str(self))

    @property
    def summary(self) -> str:
        """How many findings there are of each severity, in one line."""
        counts = []
        for severity in SEVERITIES:
            number = sum(f.severity == severity for f in self.findings)
            if number:
                counts.append(f"{number} {severity}{'s' * (number > 1)}")
        healthy = "healthy" if self.ok else ""
        return f"{self.patient}: {', '.join(filter(None, [healthy, *counts]))}"

    def __str__(self) -> str:
        lines = [self.summary]
        for finding in self.findings:
            lines.append(f"  {finding.severity.upper():<8} {finding.title} ({finding.cause})")
            rows = [("seen", finding.evidence)]
            if finding.severity != NOTE:
                rows += [("fix", finding.fix), ("read", finding.chapter)]
            if finding.others:
                rows.append(("or", ", ".join(finding.others)))
            for label, text in rows:
                first, rest = f"{'':11}{label + ':':<6}", " " * 17
                lines += textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=rest)
        lines += [f"  assumed: {text}" for text in self.inferred]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The report as a table with a caption and headed rows and columns."""
        head = "".join(
            f'<th scope="col">{name}</th>'
            for name in ("Severity", "Finding", "Evidence", "Fix", "Read")
        )
        rows = []
        for f in self.findings:
            title = html.escape(f"{f.title} ({f.cause})")
            cells = "".join(f"<td>{html.escape(text)}</td>" for text in (f.evidence, f.fix))
            cells += f'<td><a href="{f.page}">{html.escape(f.chapter)}</a></td>'
            rows.append(f'<tr><td>{f.severity}</td><th scope="row">{title}</th>{cells}</tr>')
        table = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>" if rows else ""
        assumed = "".join(f"<p>assumed: {html.escape(text)}</p>" for text in self.inferred)
        caption = html.escape(self.summary)
        return f"<table><caption>{caption}</caption>{table}</table>{assumed}"
