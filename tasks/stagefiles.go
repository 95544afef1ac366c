package tasks

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// maxSetup bounds a setup.sh, in bytes, as commands of task.toml are.
const maxSetup = maxCommand

// filesIn are the files that a stage brings into the workspace, its folder workdir, which is at a
// path of the task; nil where it brings none.
func filesIn(dir *node, at string, first bool) (fs.FS, error) {
	brought := dir.child("workdir")
	switch {
	case brought == nil:
		return nil, nil
	case !brought.isDir():
		return nil, errors.New(at + ": must be a folder: it holds the files that the stage brings into the workspace")
	case len(brought.children) == 0:
		return nil, nil
	}
	if brought.child(verifier.SetupScript) != nil {
		if first {
			return nil, unsupported(at+"/"+verifier.SetupScript,
				"the first stage begins with the snapshot, in which nothing is run: bring what the script makes")
		}
		if _, err := brought.readText(verifier.SetupScript, maxSetup); err != nil {
			return nil, fmt.Errorf("%s/%w", at, err)
		}
	}
	if repository := innerRepository(brought, at); repository != "" {
		return nil, fmt.Errorf("%s: a stage brings files, and no repository, which may hold the fix: take it out",
			repository)
	}
	return brought.tree(at)
}

// layFiles puts what the first stage brings into the snapshot, and refuses what the others
// bring that the tests would not meet as it is. Before the snapshot is known, as with
// images, it does nothing.
func (t *Task) layFiles() error {
	snapshot, known := t.Snapshot.(*tree)
	if !known {
		return nil
	}
	protected := verifier.Protects(t.Protected)
	for i := range t.Stages {
		s := &t.Stages[i]
		if s.Files == nil {
			continue
		}
		err := fs.WalkDir(s.Files, ".", func(name string, entry fs.DirEntry, err error) error {
			at := "steps/" + s.Name + "/workdir/" + name
			if err != nil || name == "." {
				return err
			}
			if there := snapshot.root.find(name); there != nil && there.isDir() && !entry.IsDir() {
				return fmt.Errorf("%s: is a folder in the workspace: bring a folder, or another name", at)
			}
			if i > 0 && protected(name) {
				return unsupported(at,
					`is a path that no agent may change, so that the tests would not meet it: bring another name, or free it by "!%s" in metadata.rondo.protected`, name)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if files, ok := s.Files.(*tree); ok && i == 0 {
			t.Snapshot, s.Files = &tree{snapshot.root.overlay(files.root)}, nil
		}
	}
	return nil
}
