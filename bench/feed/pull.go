package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rondo-rl/rondo/storage"
)

// measurePull reads the batches into arrays, and raw.
func (t *Turn) measurePull(ctx context.Context, o Options, p plane, files []storage.Ref) error {
	all := float64(t.Tokens*t.Trajectories) / 1e6
	seconds, err := timed(func() error { return readRaw(p.objects, files) })
	if err != nil {
		return err
	}
	t.RawRead = all / seconds
	pull := pullGo
	if o.Python != "" {
		pull = pullPython
	}
	tokens, seconds, err := pull(ctx, o, p, files)
	if err == nil && tokens != t.Tokens*t.Trajectories {
		err = fmt.Errorf("%d tokens came, %d were pushed", tokens, t.Tokens*t.Trajectories)
	}
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	t.Pull = all / seconds
	return nil
}

func pullGo(ctx context.Context, _ Options, p plane, files []storage.Ref) (tokens int, seconds float64, err error) {
	seconds, err = timed(func() error {
		for _, f := range files {
			data, err := storage.GetBlob(ctx, p.log.Store(), f)
			if err != nil {
				return err
			}
			batch, err := storage.DecodeBatch(data)
			if err != nil {
				return err
			}
			for i := range batch.Samples {
				tokens += len(batch.Samples[i].Tokens)
			}
		}
		return nil
	})
	return tokens, seconds, err
}

// pullPython has the Python client read the files into numpy arrays; it takes the time
// itself, without its start.
func pullPython(ctx context.Context, o Options, p plane, files []storage.Ref) (tokens int, seconds float64, err error) {
	list := filepath.Join(filepath.Dir(p.objects), "files.json")
	text, err := json.Marshal(files)
	if err == nil {
		err = os.WriteFile(list, text, 0o644)
	}
	if err != nil {
		return 0, 0, err
	}
	cmd := exec.CommandContext(ctx, o.Python, "-m", "rondo.bench", "pull", "--store", p.objects, "--files", list)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return 0, 0, fmt.Errorf("%s -m rondo.bench: %w: %s", o.Python, err, bytes.TrimSpace(problems.Bytes()))
	}
	var answer struct {
		Tokens  int     `json:"tokens"`
		Seconds float64 `json:"seconds"`
	}
	err = json.Unmarshal(out.Bytes(), &answer)
	return answer.Tokens, answer.Seconds, err
}
