#!/bin/sh
sed -i 's/sum - n/sum + n/' /app/total
/app/total >/app/total.txt
