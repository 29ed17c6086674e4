#!/bin/sh
echo 42 > /app/answer
