#!/bin/sh
sed -i -e 's/begin < merged\[-1\]\[1\]/begin <= merged[-1][1]/' -e 's/(merged\[-1\]\[0\], end)/(merged[-1][0], max(merged[-1][1], end))/' busy.py
