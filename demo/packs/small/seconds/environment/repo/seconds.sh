#!/bin/sh
# seconds.sh H:MM:SS: a duration in seconds
hours=${1%%:*}
rest=${1#*:}
minutes=${rest%:*}
seconds=${rest#*:}
minutes=${minutes#0}
seconds=${seconds#0}
echo $(((hours * 60 - minutes) * 60 + seconds))
