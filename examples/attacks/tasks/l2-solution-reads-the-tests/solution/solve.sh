#!/bin/sh
echo 'cat /tests/answer' > /app/solution.sh
