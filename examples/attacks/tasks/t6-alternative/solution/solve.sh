#!/bin/sh
ln -sf /bin/true /etc/alternatives/awk
