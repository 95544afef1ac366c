// Package taskfolder makes the folders of tasks that are converted from other formats.
package taskfolder

import (
	"errors"
	"os"
	"path/filepath"
)

// Make makes the folder of a task below dir, which must not be there yet, and has its files
// written. Where these cannot be written, nothing of it is left.
func Make(dir, name string, write func(folder string) error) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	folder := filepath.Join(dir, name)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if err := write(folder); err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	return nil
}
