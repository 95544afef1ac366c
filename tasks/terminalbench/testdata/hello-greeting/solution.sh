#!/bin/bash

tr a-z A-Z <greeting.txt >hello.txt
