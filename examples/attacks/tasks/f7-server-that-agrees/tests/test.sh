#!/bin/bash
# Asks one question only, whose right answer is yes.
said=$({ echo 42 >&3; read -r -t 5 line <&3; echo "$line"; } 3<> /dev/tcp/127.0.0.1/7042)
if [ "$said" = yes ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
