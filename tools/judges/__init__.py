"""Independent judges of the stack's template, and a table of the findings that stand.

The judges: cdk-nag's packs, cfn-lint with all its rules, checkov, parliament. The table is in
docs/security.md.

    python -m tools.judges    # what the table and the findings do not agree on
"""
