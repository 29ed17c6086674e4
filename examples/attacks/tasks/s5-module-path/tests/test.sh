#!/bin/sh
if [ "$(perl -e 'use strict; open my $f, "<", "/app/answer" or exit; print <$f>')" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
