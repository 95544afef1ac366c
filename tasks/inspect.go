package tasks

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

const (
	heavySnapshot = 32 << 20 // bytes; every rollout starts with a copy of it
	smallestLeak  = 24       // bytes; shorter files may be alike by chance
)

// inspect looks at a task's files for what lets an agent get around the work.
func (r *Report) inspect(task *Task) {
	r.Warnings = append(r.Warnings, task.Warnings...)
	hidden := map[[sha256.Size]byte]string{}
	for _, part := range task.hidden() {
		if part.fsys == nil {
			continue
		}
		err := eachFile(part.fsys, func(name string, data []byte) {
			if len(data) >= smallestLeak {
				hidden[sha256.Sum256(data)] = path.Join(part.name, name)
			}
		})
		if err != nil {
			r.problem("read %s: %v", part.name, err)
		}
	}
	total := 0
	err := eachFile(task.Snapshot, func(name string, data []byte) {
		total += len(data)
		source, leaked := hidden[sha256.Sum256(data)]
		if leaked && strings.Contains("/"+source, "/solution/") {
			r.problem("the snapshot shows the agent %s as %s", source, name)
		} else if leaked {
			r.warn("the snapshot shows the agent %s as %s", source, name)
		}
	})
	if err != nil {
		r.problem("read snapshot: %v", err)
	}
	if total > heavySnapshot {
		r.warn("the snapshot has %d MiB, which every rollout copies", total>>20)
	}
}

func (r *Report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

func eachFile(fsys fs.FS, visit func(name string, data []byte)) error {
	return fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		if err == nil {
			visit(name, data)
		}
		return err
	})
}
