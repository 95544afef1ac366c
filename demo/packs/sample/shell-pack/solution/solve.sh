#!/bin/sh
sed -i 's/^print_list $@$/print_list "$@"/' pack.sh
