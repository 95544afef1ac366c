#!/bin/sh
sed -i 's/if next.end < joined\[last\].end/if next.end > joined[last].end/' meetings.go
