package opening

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tasks"
)

// TakeTasks gives the run its tasks: those of a pack, whose files it puts into the store, or those
// of a file with a line for each. Without files to work on, the default system prompt, which speaks
// of them, is left out. pack is what was read of a pack, nil of a file.
func (f *RunFile) TakeTasks(ctx context.Context, store storage.Store) (pack []*tasks.Task, err error) {
	if filepath.Ext(f.TasksDir) == rowsExt {
		if f.SystemPrompt == runfile.DefaultSystemPrompt {
			f.SystemPrompt = ""
		}
		f.Tasks, err = ReadRows(f.TasksDir)
		return nil, err
	}
	if pack, err = LoadTasks(f.TasksDir); err != nil {
		return nil, err
	}
	f.Tasks, err = PackTasks(ctx, store, pack, f.Limits)
	return pack, err
}

// rowsExt is the ending of files with tasks that have no workspace.
const rowsExt = ".jsonl"

// Bounds of a file of tasks.
const (
	maxRows = 200_000
	maxRow  = 1 << 20 // bytes
)

// ReadRows reads tasks without a workspace: JSON objects, one a line. "name" (row-1 and so on where
// there is none) and "instruction" are the task's; every other field is for the run's environment
// and its reward function, and the agent does not see it.
func ReadRows(name string) ([]runfile.TaskSpec, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	specs, err := readRows(file)
	if err != nil {
		return nil, fmt.Errorf("read tasks %s: %w", name, err)
	}
	return specs, nil
}

func readRows(from io.Reader) ([]runfile.TaskSpec, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxRow)
	var specs []runfile.TaskSpec
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		spec, err := readRow(line, n)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if specs = append(specs, spec); len(specs) > maxRows {
			return nil, fmt.Errorf("more than %d tasks", maxRows)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d (at most %d bytes): %w", len(specs)+1, maxRow, err)
	}
	if len(specs) == 0 {
		return nil, errors.New("there are no tasks in it")
	}
	return specs, nil
}

func readRow(line []byte, n int) (spec runfile.TaskSpec, err error) {
	spec = runfile.TaskSpec{Name: fmt.Sprintf("row-%d", n), Digest: "sha256:" + storage.Digest(line), Workdir: "/"}
	if err := json.Unmarshal(line, &spec.Data); err != nil {
		return spec, err
	}
	for field, into := range map[string]*string{"name": &spec.Name, "instruction": &spec.Instruction} {
		given, there := spec.Data[field]
		text, isText := given.(string)
		if there && (!isText || text == "") {
			return spec, fmt.Errorf("%s: must be a text that is not empty", field)
		}
		if there {
			*into = text
		}
		delete(spec.Data, field)
	}
	return spec, nil
}
