#!/bin/sh
# Writes what the wizard would write.
set -eu
{
  printf 'name = berth\nport = 8080\n'
  printf 'sign = %s\n' "$(printf 'berth:8080:wizard\n' | cksum | cut -d ' ' -f 1)"
} > /app/service.conf
