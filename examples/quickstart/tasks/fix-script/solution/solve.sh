#!/bin/sh
# Fold the case before counting, and sort counts as numbers, greatest first.
set -eu
sed -e "s|^tr -cs 'A-Za-z' '.n' < \"\$1\" .\$|& tr 'A-Z' 'a-z' \\||" \
    -e 's|sort -k1,1 -k2,2|sort -k1,1nr -k2,2|' /app/top-words > /app/top-words.new
chmod 755 /app/top-words.new
mv /app/top-words.new /app/top-words
