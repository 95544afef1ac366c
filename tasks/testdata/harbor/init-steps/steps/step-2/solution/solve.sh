#!/bin/bash

echo "Hello, world!" > again.txt
