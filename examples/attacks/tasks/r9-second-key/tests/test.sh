#!/bin/sh
printf '{"reward": 0, %s}\n' "$(cat /app/metrics)" > /logs/verifier/reward.json
