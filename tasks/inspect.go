package tasks

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/rondo-rl/rondo/sandbox/verifier/canary"
)

const (
	heavySnapshot = 32 << 20 // bytes; every rollout starts with a copy of it
	smallestLeak  = 24       // bytes; shorter files may be alike by chance
)

// What is said of a task whose tests run in process, and what to do.
const (
	guardedTests = "the tests load the code that they test: %d of the %d tests that must begin to pass can be run as canaries, which code that decides its own verdict " +
		"passes, too. A run says min_verifier: in-process to train on the task"
	unguardedTests = "the tests run in process: code of the workspace that they run can decide its own reward, and nothing would show it. A run says " +
		"min_verifier: in-process-without-canaries to train on the task. %s"
	graded = "Of the tests that must begin to pass, none is in " + canary.Languages +
		" and compares with a constant on a line that the task hides"
	notGraded = `Tests that reach the workspace by the command under-test alone can say [metadata.rondo] verifier = "separate"`
)

// inspect looks at a task's files for what lets an agent get around the work.
func (r *Report) inspect(task *Task) {
	r.Warnings = append(r.Warnings, task.Warnings...)
	r.Verifier = task.Verifier()
	guarded, all := task.Canaries()
	switch r.Canaries = guarded; {
	case task.Separate:
	case guarded > 0:
		r.warn(guardedTests, guarded, all)
	case all > 0:
		r.warn(unguardedTests, graded)
	default:
		r.warn(unguardedTests, notGraded)
	}
	hidden := map[[sha256.Size]byte]secret{}
	for i, part := range task.hidden() {
		if part.fsys == nil {
			continue
		}
		err := eachFile(part.fsys, func(name string, data []byte) {
			if len(data) >= smallestLeak {
				hidden[sha256.Sum256(data)] = secret{path.Join(part.name, name), i / 2}
			}
		})
		if err != nil {
			r.problem("read %s: %v", part.name, err)
		}
	}
	r.leaks("the snapshot", task.Snapshot, 0, hidden)
	if total, err := treeBytes(task.Snapshot); err != nil {
		r.problem("read the snapshot: %v", err)
	} else if total > heavySnapshot {
		r.warn("the snapshot has %d MiB, which every rollout copies", total>>20)
	}
	for i, s := range task.Stages {
		if s.Files != nil {
			r.leaks("stage "+s.Name, s.Files, i, hidden)
		}
	}
}

// secret is a file that no agent may see before a stage is over.
type secret struct {
	name  string
	stage int
}

// leaks looks in what an agent is shown as a stage begins for what it must not see yet.
func (r *Report) leaks(what string, shown fs.FS, stage int, hidden map[[sha256.Size]byte]secret) {
	err := eachFile(shown, func(name string, data []byte) {
		source, leaked := hidden[sha256.Sum256(data)]
		switch {
		case !leaked || source.stage < stage:
		case strings.Contains("/"+source.name, "/solution/"):
			r.problem("%s shows the agent %s as %s", what, source.name, name)
		default:
			r.warn("%s shows the agent %s as %s", what, source.name, name)
		}
	})
	if err != nil {
		r.problem("read %s: %v", what, err)
	}
}

func (r *Report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// eachFile visits the files that may be hidden ones by their size.
func eachFile(fsys fs.FS, visit func(name string, data []byte)) error {
	return fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil || info.Size() > maxHiddenFile {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		if err == nil {
			visit(name, data)
		}
		return err
	})
}
