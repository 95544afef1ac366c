#!/bin/sh
sed -i 's/items + size))/items + size - 1))/' pages.sh
