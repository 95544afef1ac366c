// Package examples holds what `rondo init` copies.
package examples

import _ "embed"

// Trainer is a complete training loop in Python.
//
//go:embed trainer.py
var Trainer []byte
