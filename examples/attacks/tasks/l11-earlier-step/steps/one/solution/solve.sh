#!/bin/sh
: > /app/one
