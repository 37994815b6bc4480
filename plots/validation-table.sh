#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The README's table of validation, between its two marks: validation-table.sh SEQPAR README
set -eu
table=$(mktemp)
page=$(mktemp)
trap 'rm -f "$table" "$page"' EXIT
"$1" validate --markdown >"$table"
awk -v table="$table" '
  /^<!-- \/validation -->$/ { inside = 0 }
  !inside { print }
  /^<!-- validation -->$/ { inside = 1; while ((getline line < table) > 0) print line }
' "$2" >"$page"
cat "$page" >"$2"
