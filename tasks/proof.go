package tasks

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// proofFile is where it is noted below cacheDir that a task was proven: by its digest,
// in the images that it has.
func proofFile(cacheDir string, task *Task) string {
	name := task.Digest
	for _, id := range []string{task.ImageID, task.VerifierImageID} {
		if id != "" {
			name += "-" + strings.TrimPrefix(id, "sha256:")
		}
	}
	return filepath.Join(cacheDir, "proofs", name)
}

// noteProof notes that lint proved a task on this machine.
func noteProof(cacheDir string, task *Task) error {
	if cacheDir == "" {
		return nil
	}
	file := proofFile(cacheDir, task)
	return errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644))
}

// Unproven counts the tasks that Lint, with its default of repeats and this cacheDir, has not
// found sound as they are now.
func Unproven(list []*Task, cacheDir string) int {
	n := 0
	for _, task := range list {
		if _, err := os.Stat(proofFile(cacheDir, task)); err != nil {
			n++
		}
	}
	return n
}
