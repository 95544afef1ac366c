#!/bin/sh
sed -i 's/return i.onShelf + i.reserved/return i.onShelf - i.reserved/' ledger.go
