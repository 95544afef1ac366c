#!/bin/sh
echo "Hello, wold!"
