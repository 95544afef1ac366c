#!/bin/sh
sed -i 's/tail -n +3/tail -n +2/' store.sh
