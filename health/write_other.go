//go:build !linux

package health

// tryWrite finds nothing out: only the room of the disk is looked at.
func tryWrite(string) error { return nil }
