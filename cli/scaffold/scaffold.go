// Package scaffold is the command that writes what a first run needs.
package scaffold

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/examples"
	"github.com/rondo-rl/rondo/storage/whole"
)

//go:embed all:template
var template embed.FS

const (
	packDir   = "tasks"
	firstTask = "word-count"
)

// file is one that a command writes: its path with slashes, and whether it is a program.
type file struct {
	path    string
	content []byte
	mode    fs.FileMode
}

// NewInit makes the command `rondo init`.
func NewInit(g *app.Global) *cobra.Command {
	return &cobra.Command{
		Use: "init [DIR]", Short: "Write a task, a run file, a trainer and a reward function to begin with",
		Args: cobra.MaximumNArgs(1),
		Long: `Init writes into DIR, or into this folder, what a first run of your own needs: a task in Python whose tests lie
apart from its code, a run file with comments, a trainer in PyTorch, a reward function in Python, and a README that
says what to type next. It overwrites nothing: if one of the files is there, it writes none.`,
		Example: "  rondo init my-agent\n  rondo tasks lint my-agent/tasks",
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := path.Join(args...)
			files := taskFiles(path.Join(packDir, firstTask))
			for _, name := range []string{"README.md", "run.yaml", "reward.py"} {
				files = append(files, file{name, templateFile(name), 0o644})
			}
			files = append(files, file{"trainer.py", examples.Trainer, 0o644})
			return write(cmd, g, dir, files, "README.md says what comes next")
		},
	}
}

// NewTask makes the command `rondo tasks init`.
func NewTask(g *app.Global) *cobra.Command {
	var pack string
	cmd := &cobra.Command{
		Use: "init NAME", Short: "Write a task to begin with", Args: cobra.ExactArgs(1),
		Long: `Init writes a task into the pack of --tasks: a small Python program with a fault, an instruction, tests that lie apart
from the program, and a solution. Lint accepts it as it is. Put your own in its place, part by part.`,
		Example: "  rondo tasks init parse-dates\n  rondo tasks lint tasks",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !taskName.MatchString(args[0]) {
				return fmt.Errorf(
					"task name %q: use lower-case letters, digits and -, at most 64, a letter or digit first", args[0])
			}
			return write(cmd, g, pack, taskFiles(args[0]), "`rondo tasks lint "+pack+"` proves it")
		},
	}
	cmd.Flags().StringVar(&pack, "tasks", packDir, "the task pack, a folder of task folders")
	return cmd
}

var taskName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

func templateFile(name string) []byte {
	content, err := template.ReadFile(path.Join("template", name))
	if err != nil {
		panic(err) // it is embedded
	}
	return content
}

// taskFiles are a task's, in the folder that has its name.
func taskFiles(dir string) (files []file) {
	err := fs.WalkDir(template, "template/task", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name = strings.TrimPrefix(name, "template/")
		content := templateFile(name)
		mode := fs.FileMode(0o644)
		switch path.Ext(name) {
		case ".sh":
			mode = 0o755
		case ".toml":
			content = []byte(strings.ReplaceAll(string(content), "NAME", path.Base(dir)))
		}
		files = append(files, file{path.Join(dir, strings.TrimPrefix(name, "task/")), content, mode})
		return nil
	})
	if err != nil {
		panic(err) // it is embedded
	}
	return files
}

// write writes all files, or none where one is there.
func write(cmd *cobra.Command, g *app.Global, dir string, files []file, next string) error {
	i := slices.IndexFunc(files, func(f file) bool {
		_, err := os.Lstat(f.target(dir))
		return !errors.Is(err, fs.ErrNotExist)
	})
	if i >= 0 {
		return fmt.Errorf("%s is there already, or cannot be looked at: nothing was written; name another folder",
			files[i].target(dir))
	}
	written, err := writeAll(dir, files)
	if err != nil {
		advice := "name another folder"
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			advice = "make room on its disk, or name another folder"
		}
		return fmt.Errorf("%w: nothing was written; %s", err, advice)
	}
	return app.Tell(cmd, g, map[string][]string{"files": written},
		"wrote:\n  %s\n%s\n", strings.Join(written, "\n  "), next)
}

// target is the file's path in a folder.
func (f file) target(dir string) string { return filepath.Join(dir, filepath.FromSlash(f.path)) }

// writeAll writes files with the folders that they lie in. Where one fails, none of them is left.
func writeAll(dir string, files []file) (written []string, err error) {
	var made []string
	defer func() {
		if err != nil {
			for _, name := range slices.Backward(append(made, written...)) {
				_ = os.Remove(name)
			}
		}
	}()
	for _, f := range files {
		name := f.target(dir)
		made = append(made, missing(filepath.Dir(name))...)
		if err := whole.File(name, func(w io.Writer) error { _, err := w.Write(f.content); return err }); err != nil {
			return written, err
		}
		written = append(written, name)
		if err := os.Chmod(name, f.mode); err != nil {
			return written, err
		}
	}
	return written, nil
}

// missing are the folders that have to be made for a folder, the outermost first.
func missing(dir string) (folders []string) {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return folders
		}
		folders = append([]string{dir}, folders...)
	}
}
