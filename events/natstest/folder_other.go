//go:build !linux

package natstest

import "testing"

// Folder is an empty folder that ends with the test.
func Folder(t testing.TB) string { return t.TempDir() }
